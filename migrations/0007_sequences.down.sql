-- Deletes the progress of modes by_offset and numbered, and the sessions of producers. This cannot be undone. A
-- message that is delivered again takes effect again.
DROP TABLE producer_response;
DROP TABLE producer_window;
DROP TABLE producer;
DROP TABLE progress;
ALTER TABLE claim DROP CONSTRAINT claim_pkey;
ALTER TABLE claim ADD PRIMARY KEY (handler, id);
DELETE FROM migration WHERE number = 7;
