-- Two consumer groups that handle one topic are two services, unless somebody says otherwise.

-- The group whose handler goes by this name because nobody has named it. NULL: somebody has.
ALTER TABLE handler ADD COLUMN consumer_group text;

INSERT INTO migration (number, name) VALUES (8, 'names');
