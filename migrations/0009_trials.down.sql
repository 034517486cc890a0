-- Deletes which messages may have killed their process. From then on, a message that kills its process is delivered
-- again without end.
DROP TABLE suspect;
DROP TABLE trial;
ALTER TABLE fence DROP COLUMN released_epoch;
DELETE FROM migration WHERE number = 9;
