-- The responses of handlers, and the messages that they publish.

-- The response to a message that took effect. Turnstile returns it to later duplicates of the message. The transaction
-- that stores the id inserts the row, and the purger deletes it after the id. A response that outlived its id is
-- overwritten when the message takes effect again.
CREATE TABLE response (
  handler    smallint NOT NULL,
  id         uuid NOT NULL,
  body       bytea NOT NULL,
  replied_at timestamptz NOT NULL DEFAULT now(), -- when the transaction began
  PRIMARY KEY (handler, id)
);
CREATE INDEX response_replied_at ON response USING brin (replied_at);

-- Messages that transactions publish. A relay sends them to Kafka and deletes their rows. Every role that may insert
-- can publish a message, also with psql:
--   INSERT INTO outbox (topic, record_payload) VALUES ('orders', 'hello');
-- Records of one key must be in one shard, because only the records of a shard are sent in the order of `id`. Shard -1
-- has the messages that the broker refuses permanently. They stay there until an operator runs `turnstile outbox
-- retry`.
CREATE TABLE outbox (
  id             bigint GENERATED ALWAYS AS IDENTITY,
  shard          smallint NOT NULL DEFAULT 0 CHECK (shard BETWEEN -1 AND 15),
  message_id     uuid NOT NULL DEFAULT gen_random_uuid(), -- sent as header message-id, to detect duplicates
  topic          text NOT NULL,
  record_key     bytea,
  record_payload bytea,
  header_names   bytea[] NOT NULL DEFAULT '{}',           -- a header has the same place in both lists
  header_values  bytea[] NOT NULL DEFAULT '{}',
  written_at     timestamptz NOT NULL DEFAULT now(),      -- when the transaction began
  refused        text,                                    -- in shard -1: the reason, written by the relay
  PRIMARY KEY (shard, id),
  CHECK (cardinality(header_names) = cardinality(header_values)),
  CHECK ((shard = -1) = (refused IS NOT NULL))
);

-- Which relay sends which shard. A relay takes a shard for a lease, which ends by the server's clock, and renews it.
CREATE TABLE outbox_relay (
  shard      smallint PRIMARY KEY CHECK (shard BETWEEN 0 AND 15),
  owner      text,                                            -- the relay; NULL: the shard is free
  fence      bigint NOT NULL DEFAULT 0,                       -- counts up with each new owner
  expires_at timestamptz NOT NULL DEFAULT clock_timestamp()   -- the end of the lease
) WITH (fillfactor = 50);
INSERT INTO outbox_relay (shard) SELECT generate_series(0, 15);

INSERT INTO migration (number, name) VALUES (3, 'outbox');
