-- Services that forget to name their handlers are no longer told when they take each other's ids.
ALTER TABLE handler DROP COLUMN consumer_group;
DELETE FROM migration WHERE number = 8;
