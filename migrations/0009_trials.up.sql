-- Which messages were running when a process died, so that one that kills its process does not kill all of them.

-- The last epoch whose owner has stopped by itself. Less than the one before `epoch`: the owner may have died.
ALTER TABLE fence ADD COLUMN released_epoch bigint;

-- Messages of one partition that were begun together by an owner whose predecessor may have died. A row goes when they have ended.
CREATE TABLE trial (
  slot         integer NOT NULL REFERENCES fence ON DELETE CASCADE,
  first_offset bigint NOT NULL,
  offsets      bigint[] NOT NULL,
  alone        boolean NOT NULL,               -- the process ran nothing else
  epoch        bigint NOT NULL,
  incarnation  integer NOT NULL,
  PRIMARY KEY (slot, first_offset)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- A message that was running when a process died. The row goes when the message is settled.
CREATE TABLE suspect (
  slot          integer NOT NULL REFERENCES fence ON DELETE CASCADE,
  record_offset bigint NOT NULL,
  incarnation   integer NOT NULL,
  deaths        integer NOT NULL,              -- processes that died while they ran nothing else
  epoch         bigint,                        -- of the owner that died last; NULL: that one lived after all
  died_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (slot, record_offset)
);

INSERT INTO migration (number, name) VALUES (9, 'trials');
