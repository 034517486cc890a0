-- Which claimed messages a handler has begun. If the process dies, only these are in doubt.

-- The owner that claimed the message and has not begun its handler. Just before the handler starts,
-- the owner writes NULL. NULL, or another value than `owner`: the handler may have begun.
ALTER TABLE claim ADD COLUMN unbegun_by uuid;
-- The start time of the server that stored unbegun_by. The write of NULL does not wait for the disk, so a crash of the
-- server can lose it. After a restart of the server, the handler of every claim may therefore have begun.
ALTER TABLE claim ADD COLUMN unbegun_in timestamptz;

INSERT INTO migration (number, name) VALUES (10, 'begun');
