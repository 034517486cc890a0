-- Takes the one-time tokens away: what was issued can be redeemed no more.
DROP TABLE one_time_token;
DELETE FROM migration WHERE number = 5;
