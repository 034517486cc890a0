-- What handlers answered, and what they publish.

-- The response to a message that took effect, for whoever asks again. Insert-only, in the transaction of the id; goes when the id goes.
CREATE TABLE response (
  handler    smallint NOT NULL,
  id         uuid NOT NULL,
  body       bytea NOT NULL,
  replied_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (handler, id)
);
CREATE INDEX response_replied_at ON response USING brin (replied_at);

-- Messages that transactions publish: a relay sends them and deletes them. Anybody who may insert can use it, with psql too:
--   INSERT INTO outbox (topic, record_payload) VALUES ('orders', 'hello');
-- Records of one key belong into one shard, where they go out in the order of `id`. Shard -1: the broker refuses it for good; it
-- waits for `turnstile outbox retry`.
CREATE TABLE outbox (
  id             bigint GENERATED ALWAYS AS IDENTITY,
  shard          smallint NOT NULL DEFAULT 0 CHECK (shard BETWEEN -1 AND 15),
  message_id     uuid NOT NULL DEFAULT gen_random_uuid(), -- its header message-id, so that who gets it twice can tell
  topic          text NOT NULL,
  record_key     bytea,
  record_payload bytea,
  header_names   bytea[] NOT NULL DEFAULT '{}',
  header_values  bytea[] NOT NULL DEFAULT '{}',
  written_at     timestamptz NOT NULL DEFAULT now(),
  refused        text,                                    -- why, in shard -1
  PRIMARY KEY (shard, id),
  CHECK (cardinality(header_names) = cardinality(header_values)),
  CHECK ((shard = -1) = (refused IS NOT NULL))
);

-- Which process relays which shard, by the server's clock. `fence` counts up with each owner.
CREATE TABLE outbox_relay (
  shard      smallint PRIMARY KEY CHECK (shard BETWEEN 0 AND 15),
  owner      text,
  fence      bigint NOT NULL DEFAULT 0,
  expires_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);
INSERT INTO outbox_relay (shard) SELECT generate_series(0, 15);

INSERT INTO migration (number, name) VALUES (3, 'outbox');
