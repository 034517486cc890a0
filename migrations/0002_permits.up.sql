-- Limits over all processes that PostgreSQL counts. A permit is a row, and leases end by the server's clock.

-- One row for each limiter. A grant locks the row FOR SHARE and compares `version` with the one that the process has
-- read. So a change of the limit waits for grants that are under way, and every later grant sees them. A value that
-- changes often must not be a column here, because its update would wait for those locks.
CREATE TABLE limiter (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name       text NOT NULL UNIQUE,
  configured bigint NOT NULL CHECK (configured BETWEEN 1 AND 1000000000), -- by the program that started last
  ordered    bigint CHECK (ordered BETWEEN 0 AND 1000000000),             -- by an operator; in effect if not NULL
  version    bigint NOT NULL DEFAULT 1,                                   -- counts up with each change of the limit
  changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The permits of a limiter, numbered 1, 2, 3, … without a gap. There are as many rows as permits were ever in use at
-- once; a permit without a row is free. A grant gives the row the next `generation`. Renewal and release must name
-- both `slot` and `generation`. A permit without a holder is free. After `expires_at` it is free as well, and the
-- process that had it cannot renew it. The primary key is the only index. Every other column changes with each grant,
-- and an index on one of them would get a new entry for each grant.
CREATE TABLE permit (
  limiter    bigint NOT NULL REFERENCES limiter ON DELETE CASCADE,
  slot       bigint NOT NULL,
  generation bigint NOT NULL DEFAULT 1,
  holder     text,                                   -- one run of one process: HOST:PID and a random number
  granted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamptz NOT NULL,                   -- the end of the lease; the holder renews it
  PRIMARY KEY (limiter, slot)
) WITH (fillfactor = 50);

-- The processes that wait for more permits than they have. A process that has more than its share sees the row, and
-- releases permits. A waiting process writes and renews its row only while there are too few permits. After
-- `expires_at` the row is ignored.
CREATE TABLE permit_wait (
  limiter    bigint NOT NULL REFERENCES limiter ON DELETE CASCADE,
  holder     text NOT NULL,
  waiting    bigint NOT NULL,                                 -- the number of permits that it waits for
  since      timestamptz NOT NULL DEFAULT clock_timestamp(),  -- when the wait began
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (limiter, holder)
) WITH (fillfactor = 50);

INSERT INTO migration (number, name) VALUES (2, 'permits');
