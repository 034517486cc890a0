-- Who is at work on which message, where effects are outside of this database.

-- A row while a message is claimed, has failed, or is parked; when it is done, its id is in the inbox and the row is gone.
-- `unknown` is no state of its own: it is claimed, and its lease has ended.
CREATE TABLE claim (
  handler       smallint NOT NULL,
  id            uuid NOT NULL,
  state         text NOT NULL DEFAULT 'claimed' CHECK (state IN ('claimed', 'failed', 'parked')),
  owner         uuid NOT NULL,
  fence         bigint NOT NULL DEFAULT 1,      -- counts the claims of the message
  expires_at    timestamptz NOT NULL,
  slot          integer NOT NULL,               -- where the message was that was claimed last
  record_offset bigint NOT NULL,
  fingerprint   bigint,
  error         text,                           -- failed: why
  claimed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (handler, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
        autovacuum_vacuum_cost_delay = 0);

INSERT INTO migration (number, name) VALUES (6, 'claims');
