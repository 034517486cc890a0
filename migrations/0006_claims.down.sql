-- Deletes the claims. This cannot be undone. A message that was parked, or whose handler was running, runs again when
-- it is delivered again.
DROP TABLE claim;
DELETE FROM migration WHERE number = 6;
