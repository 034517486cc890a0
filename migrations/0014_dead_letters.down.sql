-- Deletes the edits of dead letters: by whom, when, and what the record was before. Edited dead letters keep their
-- edited record.
DROP TABLE dead_edit;
ALTER TABLE dead DROP COLUMN edits;
DROP INDEX dead_message_id, dead_died_at, dead_waiting;
DELETE FROM compatible_migration WHERE number = 14;
