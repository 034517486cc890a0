-- Takes the claims away: a message that was parked, or whose handler was at work, runs again when it is delivered again.
DROP TABLE claim;
DELETE FROM migration WHERE number = 6;
