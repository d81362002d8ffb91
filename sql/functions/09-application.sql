-- For applications, in their own transactions: the effect and its record commit together, or not at all.

SET LOCAL search_path = pg_catalog, pg_temp;

CREATE OR REPLACE FUNCTION once._token_encode(p_id bytea, p_epoch integer, p_claim bytea) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN rtrim(translate(encode(p_id || once._le32(p_epoch) || p_claim, 'base64'), E'+/\n', '-_'), '=');

CREATE OR REPLACE FUNCTION once._token_decode(p_token text, OUT id bytea, OUT epoch integer, OUT claim bytea)
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    raw bytea;
BEGIN
    IF p_token IS NULL OR p_token !~ '^[A-Za-z0-9_-]{70}$' THEN
        PERFORM once._fail('ON004', 'this is not a claim',
            'A claim is the value of the request''s header Once-Claim, or comes from once.claim. Is the request coming through'
            ' once gate?');
    END IF;
    raw := decode(translate(p_token, '-_', '+/') || '==', 'base64');
    id := substr(raw, 1, 32);
    epoch := once._read_le32(raw, 32);
    claim := substr(raw, 37, 16);
END
$$;

-- An answer of once.store_claim as once.claim returns it.
CREATE OR REPLACE FUNCTION once._claim_result(p_answer once.answer) RETURNS once.claimed
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    result once.claimed;
    response record;
BEGIN
    result.outcome := once._outcome_name(p_answer.outcome);
    result.epoch := p_answer.epoch;
    CASE result.outcome
    WHEN 'run', 'mine' THEN
        result.claim := once._token_encode(p_answer.id, p_answer.epoch, p_answer.claim);
    WHEN 'busy' THEN
        result.retry_after := make_interval(secs => greatest(p_answer.lease_until - p_answer.now, 1) / 1000.0);
    WHEN 'replay' THEN
        SELECT * INTO response FROM once._unpack_response(p_answer.payload);
        result.status := p_answer.status;
        result.headers := response.headers;
        result.body := response.body;
        result.stored := response.stored;
        result.expires := to_timestamp(nullif(p_answer.expires, 0) / 1000.0);
    ELSE NULL;
    END CASE;
    RETURN result;
END
$$;

-- Each claim takes an entry of the server's lock table until its transaction ends. When the table is full, every transaction of the
-- server that locks anything fails. So the transaction that is about to fill it fails first.
CREATE OR REPLACE FUNCTION once._count_claim() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_count bigint := coalesce(nullif(current_setting('once.claims', true), ''), '0')::bigint + 1;
    v_most bigint := current_setting('max_locks_per_transaction')::bigint
        * (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint) * 3 / 4;
BEGIN
    IF v_count > v_most THEN
        PERFORM once._fail('53200', format('this transaction has %s claims, which take three quarters of the server''s lock table',
            v_most), 'Commit in between, or raise max_locks_per_transaction.');
    END IF;
    PERFORM set_config('once.claims', v_count::text, true);
END
$$;

-- Text for people, of at most p_bytes: what no terminal should see becomes a question mark (lib/core/about.c).
CREATE OR REPLACE FUNCTION once._clean(p_text text, p_bytes integer) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_text text := left(p_text, p_bytes);
BEGIN
    IF v_text ~ E'[\\x01-\\x1f\\x7f-\\x9f]' THEN
        v_text := regexp_replace(v_text, E'[\\x01-\\x1f\\x7f-\\x9f]', '?', 'g');
    END IF;
    WHILE octet_length(convert_to(v_text, 'UTF8')) > p_bytes LOOP
        v_text := left(v_text, -1);
    END LOOP;
    RETURN convert_to(v_text, 'UTF8');
END
$$;

-- What a record says about itself (docs/format.md): the holder is the client's host and the server's process.
CREATE OR REPLACE FUNCTION once._about(p_description text) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_holder CONSTANT bytea := convert_to(coalesce(host(inet_client_addr()), 'localhost') || ':' || pg_backend_pid(), 'UTF8');
BEGIN
    RETURN set_byte(E'\\x0100'::bytea, 1, length(v_holder)) || v_holder || once._clean(p_description, 256);
END
$$;

-- Asks whether to run. The claim belongs to this transaction: others see it when the transaction commits, and never if it does not.
-- Waits for another transaction that has the key, and then answers with its outcome; with wait => false the answer is busy.
CREATE OR REPLACE FUNCTION once.claim(scope text, key text, method text DEFAULT '', target text DEFAULT '',
    body anycompatible DEFAULT ''::text, recover text DEFAULT 'transactional', lease interval DEFAULT '30 seconds',
    ttl interval DEFAULT '24 hours', wait boolean DEFAULT true, claim_id uuid DEFAULT gen_random_uuid(),
    description text DEFAULT NULL)
RETURNS once.claimed
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_key bytea := convert_to(key, 'UTF8');
    v_recover smallint := once._recover_number(recover);
    v_lease_ms bigint := once._checked_ms('lease', lease, '24 hours');
    v_ttl_ms bigint := once._checked_ms('ttl', ttl, '3650 days');
    v_id bytea;
    answer once.answer;
BEGIN
    IF coalesce(length(v_key), 0) NOT BETWEEN 1 AND 255 THEN
        PERFORM once._fail('ON004', 'a key has 1 to 255 bytes', 'Pass the Idempotency-Key of the request, or a hash of it.');
    ELSIF num_nulls(scope, method, target, body, wait, claim_id) > 0 THEN -- the fingerprint of NULL would match everything
        PERFORM once._fail('ON004', 'no argument may be null', 'Leave an argument out to use its default.');
    END IF;
    v_id := once._record_id(scope, key);
    PERFORM once._count_claim();
    IF wait THEN
        PERFORM once._lock_record(v_id);
    END IF;
    SELECT * INTO answer FROM once.store_claim(once._schema(), ARRAY[v_id], ARRAY[uuid_send(claim_id)], ARRAY[v_recover],
        ARRAY[v_lease_ms], ARRAY[v_ttl_ms], ARRAY[once._fingerprints(scope, method, target, once._to_bytes(body))],
        ARRAY[once._scope_hash(scope)], ARRAY[v_key], NULL,
        ARRAY[once._about(coalesce(description, ltrim(method || ' ' || split_part(target, '?', 1))))]);
    IF answer.outcome IS NULL THEN
        RETURN ROW('busy', NULL, NULL, interval '1 ms', NULL, NULL, NULL, NULL, NULL)::once.claimed;
    END IF;
    IF answer.id IS NULL THEN -- new
        answer.id := v_id;
        answer.epoch := 1;
        answer.claim := uuid_send(claim_id);
    END IF;
    RETURN once._claim_result(answer);
END
$$;

-- One event on the record of a claim. Waits for another transaction that has it. Fails unless it is done. Returns the record's id.
CREATE OR REPLACE FUNCTION once._apply(p_event smallint, p_token text, p_force boolean DEFAULT false, p_lease_ms bigint DEFAULT 0,
    p_ttl_ms bigint DEFAULT 0, p_kind smallint DEFAULT once._payload_none(), p_status integer DEFAULT 0,
    p_payload bytea DEFAULT NULL, p_cause text DEFAULT '')
RETURNS bytea
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    t record := once._token_decode(p_token);
    v_outcome smallint;
BEGIN
    PERFORM once._lock_record(t.id);
    SELECT a.outcome INTO v_outcome
    FROM once.store_apply(once._schema(), ARRAY[t.id], ARRAY[p_event], ARRAY[t.epoch], ARRAY[t.claim], ARRAY[p_force],
        ARRAY[p_lease_ms], ARRAY[p_ttl_ms], ARRAY[p_kind], ARRAY[p_status::smallint], ARRAY[p_payload],
        ARRAY[once._clean(p_cause, 160)]) AS a;
    IF v_outcome IS DISTINCT FROM once._outcome_done() THEN
        PERFORM once._fail_claim(once._outcome_name(v_outcome));
    END IF;
    RETURN t.id;
END
$$;

-- Records the response. Not idempotent, on purpose: a transaction that is repeated after a lost COMMIT reply, or a request that was
-- delivered twice, must not act twice. It fails here and rolls back.
CREATE OR REPLACE FUNCTION once.complete(claim text, status integer, headers jsonb DEFAULT '[]',
    body anycompatible DEFAULT ''::text, retain interval DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_id bytea;
BEGIN
    IF status NOT BETWEEN 200 AND 599 OR status IS NULL THEN
        PERFORM once._fail('ON004', 'the status of a response is 200 to 599', 'Pass the status that the client gets.');
    END IF;
    v_id := once._apply(once._event_complete(), claim,
        p_ttl_ms => CASE WHEN retain IS NULL THEN 0 ELSE once._checked_ms('retention', retain, '3650 days') END,
        p_kind => once._payload_response(), p_status => status, p_payload => once._pack_response(headers, once._to_bytes(body)));
    DELETE FROM once.emitted e WHERE e.record = v_id; -- no event will be emitted for it any more
END
$$;

-- The same for drivers that send headers as a string.
CREATE OR REPLACE FUNCTION once.complete(claim text, status integer, headers text, body anycompatible DEFAULT ''::text,
    retain interval DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM once.complete(claim, status, headers::jsonb, once._to_bytes(body), retain);
END
$$;

CREATE OR REPLACE FUNCTION once._note_bytes(p_note text) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN substr(convert_to(coalesce(p_note, ''), 'UTF8'), 1, 200);
END
$$;

-- The status beside a note; 0 if there was none.
CREATE OR REPLACE FUNCTION once._note_status(p_status integer) RETURNS integer
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF coalesce(p_status, 0) <> 0 AND p_status NOT BETWEEN 100 AND 999 THEN
        PERFORM once._fail('ON004', 'a status is 100 to 999, or 0', 'Leave it out if there was no response.');
    END IF;
    RETURN coalesce(p_status, 0);
END
$$;

-- The lease that the caller passed, or 0: the record's own.
CREATE OR REPLACE FUNCTION once._lease_ms_or_own(p_lease interval) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN CASE WHEN p_lease IS NULL THEN 0 ELSE once._checked_ms('lease', p_lease, '24 hours') END;
END
$$;

-- The operation certainly did not take effect, or may be repeated. The call itself may be repeated. early: it ended before any
-- effect, so that the key need not be remembered for long.
CREATE OR REPLACE FUNCTION once.release(claim text, status integer DEFAULT 0, note text DEFAULT '', early boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM once._apply(once._event_release(), claim, p_ttl_ms => CASE WHEN early THEN 1 ELSE 0 END, p_kind => once._payload_note(),
        p_status => once._note_status(status), p_payload => once._note_bytes(note));
END
$$;

-- It is not known whether the operation took effect.
CREATE OR REPLACE FUNCTION once.doubt(claim text, lease interval DEFAULT NULL, cause text DEFAULT '') RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM once._apply(once._event_doubt(), claim, p_lease_ms => once._lease_ms_or_own(lease), p_cause => coalesce(cause, ''));
END
$$;

-- The holder is still at work. Fails for a worker that is no longer the holder.
CREATE OR REPLACE FUNCTION once.renew(claim text, lease interval DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM once._apply(once._event_renew(), claim, p_lease_ms => once._lease_ms_or_own(lease));
END
$$;

-- Decides a record that is unknown, or pending with its lease over. outcome: completed (with this response), or failed (it has not
-- happened and no longer can).
CREATE OR REPLACE FUNCTION once.settle(claim text, outcome text, status integer DEFAULT 0, headers jsonb DEFAULT '[]',
    body anycompatible DEFAULT ''::text, note text DEFAULT '', force boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF outcome = 'completed' AND status BETWEEN 200 AND 599 THEN
        PERFORM once._audit_claim('settle completed', outcome, note, claim);
        PERFORM once._apply(once._event_settle_completed(), claim, p_force => coalesce(force, false),
            p_kind => once._payload_response(), p_status => status,
            p_payload => once._pack_response(headers, once._to_bytes(body)),
            p_cause => concat('settled by ', session_user, ': ', note));
    ELSIF outcome = 'failed' THEN
        PERFORM once._audit_claim('settle failed', outcome, note, claim);
        PERFORM once._apply(once._event_settle_failed(), claim, p_force => coalesce(force, false), p_kind => once._payload_note(),
            p_status => once._note_status(status), p_payload => once._note_bytes(note),
            p_cause => concat('settled by ', session_user, ': ', note));
    ELSE
        PERFORM once._fail('ON004', 'outcome is completed (with a status of 200 to 599) or failed',
            'completed: it has happened, with this response. failed: it has not happened, and no longer can.');
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION once.settle(claim text, outcome text, status integer, headers text,
    body anycompatible DEFAULT ''::text, note text DEFAULT '', force boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM once.settle(claim, outcome, status, headers::jsonb, once._to_bytes(body), note, force);
END
$$;

-- Removes a record: the key counts as never used.
CREATE OR REPLACE FUNCTION once.purge(claim text, force boolean DEFAULT false, note text DEFAULT '') RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM once._audit_claim('purge', 'none', note, claim);
    PERFORM once._apply(once._event_purge(), claim, p_force => coalesce(force, false));
END
$$;

-- Erases the texts of a record: key, description, holder, subject, cause, note, headers and body. Its outcome and status stay.
CREATE OR REPLACE FUNCTION once.erase(claim text, note text DEFAULT '') RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    t CONSTANT record := once._token_decode(claim);
    v_state smallint;
BEGIN
    PERFORM once._lock_record(t.id);
    SELECT k.state INTO v_state FROM once.keys k
    WHERE k.id = once._short_id(t.id) AND k.tail = substr(t.id, 17) AND k.epoch = t.epoch AND k.claim = t.claim;
    IF v_state IN (once._state_pending(), once._state_unknown()) THEN
        PERFORM once._fail('ON006', 'refused: only a completed or failed record can be erased',
            'Settle it first (once.settle): its key and description are all that says what it was.');
    END IF;
    PERFORM once._audit_claim('erase', (ARRAY['pending', 'completed', 'failed', 'unknown'])[v_state], note, claim);
    PERFORM once._apply(once._event_erase(), claim);
END
$$;

-- Reads a record without asking to run. No row if there is none.
CREATE OR REPLACE FUNCTION once.get(scope text, key text) RETURNS SETOF once.records
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.* FROM once._record_id($1, $2) AS i, once.records r WHERE r.half = once._short_id(i) AND r.id = i
$$;

-- Locks the record of a claim until the transaction ends. Fails unless the claim holds.
CREATE OR REPLACE FUNCTION once._lock_claim(p_token text, OUT id bytea, OUT created bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    t record := once._token_decode(p_token);
    v_state smallint;
BEGIN
    PERFORM once._lock_record(t.id);
    SELECT t.id, k.created, k.state INTO id, created, v_state FROM once.keys k
    WHERE k.id = once._short_id(t.id) AND k.tail = substr(t.id, 17) AND k.epoch = t.epoch AND k.claim = t.claim;
    IF v_state = once._state_completed() THEN
        PERFORM once._fail_claim('already');
    ELSIF v_state IS NULL OR v_state = once._state_failed() THEN
        PERFORM once._fail_claim('lost');
    END IF;
END
$$;

-- Work of several steps: the last step that is done, and what the next one needs. Call it in the transaction of the step.
CREATE OR REPLACE FUNCTION once.checkpoint(claim text, name text, state jsonb DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    held record := once._lock_claim(claim);
BEGIN
    IF name IS NULL THEN
        PERFORM once._fail('ON004', 'a checkpoint has a name', 'Name the step that is done.');
    END IF;
    INSERT INTO once.checkpoints AS c (id, created, name, state) VALUES (held.id, held.created, $2, $3)
    ON CONFLICT (id) DO UPDATE SET created = excluded.created, name = excluded.name, state = excluded.state, at = excluded.at;
END
$$;

CREATE OR REPLACE FUNCTION once.checkpoint(claim text, name text, state text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM once.checkpoint(claim, name, state::jsonb);
END
$$;

-- The last checkpoint of the record, whichever claim of it set it. No row: begin at the beginning.
CREATE OR REPLACE FUNCTION once.resume(claim text) RETURNS TABLE (name text, state jsonb, at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    held record := once._lock_claim(claim);
BEGIN
    RETURN QUERY SELECT c.name, c.state, c.at FROM once.checkpoints c WHERE c.id = held.id AND c.created = held.created;
END
$$;

-- Locks a natural key (an account, an order) until the transaction ends: one transaction at a time.
CREATE OR REPLACE FUNCTION once.lock(natural_key text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF natural_key IS NULL THEN
        PERFORM once._fail('ON004', 'there is nothing to lock', 'Pass the natural key, such as the number of the account.');
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(natural_key, 7378697629483820646));
END
$$;
-- A key for one step of a larger operation, to be sent to a third party: the same in every attempt, another one for every record
-- and step, and after the record has expired. Fails for a claim that was taken over.
CREATE OR REPLACE FUNCTION once.derive(claim text, step text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    t record := once._token_decode(claim);
    v_created bigint := (SELECT k.created FROM once.keys k WHERE k.id = once._short_id(t.id) AND k.tail = substr(t.id, 17)
                                                               AND k.epoch = t.epoch AND k.claim = t.claim);
    bits bit varying;
BEGIN
    IF coalesce(step, '') = '' THEN
        PERFORM once._fail('ON004', 'a derived key needs a step', 'Name the call that the key is for, such as charge.');
    ELSIF v_created IS NULL THEN
        PERFORM once._fail_claim('lost');
    END IF;
    bits := ('x' || encode(sha256(once._framed('once derive 2') || once._framed(t.id) || once._framed(int8send(v_created))
                                  || once._framed(convert_to(step, 'UTF8'))), 'hex'))::bit(256) || B'0000';
    RETURN 'd2-' || (SELECT string_agg(substr('abcdefghijklmnopqrstuvwxyz234567',
                                              substring(bits, 5 * n + 1, 5)::bit(5)::integer + 1, 1), '' ORDER BY n)
                     FROM generate_series(0, 51) AS n);
END
$$;

-- The response that this very claim recorded: for a backend that repeated its transaction, or got its request twice, and was
-- refused with ON002. No row if this claim recorded none, even if a later claim of the record did.
CREATE OR REPLACE FUNCTION once.recorded(claim text) RETURNS SETOF once.claimed
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    t record := once._token_decode(claim);
    result once.claimed;
    response record;
BEGIN
    SELECT k.status, k.expires, r.* INTO response
    FROM once.keys k, LATERAL once._unpack_response(once._payload_for(k.kind, k.payload, NULL)) AS r
    WHERE k.id = once._short_id(t.id) AND k.tail = substr(t.id, 17) AND k.epoch = t.epoch AND k.claim = t.claim
      AND k.state = once._state_completed() AND once._now_ms() < k.expires;
    IF FOUND THEN
        PERFORM once._await_standby();
        result.outcome := 'replay';
        result.epoch := t.epoch;
        result.status := response.status;
        result.headers := response.headers;
        result.body := response.body;
        result.stored := response.stored;
        result.expires := to_timestamp(nullif(response.expires, 0) / 1000.0);
        RETURN NEXT result;
    END IF;
END
$$;
