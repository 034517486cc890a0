-- Builds from migration 11 on can run with this schema.

-- Indexes for operators who look for a few dead letters among very many, and a record of their edits. Consumers do not
-- use either. While the indexes are created, consumers that write dead letters wait: about 3 s for a million rows.

-- The dead letters that wait for an operator: those that were not replayed, and those whose replay is in doubt. The
-- condition must be the one that `turnstile dlq` uses (kWaiting in dead_rows.cpp).
CREATE INDEX dead_waiting ON dead (slot, handler, reason, died_at, id)
 WHERE replayed_at IS NULL OR replayed_at >= timestamptz '200000-01-01 00:00:00+00';
CREATE INDEX dead_died_at ON dead (died_at, id);
CREATE INDEX dead_message_id ON dead (message_id);

-- How often an operator has changed the record. A replay publishes the record as it is now, and only if nobody has
-- changed it since the replay has read it.
ALTER TABLE dead ADD COLUMN edits integer NOT NULL DEFAULT 0;

-- What each edit replaced. The first row of a dead letter has the record as it died.
CREATE TABLE dead_edit (
  dead           bigint NOT NULL REFERENCES dead ON DELETE CASCADE,
  edit           integer NOT NULL,  -- counts the edits of this dead letter from 1
  edited_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  edited_by      text NOT NULL,     -- the user and the host of the command, and the role in the database
  record_payload bytea,             -- before the edit
  header_names   bytea[] NOT NULL,
  header_values  bytea[] NOT NULL,
  PRIMARY KEY (dead, edit)
);

SELECT grant_to_consumers('SELECT', 'dead_edit');

INSERT INTO compatible_migration (number, name, builds_from) VALUES (14, 'dead_letters', 11);
