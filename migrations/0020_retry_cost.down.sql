-- The functions of migrations 17 to 19.
DROP INDEX retry_key;
CREATE INDEX retry_key ON retry (handler, md5(record_key), id) WHERE in_order AND record_key IS NOT NULL;

DROP FUNCTION retries_to_send(bigint[], bigint, bigint);
DROP VIEW retry_record;
CREATE VIEW retry_record AS
SELECT r.id, r.due_at, r.shard, r.message_id, r.topic, r.record_key, r.record_payload,
       r.header_names || ARRAY['turnstile-replayed-from'::bytea, 'turnstile-replayed-for', 'turnstile-retry']
         || CASE WHEN h.consumer_group IS NOT NULL THEN ARRAY['turnstile-replayed-group'::bytea] END AS header_names,
       r.header_values || ARRAY[convert_to(r.topic || '[' || r.partition || ']@' || r.record_offset, 'UTF8'),
                                convert_to(h.name, 'UTF8'), convert_to(r.id || '.' || r.attempts, 'UTF8')]
         || CASE WHEN h.consumer_group IS NOT NULL THEN ARRAY[convert_to(h.consumer_group, 'UTF8')] END AS header_values,
       coalesce(octet_length(r.record_key), 0) + coalesce(octet_length(r.record_payload), 0)
         + pg_column_size(r.header_names) + pg_column_size(r.header_values) AS bytes
  FROM retry r JOIN handler h ON h.id = r.handler;
SELECT grant_to_consumers('SELECT', 'retry_record');

CREATE OR REPLACE FUNCTION lock_retries(of_handler smallint, numbers bigint[], of_attempts bigint[], ids uuid[])
RETURNS TABLE (number bigint, is_behind boolean) LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY
  WITH sent AS MATERIALIZED (
    SELECT r.id, r.record_key, r.in_order, b.place
      FROM unnest(numbers, of_attempts, ids) WITH ORDINALITY AS b (id, attempts, message_id, place)
      JOIN retry r ON r.id = b.id AND r.attempts = b.attempts AND r.message_id = b.message_id
     WHERE r.handler + 0 = of_handler -- the primary key, and no other index
       AND r.due_at < 'infinity'
       AND (r.due_at <= clock_timestamp() + interval '10 seconds'
            OR NOT EXISTS (SELECT FROM retry_due d WHERE d.due_at = r.due_at AND d.id = r.id))
     ORDER BY r.id FOR UPDATE OF r
  )
  SELECT s.id, s.in_order AND s.record_key IS NOT NULL AND (s.first_from_here < s.id OR (
           SELECT e.id FROM retry e
            WHERE e.handler = of_handler AND md5(e.record_key) = md5(s.record_key) AND e.record_key = s.record_key
              AND e.in_order AND e.id < s.id AND e.id NOT IN (SELECT x.id FROM sent x) LIMIT 1) IS NOT NULL)
    FROM (SELECT y.*, min(y.id) OVER (PARTITION BY y.in_order, y.record_key ORDER BY y.place DESC
                                      ROWS UNBOUNDED PRECEDING) AS first_from_here FROM sent y) s;
END $$;

CREATE OR REPLACE FUNCTION end_retries(of_handler smallint, numbers bigint[], of_attempts bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM retry r USING unnest(numbers, of_attempts) AS d (id, attempts)
   WHERE r.id = d.id AND r.attempts = d.attempts AND r.handler + 0 = of_handler;
END $$;

CREATE OR REPLACE FUNCTION retries_are_settled() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  of_one record;
BEGIN
  DELETE FROM retry_due d USING gone g WHERE d.due_at = g.due_at AND d.id = g.id;
  FOR of_one IN SELECT handler, array_agg(record_key) AS keys FROM gone
                 WHERE in_order AND record_key IS NOT NULL GROUP BY handler ORDER BY handler LOOP
    PERFORM lock_retry_keys(of_one.handler, of_one.keys);
  END LOOP;
  IF NOT FOUND THEN RETURN NULL; END IF; -- none of them has a key
  WITH next AS (
    UPDATE retry r SET due_at = statement_timestamp()
      FROM (SELECT handler, record_key, count(*) AS settled FROM gone
             WHERE in_order AND record_key IS NOT NULL GROUP BY handler, record_key) k
     CROSS JOIN LATERAL (
       SELECT w.id
         FROM (SELECT f.id, f.due_at, first_value(f.due_at) OVER (ORDER BY f.id) AS first_due
                 FROM (SELECT o.id, o.due_at FROM retry o
                        WHERE o.handler = k.handler AND md5(o.record_key) = md5(k.record_key)
                          AND o.record_key = k.record_key AND o.in_order
                        ORDER BY o.id LIMIT 32) f) w -- what is read is bounded, and so is the number that is under way
        WHERE w.due_at = 'infinity' AND (w.first_due = 'infinity' OR w.first_due <= statement_timestamp())
        ORDER BY w.id LIMIT 2 * k.settled) n
     WHERE r.id = n.id AND r.due_at = 'infinity' RETURNING r.id, r.due_at, r.shard
  )
  INSERT INTO retry_due (due_at, id, shard) SELECT x.due_at, x.id, x.shard FROM next x;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION add_retries(of_handler smallint, ids uuid[], of_slot integer, of_incarnation integer, offsets bigint[],
                            of_attempts bigint[], delays_ms bigint[], are_in_order boolean, shards bigint[], of_topic text,
                            of_partition integer, keys bytea[], payloads bytea[], names bytea[], header_contents bytea[],
                            headers_end bigint[], times_ms bigint[], errors bytea[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  added bigint;
  are_behind boolean[]; -- an earlier message of its key is stored; NULL: none of them waits for its key
BEGIN
  IF are_in_order AND EXISTS (SELECT FROM unnest(keys) AS u (key) WHERE u.key IS NOT NULL) THEN
    PERFORM lock_retry_keys(of_handler, keys);
    SELECT array_agg(k.is_behind ORDER BY k.place) INTO are_behind
      FROM (SELECT u.place, u.key IS NOT NULL
                   AND (row_number() OVER (PARTITION BY u.key ORDER BY u.place) > 1
                        OR (SELECT r.id FROM retry r WHERE r.handler = of_handler AND md5(r.record_key) = md5(u.key)
                               AND r.record_key = u.key AND r.in_order LIMIT 1) IS NOT NULL) AS is_behind
              FROM unnest(keys) WITH ORDINALITY AS u (key, place)) k;
  END IF;
  WITH new AS (
    INSERT INTO retry (handler, message_id, slot, incarnation, record_offset, attempts, due_at, in_order, shard, topic,
                       partition, record_key, record_payload, header_names, header_values, record_timestamp, error)
    SELECT of_handler, m.id, of_slot, of_incarnation, m.at_offset, m.failed,
           CASE WHEN m.is_behind THEN timestamptz 'infinity'
                ELSE clock_timestamp() + m.delay_ms * interval '1 millisecond' END,
           are_in_order, m.shard, of_topic, of_partition, m.key, m.payload,
           coalesce(names[m.before + 1:m.last], '{}'), coalesce(header_contents[m.before + 1:m.last], '{}'),
           timestamptz 'epoch' + m.time_ms * interval '1 millisecond', convert_from(m.error, 'UTF8')
      FROM unnest(ids, offsets, of_attempts, delays_ms, shards, keys, payloads, headers_end,
                  (0::bigint || headers_end)[1:cardinality(ids)], times_ms, errors, are_behind)
           WITH ORDINALITY AS m (id, at_offset, failed, delay_ms, shard, key, payload, last, before, time_ms, error, is_behind,
                                   place)
     ORDER BY m.place
    ON CONFLICT (handler, message_id) DO NOTHING RETURNING id, due_at, shard
  ), due AS (
    INSERT INTO retry_due (due_at, id, shard) SELECT n.due_at, n.id, n.shard FROM new n WHERE n.due_at < 'infinity'
  )
  SELECT count(*) FROM new INTO added;
  -- A message may have been placed behind one that was not added.
  IF added < cardinality(ids) AND are_behind IS NOT NULL THEN
    WITH first AS (
      UPDATE retry r SET due_at = clock_timestamp()
       WHERE r.due_at = 'infinity' AND r.id IN (
               SELECT (SELECT o.id FROM retry o WHERE o.handler = of_handler AND md5(o.record_key) = md5(k.key)
                          AND o.record_key = k.key AND o.in_order ORDER BY o.id LIMIT 1)
                 FROM (SELECT DISTINCT u.key FROM unnest(keys) AS u (key) WHERE u.key IS NOT NULL) k)
      RETURNING r.id, r.due_at, r.shard
    )
    INSERT INTO retry_due (due_at, id, shard) SELECT f.due_at, f.id, f.shard FROM first f;
  END IF;
END $$;

CREATE OR REPLACE FUNCTION send_lost_retries() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  sweep retry_sweep;
  last_id bigint;
BEGIN
  SELECT * INTO sweep FROM retry_sweep w WHERE w.next_at <= statement_timestamp() FOR UPDATE SKIP LOCKED;
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

CREATE OR REPLACE FUNCTION keys_with_retries(of_handler smallint, keys bytea[]) RETURNS SETOF bigint
LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY
  SELECT k.place FROM unnest(keys) WITH ORDINALITY AS k (key, place)
   WHERE (SELECT r.id FROM retry r
           WHERE r.handler = of_handler AND md5(r.record_key) = md5(k.key) AND r.record_key = k.key AND r.in_order
           LIMIT 1) IS NOT NULL;
END $$;

CREATE OR REPLACE FUNCTION defer_retries(of_handler smallint, numbers bigint[], were_attempts bigint[], of_attempts bigint[],
                              delays_ms bigint[], errors bytea[], settled bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lock_retry_keys(of_handler, ARRAY(SELECT r.record_key FROM retry r WHERE r.id = ANY (numbers) AND r.in_order));
  WITH again AS (
    UPDATE retry r SET attempts = d.attempts, error = convert_from(d.error, 'UTF8'),
           due_at = CASE WHEN r.in_order AND r.record_key IS NOT NULL AND (
                                SELECT e.id FROM retry e
                                 WHERE e.handler = of_handler AND md5(e.record_key) = md5(r.record_key)
                                   AND e.record_key = r.record_key AND e.in_order AND e.id < r.id AND e.id <> ALL (settled)
                                 LIMIT 1) IS NOT NULL
                         THEN timestamptz 'infinity' ELSE clock_timestamp() + d.delay_ms * interval '1 millisecond' END
      FROM unnest(numbers, were_attempts, of_attempts, delays_ms, errors) AS d (id, were, attempts, delay_ms, error)
     WHERE r.id = d.id AND r.attempts = d.were AND r.handler + 0 = of_handler
    RETURNING r.id, r.due_at, r.shard
  )
  INSERT INTO retry_due (due_at, id, shard) SELECT a.due_at, a.id, a.shard FROM again a WHERE a.due_at < 'infinity';
END $$;

CREATE OR REPLACE FUNCTION retries_are_sent(numbers bigint[], due_us bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM retry_due WHERE ctid = ANY (ARRAY(
    SELECT e.ctid FROM unnest(numbers, due_us) AS s (id, us)
      JOIN retry_due e ON e.due_at = timestamptz 'epoch' + s.us * interval '1 microsecond' AND e.id = s.id
     WHERE e.due_at <= clock_timestamp() + interval '10 seconds' FOR UPDATE OF e SKIP LOCKED));
END $$;

DO $$
DECLARE
  fun regprocedure;
BEGIN
  FOR fun IN SELECT p.oid FROM pg_proc p
              WHERE p.pronamespace = (SELECT n.oid FROM pg_namespace n WHERE n.nspname = current_schema())
                AND p.proname IN ('lock_retries', 'add_retries', 'end_retries', 'retries_are_settled',
                                  'send_lost_retries', 'keys_with_retries', 'defer_retries', 'retries_are_sent') ORDER BY p.proname LOOP
    PERFORM look_up_with_indexes(fun, 'force_custom_plan');
  END LOOP;
END $$;
ALTER FUNCTION send_lost_retries() SET enable_sort = off;
ALTER FUNCTION send_lost_retries() SET enable_bitmapscan = off;

DROP FUNCTION look_up_with_indexes(regprocedure, text);
DROP FUNCTION messages_behind(smallint, bytea[]);

DELETE FROM compatible_migration WHERE number = 20;
