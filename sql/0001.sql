-- Version 1 of the schema: the tables. A version is applied once and never edited after its release; functions are not in
-- here, they are replaced by every install and upgrade (functions/*.sql). docs/postgres.md explains the choices.

-- As in every file here: what other roles have in other schemas must not become part of the tables (CVE-2018-1058).
SET LOCAL search_path = pg_catalog, pg_temp;

CREATE TABLE once.versions (
    version integer PRIMARY KEY,
    applied timestamptz NOT NULL DEFAULT clock_timestamp(),
    program text NOT NULL -- version of once that applied it
);

-- One row per record. The columns up to `claim` are the envelope: every version can read them. Times are milliseconds of the
-- server's clock since 1970. No index but the primary key: what a completion changes is in no index (docs/postgres.md, "Expiry").
-- Ids come in no order, so that an index that is built fuller than it would have grown is split page by page afterwards.
CREATE TABLE once.keys (
    created bigint NOT NULL, -- first claim
    changed bigint NOT NULL, -- last change
    lease_until bigint NOT NULL,
    lease_ms bigint NOT NULL,
    expires bigint NOT NULL, -- completed, failed: forgotten from then on; 0: never
    ttl_ms bigint NOT NULL,
    epoch integer NOT NULL,
    schema smallint NOT NULL,
    state smallint NOT NULL, -- 1 pending, 2 completed, 3 failed, 4 unknown
    recover smallint NOT NULL, -- 0 retry, 1 transactional, 2 hold
    flags smallint NOT NULL, -- 1 unknown because the lease ran out, 2 an earlier epoch ended in doubt or by lease
    kind smallint NOT NULL DEFAULT 0, -- of the payload: 0 none, 1 response, 2 note
    status smallint NOT NULL DEFAULT 0,
    id bytea PRIMARY KEY WITH (fillfactor = 70),
    claim bytea NOT NULL,
    fingerprint bytea NOT NULL, -- secret (4 bytes, little-endian), mode (1), HMAC (32)
    scope bytea NOT NULL,
    key bytea NOT NULL,
    payload bytea
) WITH (
    fillfactor = 90,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);
-- Responses come compressed: PostgreSQL need not try again.
ALTER TABLE once.keys ALTER COLUMN payload SET STORAGE EXTERNAL;
-- Fixed: a plan must not depend on when the last ANALYZE was.
ALTER TABLE once.keys ALTER COLUMN id SET (n_distinct = -1);

-- The secrets of the installation (docs/format.md), and what HMAC needs of them, ready for use.
CREATE TABLE once.secrets (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    text text NOT NULL
);
CREATE TABLE once.secret_pads (
    name text NOT NULL, -- record, fingerprint
    id bigint NOT NULL, -- of a fingerprint secret; 0
    inner_pad bytea NOT NULL,
    outer_pad bytea NOT NULL,
    PRIMARY KEY (name, id)
);

-- How far multi-step work got. `created` is the record's: a later life of the same key does not see it.
CREATE TABLE once.checkpoints (
    id bytea PRIMARY KEY,
    created bigint NOT NULL,
    name text NOT NULL,
    state jsonb,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Events to publish, until they are published (docs/relay.md). Of a row's defaults `xid` is evaluated first: a transaction that has a
-- number has a transaction id, so that a reader's snapshot tells which rows can still appear before those that it sees.
CREATE TABLE once.outbox (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    id uuid NOT NULL,
    -- What is in one group is published by one relay at a time. Events without a key have no order.
    grp smallint NOT NULL GENERATED ALWAYS AS
        ((coalesce(pg_catalog.hashtextextended(key, 0::bigint), pg_catalog.uuid_hash_extended(id, 0::bigint))
          OPERATOR(pg_catalog.&) 63::bigint)::smallint) STORED,
    topic text NOT NULL,
    key text,
    type text NOT NULL,
    payload bytea NOT NULL,
    headers jsonb NOT NULL,
    record bytea, -- id of the record whose claim emitted it
    cause bytea, -- and its key
    PRIMARY KEY (grp, seq)
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);

-- Events that were given up: the broker refuses them, or they failed too often.
CREATE TABLE once.outbox_dead (
    number bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    seq bigint NOT NULL, -- that it had
    died timestamptz NOT NULL DEFAULT clock_timestamp(),
    at timestamptz NOT NULL,
    id uuid NOT NULL,
    tries integer NOT NULL,
    reason text NOT NULL,
    topic text NOT NULL,
    key text,
    type text NOT NULL,
    payload bytea NOT NULL,
    headers jsonb NOT NULL,
    record bytea,
    cause bytea
);
CREATE INDEX ON once.outbox_dead (id);

-- Relays, and which of them has which group of the outbox.
CREATE TABLE once.relays (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    destination text NOT NULL, -- without credentials
    started timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen timestamptz NOT NULL,
    lease interval NOT NULL,
    asleep boolean NOT NULL -- wants to be notified
) WITH (fillfactor = 50);
CREATE TABLE once.outbox_groups (
    grp smallint PRIMARY KEY,
    owner uuid,
    epoch bigint NOT NULL DEFAULT 0, -- how often it changed hands
    lease_until timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);
INSERT INTO once.outbox_groups (grp) SELECT generate_series(0, 63);

-- Messages that were handled.
CREATE TABLE once.inbox (
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    subscriber text NOT NULL,
    message_id text NOT NULL,
    PRIMARY KEY (subscriber, message_id)
);

-- Where the reaper goes on.
CREATE TABLE once.sweeps (
    name text PRIMARY KEY,
    block bigint NOT NULL DEFAULT 0,
    ended timestamptz -- the last time that it came to the end
) WITH (fillfactor = 50);
INSERT INTO once.sweeps (name) VALUES ('keys'), ('inbox');

CREATE TABLE once.settings (
    name text PRIMARY KEY,
    value text NOT NULL
);
INSERT INTO once.settings VALUES ('inbox_retention', '7 days');

-- What the functions for the store answer.
CREATE TYPE once.answer AS (
    id bytea,
    outcome smallint, -- once_outcome_t; 32: `mine`
    now bigint,
    created bigint,
    changed bigint,
    lease_until bigint,
    lease_ms bigint,
    expires bigint,
    ttl_ms bigint,
    epoch integer,
    schema smallint,
    state smallint, -- 0: there is no record
    recover smallint,
    flags smallint,
    kind smallint,
    status smallint,
    claim bytea,
    fingerprint bytea,
    scope bytea,
    key bytea,
    payload bytea
);

-- What once.claim and once.get tell an application.
CREATE TYPE once.claimed AS (
    outcome text, -- run, replay, busy, mismatch, unknown; mine and lost only when a claim id is used again
    claim text, -- with run: for complete, release, doubt, renew, checkpoint, resume, emit
    epoch integer,
    retry_after interval, -- with busy: when asking again makes sense
    status integer, -- the rest with replay: the recorded response
    headers jsonb,
    body bytea,
    stored text -- plain, compressed, sealed or omitted: only of plain ones SQL can show headers and body
);
