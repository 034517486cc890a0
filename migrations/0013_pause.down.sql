-- Deletes the pauses: what is paused starts again.
DROP TABLE pause;
