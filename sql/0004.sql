-- Version 4 of the schema.

SET LOCAL search_path = pg_catalog, pg_temp;

-- What people have decided (docs/decisions/audit-trail.md). An entry as gateways read it is NUMBER PREV HASH ENTRY; HASH is SHA-256
-- of "NUMBER PREV ENTRY", and PREV that of the entry before. Entries are never changed or removed.
CREATE TABLE once.audit (
    number bigint PRIMARY KEY,
    prev text NOT NULL,
    hash text NOT NULL,
    entry text NOT NULL, -- JSON; text, because its hash is that of these bytes
    at timestamptz NOT NULL DEFAULT clock_timestamp(), -- by the server's clock; `time` in the entry is the writer's
    role name NOT NULL DEFAULT session_user -- what the server knows about the writer
);

-- Where events of records were published, if relays keep that (once relay --trace); for trace_retention.
CREATE TABLE once.published (
    record bytea NOT NULL,
    event uuid NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    topic text NOT NULL,
    type text NOT NULL,
    destination text NOT NULL, -- without credentials
    PRIMARY KEY (record, event)
);
CREATE INDEX ON once.published USING brin (at);
INSERT INTO once.settings VALUES ('trace_retention', '7 days');

CREATE FUNCTION once._audit_refuse() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION 'once: entries of the audit trail are never changed or removed';
END
$$;
CREATE TRIGGER keep BEFORE UPDATE OR DELETE OR TRUNCATE ON once.audit
    FOR EACH STATEMENT EXECUTE FUNCTION once._audit_refuse();
