-- Modes by_offset and numbered: records have numbers instead of ids.

-- How far each handler has settled a partition: all records below next_offset are settled. The transaction of the
-- effect moves it. A topic that was created again has another incarnation, and its progress begins again at 0.
CREATE TABLE progress (
  handler     smallint NOT NULL,
  slot        integer NOT NULL REFERENCES fence ON DELETE CASCADE,
  incarnation integer NOT NULL,
  next_offset bigint NOT NULL,
  moved_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (handler, slot)
) WITH (fillfactor = 50);

-- SECURITY: a role that can read `secret` can sign requests in the name of that producer.
-- The sessions of producers that number their requests (mode numbered). The producer opens its session and renews the
-- heartbeat. A consumer marks a session without a heartbeat as expired, and deletes it later.
CREATE TABLE producer (
  id           uuid PRIMARY KEY,
  name         text NOT NULL,      -- for people
  secret       bytea NOT NULL,     -- the key that signs the requests: 32 bytes
  expiry       interval NOT NULL,  -- the session expires after this time without a heartbeat
  keep_for     interval NOT NULL,  -- after the expiry, requests are still distinguished for this time
  opened_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expired_at   timestamptz         -- NULL: the session has not expired
) WITH (fillfactor = 70);

-- The window of a producer in one partition: which of its last numbers a handler has seen. The transaction of the
-- effect moves it, together with the progress of the partition, whose lock protects it.
CREATE TABLE producer_window (
  producer uuid NOT NULL REFERENCES producer ON DELETE CASCADE,
  handler  smallint NOT NULL,
  slot     integer NOT NULL,
  high     bigint NOT NULL,  -- the highest number seen
  low      bigint NOT NULL,  -- numbers up to this one are no longer distinguished
  acked    bigint NOT NULL,  -- up to this number, the producer needs no response and resends nothing
  seen     bytea NOT NULL,   -- the numbers above `low` that were seen: number n has bit n modulo the number of bits
  moved_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (producer, handler, slot)
) WITH (fillfactor = 50);
ALTER TABLE producer_window ALTER seen SET STORAGE PLAIN;

-- The responses to requests that the producer may send again. The transaction of the effect inserts the row. A later
-- one deletes it, once the producer has acknowledged the number or the number is below the window. The rows of a
-- session are deleted when it expires.
CREATE TABLE producer_response (
  producer uuid NOT NULL,
  handler  smallint NOT NULL,
  slot     integer NOT NULL,
  number   bigint NOT NULL,
  body     bytea NOT NULL,
  PRIMARY KEY (producer, handler, slot, number)
);

-- The primary key of `claim` begins with `id` from here on. The table is often almost empty, so the planner's
-- statistics show few rows. With `handler` first, the planner would read all rows of a handler to find one id.
ALTER TABLE claim DROP CONSTRAINT claim_pkey;
ALTER TABLE claim ADD PRIMARY KEY (id, handler);

INSERT INTO migration (number, name) VALUES (7, 'sequences');
