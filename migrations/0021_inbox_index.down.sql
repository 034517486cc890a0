CREATE INDEX inbox_seen_at ON inbox USING brin (seen_at);

DELETE FROM compatible_migration WHERE number = 21;
