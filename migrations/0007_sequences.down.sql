-- Takes the progress of mode sequence away: what is delivered again takes effect again.
DROP TABLE producer_response;
DROP TABLE producer_window;
DROP TABLE producer;
DROP TABLE progress;
DELETE FROM migration WHERE number = 7;
