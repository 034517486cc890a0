-- Bad rows of the outbox and steps of the clock are not noticed any more.
DROP FUNCTION purge_by_clock(integer, timestamptz, timestamptz), look_at_clock(timestamptz, timestamptz);
DROP TABLE clock_step;
ALTER TABLE outbox DROP CONSTRAINT headers_are_two_lists;
DELETE FROM migration WHERE number = 11;
