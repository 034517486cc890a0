-- Deletes the responses and the outbox, with all messages that were not sent yet. This cannot be undone.
DROP TABLE outbox_relay, outbox, response;
DELETE FROM migration WHERE number = 3;
