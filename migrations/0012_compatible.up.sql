-- Builds from migration 11 on can run with this schema.

-- A second ledger, for migrations that earlier builds can run with. Those builds read only the table `migration`, and
-- do not start if it has a row that they do not know. A row here does not stop them.
CREATE TABLE compatible_migration (
  number      integer PRIMARY KEY,
  name        text NOT NULL,
  checksum    text,                                     -- SHA-256 of the file; NULL: run with psql
  builds_from integer NOT NULL CHECK (builds_from > 0), -- builds that know this migration, or a later one, can run
  applied_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  applied_by  text NOT NULL DEFAULT current_user
);

-- Gives rights on a new table or function to the roles that consumers run as: those that may insert into the inbox.
-- For migrations: consumers go on with the rights that they have, and nobody must run roles.sql at the same moment.
-- `rights` and `on_what` as in GRANT, for example ('SELECT, INSERT (name)', 'limiter').
CREATE FUNCTION grant_to_consumers(rights text, on_what text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  consumer text;
BEGIN
  FOR consumer IN
    SELECT CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
      FROM pg_class c, aclexplode(c.relacl) a
     WHERE c.oid = 'inbox'::regclass AND a.privilege_type = 'INSERT' AND a.grantee <> c.relowner LOOP
    EXECUTE format('GRANT %s ON %s TO %s', rights, on_what, consumer);
  END LOOP;
END $$;
REVOKE ALL ON FUNCTION grant_to_consumers(text, text) FROM PUBLIC;

SELECT grant_to_consumers('SELECT', 'compatible_migration');

INSERT INTO compatible_migration (number, name, builds_from) VALUES (12, 'compatible', 11);
