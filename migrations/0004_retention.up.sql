-- How long ids are kept; the cleaner, which deletes what is older; hash partitions of the inbox.
--
-- A consumer may insert ids and never delete one. What is old goes through purge_step(), which runs with the rights of the owner
-- and deletes by what was said here, not by what its caller says.

-- How long consumers have said that they need the ids of a handler. What was said holds for as long as it says: after somebody has said
-- "14 days", ids are kept for 14 days, for the 14 days that follow. So each id is kept for at least as long as was said when it was
-- taken in, whoever says less afterwards. The greatest number stands for "for ever", which holds for 8 days after it was last said.
CREATE TABLE retention (
  handler smallint NOT NULL REFERENCES handler,
  keep_s  bigint NOT NULL CHECK (keep_s BETWEEN 1 AND 3155760000),   -- 100 years
  said_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (handler, keep_s)
) WITH (fillfactor = 50);

-- For how long the ids of each handler are kept now: the longest that holds; when nothing does any more, what was said last.
CREATE VIEW kept AS
SELECT handler,
       coalesce(max(keep_s) FILTER (WHERE said_at > clock_timestamp() - make_interval(
                  secs => CASE keep_s WHEN 3155760000 THEN 691200 ELSE greatest(keep_s, 3600) END)),
                (array_agg(keep_s ORDER BY said_at DESC))[1]) AS keep_s
  FROM retention GROUP BY handler;

-- No id that was seen at `forgotten_before` or later has been deleted for its age. Moves before the deletes that it stands for.
CREATE TABLE horizon (
  handler          smallint PRIMARY KEY REFERENCES handler,
  forgotten_before timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Where the cleaner is, for each table of rows that grow old: it reads them from end to end, a few blocks in a transaction. (An
-- index by time would not do for long: block ranges remember the oldest row that they ever held, and room is used again.)
CREATE TABLE sweep (
  leaf       name PRIMARY KEY,                       -- inbox, a partition of it, or response
  next_block bigint NOT NULL DEFAULT 0,
  end_block  bigint NOT NULL DEFAULT 0,              -- of the table, when the sweep began
  deleted    bigint NOT NULL DEFAULT 0,              -- in this sweep
  every_s    bigint NOT NULL DEFAULT 0,              -- how long it rested before this sweep
  due_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  swept_at   timestamptz                             -- when a sweep last came to its end
) WITH (fillfactor = 50);

-- Says that ids of this handler are needed for so long (NULL: for ever), and hears for how long they are kept, and since when they
-- are all there (NULL: for ever).
CREATE FUNCTION keep_ids(of_handler smallint, for_s bigint, OUT kept_s bigint, OUT all_since timestamptz)
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  -- Ids of which nobody has ever said anything get the 8 days that were the default when they were taken in.
  IF NOT EXISTS (SELECT FROM retention r WHERE r.handler = of_handler)
     AND EXISTS (SELECT FROM inbox i WHERE i.handler = of_handler) THEN
    INSERT INTO retention (handler, keep_s) VALUES (of_handler, 691200) ON CONFLICT DO NOTHING;
  END IF;
  -- Hundreds of consumers say the same.
  INSERT INTO retention AS r (handler, keep_s) VALUES (of_handler, least(coalesce(for_s, 3155760000), 3155760000))
  ON CONFLICT (handler, keep_s) DO UPDATE SET said_at = clock_timestamp()
   WHERE r.said_at < clock_timestamp() - interval '1 minute';
  SELECT nullif(k.keep_s, 3155760000), h.forgotten_before INTO kept_s, all_since
    FROM kept k LEFT JOIN horizon h ON h.handler = k.handler WHERE k.handler = of_handler;
END $$;

-- Deletes a few ids that are older than they are kept, at most `most` and out of at most 128 blocks, if some are due. `wait_s` says when
-- to come again: 0 for at once; NULL when another cleaner is at work. One cleaner at a time in a schema.
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
  SELECT c.oid::regclass AS place, c.relname AS leaf, c.relname = 'response' AS is_response, coalesce(s.next_block, 0) AS next_block, s.end_block,
         coalesce(s.deleted, 0) AS deleted, coalesce(s.every_s, 0) AS every_s, s.due_at, s.swept_at
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

  -- By ctid, which is quick and safe: rows here never change. A response does not go before its id.
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
    -- The end. What is deleted late is an eighth of the time for which it was kept; a sweep that found little for its reading (8 rows
    -- a block, where a block holds a hundred) has the next one come later.
    SELECT min(k.keep_s) INTO shortest_s FROM kept k;
    shortest_s := least(86400, greatest(1, coalesce(shortest_s, 691200) / 8));
    at.every_s := CASE WHEN at.deleted < 8 * at.end_block THEN least(86400, 8 * shortest_s, greatest(shortest_s, 2 * at.every_s))
                       ELSE shortest_s END;
    at.next_block := 0;
    at.swept_at := clock_timestamp();
    at.due_at := at.swept_at + make_interval(secs => at.every_s);
  END IF;
  INSERT INTO sweep AS s (leaf, next_block, end_block, deleted, every_s, due_at, swept_at)
  VALUES (at.leaf, at.next_block, at.end_block, at.deleted, at.every_s, coalesce(at.due_at, clock_timestamp()), at.swept_at)
  ON CONFLICT (leaf) DO UPDATE SET next_block = excluded.next_block, end_block = excluded.end_block,
     deleted = excluded.deleted, every_s = excluded.every_s, due_at = excluded.due_at, swept_at = excluded.swept_at;
END $$;

-- Makes the inbox a table of `parts` hash partitions by id, or of 1: a plain table. An id always falls into the same one, so that the
-- primary key holds over all of them. An inbox that holds ids is left alone unless `copy_rows`; the copy has every consumer wait.
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
    RAISE EXCEPTION 'the inbox has 2 to 64 partitions, or 1 for a plain table, not %', parts USING ERRCODE = '22023',
      HINT = 'Any number in between will do. A transaction holds three locks for each partition that it touches, and with more than 64 '
             'the server''s lock table (max_locks_per_transaction) would have to grow.';
  END IF;
  LOCK TABLE inbox IN ACCESS EXCLUSIVE MODE;
  SELECT greatest(count(*), 1) INTO now_parts FROM pg_inherits WHERE inhparent = 'inbox'::regclass;
  IF now_parts = parts THEN
    RETURN parts;
  END IF;
  IF NOT copy_rows AND EXISTS (SELECT FROM inbox) THEN
    RAISE EXCEPTION 'the inbox holds ids, and has % now; they would have to be copied into %',
      CASE now_parts WHEN 1 THEN 'no partitions' ELSE now_parts || ' partitions' END,
      CASE parts WHEN 1 THEN 'a plain table' ELSE parts || ' partitions' END USING ERRCODE = '55000',
      HINT = format('Leave it as it is; or, as the owner, while all consumers wait for it (about as long as reading and writing the '
                    'whole table takes): SELECT %I.partition_inbox(%s, true);', current_schema(), parts);
  END IF;
  IF EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'inbox'::regclass AND NOT tgisinternal)
     OR EXISTS (SELECT FROM pg_constraint WHERE conrelid = 'inbox'::regclass AND contype = 'f')
     OR EXISTS (SELECT FROM pg_publication_rel WHERE prrelid = 'inbox'::regclass) THEN
    RAISE EXCEPTION 'the inbox has triggers, foreign keys or publications, which would not be on the new table' USING
      ERRCODE = '55000', HINT = 'Take them off, and put them on again afterwards.';
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
  -- Who may do what, as before.
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
  -- The new indexes were made in the order of the old ones; they take their names.
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

-- The functions find their names in this schema and nowhere else: not in one that a caller's search_path, or temporary tables, put first.
DO $$
DECLARE
  fun text;
BEGIN
  FOREACH fun IN ARRAY ARRAY['keep_ids(smallint, bigint)', 'purge_step(integer)', 'partition_inbox(integer, boolean)'] LOOP
    EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', fun, current_schema());
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', fun);
  END LOOP;
END $$;

INSERT INTO migration (number, name) VALUES (4, 'retention');
