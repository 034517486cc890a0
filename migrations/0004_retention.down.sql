-- An inbox in partitions becomes one table again (its rows are copied); how long ids are kept is forgotten.
SELECT partition_inbox(1, true);
DROP FUNCTION partition_inbox(integer, boolean), purge_step(integer), keep_ids(smallint, bigint);
DROP VIEW kept;
DROP TABLE sweep, horizon, retention;
DELETE FROM migration WHERE number = 4;
