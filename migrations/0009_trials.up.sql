-- Which messages were running when a process died. Turnstile uses it to find a message that kills its process, and to
-- stop it before it kills every process of the group.

-- The last epoch whose owner released the partition. If it is lower than the epoch before the present one, or NULL,
-- the last owner may have died.
ALTER TABLE fence ADD COLUMN released_epoch bigint;

-- Messages of one partition that start together. An owner writes the row before they start, if the owner before it may
-- have died. It deletes the row when they have ended. If a new owner finds rows, their messages become suspects.
CREATE TABLE trial (
  slot         integer NOT NULL REFERENCES fence ON DELETE CASCADE,
  first_offset bigint NOT NULL,
  offsets      bigint[] NOT NULL,              -- of the messages, with first_offset
  alone        boolean NOT NULL,               -- true: the process ran nothing else
  epoch        bigint NOT NULL,                -- of the owner that runs them
  incarnation  integer NOT NULL,
  PRIMARY KEY (slot, first_offset)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- Suspects: messages that were running when a process died. A new owner inserts the rows from `trial`. The owner that
-- runs a suspect deletes its row when the message is settled.
CREATE TABLE suspect (
  slot          integer NOT NULL REFERENCES fence ON DELETE CASCADE,
  record_offset bigint NOT NULL,
  incarnation   integer NOT NULL,
  deaths        integer NOT NULL,              -- the processes that died while they ran only this message
  epoch         bigint,                        -- of the last owner that died; NULL: that owner had not died after all
  died_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (slot, record_offset)
);

INSERT INTO migration (number, name) VALUES (9, 'trials');
