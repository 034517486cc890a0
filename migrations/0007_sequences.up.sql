-- Records that are numbered instead of having ids.

-- How far each handler has come in a partition whose offsets number its records (mode sequence): all below next_offset are done. Moved in
-- the handler's transaction. A topic that was recreated has another incarnation, and begins anew.
CREATE TABLE progress (
  handler     smallint NOT NULL,
  slot        integer NOT NULL REFERENCES fence ON DELETE CASCADE,
  incarnation integer NOT NULL,
  next_offset bigint NOT NULL,
  moved_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (handler, slot)
) WITH (fillfactor = 50);

-- Those who number their requests. Whoever can read a secret can number requests in its producer's name.
CREATE TABLE producer (
  id           uuid PRIMARY KEY,
  name         text NOT NULL,
  secret       bytea NOT NULL,
  expiry       interval NOT NULL,
  keep_for     interval NOT NULL,
  opened_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expired_at   timestamptz
) WITH (fillfactor = 70);

-- What a handler has seen of a producer in one partition: its highest number, and which of those above low (a ring of bits: number n has
-- bit n modulo its length). What is acked the producer needs no response of, and does not send again.
CREATE TABLE producer_window (
  producer uuid NOT NULL REFERENCES producer ON DELETE CASCADE,
  handler  smallint NOT NULL,
  slot     integer NOT NULL,
  high     bigint NOT NULL,
  low      bigint NOT NULL,
  acked    bigint NOT NULL,
  seen     bytea NOT NULL,
  moved_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (producer, handler, slot)
) WITH (fillfactor = 50);
ALTER TABLE producer_window ALTER seen SET STORAGE PLAIN;

-- What was replied to requests that may be sent again.
CREATE TABLE producer_response (
  producer uuid NOT NULL,
  handler  smallint NOT NULL,
  slot     integer NOT NULL,
  number   bigint NOT NULL,
  body     bytea NOT NULL,
  PRIMARY KEY (producer, handler, slot, number)
);

-- By id first: rows come and go here, so that the planner sees hardly any, and would go through all those of a handler.
ALTER TABLE claim DROP CONSTRAINT claim_pkey;
ALTER TABLE claim ADD PRIMARY KEY (id, handler);

INSERT INTO migration (number, name) VALUES (7, 'sequences');
