DROP TABLE outlasting;
DELETE FROM compatible_migration WHERE number = 24;
