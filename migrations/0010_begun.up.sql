-- Of the messages that a process has claimed, which ones its handler has begun: only of these nobody knows what became of them when it dies.

-- The owner that has claimed the message and not begun to handle it; NULL, or another one than `owner`: it may have begun.
ALTER TABLE claim ADD COLUMN unbegun_by uuid;
-- When the server had started that says so. That the handler has begun is written without waiting for the disk, so that a server that
-- was started since may not know it.
ALTER TABLE claim ADD COLUMN unbegun_in timestamptz;

INSERT INTO migration (number, name) VALUES (10, 'begun');
