-- Builds from migration 11 on can run with this schema.

-- The inbox has only the index of its primary key. A block range remembers the oldest row that it ever held, so the index
-- on seen_at did not help the sweep (see migration 4). It cost each new id 5 % of the work of storing it. `turnstile inbox
-- purge` and `turnstile audit` read the whole table instead, which they do once.
DROP INDEX inbox_seen_at;

INSERT INTO compatible_migration (number, name, builds_from) VALUES (21, 'inbox_index', 11);
