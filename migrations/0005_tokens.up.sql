-- One-time tokens. The server issues a token with a form, and the request carries it back. The first request that
-- redeems the token wins.

-- The tokens that the guard one_time_token issued. `digest` is SHA-256 of the token. The token itself is not stored,
-- so read access to the table is not enough to redeem it. A redeemed token stays until it is purged, after its expiry.
-- Until then a second request with the token is reported as a repeat. `redeemed_at`, the only column that changes, has
-- no index, so that an update adds no entry to an index.
CREATE TABLE one_time_token (
  digest      bytea PRIMARY KEY,
  subject     text NOT NULL,                                 -- the application's text: session, user, form
  issued_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at  timestamptz NOT NULL,                          -- it cannot be redeemed after this time
  redeemed_at timestamptz                                    -- NULL: not yet
) WITH (fillfactor = 90);
-- For the deletion of expired tokens.
CREATE INDEX one_time_token_expires_at ON one_time_token (expires_at);

INSERT INTO migration (number, name) VALUES (5, 'tokens');
