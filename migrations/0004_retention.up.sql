-- How long ids are kept, the purge of older ids, and hash partitions of the inbox.
--
-- The role of a consumer may insert ids and may not delete them. purge_step() deletes old ids. It runs with the rights
-- of the schema's owner, and decides by the declarations in this schema, not by an argument of its caller.

-- Declarations: for how long consumers need the ids of a handler. keep_ids() writes them. A declaration is in effect
-- for the duration that it names, and for at least an hour. After a declaration of 14 days, ids are kept for 14 days,
-- during the next 14 days. So each id is kept for at least the duration that was declared when it was stored, even if
-- a later declaration is shorter. The largest value of keep_s means forever; it is in effect for 8 days after its last
-- declaration.
CREATE TABLE retention (
  handler smallint NOT NULL REFERENCES handler,
  keep_s  bigint NOT NULL CHECK (keep_s BETWEEN 1 AND 3155760000),   -- seconds; the largest value is 100 years: forever
  said_at timestamptz NOT NULL DEFAULT clock_timestamp(),            -- when this duration was last declared
  PRIMARY KEY (handler, keep_s)
) WITH (fillfactor = 50);

-- For how long the ids of each handler are kept now, in seconds: the longest declaration that is in effect. If none is
-- in effect any more, it is the latest declaration.
CREATE VIEW kept AS
SELECT handler,
       coalesce(max(keep_s) FILTER (WHERE said_at > clock_timestamp() - make_interval(
                  secs => CASE keep_s WHEN 3155760000 THEN 691200 ELSE greatest(keep_s, 3600) END)),
                (array_agg(keep_s ORDER BY said_at DESC))[1]) AS keep_s
  FROM retention GROUP BY handler;

-- The horizon: the time since when all ids of a handler are stored. No id that was stored at `forgotten_before` or
-- later has been deleted because of its age. The purger moves the horizon before it deletes the ids that are older.
CREATE TABLE horizon (
  handler          smallint PRIMARY KEY REFERENCES handler,
  forgotten_before timestamptz NOT NULL
) WITH (fillfactor = 50);

-- The position of the purger in each table with rows that it deletes. purge_step() writes it, so that any consumer
-- continues where another one stopped. The purger reads a table from its beginning to its end: a sweep. It reads a few
-- blocks in each transaction. The block range index cannot replace the sweep: a block range remembers the oldest row
-- that it ever held. Once its room is used again, it looks old although its rows are young.
CREATE TABLE sweep (
  leaf       name PRIMARY KEY,                       -- the table: inbox, a partition of it, or response
  next_block bigint NOT NULL DEFAULT 0,              -- the next block to read; 0: the next step begins a sweep
  end_block  bigint NOT NULL DEFAULT 0,              -- the number of blocks of the table when the sweep began
  deleted    bigint NOT NULL DEFAULT 0,              -- the rows that this sweep has deleted
  every_s    bigint NOT NULL DEFAULT 0,              -- the rest before this sweep, in seconds
  due_at     timestamptz NOT NULL DEFAULT clock_timestamp(), -- when the next step is due
  swept_at   timestamptz                             -- when the last sweep ended
) WITH (fillfactor = 50);

-- Declares that the ids of a handler are needed for `for_s` seconds (NULL: forever). Returns for how many seconds they
-- are kept (NULL: forever), and since when all of them are stored (NULL: none was deleted). Each consumer calls it at
-- its start and every 10 minutes.
CREATE FUNCTION keep_ids(of_handler smallint, for_s bigint, OUT kept_s bigint, OUT all_since timestamptz)
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  -- Ids without any declaration were stored when the default was 8 days. This row keeps them for 8 days.
  IF NOT EXISTS (SELECT FROM retention r WHERE r.handler = of_handler)
     AND EXISTS (SELECT FROM inbox i WHERE i.handler = of_handler) THEN
    INSERT INTO retention (handler, keep_s) VALUES (of_handler, 691200) ON CONFLICT DO NOTHING;
  END IF;
  -- Hundreds of consumers declare the same duration. The row is updated at most once a minute.
  INSERT INTO retention AS r (handler, keep_s) VALUES (of_handler, least(coalesce(for_s, 3155760000), 3155760000))
  ON CONFLICT (handler, keep_s) DO UPDATE SET said_at = clock_timestamp()
   WHERE r.said_at < clock_timestamp() - interval '1 minute';
  SELECT nullif(k.keep_s, 3155760000), h.forgotten_before INTO kept_s, all_since
    FROM kept k LEFT JOIN horizon h ON h.handler = k.handler WHERE k.handler = of_handler;
END $$;

-- One step of the purge: deletes ids, or responses, that are older than the time for which they are kept. A step
-- deletes up to `most` rows (1 to 10,000) and reads up to 128 blocks of one table. `deleted` is the number of deleted
-- rows. `wait_s` is the time in seconds until the next step is due. 0: more work is due now. NULL: another purger is
-- at work, and this step did nothing. A schema has one purger at a time, by an advisory lock that ends with the
-- transaction. Since migration 11, consumers call it through purge_by_clock().
CREATE FUNCTION purge_step(most integer, OUT deleted bigint, OUT wait_s double precision)
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
  -- deleted only after its id.
  until := least(at.next_block + 128, at.end_block);
  EXECUTE format($q$
    WITH due AS MATERIALIZED (
      SELECT k.handler, least(h.forgotten_before, clock_timestamp() - make_interval(secs => k.keep_s)) AS until
        FROM kept k JOIN horizon h ON h.handler = k.handler
    ), gone AS (
      DELETE FROM %1$s WHERE ctid = ANY (ARRAY(
        SELECT old.ctid FROM %1$s old JOIN due ON due.handler = old.handler
         WHERE old.ctid >= $1 AND old.ctid < $2 AND old.%2$I < due.until %3$s LIMIT $3)) RETURNING ctid
    )
    SELECT count(*), max(((ctid::text::point)[0])::bigint) FROM gone $q$,
    at.place, CASE WHEN at.is_response THEN 'replied_at' ELSE 'seen_at' END,
    CASE WHEN at.is_response THEN
      'AND NOT EXISTS (SELECT FROM inbox i WHERE i.handler = old.handler AND i.id = old.id)' ELSE '' END)
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

-- Makes the inbox a table of `parts` hash partitions by id, or, for 1, a plain table. An id always belongs to the same
-- partition, so the primary key is unique over all of them. The function refuses an inbox that holds ids unless
-- `copy_rows` is true. While it copies the rows, all consumers wait. It returns `parts`. `turnstile migrate up
-- --partitions` calls it, and the owner of the schema can call it with psql.
CREATE FUNCTION partition_inbox(parts integer, copy_rows boolean DEFAULT false) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  now_parts   integer;
  options     text;
  given       record;
  new_indexes regclass[];
  names       name[];
BEGIN
  IF parts IS NULL OR parts NOT BETWEEN 1 AND 64 THEN
    RAISE EXCEPTION 'the inbox can have 2 to 64 partitions, or 1 for a plain table; the request was for %', parts
      USING ERRCODE = '22023',
      HINT = 'Choose a number from 1 to 64. A transaction holds 3 locks for each partition that it touches. More than '
             '64 partitions would need a larger lock table on the server (max_locks_per_transaction).';
  END IF;
  LOCK TABLE inbox IN ACCESS EXCLUSIVE MODE;
  SELECT greatest(count(*), 1) INTO now_parts FROM pg_inherits WHERE inhparent = 'inbox'::regclass;
  IF now_parts = parts THEN
    RETURN parts;
  END IF;
  IF NOT copy_rows AND EXISTS (SELECT FROM inbox) THEN
    RAISE EXCEPTION 'the inbox holds ids, and has % now; to change it to %, its ids must be copied',
      CASE now_parts WHEN 1 THEN 'no partitions' ELSE now_parts || ' partitions' END,
      CASE parts WHEN 1 THEN 'a plain table' ELSE parts || ' partitions' END USING ERRCODE = '55000',
      HINT = format('Leave the inbox as it is, or copy its ids. All consumers wait while PostgreSQL reads and writes '
                    'the whole table. As the owner of the schema run: SELECT %I.partition_inbox(%s, true);',
                    current_schema(), parts);
  END IF;
  IF EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'inbox'::regclass AND NOT tgisinternal)
     OR EXISTS (SELECT FROM pg_constraint WHERE conrelid = 'inbox'::regclass AND contype = 'f')
     OR EXISTS (SELECT FROM pg_publication_rel WHERE prrelid = 'inbox'::regclass) THEN
    RAISE EXCEPTION 'the inbox has triggers, foreign keys or publications, and the new table would not have them'
      USING ERRCODE = '55000', HINT = 'Remove them, run this again, then create them again.';
  END IF;

  SELECT CASE WHEN reloptions IS NULL THEN '' ELSE 'WITH (' || array_to_string(reloptions, ', ') || ')' END INTO options
    FROM pg_class WHERE oid = coalesce((SELECT min(inhrelid) FROM pg_inherits WHERE inhparent = 'inbox'::regclass),
                                       'inbox'::regclass);
  EXECUTE 'CREATE TABLE inbox_new (LIKE inbox INCLUDING ALL) ' ||
          CASE parts WHEN 1 THEN options ELSE 'PARTITION BY HASH (id)' END;
  IF parts > 1 THEN
    FOR i IN 0 .. parts - 1 LOOP
      EXECUTE format('CREATE TABLE %I PARTITION OF inbox_new FOR VALUES WITH (MODULUS %s, REMAINDER %s) %s',
                     format('inbox_%s_%s', parts, lpad(i::text, 2, '0')), parts, i, options);
    END LOOP;
  END IF;
  -- The new table gets the rights of the old one.
  FOR given IN SELECT a.privilege_type || coalesce(' (' || quote_ident(c.attname) || ')', '') AS rights,
                      CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee,
                      CASE WHEN a.is_grantable THEN 'WITH GRANT OPTION' ELSE '' END AS further
                 FROM (SELECT NULL::name AS attname, relacl AS acl, relowner FROM pg_class WHERE oid = 'inbox'::regclass
                       UNION ALL SELECT attname, attacl, 0::oid FROM pg_attribute WHERE attrelid = 'inbox'::regclass) c
                 CROSS JOIN LATERAL aclexplode(c.acl) a WHERE a.grantee <> c.relowner LOOP
    EXECUTE format('GRANT %s ON inbox_new TO %s %s', given.rights, given.grantee, given.further);
  END LOOP;
  IF copy_rows THEN
    INSERT INTO inbox_new SELECT * FROM inbox;
  END IF;
  -- PostgreSQL created the new indexes in the order of the old ones. Each takes the name of the old one.
  SELECT array_agg(indexrelid::regclass ORDER BY indexrelid) FILTER (WHERE indrelid = 'inbox_new'::regclass),
         array_agg(relname ORDER BY indexrelid) FILTER (WHERE indrelid = 'inbox'::regclass)
    INTO new_indexes, names FROM pg_index JOIN pg_class ON oid = indexrelid;
  DROP TABLE inbox;
  ALTER TABLE inbox_new RENAME TO inbox;
  FOR i IN 1 .. cardinality(names) LOOP
    EXECUTE format('ALTER INDEX %s RENAME TO %I', new_indexes[i], names[i]);
  END LOOP;
  DELETE FROM sweep WHERE leaf LIKE 'inbox%';
  RETURN parts;
END $$;

-- The functions run with the rights of the schema's owner. They therefore find tables and functions only in this
-- schema, never in a schema of the caller's search_path, nor in its temporary tables. Only roles with a GRANT
-- may call them.
DO $$
DECLARE
  fun text;
BEGIN
  FOREACH fun IN ARRAY ARRAY['keep_ids(smallint, bigint)', 'purge_step(integer)',
                             'partition_inbox(integer, boolean)'] LOOP
    EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', fun, current_schema());
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', fun);
  END LOOP;
END $$;

INSERT INTO migration (number, name) VALUES (4, 'retention');
