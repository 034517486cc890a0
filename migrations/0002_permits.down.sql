-- Deletes the limits that PostgreSQL counts, with their permits and the limits that operators set. This cannot be
-- undone. Programs that still run start no more handlers under such a limit.
DROP TABLE permit_wait, permit, limiter;
DELETE FROM migration WHERE number = 2;
