-- The program that starts last decides the limit of a limiter again, unless an operator has set one.
DROP TRIGGER earlier_build_inserts ON limiter;
DROP TRIGGER earlier_build_updates ON limiter;
DROP FUNCTION keep_value_of_earlier_build();
DROP TABLE limiter_value, limiter_process;
ALTER TABLE limiter DROP COLUMN declared;
DELETE FROM compatible_migration WHERE number = 23;
