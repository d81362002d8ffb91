-- The audit trail: what people have decided (docs/decisions/audit-trail.md).

SET LOCAL search_path = pg_catalog, pg_temp;

-- Adds an entry behind the first p_place ones. NULL: there are more, or fewer. Otherwise how many there are now.
CREATE OR REPLACE FUNCTION once.audit_add(p_place bigint, p_line text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_parts CONSTANT text[] := regexp_match(p_line, '^(\d{1,18}) ([0-9a-f]{64}) ([0-9a-f]{64}) (\{.*\})$');
BEGIN
    IF v_parts IS NULL OR v_parts[1]::bigint <> p_place + 1 THEN
        PERFORM once._fail('ON004', 'this is not the next entry of the audit trail', 'Entries are added by once, and by once.settle.');
    ELSIF p_place <> coalesce((SELECT a.number FROM once.audit a ORDER BY a.number DESC LIMIT 1), 0) THEN
        RETURN NULL;
    END IF;
    INSERT INTO once.audit (number, prev, hash, entry) VALUES (p_place + 1, v_parts[2], v_parts[3], v_parts[4])
    ON CONFLICT DO NOTHING; -- another transaction has just added this number
    RETURN CASE WHEN FOUND THEN p_place + 1 END;
END
$$;

-- Entries behind the first p_place ones, as many as fit in 64 KiB but at least one; -1: the last one. `place` is how many come
-- before what follows them.
CREATE OR REPLACE FUNCTION once.audit_read(p_place bigint, OUT place bigint, OUT lines text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    place := CASE WHEN p_place >= 0 THEN p_place
                  ELSE coalesce((SELECT a.number - 1 FROM once.audit a ORDER BY a.number DESC LIMIT 1), 0) END;
    SELECT coalesce(max(t.number), place), string_agg(t.line || E'\n', '' ORDER BY t.number) INTO place, lines
    FROM (SELECT a.number, l.line, sum(octet_length(l.line)) OVER (ORDER BY a.number) - octet_length(l.line) AS before
          FROM (SELECT * FROM once.audit f WHERE f.number > place ORDER BY f.number LIMIT 500) AS a
          CROSS JOIN LATERAL concat_ws(' ', a.number, a.prev, a.hash, a.entry) AS l (line)) AS t
    WHERE t.before < 65536;
END
$$;

-- Adds an entry in the transaction of what it is about: one that is decided in SQL. Such transactions come one after the other.
CREATE OR REPLACE FUNCTION once._audit(p_act text, p_by text, p_note text, p_words jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_entry CONSTANT text := jsonb_strip_nulls(jsonb_build_object(
        'time', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
        'by', coalesce(nullif(left(p_by, 128), ''), session_user || '@' || coalesce(host(inet_client_addr()), 'localhost')),
        'act', p_act, 'step', 'done', 'note', nullif(left(p_note, 200), '')) || p_words)::text;
    v_number bigint;
    v_prev text;
BEGIN
    LOCK TABLE once.audit IN SHARE ROW EXCLUSIVE MODE;
    SELECT a.number, a.hash INTO v_number, v_prev FROM once.audit a ORDER BY a.number DESC LIMIT 1;
    v_number := coalesce(v_number, 0) + 1;
    v_prev := coalesce(v_prev, repeat('0', 64));
    INSERT INTO once.audit (number, prev, hash, entry)
    VALUES (v_number, v_prev, encode(sha256(convert_to(concat_ws(' ', v_number, v_prev, v_entry), 'UTF8')), 'hex'), v_entry);
END
$$;

-- The same about a claim, before the decision takes effect: `from` is the state that the record has now.
CREATE OR REPLACE FUNCTION once._audit_claim(p_act text, p_to text, p_note text, p_token text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    t CONSTANT record := once._token_decode(p_token);
    v_state CONSTANT smallint := (SELECT k.state FROM once.keys k WHERE k.id = once._short_id(t.id) AND k.tail = substr(t.id, 17));
BEGIN
    PERFORM once._audit(p_act, NULL, p_note, jsonb_build_object('record', encode(t.id, 'hex'), 'claim', encode(t.claim, 'hex'),
        'epoch', t.epoch, 'from', (ARRAY['pending', 'completed', 'failed', 'unknown'])[v_state], 'to', p_to, 'result', 'done'));
END
$$;
