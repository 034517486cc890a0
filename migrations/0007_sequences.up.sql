-- Records that are numbered instead of having ids.

-- How far each handler has come in a partition whose offsets number its records (mode sequence): all below next_offset are done. Moved in
-- the handler's transaction. A topic that was recreated has another incarnation, and begins anew.
CREATE TABLE progress (
  handler     smallint NOT NULL,
  slot        integer NOT NULL REFERENCES fence ON DELETE CASCADE,
  incarnation integer NOT NULL,
  next_offset bigint NOT NULL,
  moved_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (handler, slot)
) WITH (fillfactor = 50);

INSERT INTO migration (number, name) VALUES (7, 'sequences');
