-- What a row has in a shorter form than the record: ids, keys, and what was packed with a dictionary (docs/format.md, "In
-- PostgreSQL").

SET LOCAL search_path = pg_catalog, pg_temp;

-- The first half of a record's id, by which its row is found; and the whole.
CREATE OR REPLACE FUNCTION once._short_id(id bytea) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN encode(substr(id, 1, 16), 'hex')::uuid;

CREATE OR REPLACE FUNCTION once._full_id(id uuid, tail bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN uuid_send(id) || tail;

CREATE OR REPLACE FUNCTION once._to_integer(number bigint) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN least(number, 2147483647)::integer;

-- How long a record is kept, in 4 bytes: milliseconds, or below 0 seconds, rounded up.
CREATE OR REPLACE FUNCTION once._ttl_pack(ms bigint) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN ms <= 2147483647 THEN ms WHEN ms IS NOT NULL THEN -least((ms + 999) / 1000, 2147483647) END::integer;

CREATE OR REPLACE FUNCTION once._ttl_ms(ttl integer) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN ttl >= 0 THEN ttl ELSE ttl * -1000::bigint END;

-- A number of seven bits a byte, lowest first, at p_at (from 0); p_at is moved behind it.
CREATE OR REPLACE FUNCTION once._read_varint(p_data bytea, INOUT p_at integer, OUT number bigint)
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_byte integer := 128;
    v_shift integer := 0;
BEGIN
    number := 0;
    WHILE v_byte >= 128 LOOP
        IF v_shift > 28 THEN
            RAISE data_exception;
        END IF;
        v_byte := get_byte(p_data, p_at);
        number := number | ((v_byte & 127)::bigint << v_shift);
        p_at := p_at + 1;
        v_shift := v_shift + 7;
    END LOOP;
END
$$;

-- What p_packed stands for: its first byte has the number of a dictionary, then come four bytes of the SHA-256 of what it stands for, the
-- length of that, and steps, each of which is bytes and a copy from the dictionary. Programs do this themselves when they have the
-- dictionary. p_column says which of a dictionary's two: bytes or about. NULL: that cannot be, or would be too long. One damaged
-- row must not fail the others of its batch, nor keep the server busy.
CREATE OR REPLACE FUNCTION once._unpack(p_packed bytea, p_column text) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_most CONSTANT integer := CASE p_column WHEN 'about' THEN 512 ELSE 16384 END;
    v_dictionary bytea;
    v_at integer := 5; -- in p_packed
    v_next bigint := 0; -- in the dictionary: where the next copy is expected
    v_length bigint;
    v_step integer;
    v_copy bigint;
    v_count bigint;
    v_bytes bigint;
    v_shift bigint;
    v_out bytea := '';
    v_hex CONSTANT integer := 16384; -- digits of hex, two in a byte
    v_elsewhere CONSTANT integer := 32768; -- the copy is not where it is expected
BEGIN
    IF length(p_packed) > v_most THEN -- it is shorter than what it stands for
        RETURN NULL;
    END IF;
    SELECT p_at, number INTO v_at, v_length FROM once._read_varint(p_packed, v_at);
    SELECT CASE p_column WHEN 'about' THEN d.about ELSE d.bytes END INTO v_dictionary
    FROM once.dictionaries d WHERE d.number = get_byte(p_packed, 0) - 128;
    IF NOT FOUND OR v_length > v_most THEN
        RETURN NULL;
    END IF;
    WHILE v_at < length(p_packed) LOOP
        v_step := get_byte(p_packed, v_at) | (get_byte(p_packed, v_at + 1) << 8);
        v_at := v_at + 2;
        v_copy := v_step & 255;
        v_count := (v_step >> 8) & 63;
        IF v_copy = 255 THEN
            SELECT p_at, v_copy + number INTO v_at, v_copy FROM once._read_varint(p_packed, v_at);
        END IF;
        IF v_count = 63 THEN
            SELECT p_at, v_count + number INTO v_at, v_count FROM once._read_varint(p_packed, v_at);
        END IF;
        v_bytes := CASE WHEN v_step & v_hex <> 0 THEN (v_count + 1) / 2 ELSE v_count END;
        IF length(v_out) + v_count + v_copy > v_length OR v_at + v_bytes > length(p_packed) THEN
            RETURN NULL;
        END IF;
        v_out := v_out || CASE WHEN v_step & v_hex <> 0
                               THEN convert_to(left(encode(substr(p_packed, v_at + 1, v_bytes::integer), 'hex'), v_count::integer), 'UTF8')
                               ELSE substr(p_packed, v_at + 1, v_bytes::integer) END;
        v_at := v_at + v_bytes::integer;
        v_next := v_next + v_count;
        IF v_step & v_elsewhere <> 0 THEN
            SELECT p_at, number INTO v_at, v_shift FROM once._read_varint(p_packed, v_at);
            v_next := v_next + CASE WHEN v_shift & 1 = 0 THEN v_shift >> 1 ELSE -(v_shift >> 1) - 1 END;
        END IF;
        IF v_copy > 0 AND (v_next < 0 OR v_next + v_copy > length(v_dictionary)) THEN
            RETURN NULL;
        END IF;
        v_out := v_out || substr(v_dictionary, v_next::integer + 1, v_copy::integer);
        v_next := v_next + v_copy;
    END LOOP;
    RETURN CASE WHEN length(v_out) = v_length AND substr(sha256(v_out), 1, 4) = substr(p_packed, 2, 4) THEN v_out END;
EXCEPTION WHEN OTHERS THEN -- but a cancellation
    RETURN NULL;
END
$$;

-- The number of the dictionary that a caller names, if the store has exactly that one; 0 if not, or it names none. Volatile: it must read
-- what is committed when it has the lock on the table, not when the caller's statement began, because once.store_scrub takes that
-- lock to know that no transaction is left which may still name a retired dictionary.
CREATE OR REPLACE FUNCTION once._dictionary_held(p_name bytea) RETURNS smallint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF p_name IS NULL OR length(p_name) <> 5 THEN
        RETURN CASE WHEN p_name IS NOT NULL THEN 0 END;
    END IF;
    RETURN coalesce((SELECT d.number FROM once.dictionaries d WHERE d.number = get_byte(p_name, 0) AND d.name = p_name
                                                                AND NOT d.retired), 0);
END
$$;

-- The number of the dictionary that something was packed with; NULL: none.
CREATE OR REPLACE FUNCTION once._packed_with(bytes bytea) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN bytes >= E'\\x80' THEN get_byte(bytes, 0) - 128 END;

-- As a caller with this dictionary can read it.
CREATE OR REPLACE FUNCTION once._payload_for(kind smallint, payload bytea, dictionary smallint) RETURNS bytea
LANGUAGE sql STABLE
RETURN CASE WHEN kind <> once._payload_response() OR payload = '' THEN payload
            WHEN get_byte(payload, 0) < 128 OR get_byte(payload, 0) - 128 = dictionary THEN payload
            ELSE coalesce(once._unpack(payload, 'bytes'), payload) END;

-- What cannot be unpacked is left out: a description must not cost a response.
CREATE OR REPLACE FUNCTION once._about_for(about bytea, dictionary smallint) RETURNS bytea
LANGUAGE sql STABLE
RETURN CASE WHEN about = '' THEN about
            WHEN get_byte(about, 0) < 128 OR get_byte(about, 0) - 128 = dictionary THEN about
            ELSE coalesce(once._unpack(about, 'about'), '') END;

CREATE OR REPLACE FUNCTION once._key_for(key bytea, dictionary smallint) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN dictionary IS NOT NULL OR length(key) <> 17 OR get_byte(key, 0) <> 0 THEN key
            ELSE convert_to(encode(substr(key, 2), 'hex')::uuid::text, 'UTF8') END;

-- The newest dictionary in use, if there is one. If that is still p_number, and old enough to be replaced, p_bytes and p_about become the next
-- one: a caller that packs badly with it proposes them. Each may be replaced when it is as many hours old as its number says.
CREATE OR REPLACE FUNCTION once.store_dictionary(p_number smallint, p_bytes bytea, p_about bytea,
    OUT number smallint, OUT bytes bytea, OUT about bytea, OUT name bytea)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_last CONSTANT integer := coalesce((SELECT max(d.number) FROM once.dictionaries d), 0);
    v_made timestamptz;
BEGIN
    SELECT d.number, d.bytes, d.about, d.name, d.made INTO number, bytes, about, name, v_made
    FROM once.dictionaries d WHERE NOT d.retired ORDER BY d.number DESC LIMIT 1;
    number := coalesce(number, 0);
    IF coalesce(p_bytes, '') = '' AND coalesce(p_about, '') = '' OR number <> p_number OR v_last >= 127 OR length(p_bytes) > 16384 OR length(p_about) > 16384
       OR v_made > clock_timestamp() - make_interval(hours => number)
       OR NOT pg_try_advisory_xact_lock(hashtextextended('once.dictionaries', 0)) THEN
        RETURN;
    END IF;
    INSERT INTO once.dictionaries AS d (number, bytes, about) VALUES (v_last + 1, coalesce(p_bytes, ''), coalesce(p_about, ''))
    ON CONFLICT DO NOTHING
    RETURNING d.number, d.bytes, d.about, d.name INTO number, bytes, about, name;
    number := coalesce(number, 0);
END
$$;

-- Parts of what a row's `about` says: for the view once.records, which calls them with the rights of its reader.
CREATE OR REPLACE FUNCTION once.about_description(about bytea) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_about bytea := once._about_for(about, NULL);
BEGIN
    IF length(v_about) < 2 OR get_byte(v_about, 0) <> 1 THEN
        RETURN NULL;
    END IF;
    RETURN nullif(once._header_text(substr(v_about, 3 + (get_byte(v_about, 1) & 127)
                                                    + CASE WHEN get_byte(v_about, 1) >= 128 THEN 16 ELSE 0 END)), '');
EXCEPTION WHEN OTHERS THEN -- not UTF-8: the other rows of the view do not suffer for it
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION once.about_holder(about bytea) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_about bytea := once._about_for(about, NULL);
BEGIN
    IF length(v_about) < 2 OR get_byte(v_about, 0) <> 1 THEN
        RETURN NULL;
    END IF;
    RETURN nullif(once._header_text(substr(v_about, 3, get_byte(v_about, 1) & 127)), '');
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;

-- The earlier attempts in the field of a cause, behind a byte 0 (lib/core/attempts.c).
CREATE OR REPLACE FUNCTION once._attempts_of(why bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN position(E'\\x00'::bytea IN why) > 0 THEN substr(why, position(E'\\x00'::bytea IN why) + 1) ELSE ''::bytea END;

-- The end of the attempt at p_from: NULL if there is none.
CREATE OR REPLACE FUNCTION once._attempt_end(p_attempts bytea, p_from integer) RETURNS integer
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_end integer;
BEGIN
    IF p_from + 8 > length(p_attempts) THEN
        RETURN NULL;
    END IF;
    v_end := p_from + 1 + get_byte(p_attempts, p_from);
    RETURN CASE WHEN v_end <= length(p_attempts) AND v_end - p_from - 8 >= (get_byte(p_attempts, p_from + 1) & 63) THEN v_end END;
END
$$;

-- The field: the cause, and the attempts that there is room for.
CREATE OR REPLACE FUNCTION once._why(p_cause bytea, p_attempts bytea) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_kept integer := 0;
    v_end integer;
BEGIN
    FOR n IN 1..8 LOOP
        v_end := once._attempt_end(p_attempts, v_kept);
        EXIT WHEN v_end IS NULL OR length(p_cause) + 1 + v_end > 255;
        v_kept := v_end;
    END LOOP;
    RETURN CASE WHEN v_kept = 0 THEN p_cause ELSE p_cause || E'\\x00'::bytea || substr(p_attempts, 1, v_kept) END;
END
$$;

-- What became of the last attempt of a row, before the next one is granted.
CREATE OR REPLACE FUNCTION once._attempt(p_state smallint, p_flags smallint, p_lease_until bigint, p_changed bigint, p_about bytea,
    p_cause bytea, p_kind smallint, p_payload bytea) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_by_lease CONSTANT boolean := p_state = once._state_pending() OR p_flags & once._flag_by_lease() <> 0;
    v_about CONSTANT bytea := once._about_for(p_about, NULL);
    v_holder bytea := '';
    v_text bytea := '';
    v_how integer := 0;
    v_len integer;
BEGIN
    IF length(v_about) >= 2 AND v_about >= E'\\x01' AND v_about < E'\\x02' THEN
        v_len := get_byte(v_about, 1) & 127;
        v_holder := CASE WHEN v_len <= 40 AND v_len <= length(v_about) - 2 THEN substr(v_about, 3, v_len) ELSE '' END;
    END IF;
    IF NOT v_by_lease THEN
        v_how := CASE p_state WHEN once._state_failed() THEN 1 ELSE 2 END;
        v_text := substr(p_cause, 1, coalesce(nullif(position(E'\\x00'::bytea IN p_cause), 0) - 1, length(p_cause)));
        v_text := substr(CASE WHEN v_text = '' AND p_kind = once._payload_note() THEN p_payload ELSE v_text END, 1, 40);
    END IF;
    RETURN set_byte(set_byte(E'\\x0000'::bytea, 0, 7 + length(v_holder) + length(v_text)), 1, v_how * 64 + length(v_holder))
           || substr(int8send(CASE WHEN v_by_lease THEN p_lease_until ELSE p_changed END), 3) || v_holder || v_text;
END
$$;

-- The text of a cause, without earlier attempts.
CREATE OR REPLACE FUNCTION once.about_text(bytes bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN once._header_text(substr(bytes, 1, coalesce(nullif(position(E'\\x00'::bytea IN bytes), 0) - 1, length(bytes))));
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;

-- The earlier attempts of a row, the newest first; NULL if it has none.
CREATE OR REPLACE FUNCTION once.about_attempts(epoch integer, cause bytea) RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_attempts CONSTANT bytea := once._attempts_of(cause);
    v_list jsonb;
    v_from integer := 0;
    v_end integer;
    v_how integer;
    v_holder integer;
BEGIN
    FOR n IN 1..least(8, epoch - 1) LOOP
        v_end := once._attempt_end(v_attempts, v_from);
        EXIT WHEN v_end IS NULL;
        v_how := get_byte(v_attempts, v_from + 1) >> 6;
        v_holder := get_byte(v_attempts, v_from + 1) & 63;
        v_list := coalesce(v_list, '[]') || jsonb_build_object(
            'epoch', epoch - n,
            'state', CASE v_how WHEN 1 THEN 'failed' ELSE 'unknown' END,
            'ended', to_timestamp(('x' || encode(substr(v_attempts, v_from + 3, 6), 'hex'))::bit(48)::bigint / 1000.0),
            'cause', CASE v_how WHEN 0 THEN 'lease over'
                                ELSE nullif(once.about_text(substr(v_attempts, v_from + 9 + v_holder, v_end - v_from - 8 - v_holder)), '') END,
            'holder', nullif(once.about_text(substr(v_attempts, v_from + 9, v_holder)), ''));
        v_from := v_end;
    END LOOP;
    RETURN v_list;
END
$$;
