-- What the examples keep: payments of orders, and what each account has spent.
CREATE TABLE accounts (
    id text PRIMARY KEY,
    spent numeric(12, 2) NOT NULL,
    credit numeric(12, 2) NOT NULL DEFAULT 1000,
    CHECK (spent <= credit)
);
CREATE TABLE payments (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    idempotency_key text NOT NULL UNIQUE, -- the last line of defence; with several tenants: UNIQUE (tenant, idempotency_key)
    order_id text NOT NULL,
    account text NOT NULL REFERENCES accounts,
    amount numeric(12, 2) NOT NULL CHECK (amount > 0),
    made timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON payments (order_id);
CREATE TABLE payouts ( -- python/payouts.py
    record text PRIMARY KEY, -- the same for every attempt
    account text NOT NULL REFERENCES accounts,
    amount numeric(12, 2) NOT NULL CHECK (amount > 0),
    provider_id text -- of the provider's transfer
);
