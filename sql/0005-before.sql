-- Before version 5 of the schema: a table of records that need less room, which once.keys is copied to while programs go on with
-- it. `once pg upgrade` applies this file, calls once._prepare until it returns NULL, and then makes the change itself, which
-- takes no longer for many records than for none. Without that (a new installation, or SQL that was printed) 0005.sql copies.
-- All of it may be repeated.

SET LOCAL search_path = pg_catalog, pg_temp;

-- As once.keys of version 1, but: the first half of the record's id is the primary key, as a uuid, whose index takes half the room;
-- no column is null, so that a row has no bitmap of nulls; and about and cause say what the record is and why it is in its state.
-- Ids come in no order, so that an index that is built fuller than it would have grown is split page by page afterwards.
CREATE TABLE IF NOT EXISTS once.keys_next (
    created bigint NOT NULL, -- first claim
    changed bigint NOT NULL, -- last change
    lease_until bigint NOT NULL,
    expires bigint NOT NULL, -- completed, failed: forgotten from then on; 0: never
    ttl integer NOT NULL, -- how long it is kept: milliseconds; below 0: seconds
    lease_ms integer NOT NULL,
    epoch integer NOT NULL,
    schema smallint NOT NULL,
    state smallint NOT NULL, -- 1 pending, 2 completed, 3 failed, 4 unknown
    recover smallint NOT NULL, -- 0 retry, 1 transactional, 2 hold
    flags smallint NOT NULL, -- 1 unknown because the lease ran out, 2 an earlier epoch ended in doubt or by lease, 4 had effect
    kind smallint NOT NULL DEFAULT 0, -- of the payload: 0 none, 1 response, 2 note
    status smallint NOT NULL DEFAULT 0,
    id uuid PRIMARY KEY WITH (fillfactor = 70), -- the first half of the record's id
    tail bytea NOT NULL, -- and the second
    claim bytea NOT NULL,
    scope bytea NOT NULL,
    fingerprint bytea NOT NULL, -- secret (4 bytes, little-endian), mode (1), HMAC (32)
    key bytea NOT NULL, -- a UUID may be 17 bytes: 0, then its 16
    about bytea NOT NULL DEFAULT '', -- description and holder (docs/format.md)
    cause bytea NOT NULL DEFAULT '', -- why it is in its state
    payload bytea NOT NULL DEFAULT ''
) WITH (
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);
-- Responses come compressed: PostgreSQL need not try again.
ALTER TABLE once.keys_next ALTER COLUMN payload SET STORAGE EXTERNAL;

CREATE OR REPLACE FUNCTION once._keys_next_follow() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM once.keys_next n WHERE n.id = encode(substr(OLD.id, 1, 16), 'hex')::uuid;
        RETURN NULL;
    END IF;
    INSERT INTO once.keys_next AS n (created, changed, lease_until, expires, ttl, lease_ms, epoch, schema, state, recover, flags,
                                     kind, status, id, tail, claim, scope, fingerprint, key, payload)
    VALUES (NEW.created, NEW.changed, NEW.lease_until, NEW.expires,
            CASE WHEN NEW.ttl_ms <= 2147483647 THEN NEW.ttl_ms ELSE -least((NEW.ttl_ms + 999) / 1000, 2147483647) END,
            least(NEW.lease_ms, 2147483647), NEW.epoch, NEW.schema, NEW.state, NEW.recover, NEW.flags, NEW.kind, NEW.status, encode(substr(NEW.id, 1, 16), 'hex')::uuid,
            substr(NEW.id, 17), NEW.claim, NEW.scope, NEW.fingerprint, NEW.key, coalesce(NEW.payload, ''))
    ON CONFLICT (id) DO UPDATE SET
        created = excluded.created, changed = excluded.changed, lease_until = excluded.lease_until, expires = excluded.expires,
        ttl = excluded.ttl, lease_ms = excluded.lease_ms, epoch = excluded.epoch, schema = excluded.schema,
        state = excluded.state, recover = excluded.recover, flags = excluded.flags, kind = excluded.kind, status = excluded.status,
        claim = excluded.claim, scope = excluded.scope, fingerprint = excluded.fingerprint, key = excluded.key,
        payload = excluded.payload;
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER keys_next_follow AFTER INSERT OR UPDATE OR DELETE ON once.keys
    FOR EACH ROW EXECUTE FUNCTION once._keys_next_follow();

-- Copies the records in the next 64 pages from p_from on. They are locked: one that is removed meanwhile must not come back. Returns
-- where to go on; NULL at the end of the table: what comes after that is copied by the trigger.
CREATE OR REPLACE FUNCTION once._prepare(p_from bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
    v_now CONSTANT bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    v_blocks CONSTANT bigint := pg_relation_size('once.keys') / current_setting('block_size')::bigint;
    v_from CONSTANT tid := format('(%s,0)', p_from)::tid;
    v_to CONSTANT tid := format('(%s,0)', p_from + 64)::tid;
BEGIN
    WITH found AS MATERIALIZED (
        SELECT * FROM once.keys k
        WHERE k.ctid >= v_from AND k.ctid < v_to AND NOT (k.state IN (2, 3) AND k.expires <> 0 AND k.expires <= v_now)
        FOR SHARE
    )
    INSERT INTO once.keys_next (created, changed, lease_until, expires, ttl, lease_ms, epoch, schema, state, recover, flags,
                                kind, status, id, tail, claim, scope, fingerprint, key, payload)
    SELECT created, changed, lease_until, expires,
           CASE WHEN ttl_ms <= 2147483647 THEN ttl_ms ELSE -least((ttl_ms + 999) / 1000, 2147483647) END, least(lease_ms, 2147483647),
           epoch, schema, state, recover, flags, kind,
           status, encode(substr(id, 1, 16), 'hex')::uuid, substr(id, 17), claim, scope, fingerprint, key, coalesce(payload, '')
    FROM found
    ON CONFLICT (id) DO NOTHING;
    IF p_from + 64 < v_blocks THEN
        RETURN p_from + 64;
    END IF;
    INSERT INTO once.settings VALUES ('keys_next', 'copied') ON CONFLICT (name) DO NOTHING;
    RETURN NULL;
END
$$;
