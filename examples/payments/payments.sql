-- The example's own tables. `turnstile migrate up` creates the tables of the inbox.
CREATE TABLE IF NOT EXISTS account (
  name  text PRIMARY KEY,
  cents bigint NOT NULL CHECK (cents >= 0)
);
-- Without a message id: the inbox ensures that a message takes effect once.
CREATE TABLE IF NOT EXISTS payment (
  number  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  account text NOT NULL,
  cents   bigint NOT NULL,
  state   text NOT NULL CHECK (state IN ('paid', 'declined', 'refunded')),
  made_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO account (name, cents) VALUES ('ada', 100000), ('grace', 50000) ON CONFLICT DO NOTHING;
