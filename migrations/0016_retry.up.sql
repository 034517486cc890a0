-- Builds from migration 11 on can run with this schema.

-- Messages whose next attempt is stored: `retry(...).durable()`. The transaction that settles the message adds the row.
-- When the row is due, the relay puts the message into the outbox again, and the row stays until the message is settled:
-- it took effect, or became a dead letter. As long as the row exists, no other record with this id runs.
CREATE TABLE retry (
  id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  handler        smallint NOT NULL,
  message_id     uuid NOT NULL,
  slot           integer NOT NULL,            -- with the next two columns: the record that failed first
  incarnation    integer NOT NULL,
  record_offset  bigint NOT NULL,
  attempts       integer NOT NULL CHECK (attempts >= 0), -- how often its handler has failed; 0: it waits for its key
  due_at         timestamptz NOT NULL CHECK (due_at > '-infinity'), -- infinity: an earlier message of its key has a row
  sent_at        timestamptz,                 -- the relay has put it into the outbox; NULL: it is not due yet
  in_order       boolean NOT NULL,            -- later messages of its key wait for it
  shard          smallint NOT NULL CHECK (shard BETWEEN 0 AND 15), -- as in outbox
  topic          text NOT NULL,
  partition      integer NOT NULL,
  record_key     bytea,
  record_payload bytea,
  header_names   bytea[] NOT NULL,
  header_values  bytea[] NOT NULL,
  record_timestamp timestamptz,
  error          text NOT NULL,               -- the last error, for people
  stored_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (handler, message_id)
);
-- The relay asks for what is due. With many messages that are due later, this stays cheap.
CREATE INDEX retry_due ON retry (due_at, id) WHERE sent_at IS NULL;
-- Consumers ask which keys have rows.
CREATE INDEX retry_key ON retry (handler, md5(record_key), id) WHERE in_order AND record_key IS NOT NULL;

-- Until the transaction ends, no other transaction adds or removes rows of this key. An added row is therefore either
-- behind another row, or due.
CREATE FUNCTION lock_retry_key(of_handler smallint, of_key bytea) RETURNS void LANGUAGE sql AS $$
  SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || '.retry.' || of_handler || '.' || md5(of_key), 0))
$$;

-- The next message of the key is due when the one before it is settled.
CREATE FUNCTION retry_is_settled() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  PERFORM lock_retry_key(OLD.handler, OLD.record_key);
  UPDATE retry SET due_at = clock_timestamp()
   WHERE id = (SELECT min(r.id) FROM retry r
                WHERE r.handler = OLD.handler AND md5(r.record_key) = md5(OLD.record_key) AND r.in_order
                  AND r.record_key IS NOT NULL)
     AND due_at = 'infinity';
  RETURN NULL;
END $$;
CREATE TRIGGER retry_is_settled AFTER DELETE ON retry
  FOR EACH ROW WHEN (OLD.in_order AND OLD.record_key IS NOT NULL) EXECUTE FUNCTION retry_is_settled();

-- Removes an id that this transaction has added, so that the message can run later. It removes no other id.
CREATE FUNCTION take_back_id(of_handler smallint, of_message uuid) RETURNS void LANGUAGE sql SECURITY DEFINER AS $$
  DELETE FROM inbox WHERE handler = of_handler AND id = of_message AND xmin = pg_current_xact_id()::xid
$$;

DO $$
DECLARE
  fun text;
BEGIN
  FOREACH fun IN ARRAY ARRAY['lock_retry_key(smallint, bytea)', 'retry_is_settled()', 'take_back_id(smallint, uuid)'] LOOP
    EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', fun, current_schema());
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', fun);
  END LOOP;
END $$;

SELECT grant_to_consumers('SELECT, INSERT, UPDATE (attempts, due_at, sent_at, error), DELETE', 'retry');
SELECT grant_to_consumers('EXECUTE', 'FUNCTION lock_retry_key(smallint, bytea)');
SELECT grant_to_consumers('EXECUTE', 'FUNCTION take_back_id(smallint, uuid)');

INSERT INTO compatible_migration (number, name, builds_from) VALUES (16, 'retry', 11);
