-- Builds from migration 11 on can run with this schema.

-- What operators, and the circuit breakers of consumers, have paused. Consumers read it once a second. A row whose
-- `until` is over has no effect any more, except that of a circuit breaker: it stays until the breaker is closed.
CREATE TABLE pause (
  topic      text NOT NULL CHECK (topic <> ''),
  partition  integer CHECK (partition >= 0),          -- NULL: all partitions
  record_key bytea,                                   -- NULL: all messages
  breaker_of text NOT NULL DEFAULT '',                -- '': an operator's, for all consumer groups; else: of the circuit
                                                      -- breaker of this group, for this group only
  began_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  until      timestamptz CHECK (isfinite(until)),     -- when it ends by itself; NULL: an operator ends it
  by_whom    text NOT NULL CHECK (by_whom <> ''),     -- the operator, or the process of the circuit breaker
  why        text NOT NULL DEFAULT '',
  CHECK (isfinite(began_at)),
  CHECK (breaker_of = '' OR (partition IS NULL AND record_key IS NULL AND until IS NOT NULL))
);
-- A key may be longer than an index entry, so the index has its digest.
CREATE UNIQUE INDEX pause_part ON pause
  (topic, coalesce(partition, -1), coalesce(sha256(record_key), ''::bytea), breaker_of);

SELECT grant_to_consumers('SELECT, INSERT, UPDATE (by_whom, why, began_at, until), DELETE', 'pause');

INSERT INTO compatible_migration (number, name, builds_from) VALUES (13, 'pause', 11);
