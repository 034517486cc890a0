-- Two consumer groups that handle one topic are two services, unless their configuration names one handler for both.
-- This migration records the group of a handler name, so that a consumer of a second group does not
-- start.

-- The first consumer group that used this name where one group only may use it. This is so if the name is the topic's,
-- because the configuration has none, and in modes by_offset and numbered. A consumer of another group that uses the
-- name in such a way does not start. NULL: no group has used the name in such a way.
ALTER TABLE handler ADD COLUMN consumer_group text;

INSERT INTO migration (number, name) VALUES (8, 'names');
