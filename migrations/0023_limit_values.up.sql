-- Builds from migration 11 on can run with this schema.

-- The effective limit of a limiter is the lowest value that a live process is configured with, unless an operator has set
-- one. Until this migration it was the value of the program that started last.

-- The processes that count with PostgreSQL. A process renews its row 4 times a lease. After `expires_at`, its values do
-- not count.
CREATE TABLE limiter_process (
  holder     text PRIMARY KEY,     -- as in table permit; 'earlier builds/ID': see below
  expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- The value that each process is configured with.
CREATE TABLE limiter_value (
  limiter    bigint NOT NULL REFERENCES limiter ON DELETE CASCADE,
  holder     text NOT NULL REFERENCES limiter_process ON DELETE CASCADE,
  configured bigint NOT NULL CHECK (configured BETWEEN 1 AND 1000000000),
  PRIMARY KEY (limiter, holder)
);
CREATE INDEX limiter_value_holder ON limiter_value (holder);

-- `limiter.configured` is the lowest value that counts. Any process that finds another value in it corrects it. If no
-- value counts, it keeps the last one. Processes of this build write `declared` with it: by that the trigger
-- distinguishes them from earlier builds, which write `configured` alone.
ALTER TABLE limiter ADD COLUMN declared bigint;

-- Processes of earlier builds have no row in limiter_process. So that they cannot raise a limit, and a limit does not rise
-- above theirs, their value counts for one hour: after this migration, and after each of their starts that changes it.
CREATE FUNCTION keep_value_of_earlier_build() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  earlier text := 'earlier builds/' || NEW.id;
BEGIN
  DELETE FROM limiter_process WHERE holder = earlier AND expires_at <= clock_timestamp();
  INSERT INTO limiter_process (holder, expires_at) VALUES (earlier, clock_timestamp() + interval '1 hour')
  ON CONFLICT (holder) DO UPDATE SET expires_at = excluded.expires_at;
  INSERT INTO limiter_value AS v (limiter, holder, configured) VALUES (NEW.id, earlier, NEW.configured)
  ON CONFLICT (limiter, holder) DO UPDATE SET configured = least(v.configured, excluded.configured);
  SELECT min(v.configured) INTO NEW.configured FROM limiter_value v JOIN limiter_process p USING (holder)
   WHERE v.limiter = NEW.id AND p.expires_at > clock_timestamp();
  NEW.declared := NEW.configured;
  RETURN NEW;
END $$;

DO $$
BEGIN
  EXECUTE format('ALTER FUNCTION keep_value_of_earlier_build() SET search_path = %I, pg_temp', current_schema());
  REVOKE ALL ON FUNCTION keep_value_of_earlier_build() FROM PUBLIC;
END $$;

-- An INSERT has its id after it. What the function returns counts only before an UPDATE.
CREATE TRIGGER earlier_build_inserts AFTER INSERT ON limiter
  FOR EACH ROW WHEN (NEW.declared IS NULL) EXECUTE FUNCTION keep_value_of_earlier_build();
CREATE TRIGGER earlier_build_updates BEFORE UPDATE OF configured ON limiter
  FOR EACH ROW WHEN (NEW.configured <> OLD.configured AND NEW.declared IS NOT DISTINCT FROM OLD.declared)
  EXECUTE FUNCTION keep_value_of_earlier_build();

INSERT INTO limiter_process SELECT 'earlier builds/' || id, clock_timestamp() + interval '1 hour' FROM limiter;
INSERT INTO limiter_value SELECT id, 'earlier builds/' || id, configured FROM limiter;

SELECT grant_to_consumers('INSERT (declared), UPDATE (declared)', 'limiter');
SELECT grant_to_consumers('SELECT, INSERT, UPDATE (expires_at), DELETE', 'limiter_process');
SELECT grant_to_consumers('SELECT, INSERT, UPDATE (configured)', 'limiter_value');

INSERT INTO compatible_migration (number, name, builds_from) VALUES (23, 'limit_values', 11);
