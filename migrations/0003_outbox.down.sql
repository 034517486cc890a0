-- Takes the responses and the outbox away, with what was not sent yet.
DROP TABLE outbox_relay, outbox, response;
DELETE FROM migration WHERE number = 3;
