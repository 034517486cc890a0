-- The ledger of the migrations, the inbox, the fences, the watermarks and the dead letters.
--
-- All names are unqualified: the schema comes from search_path. To run this file with psql alone:
--   psql -c 'CREATE SCHEMA turnstile'
--   PGOPTIONS='-c search_path=turnstile' psql -v ON_ERROR_STOP=1 -1 -f migrations/0001_inbox.up.sql

-- The ledger: which of these files ran on this schema. Each file inserts its own row. A consumer compares the ledger
-- with the files that it was built with, and does not start if they differ.
CREATE TABLE migration (
  number     integer PRIMARY KEY,
  name       text NOT NULL,
  checksum   text,  -- SHA-256 of the up file in hex. NULL: psql ran it; the next `turnstile migrate up` fills it in
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  applied_by text NOT NULL DEFAULT current_user
);

-- Gives each handler name a small integer, which is the scope of a message id. A consumer adds the row when it first
-- registers a handler of this name.
CREATE TABLE handler (
  id            smallint PRIMARY KEY,
  name          text NOT NULL UNIQUE,
  registered_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One row for each partition that a consumer group reads. A new owner of the partition counts `epoch` up. Every
-- handler transaction locks the row FOR SHARE and compares the epoch with its own. A value that changes often must not
-- be a column here, because its update would wait for those locks.
CREATE TABLE fence (
  slot        integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- stands for group, topic and partition in other tables
  consumer_group text NOT NULL,
  topic       text NOT NULL,
  partition   integer NOT NULL,
  epoch       bigint NOT NULL DEFAULT 0,
  incarnation integer NOT NULL DEFAULT 0,     -- counts up when the owner finds the topic created again or cut off
  claimed_at  timestamptz NOT NULL DEFAULT clock_timestamp(), -- when the present owner counted `epoch` up
  UNIQUE (consumer_group, topic, partition)
);

-- How far a partition is settled: all of its messages below the offset `watermark` are settled in this database. The
-- owner writes it after the handler transactions that it covers, in a transaction of its own. It can lag behind them,
-- and never passes them. It has a table of its own because an update of `fence` would wait for the handlers.
CREATE TABLE watermark (
  slot      integer PRIMARY KEY REFERENCES fence ON DELETE CASCADE,
  watermark bigint NOT NULL,
  moved_at  timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- The ids that have taken effect, for each handler. Consumers only insert. The purger deletes old rows, and an
-- operator can delete one (`turnstile inbox forget`). `slot` and `record_offset` name the record that took effect. A
-- slot of 0 stands for no partition.
CREATE TABLE inbox (
  handler       smallint NOT NULL,
  id            uuid NOT NULL,
  slot          integer NOT NULL,
  record_offset bigint NOT NULL,
  fingerprint   bigint,                             -- NULL: its topic compares no payloads
  seen_at       timestamptz NOT NULL DEFAULT now(), -- when the transaction began that stored the id
  PRIMARY KEY (handler, id)
);
-- Rows arrive in the order of time. A block range index is therefore enough to find old rows, and it costs little.
CREATE INDEX inbox_seen_at ON inbox USING brin (seen_at);

-- Dead letters and parked messages: they were not run, or they failed permanently. The owner of the partition writes
-- the row, under its epoch. Only an operator, as the owner of the schema, changes or deletes it.
CREATE TABLE dead (
  id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  handler           smallint NOT NULL,
  slot              integer NOT NULL,          -- with the next two columns: the record, as `fence` names its partition
  incarnation       integer NOT NULL,
  record_offset     bigint NOT NULL,
  message_id        uuid,                      -- NULL: the message has no id, or its mode stores none
  reason            text NOT NULL,             -- a word of docs/reference/dead-letter-reasons.md: failed, rejected, …
  error             text NOT NULL,             -- the last error, for people
  attempts          integer NOT NULL,          -- how often its handler was started and failed; killed_process: deaths
  record_timestamp  timestamptz,               -- as the producer sent it; NULL: PostgreSQL cannot represent it
  record_key        bytea,
  record_payload    bytea,
  header_names      bytea[] NOT NULL,          -- a header has the same place in both lists
  header_values     bytea[] NOT NULL,
  dead_topic        text,                      -- the dead letter topic that has a copy; NULL: the message is only here
  dead_partition    integer,
  dead_offset       bigint,
  died_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- NULL: it was not replayed. `turnstile dlq replay` writes the time. While that replay is in doubt, the time is
  -- later than the year 200000: the time when the replay began, plus 200,000 years (or infinity, by an earlier build).
  replayed_at       timestamptz,
  UNIQUE (handler, slot, incarnation, record_offset)
);

INSERT INTO migration (number, name) VALUES (1, 'inbox');
