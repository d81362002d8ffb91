-- The audit trail: what people have decided (docs/decisions/audit-trail.md).

SET LOCAL search_path = pg_catalog, pg_temp;

-- A row as a line. The owner of the table may have written anything into it: it stays one line.
CREATE OR REPLACE FUNCTION once._audit_line(p_row once.audit) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT translate(concat_ws(' ', p_row.number, p_row.prev, p_row.hash, p_row.entry), E'\n', ' ')
$$;

-- The number of the last entry, and what the next one has as PREV: its HASH, or, so that the trail goes on behind what is not an
-- entry, SHA-256 of that line. lib/core/audit.c (once__audit_follow) has the same rule.
CREATE OR REPLACE FUNCTION once._audit_end(OUT number bigint, OUT hash text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_line text;
BEGIN
    SELECT a.number, once._audit_line(a) INTO number, v_line FROM once.audit a ORDER BY a.number DESC LIMIT 1;
    IF v_line IS NULL THEN
        number := 0;
        hash := repeat('0', 64);
        RETURN;
    END IF;
    hash := CASE WHEN octet_length(v_line) <= 8192
                 THEN lower(substring(v_line FROM '^[1-9]\d{0,17} [0-9a-fA-F]{64} ([0-9a-fA-F]{64}) \{.*\}$')) END;
    hash := coalesce(hash, once._audit_hash(v_line));
END
$$;

CREATE OR REPLACE FUNCTION once._audit_hash(p_text text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT encode(sha256(convert_to(p_text, 'UTF8')), 'hex')
$$;

-- The transactions that keep others from adding to the trail: those that have decided something in SQL, and are open.
CREATE OR REPLACE FUNCTION once._audit_holders() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(string_agg(DISTINCT coalesce('process ' || l.pid || ' of ' || s.usename, 'a prepared transaction'), ', '), 'another process')
    FROM pg_locks l LEFT JOIN pg_stat_activity s ON s.pid = l.pid
    WHERE l.relation = 'once.audit'::regclass AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        AND l.granted AND l.mode <> 'AccessShareLock' AND l.pid IS DISTINCT FROM pg_backend_pid()
$$;

-- Adds an entry behind the first p_place ones. NULL: there are more, or fewer. Otherwise how many there are now. It must continue
-- the chain: what is refused here need not be believed later.
CREATE OR REPLACE FUNCTION once.audit_add(p_place bigint, p_line text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET lock_timeout = '3s'
AS $$
DECLARE
    v_parts CONSTANT text[] := regexp_match(p_line, '^([1-9]\d{0,17}) ([0-9a-f]{64}) ([0-9a-f]{64}) (\{[^\n]*\})$');
    v_end record;
BEGIN
    IF v_parts IS NULL OR octet_length(p_line) > 8192 OR v_parts[1]::bigint IS DISTINCT FROM p_place + 1
        OR v_parts[3] <> once._audit_hash(concat_ws(' ', v_parts[1], v_parts[2], v_parts[4]))
        OR json_typeof(v_parts[4]::json) IS NULL THEN
        PERFORM once._fail('ON004', 'this is not the next entry of the audit trail', 'Entries are added by once, and by once.settle.');
    END IF;
    LOCK TABLE once.audit IN ROW EXCLUSIVE MODE; -- not while a transaction that has decided something is open
    v_end := once._audit_end();
    IF p_place <> v_end.number THEN
        RETURN NULL;
    ELSIF v_parts[2] <> v_end.hash THEN
        PERFORM once._fail('ON004', 'this is not the next entry of the audit trail', 'It must name the hash of the last entry.');
    END IF;
    INSERT INTO once.audit (number, prev, hash, entry) VALUES (p_place + 1, v_parts[2], v_parts[3], v_parts[4])
    ON CONFLICT DO NOTHING; -- another transaction has just added this number
    RETURN CASE WHEN FOUND THEN p_place + 1 END;
EXCEPTION WHEN lock_not_available THEN
    PERFORM once._fail_audit_locked();
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
    FROM (SELECT (a).number, l.line, sum(octet_length(l.line)) OVER (ORDER BY (a).number) - octet_length(l.line) AS before
          FROM (SELECT f FROM once.audit f WHERE f.number > place ORDER BY f.number LIMIT 500) AS s (a)
          CROSS JOIN LATERAL once._audit_line(a) AS l (line)) AS t
    WHERE t.before < 65536;
END
$$;

-- Another transaction has the trail, and has had it for as long as callers wait.
CREATE OR REPLACE FUNCTION once._fail_audit_locked() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM once._fail('55P03', format('an open transaction keeps the audit trail locked: %s. Commit it or roll it back, or end it with'
        ' SELECT pg_terminate_backend(PROCESS)', once._audit_holders()),
        'It has called once.settle, once.purge, once.erase or once.outbox_*.');
END
$$;

-- Adds an entry in the transaction of what it is about: one that is decided in SQL. Such transactions come one after the other.
CREATE OR REPLACE FUNCTION once._audit(p_act text, p_by text, p_note text, p_words jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '3s'
AS $$
DECLARE
    v_entry CONSTANT text := jsonb_strip_nulls(jsonb_build_object(
        'time', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
        'by', coalesce(nullif(left(p_by, 128), ''), session_user || '@' || coalesce(host(inet_client_addr()), 'localhost')),
        'act', p_act, 'step', 'done', 'note', nullif(left(p_note, 200), '')) || p_words)::text;
    v_end record;
BEGIN
    LOCK TABLE once.audit IN SHARE ROW EXCLUSIVE MODE;
    v_end := once._audit_end();
    INSERT INTO once.audit (number, prev, hash, entry)
    VALUES (v_end.number + 1, v_end.hash, once._audit_hash(concat_ws(' ', v_end.number + 1, v_end.hash, v_entry)), v_entry);
EXCEPTION WHEN lock_not_available THEN
    PERFORM once._fail_audit_locked();
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
