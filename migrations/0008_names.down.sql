-- Deletes which consumer group uses which handler name. A consumer then starts even if another group uses the same
-- handler name. One of the two services can drop messages as duplicates that the other one handled.
ALTER TABLE handler DROP COLUMN consumer_group;
DELETE FROM migration WHERE number = 8;
