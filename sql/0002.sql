-- Version 2 of the schema.

SET LOCAL search_path = pg_catalog, pg_temp;

-- The group of an event is a plain column that once.emit fills: a generated column in the primary key is not sent by logical
-- replication, and subscribers stop at the first DELETE.
ALTER TABLE once.outbox ALTER COLUMN grp DROP EXPRESSION;
UPDATE once.outbox SET grp = (coalesce(hashtextextended(key, 0::bigint), uuid_hash_extended(id, 0::bigint)) & 63::bigint)::smallint
WHERE grp <> (coalesce(hashtextextended(key, 0::bigint), uuid_hash_extended(id, 0::bigint)) & 63::bigint)::smallint;

-- The events that a claim has emitted and not completed yet, so that those of another transaction of it get other numbers
-- (docs/decisions/event-ids.md).
CREATE TABLE once.emitted (
    made xid8 NOT NULL, -- the transaction that emitted it first
    used xid8 NOT NULL, -- and last
    number integer NOT NULL, -- of those with the same topic, key, type and checkpoint: 0, 1, 2
    slot uuid NOT NULL, -- which are these
    record bytea NOT NULL,
    claim bytea NOT NULL,
    payload bytea NOT NULL, -- its hash
    PRIMARY KEY (record, claim, slot, number)
) WITH (
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

-- A malformed retention would keep everything, or nothing. What is there already is left as it is: once.reap says so.
ALTER TABLE once.settings ADD CONSTRAINT inbox_retention CHECK (name <> 'inbox_retention' OR value::interval > '0') NOT VALID;
