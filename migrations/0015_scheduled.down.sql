-- Deletes the messages that are scheduled: they are never sent. To keep one, move it into `outbox` before.
DROP TABLE scheduled;
DELETE FROM compatible_migration WHERE number = 15;
