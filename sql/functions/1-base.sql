-- Small helpers.
--
-- In all functions: no backslash but in E'' strings. Others depend on standard_conforming_strings, which is the caller's. And no
-- name that the caller's search_path decides about: a function sets it, or has its body read when it is made (RETURN), which is for
-- those that the planner shall put into the statements that use them.

SET LOCAL search_path = pg_catalog, pg_temp;

CREATE OR REPLACE FUNCTION once.version() RETURNS integer
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT max(version) FROM once.versions $$;

CREATE OR REPLACE FUNCTION once.now_ms() RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN (extract(epoch FROM clock_timestamp()) * 1000)::bigint;

CREATE OR REPLACE FUNCTION once.milliseconds_of(moment timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (extract(epoch FROM moment) * 1000)::bigint;

-- The advisory lock that stands for a record: whoever inserts takes it first, and holds it until he commits.
CREATE OR REPLACE FUNCTION once.lock_of(id bytea) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (get_byte(id, 0)::bigint << 56) | (get_byte(id, 1)::bigint << 48) | (get_byte(id, 2)::bigint << 40)
     | (get_byte(id, 3)::bigint << 32) | (get_byte(id, 4)::bigint << 24) | (get_byte(id, 5)::bigint << 16)
     | (get_byte(id, 6)::bigint << 8) | get_byte(id, 7)::bigint;

CREATE OR REPLACE FUNCTION once.le32(n integer) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN set_byte(set_byte(set_byte(set_byte(E'\\x00000000'::bytea, 0, n & 255), 1, (n >> 8) & 255), 2, (n >> 16) & 255),
                3, (n >> 24) & 255);

CREATE OR REPLACE FUNCTION once.get_le32(data bytea, at integer) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN get_byte(data, at) | (get_byte(data, at + 1) << 8) | (get_byte(data, at + 2) << 16)
     | (get_byte(data, at + 3) << 24);

-- A length (8 bytes, little-endian) and then the bytes: parts can never run into each other.
CREATE OR REPLACE FUNCTION once.part(data bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN once.le32(length(data)) || E'\\x00000000'::bytea || data;

CREATE OR REPLACE FUNCTION once.milliseconds(span interval) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (extract(epoch FROM span) * 1000)::bigint;

-- The milliseconds of a span that somebody gave us.
CREATE OR REPLACE FUNCTION once.span(p_what text, p_span interval, p_longest interval) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF p_span IS NULL OR p_span < '1 ms' OR p_span > p_longest THEN
        PERFORM once.fail('ON004', format('a %s is 1 ms to %s', p_what, p_longest));
    END IF;
    RETURN once.milliseconds(p_span);
END
$$;

-- Every error of the application's functions. docs/postgres.md lists them; never give a code another meaning.
CREATE OR REPLACE FUNCTION once.fail(code text, said text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = code, MESSAGE = 'once: ' || said;
END
$$;

CREATE OR REPLACE FUNCTION once.fail(code text, said text, hint text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = code, MESSAGE = 'once: ' || said, HINT = hint;
END
$$;

-- The bytes of a body or payload, of whichever type it is. Drivers send strings without a type: those are text, not bytea's escape
-- syntax, in which a backslash means something else (docs/decisions/transactional-door.md).
CREATE OR REPLACE FUNCTION once.bytes_of(given bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN given;

CREATE OR REPLACE FUNCTION once.bytes_of(given text) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF left(given, 2) = E'\\x' AND given ~ E'^\\\\x([0-9A-Fa-f][0-9A-Fa-f])+$' THEN -- so bytes are written in SQL: which is meant?
        PERFORM once.fail('ON004', 'a string that looks like bytes in hexadecimal digits',
            'Cast it: ...::bytea for the bytes, convert_to(..., ''UTF8'') for the string itself.');
    END IF;
    RETURN convert_to(given, 'UTF8');
END
$$;

CREATE OR REPLACE FUNCTION once.bytes_of(given jsonb) RETURNS bytea
LANGUAGE sql STABLE
RETURN convert_to(given::text, 'UTF8');

CREATE OR REPLACE FUNCTION once.bytes_of(given json) RETURNS bytea
LANGUAGE sql STABLE
RETURN convert_to(given::text, 'UTF8');

CREATE OR REPLACE FUNCTION once.bytes_of(given anyelement) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM once.fail('ON004', format('a body or payload is text, json, jsonb or bytea, not %s', pg_typeof(given)));
END
$$;
