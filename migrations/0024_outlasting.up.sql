-- Builds from migration 11 on can run with this schema.

-- Trials whose owner gave the partition up while their handlers ran, for example in a rebalance. The owner deletes the
-- row when they have ended. If it has not at `ends_by`, it has died, and the next owner counts that as for `trial`. The
-- new owner runs the same messages, so it needs a row of its own.
CREATE TABLE outlasting (
  slot         integer NOT NULL REFERENCES fence ON DELETE CASCADE,
  first_offset bigint NOT NULL,
  epoch        bigint NOT NULL,                -- of the owner that runs them
  offsets      bigint[] NOT NULL,              -- of the messages, with first_offset
  alone        boolean NOT NULL,               -- true: the process ran nothing else
  incarnation  integer NOT NULL,
  ends_by      timestamptz NOT NULL,
  PRIMARY KEY (slot, first_offset, epoch)
);

SELECT grant_to_consumers('SELECT, INSERT, DELETE', 'outlasting');

INSERT INTO compatible_migration (number, name, builds_from) VALUES (24, 'outlasting', 11);
