-- Deletes the one-time tokens. This cannot be undone. Tokens that were issued can no longer be redeemed.
DROP TABLE one_time_token;
DELETE FROM migration WHERE number = 5;
