-- Deletes which handlers had begun. From then on, all messages that a dead process had claimed are in doubt, also
-- those that it had not begun.
ALTER TABLE claim DROP COLUMN unbegun_by, DROP COLUMN unbegun_in;
DELETE FROM migration WHERE number = 10;
