-- Deletes what consumers declared about how long their ids are needed, and the functions of the purge. This cannot be
-- undone. An inbox in partitions becomes a plain table again: its rows are copied, and all consumers wait meanwhile.
SELECT partition_inbox(1, true);
DROP FUNCTION partition_inbox(integer, boolean), purge_step(integer), keep_ids(smallint, bigint);
DROP VIEW kept;
DROP TABLE sweep, horizon, retention;
DELETE FROM migration WHERE number = 4;
