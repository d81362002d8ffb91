-- The secrets of the installation: text for the gateways, keys for HMAC in SQL.

SET LOCAL search_path = pg_catalog, pg_temp;

CREATE OR REPLACE FUNCTION once._hmac_pad(secret bytea, with_byte integer) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    padded bytea := secret || decode(repeat('00', 64 - length(secret)), 'hex');
BEGIN
    FOR i IN 0..63 LOOP
        padded := set_byte(padded, i, get_byte(padded, i) # with_byte);
    END LOOP;
    RETURN padded;
END
$$;

-- Keeps what HMAC needs of each secret. The row `mark` identifies the record secret without revealing it (lib/core/secrets.h): a
-- claim of a gateway carries the mark of its own.
CREATE OR REPLACE FUNCTION once._secrets_store(p_text text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM once.secret_pads;
    INSERT INTO once.secret_pads
        SELECT split_part(line, ' ', 1),
               CASE WHEN line LIKE 'record %' THEN 0 ELSE split_part(line, ' ', 2)::bigint END,
               once._hmac_pad(secret, 54), once._hmac_pad(secret, 92)
        FROM (SELECT line, decode(substring(line FROM '[0-9a-f]{64}$'), 'hex') AS secret
              FROM regexp_split_to_table(p_text, E'\n') AS line
              WHERE line ~ '^(record|fingerprint) .*[0-9a-f]{64}$') AS secrets;
    INSERT INTO once.secret_pads
        SELECT 'mark', 0, substr(sha256(s.outer_pad || sha256(s.inner_pad || once._framed('mark'))), 1, 16), ''
        FROM once.secret_pads s WHERE s.name = 'record';
END
$$;

-- Secrets that were stored before there were marks.
SELECT once._secrets_store(s.text) FROM once.secrets s WHERE NOT EXISTS (SELECT FROM once.secret_pads p WHERE p.name = 'mark');

-- Returns the text; p_new becomes the text if there is none yet. NULL: there are records, but the secrets that made their ids are
-- gone. Only p_new with the same record secret, as p_mark shows, is accepted then.
CREATE OR REPLACE FUNCTION once.store_secrets_load(p_new text, p_mark bytea DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found_text text;
BEGIN
    SELECT s.text INTO found_text FROM once.secrets s;
    IF found_text IS NULL THEN
        IF EXISTS (SELECT FROM once.keys) AND p_mark IS DISTINCT FROM
           coalesce((SELECT p.inner_pad FROM once.secret_pads p WHERE p.name = 'mark'), ''::bytea) THEN
            RETURN NULL;
        END IF;
        INSERT INTO once.secrets (text) VALUES (p_new) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            PERFORM once._secrets_store(p_new);
        END IF;
        SELECT s.text INTO found_text FROM once.secrets s;
    END IF;
    RETURN found_text;
END
$$;

-- Replaces the text by p_new if it is still p_old. Returns the text as it is afterwards.
CREATE OR REPLACE FUNCTION once.store_secrets_swap(p_old text, p_new text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE once.secrets s SET text = p_new WHERE s.text = p_old;
    IF FOUND THEN
        PERFORM once._secrets_store(p_new);
    END IF;
    RETURN (SELECT s.text FROM once.secrets s);
END
$$;

-- HMAC-SHA-256 with a secret of the installation.
CREATE OR REPLACE FUNCTION once._hmac(p_name text, p_id bigint, p_data bytea) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    pads once.secret_pads;
BEGIN
    SELECT * INTO pads FROM once.secret_pads s WHERE s.name = p_name AND s.id = p_id;
    IF pads.name IS NULL THEN
        PERFORM once._fail('ON005', 'there are no secrets in this database',
            'A program that opens this store makes them, such as once stats. If they are in a file (secrets=file:PATH), SQL cannot'
            ' find records.');
    END IF;
    RETURN sha256(pads.outer_pad || sha256(pads.inner_pad || p_data));
END
$$;

-- The next three are in PL/pgSQL because a function in SQL that sets search_path would be planned for each call.

-- The id of (scope, key) as gateways compute it (docs/format.md).
CREATE OR REPLACE FUNCTION once._record_id(p_scope text, p_key text) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN once._hmac('record', 0, once._framed('id') || once._framed(convert_to(p_scope, 'UTF8'))
                                   || once._framed(convert_to(p_key, 'UTF8')));
END
$$;

CREATE OR REPLACE FUNCTION once._scope_hash(p_scope text) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN substr(once._hmac('record', 0, once._framed('scope') || once._framed(convert_to(p_scope, 'UTF8'))), 1, 16);
END
$$;

-- The fingerprint under each live secret, the newest first, one after the other. Mode 1: the exact body.
CREATE OR REPLACE FUNCTION once._fingerprints(p_scope text, p_method text, p_target text, p_body bytea) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT string_agg(once._le32(s.id::integer) || E'\\x01'::bytea || once._hmac('fingerprint', s.id,
                       once._framed('fingerprint') || once._framed(E'\\x01') || once._framed(convert_to(p_scope, 'UTF8'))
                       || once._framed(convert_to(p_method, 'UTF8')) || once._framed(convert_to(p_target, 'UTF8'))
                       || once._framed(sha256(p_body))), ''::bytea ORDER BY s.id DESC)
            FROM once.secret_pads s WHERE s.name = 'fingerprint');
END
$$;
