-- Responses as payloads (docs/format.md, "A stored response"), plain: neither compressed nor sealed.

SET LOCAL search_path = pg_catalog, pg_temp;

-- Headers are an array of [name, value] pairs, in order, or an object.
CREATE OR REPLACE FUNCTION once._pack_response(p_headers jsonb, p_body bytea) RETURNS bytea
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
        PERFORM once._fail('ON004', 'headers are an object, or an array of [name, value]',
            'For example {"Content-Type": "application/json"}, or [["Set-Cookie", "a=1"], ["Set-Cookie", "b=2"]].');
    END IF;
    FOR pair IN
        SELECT h.item ->> 0 AS name, h.item ->> 1 AS value
        FROM jsonb_array_elements(CASE jsonb_typeof(p_headers) WHEN 'array' THEN p_headers ELSE '[]' END)
             WITH ORDINALITY AS h (item, n)
        UNION ALL
        SELECT o.key, o.value FROM jsonb_each_text(CASE jsonb_typeof(p_headers) WHEN 'object' THEN p_headers ELSE '{}' END) AS o
    LOOP
        -- A value with a line break would add headers of its own.
        IF coalesce(pair.name, '') !~ '^[-!#$%&''*+.^_`|~0-9A-Za-z]+$'
           OR coalesce(pair.value ~ E'[\x01-\x08\x0a-\x1f\x7f]', true) THEN
            PERFORM once._fail('ON004', 'a header has a name that is a token, and a value without control characters',
                'Remove line breaks from values; names have letters, digits and hyphens.');
        END IF;
        value := convert_to(pair.value, 'UTF8');
        headers := headers || once._le32(length(pair.name)) || convert_to(pair.name, 'UTF8')
                   || once._le32(length(value)) || value;
        count := count + 1;
    END LOOP;
    IF count > 500 OR length(headers) - 8 * count > 262144 OR length(p_body) > 16777216 THEN
        PERFORM once._fail('ON004', 'the response is larger than 500 headers, 256 KiB of them, or 16 MiB of body',
            'Record a smaller response, such as the address of the result.');
    END IF;
    plain := once._le32(count) || headers || coalesce(p_body, ''::bytea);
    RETURN E'\\x0000000000'::bytea || once._le32(length(plain)) || plain;
END
$$;

-- UTF-8 if it is valid, else ISO 8859-1.
CREATE OR REPLACE FUNCTION once._header_text(p_bytes bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN convert_from(p_bytes, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
    RETURN convert_from(p_bytes, 'LATIN1');
END
$$;

-- Only a plain payload can be read in SQL; of others `stored` says why not.
CREATE OR REPLACE FUNCTION once._unpack_response(p_payload bytea, OUT stored text, OUT headers jsonb, OUT body bytea)
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    flags integer := CASE WHEN p_payload <> '' THEN get_byte(p_payload, 0) END;
    compressed CONSTANT integer := 1;
    sealed CONSTANT integer := 2;
    omitted CONSTANT integer := 4;
    at integer := 13;
    len integer;
    name text;
BEGIN
    IF flags IS NULL THEN
        stored := 'erased';
        headers := '[]';
        body := '';
        RETURN;
    END IF;
    IF flags & (compressed | sealed | 128 /* its dictionary is gone */) <> 0 THEN
        stored := CASE WHEN flags & sealed <> 0 THEN 'sealed' ELSE 'compressed' END;
        RETURN;
    END IF;
    stored := CASE WHEN flags & omitted <> 0 THEN 'omitted' ELSE 'plain' END;
    headers := '[]';
    FOR i IN 1..once._read_le32(p_payload, 9) LOOP
        len := once._read_le32(p_payload, at);
        name := once._header_text(substr(p_payload, at + 5, len));
        at := at + 4 + len;
        len := once._read_le32(p_payload, at);
        headers := headers || jsonb_build_array(jsonb_build_array(name, once._header_text(substr(p_payload, at + 5, len))));
        at := at + 4 + len;
    END LOOP;
    body := substr(p_payload, at + 1);
END
$$;
