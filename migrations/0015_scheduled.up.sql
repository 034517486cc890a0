-- Builds from migration 11 on can run with this schema.

-- Messages that transactions publish with a time before which they are not sent. The relay that has the shard moves a
-- row into `outbox` when it is due, and there it goes behind the messages that wait. Every role that may insert can
-- schedule a message, also with psql:
--   INSERT INTO scheduled (due_at, topic, record_payload) VALUES (now() + interval '2 hours', 'orders', 'hello');
CREATE TABLE scheduled (
  id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  due_at         timestamptz NOT NULL,
  shard          smallint NOT NULL DEFAULT 0 CHECK (shard BETWEEN 0 AND 15), -- as in outbox: one for each key
  message_id     uuid NOT NULL DEFAULT gen_random_uuid(),                    -- sent as header message-id
  topic          text NOT NULL,
  record_key     bytea,
  record_payload bytea,
  header_names   bytea[] NOT NULL DEFAULT '{}',
  header_values  bytea[] NOT NULL DEFAULT '{}',
  written_at     timestamptz NOT NULL DEFAULT now(),
  CHECK (cardinality(header_names) = cardinality(header_values)),
  CHECK (coalesce(array_ndims(header_names), 1) = 1 AND coalesce(array_ndims(header_values), 1) = 1),
  CHECK (array_position(header_names, NULL) IS NULL)
);
-- The relay asks for what is due, in the order of the times. With many messages that are due later, this stays cheap.
CREATE INDEX scheduled_due ON scheduled (due_at, id);
-- For operators, who cancel a message by its id.
CREATE INDEX scheduled_message ON scheduled (message_id);

SELECT grant_to_consumers('SELECT, INSERT, UPDATE (due_at), DELETE', 'scheduled');

INSERT INTO compatible_migration (number, name, builds_from) VALUES (15, 'scheduled', 11);
