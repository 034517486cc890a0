-- The functions of migration 17.
ALTER TABLE retry ADD COLUMN sent_at timestamptz;
UPDATE retry r SET sent_at = r.due_at
 WHERE r.due_at < 'infinity' AND NOT EXISTS (SELECT FROM retry_due d WHERE d.due_at = r.due_at AND d.id = r.id);
DROP TABLE retry_due;
CREATE INDEX retry_due ON retry (due_at, id) WHERE sent_at IS NULL;
SELECT grant_to_consumers('UPDATE (sent_at)', 'retry');

DROP FUNCTION due_retries(bigint[], bigint, bigint);
DROP FUNCTION look_for_due_retries(bigint[], bigint);
DROP FUNCTION retries_are_sent(bigint[], bigint[]);
DROP FUNCTION refuse_retry(bigint, bigint, text);
DROP VIEW retry_record;

CREATE OR REPLACE FUNCTION lock_retries(of_handler smallint, numbers bigint[], of_attempts bigint[], ids uuid[])
RETURNS TABLE (number bigint, is_behind boolean) LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY
  WITH sent AS MATERIALIZED (
    SELECT r.id, r.record_key, r.in_order, b.place
      FROM unnest(numbers, of_attempts, ids) WITH ORDINALITY AS b (id, attempts, message_id, place)
      JOIN retry r ON r.id = b.id AND r.attempts = b.attempts AND r.message_id = b.message_id
     WHERE r.handler = of_handler AND r.sent_at IS NOT NULL
     ORDER BY r.id FOR UPDATE OF r
  )
  SELECT s.id, s.in_order AND s.record_key IS NOT NULL AND (s.first_from_here < s.id OR (
           SELECT e.id FROM retry e
            WHERE e.handler = of_handler AND md5(e.record_key) = md5(s.record_key) AND e.record_key = s.record_key
              AND e.in_order AND e.id < s.id AND e.id NOT IN (SELECT x.id FROM sent x) LIMIT 1) IS NOT NULL)
    FROM (SELECT y.*, min(y.id) OVER (PARTITION BY y.in_order, y.record_key ORDER BY y.place
                                      ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS first_from_here FROM sent y) s;
END $$;

CREATE OR REPLACE FUNCTION stored_retries(of_handler smallint, ids uuid[]) RETURNS SETOF uuid LANGUAGE plpgsql AS $$
DECLARE
  one uuid;
BEGIN
  FOREACH one IN ARRAY ids LOOP
    -- In one statement, so that a drop is seen as a whole.
    IF EXISTS (SELECT FROM retry r WHERE r.handler = of_handler AND r.message_id = one)
       OR EXISTS (SELECT FROM dead d
                   WHERE d.message_id = one AND d.handler + 0 = of_handler -- the index of the ids, and no other one
                     AND d.reason = 'dropped' AND d.replayed_at IS NULL) THEN
      RETURN NEXT one;
    END IF;
  END LOOP;
END $$;

CREATE OR REPLACE FUNCTION take_back_ids(of_handler smallint, of_messages uuid[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  one uuid;
BEGIN
  FOREACH one IN ARRAY of_messages LOOP
    DELETE FROM inbox WHERE handler = of_handler AND id = one AND xmin = pg_current_xact_id()::xid;
  END LOOP;
END $$;

CREATE OR REPLACE FUNCTION add_retries(of_handler smallint, ids uuid[], of_slot integer, of_incarnation integer, offsets bigint[],
                            of_attempts bigint[], delays_ms bigint[], are_in_order boolean, shards bigint[], of_topic text,
                            of_partition integer, keys bytea[], payloads bytea[], names bytea[], header_contents bytea[],
                            headers_end bigint[], times_ms bigint[], errors bytea[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  added bigint;
BEGIN
  IF are_in_order THEN PERFORM lock_retry_keys(of_handler, keys); END IF;
  INSERT INTO retry (handler, message_id, slot, incarnation, record_offset, attempts, due_at, in_order, shard, topic,
                     partition, record_key, record_payload, header_names, header_values, record_timestamp, error)
  SELECT of_handler, m.id, of_slot, of_incarnation, m.at_offset, m.failed,
         CASE WHEN are_in_order AND m.key IS NOT NULL
               AND (row_number() OVER (PARTITION BY m.key ORDER BY m.place) > 1
                    OR (SELECT r.id FROM retry r WHERE r.handler = of_handler AND md5(r.record_key) = md5(m.key)
                           AND r.record_key = m.key AND r.in_order LIMIT 1) IS NOT NULL)
              THEN timestamptz 'infinity' ELSE clock_timestamp() + m.delay_ms * interval '1 millisecond' END,
         are_in_order, m.shard, of_topic, of_partition, m.key, m.payload,
         coalesce(names[m.first:m.last], '{}'), coalesce(header_contents[m.first:m.last], '{}'),
         timestamptz 'epoch' + m.time_ms * interval '1 millisecond', convert_from(m.error, 'UTF8')
    FROM (SELECT u.*, coalesce(lag(u.last) OVER (ORDER BY u.place), 0) + 1 AS first
            FROM unnest(ids, offsets, of_attempts, delays_ms, shards, keys, payloads, headers_end, times_ms, errors)
                 WITH ORDINALITY AS u (id, at_offset, failed, delay_ms, shard, key, payload, last, time_ms, error, place)) m
   ORDER BY m.place
  ON CONFLICT (handler, message_id) DO NOTHING;
  GET DIAGNOSTICS added = ROW_COUNT;
  -- A message may have been placed behind one that was not added.
  IF are_in_order AND added < cardinality(ids) THEN
    UPDATE retry r SET due_at = clock_timestamp()
     WHERE r.due_at = 'infinity' AND r.id IN (
             SELECT (SELECT o.id FROM retry o WHERE o.handler = of_handler AND md5(o.record_key) = md5(k.key)
                        AND o.record_key = k.key AND o.in_order ORDER BY o.id LIMIT 1)
               FROM (SELECT DISTINCT u.key FROM unnest(keys) AS u (key) WHERE u.key IS NOT NULL) k);
  END IF;
END $$;

CREATE OR REPLACE FUNCTION defer_retries(of_handler smallint, numbers bigint[], were_attempts bigint[], of_attempts bigint[],
                              delays_ms bigint[], errors bytea[], settled bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lock_retry_keys(of_handler, ARRAY(SELECT r.record_key FROM retry r WHERE r.id = ANY (numbers) AND r.in_order));
  UPDATE retry r SET attempts = d.attempts, sent_at = NULL, error = convert_from(d.error, 'UTF8'),
         due_at = CASE WHEN r.in_order AND r.record_key IS NOT NULL AND (
                              SELECT e.id FROM retry e
                               WHERE e.handler = of_handler AND md5(e.record_key) = md5(r.record_key)
                                 AND e.record_key = r.record_key AND e.in_order AND e.id < r.id AND e.id <> ALL (settled)
                               LIMIT 1) IS NOT NULL
                       THEN timestamptz 'infinity' ELSE clock_timestamp() + d.delay_ms * interval '1 millisecond' END
    FROM unnest(numbers, were_attempts, of_attempts, delays_ms, errors) AS d (id, were, attempts, delay_ms, error)
   WHERE r.id = d.id AND r.attempts = d.were AND r.handler = of_handler AND r.sent_at IS NOT NULL;
END $$;

CREATE OR REPLACE FUNCTION end_retries(of_handler smallint, numbers bigint[], of_attempts bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM retry r USING unnest(numbers, of_attempts) AS d (id, attempts)
   WHERE r.id = d.id AND r.attempts = d.attempts AND r.handler = of_handler AND r.sent_at IS NOT NULL;
END $$;

CREATE OR REPLACE FUNCTION retries_are_settled() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  of_one record;
BEGIN
  FOR of_one IN SELECT handler, array_agg(record_key) AS keys FROM gone
                 WHERE in_order AND record_key IS NOT NULL GROUP BY handler ORDER BY handler LOOP
    PERFORM lock_retry_keys(of_one.handler, of_one.keys);
  END LOOP;
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
   WHERE r.id = n.id AND r.due_at = 'infinity';
  RETURN NULL;
END $$;

CREATE FUNCTION release_retries(of_shards bigint[], most bigint)
RETURNS TABLE (moved bigint, next_ms bigint) LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY
  WITH due AS MATERIALIZED (
    SELECT * FROM retry
     WHERE shard = ANY (of_shards) AND sent_at IS NULL AND due_at <= statement_timestamp()
     ORDER BY due_at, id LIMIT most FOR UPDATE
  ), sent AS (
    UPDATE retry r SET sent_at = clock_timestamp() FROM due WHERE r.id = due.id
  ), added AS (
    INSERT INTO outbox (shard, message_id, topic, record_key, record_payload, header_names, header_values)
    SELECT d.shard, d.message_id, d.topic, d.record_key, d.record_payload,
           d.header_names || ARRAY['turnstile-replayed-from'::bytea, 'turnstile-replayed-for', 'turnstile-retry'],
           d.header_values || ARRAY[convert_to(d.topic || '[' || d.partition || ']@' || d.record_offset, 'UTF8'),
                                    convert_to(h.name, 'UTF8'), convert_to(d.id || '.' || d.attempts, 'UTF8')]
      FROM due d JOIN handler h ON h.id = d.handler ORDER BY d.due_at, d.id
    RETURNING 1
  )
  SELECT (SELECT count(*) FROM added),
         (SELECT greatest(ceil(extract(epoch FROM r.due_at - statement_timestamp()) * 1000), 0)::bigint
            FROM retry r WHERE r.sent_at IS NULL AND r.due_at < 'infinity' ORDER BY r.due_at LIMIT 1);
END $$;

DO $$
DECLARE
  fun text;
BEGIN
  FOR fun IN SELECT p.oid::regprocedure::text FROM pg_proc p
              WHERE p.pronamespace = (SELECT n.oid FROM pg_namespace n WHERE n.nspname = current_schema())
                AND p.proname IN ('lock_retries', 'stored_retries', 'keys_with_retries', 'take_back_ids', 'lock_retry_keys',
                                  'add_retries', 'defer_retries', 'end_retries', 'release_retries', 'retries_are_settled')
              ORDER BY 1 LOOP
    EXECUTE format('ALTER FUNCTION %s RESET jit', fun);
    EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', fun, current_schema());
    IF fun NOT LIKE '%stored_retries(%' AND fun NOT LIKE '%take_back_ids(%' THEN
      EXECUTE format('ALTER FUNCTION %s SET plan_cache_mode = force_custom_plan', fun);
    END IF;
    EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off', fun);
    EXECUTE format('ALTER FUNCTION %s SET enable_hashjoin = off', fun);
    EXECUTE format('ALTER FUNCTION %s SET enable_mergejoin = off', fun);
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', fun);
    IF fun NOT LIKE '%retries_are_settled()' THEN PERFORM grant_to_consumers('EXECUTE', 'FUNCTION ' || fun); END IF;
  END LOOP;
END $$;

DELETE FROM compatible_migration WHERE number = 18;
