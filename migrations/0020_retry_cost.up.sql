-- Builds from migration 11 on can run with this schema.

-- Less work for a message that is stored and comes back.

-- The statements of a function look up rows with indexes only. `plans`: as plan_cache_mode. force_generic_plan is for
-- statements that have only one way to find their rows: they are planned once in a session. The others are planned in each
-- call, because a plan that was made for an empty table may be a bad one when the table has grown.
CREATE FUNCTION look_up_with_indexes(of_function regprocedure, plans text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  setting text;
BEGIN
  FOREACH setting IN ARRAY ARRAY[format('search_path = %I, pg_temp', current_schema()), 'plan_cache_mode = ' || plans,
                                 'enable_seqscan = off', 'enable_hashjoin = off', 'enable_mergejoin = off', 'jit = off'] LOOP
    EXECUTE format('ALTER FUNCTION %s SET %s', of_function, setting);
  END LOOP;
  EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', of_function);
END $$;
REVOKE ALL ON FUNCTION look_up_with_indexes(regprocedure, text) FROM PUBLIC;

-- Only this index has these expressions: a statement that names them leaves PostgreSQL no other way to find its rows,
-- whatever the statistics say. Without "+ 0", it takes another index when it believes that the table is nearly empty.
DROP INDEX retry_key;
CREATE INDEX retry_key ON retry ((handler + 0), md5(record_key), (id + 0)) WHERE in_order AND record_key IS NOT NULL;

-- As in migration 17.
CREATE OR REPLACE FUNCTION keys_with_retries(of_handler smallint, keys bytea[]) RETURNS SETOF bigint
LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY
  SELECT k.place FROM unnest(keys) WITH ORDINALITY AS k (key, place)
   WHERE (SELECT r.id FROM retry r WHERE r.handler + 0 = of_handler AND md5(r.record_key) = md5(k.key)
             AND r.record_key = k.key AND r.in_order LIMIT 1) IS NOT NULL;
END $$;

-- As in migration 19. Keys are looked at only if there are keys.
CREATE OR REPLACE FUNCTION lock_retries(of_handler smallint, numbers bigint[], of_attempts bigint[], ids uuid[])
RETURNS TABLE (number bigint, is_behind boolean) LANGUAGE plpgsql AS $$
DECLARE
  locked bigint[];
  places bigint[];
  keys bytea[]; -- NULL for a message that waits for no other one
  have_keys boolean;
BEGIN
  WITH sent AS MATERIALIZED (
    SELECT r.id, b.place, r.key
      FROM (SELECT * FROM unnest(numbers, of_attempts, ids) WITH ORDINALITY AS u (id, attempts, message_id, place)
             ORDER BY u.id) b
     CROSS JOIN LATERAL (
       SELECT e.id, CASE WHEN e.in_order THEN e.record_key END AS key FROM retry e
        WHERE e.id = b.id AND e.attempts = b.attempts
          -- Not "=": the primary key, and no other index.
          AND e.message_id IS NOT DISTINCT FROM b.message_id AND e.handler + 0 = of_handler
          AND e.due_at < 'infinity'
          AND (e.due_at <= clock_timestamp() + interval '10 seconds'
               OR (SELECT d.id FROM retry_due d WHERE d.due_at = e.due_at AND d.id = e.id) IS NULL)
          FOR UPDATE) r
  )
  SELECT array_agg(s.id), array_agg(s.place), array_agg(s.key), bool_or(s.key IS NOT NULL)
    FROM sent s INTO locked, places, keys, have_keys;
  IF have_keys THEN
    RETURN QUERY
    SELECT s.id, s.key IS NOT NULL AND (s.first_from_here < s.id OR (
             SELECT e.id FROM retry e
              WHERE e.handler + 0 = of_handler AND md5(e.record_key) = md5(s.key) AND e.id + 0 < s.id AND e.record_key = s.key
                AND e.in_order AND e.id <> ALL (locked) LIMIT 1) IS NOT NULL)
      FROM (SELECT l.id, l.key, min(l.id) OVER (PARTITION BY l.key ORDER BY l.place DESC
                                                ROWS UNBOUNDED PRECEDING) AS first_from_here
              FROM unnest(locked, places, keys) AS l (id, place, key)) s;
  ELSE
    RETURN QUERY SELECT l.id, false FROM unnest(locked) AS l (id);
  END IF;
END $$;

-- Which of these messages, in this order, wait for an earlier message of their key. The keys are locked.
CREATE FUNCTION messages_behind(of_handler smallint, keys bytea[]) RETURNS boolean[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN ARRAY(
    SELECT k.key IS NOT NULL
           AND (k.number_of_key > 1
                OR (SELECT r.id FROM retry r WHERE r.handler + 0 = of_handler AND md5(r.record_key) = md5(k.key)
                       AND r.record_key = k.key AND r.in_order LIMIT 1) IS NOT NULL)
      FROM (SELECT u.place, u.key, row_number() OVER (PARTITION BY u.key ORDER BY u.place) AS number_of_key
              FROM unnest(keys) WITH ORDINALITY AS u (key, place)) k
     ORDER BY k.place);
END $$;

-- As in migration 19. A message that has a row already is rare: then the batch is added in two halves, and so on.
CREATE OR REPLACE FUNCTION add_retries(of_handler smallint, ids uuid[], of_slot integer, of_incarnation integer, offsets bigint[],
                            of_attempts bigint[], delays_ms bigint[], are_in_order boolean, shards bigint[], of_topic text,
                            of_partition integer, keys bytea[], payloads bytea[], names bytea[], header_contents bytea[],
                            headers_end bigint[], times_ms bigint[], errors bytea[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  are_behind boolean[]; -- NULL: none of them waits for an earlier message of its key
  half CONSTANT integer := cardinality(ids) / 2;
  headers_of_half bigint;
  violated text;
BEGIN
  IF are_in_order AND EXISTS (SELECT FROM unnest(keys) AS u (key) WHERE u.key IS NOT NULL) THEN
    PERFORM lock_retry_keys(of_handler, keys);
    are_behind := messages_behind(of_handler, keys);
  END IF;
  BEGIN
    WITH new AS (
      INSERT INTO retry (handler, message_id, slot, incarnation, record_offset, attempts, due_at, in_order, shard, topic,
                         partition, record_key, record_payload, header_names, header_values, record_timestamp, error)
      SELECT of_handler, m.id, of_slot, of_incarnation, m.at_offset, m.failed,
             CASE WHEN m.is_behind THEN timestamptz 'infinity'
                  ELSE clock_timestamp() + m.delay_ms * interval '1 millisecond' END,
             are_in_order, m.shard, of_topic, of_partition, m.key, m.payload,
             CASE WHEN m.last = m.before + 1 THEN ARRAY[names[m.last]] -- a part of an array is a copy of the whole array
                  ELSE coalesce(names[m.before + 1:m.last], '{}') END,
             CASE WHEN m.last = m.before + 1 THEN ARRAY[header_contents[m.last]]
                  ELSE coalesce(header_contents[m.before + 1:m.last], '{}') END,
             timestamptz 'epoch' + m.time_ms * interval '1 millisecond', convert_from(m.error, 'UTF8')
        FROM unnest(ids, offsets, of_attempts, delays_ms, shards, keys, payloads, headers_end,
                    (0::bigint || headers_end)[1:cardinality(ids)], times_ms, errors, are_behind)
             WITH ORDINALITY AS m (id, at_offset, failed, delay_ms, shard, key, payload, last, before, time_ms, error, is_behind,
                                   place)
       ORDER BY m.place
      RETURNING id, due_at, shard
    )
    INSERT INTO retry_due (due_at, id, shard) SELECT n.due_at, n.id, n.shard FROM new n WHERE n.due_at < 'infinity';
    RETURN;
  EXCEPTION WHEN unique_violation THEN
    GET STACKED DIAGNOSTICS violated = CONSTRAINT_NAME;
    IF violated <> 'retry_handler_message_id_key' THEN RAISE; END IF;
    IF half = 0 THEN RETURN; END IF; -- the row of this message stays as it is
  END;
  headers_of_half := headers_end[half];
  PERFORM add_retries(of_handler, ids[:half], of_slot, of_incarnation, offsets[:half], of_attempts[:half], delays_ms[:half],
                      are_in_order, shards[:half], of_topic, of_partition, keys[:half], payloads[:half],
                      names[:headers_of_half], header_contents[:headers_of_half], headers_end[:half], times_ms[:half],
                      errors[:half]);
  PERFORM add_retries(of_handler, ids[half + 1:], of_slot, of_incarnation, offsets[half + 1:], of_attempts[half + 1:],
                      delays_ms[half + 1:], are_in_order, shards[half + 1:], of_topic, of_partition, keys[half + 1:],
                      payloads[half + 1:], names[headers_of_half + 1:], header_contents[headers_of_half + 1:],
                      ARRAY(SELECT e.last - headers_of_half
                              FROM unnest(headers_end[half + 1:]) WITH ORDINALITY AS e (last, place) ORDER BY e.place),
                      times_ms[half + 1:], errors[half + 1:]);
END $$;

-- As in migration 18.
CREATE OR REPLACE FUNCTION defer_retries(of_handler smallint, numbers bigint[], were_attempts bigint[], of_attempts bigint[],
                              delays_ms bigint[], errors bytea[], settled bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lock_retry_keys(of_handler, ARRAY(SELECT r.record_key FROM retry r WHERE r.id = ANY (numbers) AND r.in_order));
  WITH again AS (
    UPDATE retry r SET attempts = d.attempts, error = convert_from(d.error, 'UTF8'),
           due_at = CASE WHEN r.in_order AND r.record_key IS NOT NULL AND (
                                SELECT e.id FROM retry e
                                 WHERE e.handler + 0 = of_handler AND md5(e.record_key) = md5(r.record_key) AND e.id + 0 < r.id
                                   AND e.record_key = r.record_key AND e.in_order AND e.id <> ALL (settled) LIMIT 1) IS NOT NULL
                         THEN timestamptz 'infinity' ELSE clock_timestamp() + d.delay_ms * interval '1 millisecond' END
      FROM (SELECT u.*, (SELECT o.ctid FROM retry o
                          WHERE o.id = u.id AND o.attempts = u.were AND o.handler + 0 = of_handler) AS place
              FROM unnest(numbers, were_attempts, of_attempts, delays_ms, errors) AS u (id, were, attempts, delay_ms, error)
            OFFSET 0) d
     WHERE r.ctid = d.place
    RETURNING r.id, r.due_at, r.shard
  )
  INSERT INTO retry_due (due_at, id, shard) SELECT a.due_at, a.id, a.shard FROM again a WHERE a.due_at < 'infinity';
END $$;

-- As in migration 18.
CREATE OR REPLACE FUNCTION end_retries(of_handler smallint, numbers bigint[], of_attempts bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM retry WHERE ctid = ANY (ARRAY(
    SELECT (SELECT r.ctid FROM retry r WHERE r.id = d.id AND r.attempts = d.attempts AND r.handler + 0 = of_handler)
      FROM unnest(numbers, of_attempts) AS d (id, attempts)));
END $$;

-- As in migration 19.
CREATE OR REPLACE FUNCTION retries_are_settled() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  of_one record;
  next_ids bigint[];
BEGIN
  DELETE FROM retry_due WHERE ctid = ANY (ARRAY(
    SELECT (SELECT d.ctid FROM retry_due d WHERE d.due_at = g.due_at AND d.id = g.id) FROM gone g));
  FOR of_one IN SELECT handler, array_agg(record_key) AS keys FROM gone
                 WHERE in_order AND record_key IS NOT NULL GROUP BY handler ORDER BY handler LOOP
    PERFORM lock_retry_keys(of_one.handler, of_one.keys);
  END LOOP;
  IF NOT FOUND THEN RETURN NULL; END IF; -- none of them has a key
  SELECT array_agg(n.id) INTO next_ids
    FROM (SELECT handler, record_key, count(*) AS settled FROM gone
           WHERE in_order AND record_key IS NOT NULL GROUP BY handler, record_key) k
   CROSS JOIN LATERAL (
     SELECT w.id
       FROM (SELECT f.id, f.due_at, first_value(f.due_at) OVER (ORDER BY f.id) AS first_due
               FROM (SELECT o.id, o.due_at FROM retry o
                      WHERE o.handler + 0 = k.handler AND md5(o.record_key) = md5(k.record_key)
                        AND o.record_key = k.record_key AND o.in_order
                      ORDER BY o.id + 0 LIMIT 32) f) w -- what is read is bounded, and so is the number that is under way
      WHERE w.due_at = 'infinity' AND (w.first_due = 'infinity' OR w.first_due <= statement_timestamp())
      ORDER BY w.id LIMIT 2 * k.settled) n;
  WITH next AS (
    UPDATE retry r SET due_at = statement_timestamp() WHERE r.id = ANY (next_ids) AND r.due_at = 'infinity'
    RETURNING r.id, r.due_at, r.shard
  )
  INSERT INTO retry_due (due_at, id, shard) SELECT x.due_at, x.id, x.shard FROM next x;
  RETURN NULL;
END $$;

-- The records that the relay sends, whose headers are those of the message (`own_names`, `own_values`) and four others. Their
-- values have columns as well: to join arrays takes longer than all the rest of reading a row.
CREATE OR REPLACE VIEW retry_record AS
SELECT r.id, r.due_at, r.shard, r.message_id, r.topic, r.record_key, r.record_payload,
       r.own_names || ARRAY['turnstile-replayed-from'::bytea, 'turnstile-replayed-for', 'turnstile-retry']
         || CASE WHEN r.of_group IS NOT NULL THEN ARRAY['turnstile-replayed-group'::bytea] END AS header_names,
       r.own_values || ARRAY[r.came_from, r.for_handler, r.as_attempt]
         || CASE WHEN r.of_group IS NOT NULL THEN ARRAY[r.of_group] END AS header_values,
       r.bytes, r.own_names, r.own_values, r.came_from, r.for_handler, r.as_attempt, r.of_group
  FROM (SELECT s.id, s.due_at, s.shard, s.message_id, s.topic, s.record_key, s.record_payload,
               s.header_names AS own_names, s.header_values AS own_values,
               convert_to(s.topic || '[' || s.partition || ']@' || s.record_offset, 'UTF8') AS came_from,
               convert_to(h.name, 'UTF8') AS for_handler, convert_to(s.id || '.' || s.attempts, 'UTF8') AS as_attempt,
               convert_to(h.consumer_group, 'UTF8') AS of_group,
               coalesce(octet_length(s.record_key), 0) + coalesce(octet_length(s.record_payload), 0)
                 + pg_column_size(s.header_names) + pg_column_size(s.header_values) AS bytes
          FROM retry s JOIN handler h ON h.id = s.handler) r;

-- As due_retries of migration 18. The relay itself adds the last four headers to those of the message.
CREATE FUNCTION retries_to_send(of_shards bigint[], most bigint, most_bytes bigint)
RETURNS TABLE (shard bigint, number bigint, message_id uuid, topic text, record_key bytea, record_payload bytea,
               header_names bytea[], header_values bytea[], due_us bigint, came_from bytea, for_handler bytea,
               as_attempt bytea, of_group bytea) LANGUAGE plpgsql AS $$
DECLARE
  times timestamptz[];
  numbers bigint[];
  returned bigint;
BEGIN
  SELECT array_agg(e.due_at), array_agg(e.id)
    FROM (SELECT d.due_at, d.id FROM retry_due d
           WHERE d.shard = ANY (of_shards) AND d.due_at <= statement_timestamp() ORDER BY d.due_at, d.id LIMIT most) e
    INTO times, numbers;
  IF numbers IS NULL THEN RETURN; END IF;
  RETURN QUERY
  SELECT f.shard::bigint, f.id, f.message_id, f.topic, f.record_key, f.record_payload, f.own_names, f.own_values,
         (extract(epoch FROM f.due_at) * 1000000)::bigint, f.came_from, f.for_handler, f.as_attempt, f.of_group
    FROM (SELECT r.*, sum(r.bytes) OVER (ORDER BY e.place ROWS UNBOUNDED PRECEDING) - r.bytes AS before
            FROM unnest(times, numbers) WITH ORDINALITY AS e (due_at, id, place)
           CROSS JOIN LATERAL (SELECT * FROM retry_record x WHERE x.id = e.id AND x.due_at = e.due_at OFFSET 0) r) f
   WHERE f.before < most_bytes;
  GET DIAGNOSTICS returned = ROW_COUNT;
  IF returned = cardinality(numbers) THEN RETURN; END IF;
  DELETE FROM retry_due WHERE ctid = ANY (ARRAY(
    SELECT (SELECT d.ctid FROM retry_due d WHERE d.due_at = e.due_at AND d.id = e.id)
      FROM unnest(times, numbers) AS e (due_at, id)
     WHERE (SELECT r.id FROM retry r WHERE r.id = e.id AND r.due_at = e.due_at) IS NULL));
END $$;

-- As in migration 19.
CREATE OR REPLACE FUNCTION retries_are_sent(numbers bigint[], due_us bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM retry_due WHERE ctid = ANY (ARRAY(
    SELECT e.place FROM unnest(numbers, due_us) AS s (id, us)
     CROSS JOIN LATERAL (
       SELECT d.ctid AS place FROM retry_due d
        WHERE d.due_at = timestamptz 'epoch' + s.us * interval '1 microsecond' AND d.id = s.id
          AND d.due_at <= clock_timestamp() + interval '10 seconds' FOR UPDATE SKIP LOCKED) e));
END $$;

-- As in migration 19. A time that is far ahead was written while the server's clock was ahead.
CREATE OR REPLACE FUNCTION send_lost_retries() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  sweep retry_sweep;
  last_id bigint;
BEGIN
  SELECT * INTO sweep FROM retry_sweep w
   WHERE w.next_at <= statement_timestamp() OR w.next_at > statement_timestamp() + interval '20 minutes'
     FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN; END IF;
  IF sweep.next_id = 0 THEN
    sweep.before_at := sweep.began_at;
    sweep.began_at := statement_timestamp();
  END IF;
  WITH step AS MATERIALIZED (
    SELECT r.id, r.due_at, r.shard FROM retry r WHERE r.id > sweep.next_id ORDER BY r.id LIMIT 2000
  ), aged AS (
    SELECT s.*, extract(epoch FROM sweep.began_at - s.due_at)::float8 / 3600 AS hours,
           extract(epoch FROM sweep.before_at - s.due_at)::float8 / 3600 AS hours_before
      FROM step s WHERE s.due_at <= sweep.began_at - interval '1 hour'
  ), lost AS (
    INSERT INTO retry_due (due_at, id, shard)
    SELECT a.due_at, a.id, a.shard FROM aged a
     WHERE floor(ln(a.hours) / ln(2::float8)) > floor(ln(greatest(a.hours_before, 0.5)) / ln(2::float8))
    ON CONFLICT DO NOTHING
  )
  SELECT max(s.id) FROM step s HAVING count(*) = 2000 INTO last_id;
  UPDATE retry_sweep w
     SET next_id = coalesce(last_id, 0), began_at = sweep.began_at, before_at = sweep.before_at,
         next_at = CASE WHEN last_id IS NULL THEN sweep.began_at + interval '10 minutes' ELSE statement_timestamp() END;
END $$;

DO $$
DECLARE
  one record;
BEGIN
  FOR one IN SELECT p.oid::regprocedure AS fun, p.proname AS name FROM pg_proc p
              WHERE p.pronamespace = (SELECT n.oid FROM pg_namespace n WHERE n.nspname = current_schema())
                AND p.proname IN ('keys_with_retries', 'lock_retries', 'messages_behind', 'add_retries', 'defer_retries',
                                  'end_retries', 'retries_are_settled', 'retries_to_send',
                                  'retries_are_sent', 'send_lost_retries') ORDER BY p.proname LOOP
    PERFORM look_up_with_indexes(one.fun, CASE WHEN one.name IN ('retries_to_send', 'send_lost_retries')
                                               THEN 'force_custom_plan' ELSE 'force_generic_plan' END);
    IF one.name IN ('retries_are_settled', 'retries_to_send', 'send_lost_retries') THEN
      EXECUTE format('ALTER FUNCTION %s SET enable_sort = off', one.fun);
    END IF;
    IF one.name IN ('retries_to_send', 'send_lost_retries') THEN
      EXECUTE format('ALTER FUNCTION %s SET enable_bitmapscan = off', one.fun);
    END IF;
  END LOOP;
END $$;
SELECT grant_to_consumers('EXECUTE', 'FUNCTION messages_behind(smallint, bytea[])');
SELECT grant_to_consumers('EXECUTE', 'FUNCTION retries_to_send(bigint[], bigint, bigint)');

INSERT INTO compatible_migration (number, name, builds_from) VALUES (20, 'retry_cost', 11);
