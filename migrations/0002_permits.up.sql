-- Limits that hold over all processes, with PostgreSQL as the one who counts: permits as rows, leases by the server's clock.

-- One row for each named limit. A grant locks it FOR SHARE and compares `version`, so that a change of the limit waits for the
-- grants that are under way, and every later grant sees them. Nothing that moves often may live here.
CREATE TABLE limiter (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name       text NOT NULL UNIQUE,
  configured bigint NOT NULL CHECK (configured BETWEEN 1 AND 1000000000), -- by the program that started last
  ordered    bigint CHECK (ordered BETWEEN 0 AND 1000000000),             -- by an operator; this one counts, if it is there
  version    bigint NOT NULL DEFAULT 1,                                   -- counts up with each change
  changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The permits, as many as were ever in use at once, numbered 1, 2, 3, … without a gap; a missing one is free. A grant gives a
-- row the next `generation`: (slot, generation) is the token that renewal and release must name. Without a holder it is free;
-- past `expires_at` it is free as well, and its old token good for nothing.
-- No index but the key: every other column changes with each grant, and an index on one would make each a new index entry.
CREATE TABLE permit (
  limiter    bigint NOT NULL REFERENCES limiter ON DELETE CASCADE,
  slot       bigint NOT NULL,
  generation bigint NOT NULL DEFAULT 1,
  holder     text,                                   -- one run of one process
  granted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (limiter, slot)
) WITH (fillfactor = 50);

-- Who waits for more than it holds, so that those who hold more than their share hand it on. Only while there are too few; a row that
-- is not renewed counts no more.
CREATE TABLE permit_wait (
  limiter    bigint NOT NULL REFERENCES limiter ON DELETE CASCADE,
  holder     text NOT NULL,
  waiting    bigint NOT NULL,
  since      timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (limiter, holder)
) WITH (fillfactor = 50);

INSERT INTO migration (number, name) VALUES (2, 'permits');
