-- A message that kills its process is delivered again for ever.
DROP TABLE suspect;
DROP TABLE trial;
ALTER TABLE fence DROP COLUMN released_epoch;
DELETE FROM migration WHERE number = 9;
