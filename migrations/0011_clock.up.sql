-- Two checks: of the headers in outbox rows that other programs write, and of a server clock that was set forward.

-- Headers are two one-dimensional lists of the same length, with a name for each header. A row with other headers goes
-- to shard -1, which no relay sends.
UPDATE outbox SET shard = -1,
       refused = 'header_names and header_values must be one-dimensional lists of the same length, with a name for '
                 'each header; correct them, then: turnstile outbox retry'
 WHERE shard >= 0
   AND CASE WHEN coalesce(array_ndims(header_names), 1) > 1 OR coalesce(array_ndims(header_values), 1) > 1 THEN true
            ELSE array_position(header_names, NULL) IS NOT NULL END;
ALTER TABLE outbox ADD CONSTRAINT headers_are_two_lists CHECK (
  CASE WHEN shard = -1 THEN true
       WHEN coalesce(array_ndims(header_names), 1) > 1 OR coalesce(array_ndims(header_values), 1) > 1 THEN false
       ELSE array_position(header_names, NULL) IS NULL END);

-- The last time that a process found the server's clock set forward. look_at_clock() writes it. There is at
-- most one row.
CREATE TABLE clock_step (
  one        boolean PRIMARY KEY DEFAULT true CHECK (one), -- always true: the table has one row at most
  noticed_at timestamptz NOT NULL,                         -- by the server's clock, after the step
  step_s     bigint NOT NULL,                              -- by how many seconds it was set forward
  held_until timestamptz NOT NULL                          -- until then, purge_by_clock() deletes nothing
);

-- Compares the server's clock with the clocks of the caller. `by_wall` is the caller's own clock. `by_steady` is the
-- time that the server's clock should show: the `now_at` of the caller's last call, plus the time since then by a
-- clock that cannot be set. NULL: the caller does not know it, and no step is found. If the server's clock is more
-- than 5 minutes ahead of `by_steady`, it was set forward, and the function records the step for a day. If the
-- server's clock was set back to before a recorded step, the function deletes that step.
-- `now_at` is the server's time. `ahead_s` is by how many seconds it is ahead of `by_wall` (negative: behind).
-- `step_s` and `held_until` are the recorded step, while it is in effect, or NULL.
CREATE FUNCTION look_at_clock(by_wall timestamptz, by_steady timestamptz, OUT now_at timestamptz, OUT ahead_s bigint,
                              OUT step_s bigint, OUT held_until timestamptz)
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
    DELETE FROM clock_step c WHERE c.noticed_at > now_at;  -- the clock was set back
  END IF;
  SELECT c.step_s, c.held_until INTO step_s, held_until FROM clock_step c WHERE c.held_until > now_at;
END $$;

-- Calls purge_step(), unless the server's clock may be wrong. If a step is in effect, or the two clocks differ by more
-- than 5 minutes, it deletes nothing. `held_until` or `ahead_s` is then the reason, and the caller comes again in 60
-- seconds. The purger of each consumer calls this function. The arguments and `now_at` are those of purge_step() and
-- look_at_clock().
CREATE FUNCTION purge_by_clock(most integer, by_wall timestamptz, by_steady timestamptz, OUT deleted bigint,
                               OUT wait_s double precision, OUT now_at timestamptz, OUT ahead_s bigint,
                               OUT step_s bigint, OUT held_until timestamptz)
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

-- As in migration 4: the functions find tables and functions only in this schema. Only roles with a GRANT may
-- call them.
DO $$
DECLARE
  fun text;
BEGIN
  FOREACH fun IN ARRAY ARRAY['look_at_clock(timestamptz, timestamptz)',
                             'purge_by_clock(integer, timestamptz, timestamptz)'] LOOP
    EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', fun, current_schema());
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', fun);
  END LOOP;
END $$;

INSERT INTO migration (number, name) VALUES (11, 'clock');
