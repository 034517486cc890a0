-- Deletes all tables of migration 1 with their contents. This cannot be undone.
-- Without the stored ids, every message that is still in Kafka may take effect again.
DROP TABLE dead, inbox, watermark, fence, handler;
DROP TABLE migration;
