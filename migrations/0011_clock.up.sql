-- What is not trusted any more: rows that others write into the outbox, and a clock that was set forward.

-- Headers are two lists of the same length, with a name for each. A row that has something else is put aside: shard -1.
UPDATE outbox SET shard = -1,
       refused = 'header_names and header_values are no two lists of one dimension, with a name for each header; correct them, then: turnstile outbox retry'
 WHERE shard >= 0 AND CASE WHEN coalesce(array_ndims(header_names), 1) > 1 OR coalesce(array_ndims(header_values), 1) > 1 THEN true
                           ELSE array_position(header_names, NULL) IS NOT NULL END;
ALTER TABLE outbox ADD CONSTRAINT headers_are_two_lists CHECK (
  CASE WHEN shard = -1 THEN true
       WHEN coalesce(array_ndims(header_names), 1) > 1 OR coalesce(array_ndims(header_values), 1) > 1 THEN false
       ELSE array_position(header_names, NULL) IS NULL END);

-- When a process noticed last that this server's clock had been set forward, by how much, and until when no id is deleted for its age.
CREATE TABLE clock_step (
  one        boolean PRIMARY KEY DEFAULT true CHECK (one),
  noticed_at timestamptz NOT NULL,
  step_s     bigint NOT NULL,
  held_until timestamptz NOT NULL
);

-- What the server's clock shows; by how much it is ahead of its caller's; and the step that is in force, if one is. `by_wall` is the caller's own
-- clock. `by_steady` is what this function answered to the caller before, plus the time that has passed since by a clock that nobody
-- sets: where the server's is more than 5 minutes ahead of that, it was set forward.
CREATE FUNCTION look_at_clock(by_wall timestamptz, by_steady timestamptz, OUT now_at timestamptz, OUT ahead_s bigint, OUT step_s bigint,
                              OUT held_until timestamptz)
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  now_at := clock_timestamp();
  ahead_s := extract(epoch FROM now_at - by_wall)::bigint;
  IF now_at > by_steady + interval '5 minutes' THEN
    INSERT INTO clock_step AS c (noticed_at, step_s, held_until)
    VALUES (now_at, extract(epoch FROM now_at - by_steady)::bigint, now_at + interval '1 day')
    ON CONFLICT (one) DO UPDATE
       SET noticed_at = excluded.noticed_at, step_s = excluded.step_s, held_until = excluded.held_until;
  ELSE
    DELETE FROM clock_step c WHERE c.noticed_at > now_at;  -- it was set back
  END IF;
  SELECT c.step_s, c.held_until INTO step_s, held_until FROM clock_step c WHERE c.held_until > now_at;
END $$;

-- purge_step(), unless the clock cannot be trusted: then deletes nothing, and `ahead_s` or `held_until` says why.
CREATE FUNCTION purge_by_clock(most integer, by_wall timestamptz, by_steady timestamptz, OUT deleted bigint, OUT wait_s double precision,
                               OUT now_at timestamptz, OUT ahead_s bigint, OUT step_s bigint, OUT held_until timestamptz)
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  SELECT l.now_at, l.ahead_s, l.step_s, l.held_until INTO now_at, ahead_s, step_s, held_until
    FROM look_at_clock(by_wall, by_steady) l;
  deleted := 0;
  wait_s := 60;
  IF held_until IS NULL AND coalesce(abs(ahead_s), 0) <= 300 THEN
    ahead_s := NULL;
    SELECT p.deleted, p.wait_s INTO deleted, wait_s FROM purge_step(most) p;
  END IF;
END $$;

DO $$
DECLARE
  fun text;
BEGIN
  FOREACH fun IN ARRAY ARRAY['look_at_clock(timestamptz, timestamptz)', 'purge_by_clock(integer, timestamptz, timestamptz)'] LOOP
    EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', fun, current_schema());
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', fun);
  END LOOP;
END $$;

INSERT INTO migration (number, name) VALUES (11, 'clock');
