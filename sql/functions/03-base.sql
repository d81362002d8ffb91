-- Small helpers.
--
-- Rules for all functions:
-- - Backslashes only in E'' strings: others depend on standard_conforming_strings, which is the caller's.
-- - No name is resolved by the caller's search_path. A function sets its own, or its body is parsed when it is created (RETURN),
--   which also lets the planner inline it.
-- - The name of a private function begins with an underscore. The others are granted to roles (grants.sql) and have a comment
--   (12-comments.sql).

SET LOCAL search_path = pg_catalog, pg_temp;

CREATE OR REPLACE FUNCTION once.version() RETURNS integer
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT max(version) FROM once.versions $$;

CREATE OR REPLACE FUNCTION once._now_ms() RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN (extract(epoch FROM clock_timestamp()) * 1000)::bigint;

CREATE OR REPLACE FUNCTION once._timestamp_ms(moment timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (extract(epoch FROM moment) * 1000)::bigint;

-- Makes the commit wait for the synchronous standby, where there is one. A transaction that only reads does not wait; but what it
-- read may be a commit that was waiting itself when the primary crashed, which is visible after the restart, and which a failover
-- takes back. What is answered from a record must not be taken back.
CREATE OR REPLACE FUNCTION once._await_standby() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF current_setting('synchronous_standby_names') <> '' THEN
        PERFORM pg_logical_emit_message(true, 'once', ''); -- a commit waits if it has written anything
    END IF;
END
$$;

-- The advisory lock of a record. A transaction takes it before it inserts the record, and holds it until it ends.
CREATE OR REPLACE FUNCTION once._lock_key(id bytea) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (get_byte(id, 0)::bigint << 56) | (get_byte(id, 1)::bigint << 48) | (get_byte(id, 2)::bigint << 40)
     | (get_byte(id, 3)::bigint << 32) | (get_byte(id, 4)::bigint << 24) | (get_byte(id, 5)::bigint << 16)
     | (get_byte(id, 6)::bigint << 8) | get_byte(id, 7)::bigint;

CREATE OR REPLACE FUNCTION once._le32(n integer) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN set_byte(set_byte(set_byte(set_byte(E'\\x00000000'::bytea, 0, n & 255), 1, (n >> 8) & 255), 2, (n >> 16) & 255),
                3, (n >> 24) & 255);

CREATE OR REPLACE FUNCTION once._read_le32(data bytea, at integer) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN get_byte(data, at) | (get_byte(data, at + 1) << 8) | (get_byte(data, at + 2) << 16)
     | (get_byte(data, at + 3) << 24);

-- The length (8 bytes, little-endian), then the bytes: parts that are joined cannot run into each other.
CREATE OR REPLACE FUNCTION once._framed(data bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN once._le32(length(data)) || E'\\x00000000'::bytea || data;

CREATE OR REPLACE FUNCTION once._interval_ms(given interval) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (extract(epoch FROM given) * 1000)::bigint;

-- The milliseconds of an interval that the caller passed.
CREATE OR REPLACE FUNCTION once._checked_ms(p_what text, p_interval interval, p_longest interval) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF p_interval IS NULL OR p_interval < '1 ms' OR p_interval > p_longest THEN
        PERFORM once._fail('ON004', format('a %s is 1 ms to %s', p_what, p_longest), 'Pass an interval within these bounds.');
    END IF;
    RETURN once._interval_ms(p_interval);
END
$$;

-- Every error of the application's functions, with what to do about it. docs/postgres.md lists the codes; a code never gets another
-- meaning.
CREATE OR REPLACE FUNCTION once._fail(code text, message text, hint text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = code, MESSAGE = 'once: ' || message, HINT = hint;
END
$$;

-- A claim that may not do what it asks for: what became of the record that it names.
CREATE OR REPLACE FUNCTION once._fail_claim(p_outcome text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    CASE p_outcome
    WHEN 'busy' THEN
        PERFORM once._fail('ON003', 'a newer version of once wrote this record',
            'Upgrade the schema (once pg upgrade), then the programs.');
    WHEN 'already' THEN
        PERFORM once._fail('ON002', 'this claim is completed already',
            'Roll back: the operation has taken effect. once.recorded(claim) returns its response.');
    WHEN 'refused' THEN
        PERFORM once._fail('ON006', 'refused: the record moved on, is completed, or its lease is live',
            'Look at the record (once keys show). While its lease is live its holder may be at work; force => true overrides that.');
    ELSE
        PERFORM once._fail('ON001', 'the claim is no longer yours',
            'Roll back, and do not use this claim again: its lease ran out and the operation was taken over, released or settled.');
    END CASE;
END
$$;

-- The bytes of a body or payload of any type. Drivers send strings without a type: those are text, not bytea's escape syntax, in
-- which a backslash means something else (docs/decisions/transactional-door.md).
CREATE OR REPLACE FUNCTION once._to_bytes(given bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN given;

CREATE OR REPLACE FUNCTION once._to_bytes(given text) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF left(given, 2) = E'\\x' AND given ~ E'^\\\\x([0-9A-Fa-f][0-9A-Fa-f])+$' THEN -- SQL writes bytes like this: which is meant?
        PERFORM once._fail('ON004', 'a string that looks like bytes in hexadecimal digits',
            'Cast it: ...::bytea for the bytes, convert_to(..., ''UTF8'') for the string itself.');
    END IF;
    RETURN convert_to(given, 'UTF8');
END
$$;

CREATE OR REPLACE FUNCTION once._to_bytes(given jsonb) RETURNS bytea
LANGUAGE sql STABLE
RETURN convert_to(given::text, 'UTF8');

CREATE OR REPLACE FUNCTION once._to_bytes(given json) RETURNS bytea
LANGUAGE sql STABLE
RETURN convert_to(given::text, 'UTF8');

CREATE OR REPLACE FUNCTION once._to_bytes(given anyelement) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM once._fail('ON004', format('a body or payload is text, json, jsonb or bytea, not %s', pg_typeof(given)),
        'Cast it to one of these types.');
END
$$;
