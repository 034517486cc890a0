-- Builds from migration 11 on can run with this schema.

-- purge_step() as in migration 4, but it keeps an id while a dead letter with the same id waits. Another copy of that message
-- may have taken effect, and only the id shows it to a replay. After the replay, the id is kept for as long as if it had been
-- stored then: the record of the replay is as young.
CREATE OR REPLACE FUNCTION purge_step(most integer, OUT deleted bigint, OUT wait_s double precision)
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  at         record;
  until      bigint;
  last_block bigint;
  shortest_s bigint;
BEGIN
  most := least(greatest(most, 1), 10000);
  deleted := 0;
  IF NOT pg_try_advisory_xact_lock(hashtextextended('turnstile.purge.' || current_schema(), 0)) THEN
    RETURN;
  END IF;
  SELECT c.oid::regclass AS place, c.relname AS leaf, c.relname = 'response' AS is_response,
         coalesce(s.next_block, 0) AS next_block, s.end_block, coalesce(s.deleted, 0) AS deleted,
         coalesce(s.every_s, 0) AS every_s, s.due_at, s.swept_at
    INTO at
    FROM (SELECT 'inbox'::regclass::oid AS oid UNION ALL SELECT 'response'::regclass
          UNION ALL SELECT inhrelid FROM pg_inherits WHERE inhparent = 'inbox'::regclass) l
    JOIN pg_class c ON c.oid = l.oid AND c.relkind = 'r' LEFT JOIN sweep s ON s.leaf = c.relname
   ORDER BY coalesce(s.due_at, '-infinity'), c.relname LIMIT 1;
  IF at.due_at > clock_timestamp() THEN
    wait_s := extract(epoch FROM at.due_at - clock_timestamp());
    RETURN;
  END IF;
  wait_s := 0;

  IF at.next_block = 0 THEN
    at.end_block := pg_relation_size(at.place) / current_setting('block_size')::bigint;
    at.deleted := 0;
    INSERT INTO horizon AS h (handler, forgotten_before)
    SELECT k.handler, clock_timestamp() - make_interval(secs => k.keep_s) FROM kept k
        ON CONFLICT (handler) DO UPDATE SET forgotten_before = excluded.forgotten_before
     WHERE h.forgotten_before < excluded.forgotten_before;
  END IF;

  -- The rows are deleted by ctid, which is fast. It is safe because a row of the inbox never changes. A response is
  -- deleted only after its id. The blocks are read without a join and without LIMIT: otherwise the server may read the
  -- rows in the order of an index, and the step would leave out those before the last one that it deletes. Most rows are
  -- younger than the latest `until`.
  until := least(at.next_block + 128, at.end_block);
  EXECUTE format($q$
    WITH due AS MATERIALIZED (
      SELECT k.handler, least(h.forgotten_before, clock_timestamp() - make_interval(secs => k.keep_s)) AS until
        FROM kept k JOIN horizon h ON h.handler = k.handler
    ), block AS MATERIALIZED (
      SELECT b.ctid AS place, b.handler, b.id, b.%2$I AS stored_at FROM %1$s b WHERE b.ctid >= $1 AND b.ctid < $2
    ), gone AS (
      DELETE FROM %1$s WHERE ctid = ANY (ARRAY(
        SELECT old.place FROM block old
         WHERE old.stored_at < (SELECT max(until) FROM due)
           AND old.stored_at < (SELECT until FROM due WHERE due.handler = old.handler)
           AND NOT EXISTS (%3$s) LIMIT $3)) RETURNING ctid
    )
    SELECT count(*), max(((ctid::text::point)[0])::bigint) FROM gone $q$,
    at.place, CASE WHEN at.is_response THEN 'replied_at' ELSE 'seen_at' END,
    CASE WHEN at.is_response THEN 'SELECT FROM inbox i WHERE i.handler = old.handler AND i.id = old.id'
         -- OFFSET: each id is looked up in the index on message_id. A join could read all dead letters in each step.
         ELSE 'SELECT FROM dead d WHERE d.message_id = old.id AND d.handler = old.handler AND '
              '(d.replayed_at IS NULL OR d.replayed_at >= (SELECT until FROM due WHERE due.handler = d.handler)) OFFSET 0' END)
    INTO deleted, last_block
    USING format('(%s,0)', at.next_block)::tid, format('(%s,0)', until)::tid, most;

  at.deleted := at.deleted + deleted;
  at.next_block := CASE WHEN deleted >= most THEN last_block ELSE until END;
  IF at.next_block >= at.end_block THEN
    -- The sweep has ended. The next one follows after 1/8 of the shortest time for which ids are kept, and after a day
    -- at the latest. So an id is deleted up to 1/8 of that time late. A block has room for about 100 rows. After a
    -- sweep that deleted fewer than 8 rows for each block, the rest doubles: up to 8 times as long, and up to a day.
    SELECT min(k.keep_s) INTO shortest_s FROM kept k;
    shortest_s := least(86400, greatest(1, coalesce(shortest_s, 691200) / 8));
    at.every_s := CASE WHEN at.deleted < 8 * at.end_block
                       THEN least(86400, 8 * shortest_s, greatest(shortest_s, 2 * at.every_s)) ELSE shortest_s END;
    at.next_block := 0;
    at.swept_at := clock_timestamp();
    at.due_at := at.swept_at + make_interval(secs => at.every_s);
  END IF;
  INSERT INTO sweep AS s (leaf, next_block, end_block, deleted, every_s, due_at, swept_at)
  VALUES (at.leaf, at.next_block, at.end_block, at.deleted, at.every_s, coalesce(at.due_at, clock_timestamp()),
          at.swept_at)
  ON CONFLICT (leaf) DO UPDATE SET next_block = excluded.next_block, end_block = excluded.end_block,
     deleted = excluded.deleted, every_s = excluded.every_s, due_at = excluded.due_at, swept_at = excluded.swept_at;
END $$;

-- To compile its statement took 10 times as long as to run it.
ALTER FUNCTION purge_step(integer) SET jit = off;
DO $$
BEGIN
  EXECUTE format('ALTER FUNCTION purge_step(integer) SET search_path = %I, pg_temp', current_schema());
END $$;

INSERT INTO compatible_migration (number, name, builds_from) VALUES (22, 'ids_of_dead', 11);
