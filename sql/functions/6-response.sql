-- Responses as payloads (docs/format.md, "A stored response"), plain: neither compressed nor sealed.

SET LOCAL search_path = pg_catalog, pg_temp;

-- Headers are an array of [name, value] pairs, in order, or an object.
CREATE OR REPLACE FUNCTION once.header_pairs(p_headers jsonb, OUT name text, OUT value text) RETURNS SETOF record
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT h.item ->> 0, h.item ->> 1
    FROM jsonb_array_elements(CASE jsonb_typeof(p_headers) WHEN 'array' THEN p_headers ELSE '[]' END)
         WITH ORDINALITY AS h (item, n)
    UNION ALL
    SELECT o.key, o.value
    FROM jsonb_each_text(CASE jsonb_typeof(p_headers) WHEN 'object' THEN p_headers ELSE '{}' END) AS o
$$;

CREATE OR REPLACE FUNCTION once.pack_response(p_headers jsonb, p_body bytea) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    headers bytea := ''::bytea;
    count integer := 0;
    pair record;
    value bytea;
    plain bytea;
BEGIN
    IF jsonb_typeof(p_headers) NOT IN ('array', 'object') THEN
        PERFORM once.fail('ON004', 'headers are an object, or an array of [name, value]');
    END IF;
    FOR pair IN SELECT * FROM once.header_pairs(coalesce(p_headers, '[]')) LOOP
        -- What ends a header early would let a value make headers of its own.
        IF coalesce(pair.name, '') !~ '^[-!#$%&''*+.^_`|~0-9A-Za-z]+$'
           OR coalesce(pair.value ~ E'[\x01-\x08\x0a-\x1f\x7f]', true) THEN
            PERFORM once.fail('ON004', 'a header has a name that is a token, and a value without control characters');
        END IF;
        value := convert_to(pair.value, 'UTF8');
        headers := headers || once.le32(length(pair.name)) || convert_to(pair.name, 'UTF8')
                   || once.le32(length(value)) || value;
        count := count + 1;
    END LOOP;
    IF count > 500 OR length(headers) - 8 * count > 262144 OR length(p_body) > 16777216 THEN
        PERFORM once.fail('ON004', 'the response is larger than 500 headers, 256 KiB of them, or 16 MiB of body');
    END IF;
    plain := once.le32(count) || headers || coalesce(p_body, ''::bytea);
    RETURN E'\\x0000000000'::bytea || once.le32(length(plain)) || plain;
END
$$;

CREATE OR REPLACE FUNCTION once.text_of(p_bytes bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN convert_from(p_bytes, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
    RETURN convert_from(p_bytes, 'LATIN1');
END
$$;

CREATE OR REPLACE FUNCTION once.unpack_response(p_payload bytea, OUT stored text, OUT headers jsonb, OUT body bytea)
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    flags integer := get_byte(p_payload, 0);
    at integer := 13;
    len integer;
    name text;
BEGIN
    IF flags & 3 <> 0 THEN
        stored := CASE WHEN flags & 2 <> 0 THEN 'sealed' ELSE 'compressed' END;
        RETURN;
    END IF;
    stored := CASE WHEN flags & 4 <> 0 THEN 'omitted' ELSE 'plain' END;
    headers := '[]';
    FOR i IN 1..once.get_le32(p_payload, 9) LOOP
        len := once.get_le32(p_payload, at);
        name := once.text_of(substr(p_payload, at + 5, len));
        at := at + 4 + len;
        len := once.get_le32(p_payload, at);
        headers := headers || jsonb_build_array(jsonb_build_array(name, once.text_of(substr(p_payload, at + 5, len))));
        at := at + 4 + len;
    END LOOP;
    body := substr(p_payload, at + 1);
END
$$;
