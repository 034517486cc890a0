-- Takes all of Turnstile's tables away, with the ids that they hold: every message still in Kafka may take effect again.
DROP TABLE dead, inbox, watermark, fence, handler;
DROP TABLE migration;
