-- The bank's tables. Needs the schema `once` (once pg install); may be run again: what is there stays.
--
--     psql -v ON_ERROR_STOP=1 -f schema.sql        as the owner; then GRANT bank TO the user that the service connects as
--
-- Money is never added to a column. It is in the ledger, entry by entry, and every entry says what the account held after it: the
-- balance is one look at the last entry, and bank.audit adds all of them up to check it.

SET client_min_messages = warning;
CREATE SCHEMA IF NOT EXISTS bank;

-- How many digits an amount of each currency has behind the point.
CREATE TABLE IF NOT EXISTS bank.currencies (
    code text PRIMARY KEY CHECK (code ~ '^[A-Z]{3}$'),
    digits smallint NOT NULL CHECK (digits BETWEEN 0 AND 4)
);
INSERT INTO bank.currencies VALUES
    ('EUR', 2), ('USD', 2), ('GBP', 2), ('CHF', 2), ('SEK', 2), ('JPY', 0), ('KRW', 0), ('KWD', 3), ('BHD', 3)
ON CONFLICT DO NOTHING;

-- Customers choose ids for their accounts, so that opening one can be repeated. Those that begin with @ are the bank's own, and
-- the only ones that may be below zero: what the others have in all is what these owe.
CREATE TABLE IF NOT EXISTS bank.accounts (
    id text PRIMARY KEY CHECK (id ~ '^[@A-Za-z0-9][A-Za-z0-9._-]{0,63}$'),
    customer text NOT NULL, -- the owner, the only one who can move money out of it
    holder text NOT NULL,
    currency text NOT NULL REFERENCES bank.currencies,
    transfer_limit numeric(20, 4) CHECK (transfer_limit > 0), -- the most that one transfer moves; null: any amount
    version integer NOT NULL DEFAULT 1, -- of what PUT can change
    opened_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO bank.accounts (id, customer, holder, currency)
SELECT '@' || purpose || '-' || code, '@bank', purpose, code
FROM bank.currencies, unnest(ARRAY['cash', 'reserved', 'outside']) AS purpose
ON CONFLICT DO NOTHING;

-- Append-only. `id` names what caused the entry and which part of it: the same cause cannot be entered twice. `number` counts the
-- entries of one account without a gap: two that began from the same balance cannot both be written.
CREATE TABLE IF NOT EXISTS bank.ledger (
    account text NOT NULL REFERENCES bank.accounts,
    number bigint NOT NULL CHECK (number > 0),
    id text NOT NULL UNIQUE,
    amount numeric(20, 4) NOT NULL CHECK (amount <> 0),
    balance numeric(30, 4) NOT NULL, -- after this entry
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (account, number),
    CONSTRAINT ledger_not_below_zero CHECK (balance >= 0 OR account LIKE '@%')
);

CREATE OR REPLACE FUNCTION bank.refuse_change() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'the ledger is append-only: correct a mistake with another entry';
END
$$;
CREATE OR REPLACE TRIGGER ledger_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON bank.ledger
    FOR EACH STATEMENT EXECUTE FUNCTION bank.refuse_change();

-- What one statement enters comes to nothing in all: money moves, and is neither made nor lost.
CREATE OR REPLACE FUNCTION bank.check_sum() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF EXISTS (SELECT FROM fresh f JOIN bank.accounts a ON a.id = f.account GROUP BY a.currency HAVING sum(f.amount) <> 0) THEN
        RAISE EXCEPTION 'entries that are written together must come to zero in every currency';
    END IF;
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER ledger_balanced AFTER INSERT ON bank.ledger
    REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION bank.check_sum();

-- The last line of defence: even with no record of the key left (it expired, or was purged), a key moves money once.
CREATE TABLE IF NOT EXISTS bank.transfers (
    id uuid PRIMARY KEY,
    customer text NOT NULL,
    idempotency_key text NOT NULL,
    from_account text NOT NULL REFERENCES bank.accounts,
    to_account text NOT NULL REFERENCES bank.accounts,
    amount numeric(20, 4) NOT NULL CHECK (amount > 0),
    currency text NOT NULL REFERENCES bank.currencies,
    reference text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT transfers_once UNIQUE (customer, idempotency_key),
    CHECK (from_account <> to_account)
);

CREATE TABLE IF NOT EXISTS bank.payouts (
    id uuid PRIMARY KEY,
    customer text NOT NULL,
    idempotency_key text NOT NULL,
    account text NOT NULL REFERENCES bank.accounts,
    destination text NOT NULL,
    amount numeric(20, 4) NOT NULL CHECK (amount > 0),
    currency text NOT NULL REFERENCES bank.currencies,
    status text NOT NULL DEFAULT 'reserved' CHECK (status IN ('reserved', 'paid', 'returned')),
    provider_id text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT payouts_once UNIQUE (customer, idempotency_key)
);

-- Nothing is wrong while this is empty: every account's last balance is the sum of its entries, and no entry is missing.
CREATE OR REPLACE VIEW bank.audit AS
    SELECT account, count(*) AS entries, max(number) AS last, sum(amount) AS total,
           (array_agg(balance ORDER BY number DESC))[1] AS balance
    FROM bank.ledger
    GROUP BY account
    HAVING count(*) <> max(number) OR sum(amount) <> (array_agg(balance ORDER BY number DESC))[1];

-- What the service may do. It cannot change or remove an entry, a transfer, or whose an account is.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'bank') THEN
        CREATE ROLE bank NOLOGIN;
    END IF;
END
$$;
GRANT once_application TO bank;
GRANT USAGE ON SCHEMA bank TO bank;
GRANT SELECT ON ALL TABLES IN SCHEMA bank TO bank;
GRANT INSERT ON bank.accounts, bank.ledger, bank.transfers, bank.payouts TO bank;
GRANT UPDATE (holder, transfer_limit, version) ON bank.accounts TO bank;
GRANT UPDATE (status, provider_id) ON bank.payouts TO bank;
