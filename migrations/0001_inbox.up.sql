-- The inbox, the fences and the dead letters.
--
-- Every name is unqualified: the schema comes from search_path. With psql alone:
--   psql -c 'CREATE SCHEMA turnstile'
--   PGOPTIONS='-c search_path=turnstile' psql -v ON_ERROR_STOP=1 -1 -f migrations/0001_inbox.up.sql

-- Which of these files have been run here. `checksum` is SHA-256 of the file in hex; NULL when psql ran it (then
-- `turnstile migrate up` fills it in).
CREATE TABLE migration (
  number     integer PRIMARY KEY,
  name       text NOT NULL,
  checksum   text,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  applied_by text NOT NULL DEFAULT current_user
);

-- Handler names as small integers: the scope of a message id.
CREATE TABLE handler (
  id            smallint PRIMARY KEY,
  name          text NOT NULL UNIQUE,
  registered_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One row for each partition that a consumer group reads. A new owner counts `epoch` up; every handler transaction locks
-- the row FOR SHARE and compares. Nothing that moves often may live here: its update would wait for those locks.
CREATE TABLE fence (
  slot        integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  consumer_group text NOT NULL,
  topic       text NOT NULL,
  partition   integer NOT NULL,
  epoch       bigint NOT NULL DEFAULT 0,
  incarnation integer NOT NULL DEFAULT 0,     -- counts up when the topic was found recreated
  claimed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (consumer_group, topic, partition)
);

-- Every message of the partition below `watermark` is settled in this database. Written on the side; may lag, never leads.
CREATE TABLE watermark (
  slot      integer PRIMARY KEY REFERENCES fence ON DELETE CASCADE,
  watermark bigint NOT NULL,
  moved_at  timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- The ids that have taken effect. Insert-only; `slot` and `record_offset` say where the message was that did.
CREATE TABLE inbox (
  handler       smallint NOT NULL,
  id            uuid NOT NULL,
  slot          integer NOT NULL,
  record_offset bigint NOT NULL,
  fingerprint   bigint,
  seen_at       timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (handler, id)
);
-- Rows arrive in the order of time, so a block range index is enough to purge by age, and costs next to nothing.
CREATE INDEX inbox_seen_at ON inbox USING brin (seen_at);

-- Messages that were not run, or failed for good.
CREATE TABLE dead (
  id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  handler           smallint NOT NULL,
  slot              integer NOT NULL,
  incarnation       integer NOT NULL,
  record_offset     bigint NOT NULL,
  message_id        uuid,
  reason            text NOT NULL,             -- failed | rejected | missing_id | mismatch | duplicate
  error             text NOT NULL,
  attempts          integer NOT NULL,
  record_timestamp  timestamptz,
  record_key        bytea,
  record_payload    bytea,
  header_names      bytea[] NOT NULL,
  header_values     bytea[] NOT NULL,
  dead_topic        text,                      -- where it was produced; NULL: parked here only
  dead_partition    integer,
  dead_offset       bigint,
  died_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
  replayed_at       timestamptz,
  UNIQUE (handler, slot, incarnation, record_offset)
);

INSERT INTO migration (number, name) VALUES (1, 'inbox');
