-- Claims, for mode leased, in which effects are outside this database: which process runs which message.

-- A message has a row while it is claimed, has failed, or is parked. When the message is done, one transaction stores
-- its id in the inbox and deletes the row. A message in doubt has no state of its own: its row is `claimed`, and its
-- lease has ended. Consumers write the rows. Rows come and go with each message, so autovacuum starts after 10,000
-- dead rows whatever the size of the table, and does not pause.
CREATE TABLE claim (
  handler       smallint NOT NULL,
  id            uuid NOT NULL,
  state         text NOT NULL DEFAULT 'claimed' CHECK (state IN ('claimed', 'failed', 'parked')),
  owner         uuid NOT NULL,                  -- the call that claimed it; each call has a new id
  fence         bigint NOT NULL DEFAULT 1,      -- counts the claims of the message
  expires_at    timestamptz NOT NULL,           -- the end of the lease, by the server's clock; the process renews it
  slot          integer NOT NULL,               -- with record_offset: the record that was claimed last
  record_offset bigint NOT NULL,
  fingerprint   bigint,
  error         text,                           -- failed: the reason
  claimed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (handler, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
        autovacuum_vacuum_cost_delay = 0);

INSERT INTO migration (number, name) VALUES (6, 'claims');
