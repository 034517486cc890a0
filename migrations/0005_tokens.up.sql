-- One-time tokens: issued with a form, redeemed by the request that brings it back; the first wins.

-- `digest` is SHA-256 of the token, which only its holder knows. A redeemed one stays until its time is over, so that a repeat is
-- told that it is one. No index on what changes.
CREATE TABLE one_time_token (
  digest      bytea PRIMARY KEY,
  subject     text NOT NULL,                                 -- what it is for: session, user, form
  issued_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at  timestamptz NOT NULL,
  redeemed_at timestamptz
) WITH (fillfactor = 90);
-- For the purge.
CREATE INDEX one_time_token_expires_at ON one_time_token (expires_at);

INSERT INTO migration (number, name) VALUES (5, 'tokens');
