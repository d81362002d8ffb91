-- For applications, in their own transactions. The effect and its record commit together, or not at all.

SET LOCAL search_path = pg_catalog, pg_temp;

CREATE OR REPLACE FUNCTION once.token(p_id bytea, p_epoch integer, p_claim bytea) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN rtrim(translate(encode(p_id || once.le32(p_epoch) || p_claim, 'base64'), E'+/\n', '-_'), '=');

CREATE OR REPLACE FUNCTION once.token_read(p_token text, OUT id bytea, OUT epoch integer, OUT claim bytea)
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    raw bytea;
BEGIN
    IF p_token IS NULL OR p_token !~ '^[A-Za-z0-9_-]{70}$' THEN
        PERFORM once.fail('ON004', 'this is not a claim',
            'A claim is the request''s header Once-Claim, or comes from once.claim. Does the request come through the gateway?');
    END IF;
    raw := decode(translate(p_token, '-_', '+/') || '==', 'base64');
    id := substr(raw, 1, 32);
    epoch := once.get_le32(raw, 32);
    claim := substr(raw, 37, 16);
END
$$;

CREATE OR REPLACE FUNCTION once.recover_of(p_recover text) RETURNS smallint
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    n integer := array_position(ARRAY['retry', 'transactional', 'hold'], p_recover) - 1;
BEGIN
    IF n IS NULL THEN
        PERFORM once.fail('ON004', 'recover is retry, transactional or hold');
    END IF;
    RETURN n;
END
$$;

CREATE OR REPLACE FUNCTION once.told(p_answer once.answer) RETURNS once.claimed
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    told once.claimed;
    response record;
BEGIN
    told.outcome := CASE p_answer.outcome WHEN 1 THEN 'run' WHEN 2 THEN 'replay' WHEN 3 THEN 'busy' WHEN 4 THEN 'mismatch'
                                          WHEN 5 THEN 'unknown' WHEN 8 THEN 'lost' WHEN 32 THEN 'mine' END;
    told.epoch := p_answer.epoch;
    IF p_answer.outcome IN (1, 32) THEN
        told.claim := once.token(p_answer.id, p_answer.epoch, p_answer.claim);
    ELSIF p_answer.outcome = 3 THEN
        told.retry_after := make_interval(secs => greatest(p_answer.lease_until - p_answer.now, 1) / 1000.0);
    ELSIF p_answer.outcome = 2 THEN
        SELECT * INTO response FROM once.unpack_response(p_answer.payload);
        told.status := p_answer.status;
        told.headers := response.headers;
        told.body := response.body;
        told.stored := response.stored;
    END IF;
    RETURN told;
END
$$;

-- Each claim takes an entry of the server's lock table until its transaction ends. When that is full, every transaction of the server
-- fails that locks anything: the one that is about to fill it fails before.
CREATE OR REPLACE FUNCTION once.count_claim() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_count bigint := coalesce(nullif(current_setting('once.claims', true), ''), '0')::bigint + 1;
    v_most bigint := current_setting('max_locks_per_transaction')::bigint
        * (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint) * 3 / 4;
BEGIN
    IF v_count > v_most THEN
        PERFORM once.fail('53200', format('this transaction has %s claims, which take three quarters of the server''s lock table',
            v_most), 'Commit in between, or raise max_locks_per_transaction.');
    END IF;
    PERFORM set_config('once.claims', v_count::text, true);
END
$$;

-- Asks whether to run. The claim belongs to this transaction: it is there for others when it commits, and was never there
-- when it does not. Waits for another transaction that has the key, and is then told its outcome; wait => false: busy.
CREATE OR REPLACE FUNCTION once.claim(scope text, key text, method text DEFAULT '', target text DEFAULT '',
    body anycompatible DEFAULT ''::text, recover text DEFAULT 'transactional', lease interval DEFAULT '30 seconds',
    ttl interval DEFAULT '24 hours', wait boolean DEFAULT true, claim_id uuid DEFAULT gen_random_uuid())
RETURNS once.claimed
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_key bytea := convert_to(key, 'UTF8');
    v_recover smallint := once.recover_of(recover);
    v_lease_ms bigint := once.span('lease', lease, '24 hours');
    v_ttl_ms bigint := once.span('ttl', ttl, '3650 days');
    v_id bytea;
    answer once.answer;
BEGIN
    IF coalesce(length(v_key), 0) NOT BETWEEN 1 AND 255 THEN
        PERFORM once.fail('ON004', 'a key has 1 to 255 bytes');
    ELSIF num_nulls(scope, method, target, body, wait, claim_id) > 0 THEN -- a fingerprint of nothing would fit everything
        PERFORM once.fail('ON004', 'no argument may be null');
    END IF;
    v_id := once.record_id(scope, key);
    PERFORM once.count_claim();
    IF wait THEN
        PERFORM once.take(v_id);
    END IF;
    SELECT * INTO answer FROM once.store_claim(1::smallint, ARRAY[v_id], ARRAY[uuid_send(claim_id)], ARRAY[v_recover],
        ARRAY[v_lease_ms], ARRAY[v_ttl_ms], ARRAY[once.fingerprints(scope, method, target, once.bytes_of(body))],
        ARRAY[once.scope_hash(scope)], ARRAY[v_key]);
    IF answer.outcome IS NULL THEN
        RETURN ROW('busy', NULL, NULL, interval '1 ms', NULL, NULL, NULL, NULL)::once.claimed;
    END IF;
    IF answer.id IS NULL THEN -- new
        answer.id := v_id;
        answer.epoch := 1;
        answer.claim := uuid_send(claim_id);
    END IF;
    RETURN once.told(answer);
END
$$;

-- What every write of an application does with an answer that is not `done`.
CREATE OR REPLACE FUNCTION once.demand(p_answer once.answer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    CASE p_answer.outcome
    WHEN 6 THEN NULL;
    WHEN 3 THEN PERFORM once.fail('ON003', 'a newer version of once wrote this record');
    WHEN 7 THEN PERFORM once.fail('ON002', 'this claim is completed already');
    WHEN 9 THEN PERFORM once.fail('ON006', 'refused: the record moved on, is completed, or its lease is live');
    ELSE PERFORM once.fail('ON001', 'the claim is no longer yours');
    END CASE;
END
$$;

-- Records the response. Not idempotent, on purpose: a transaction that is repeated after a lost COMMIT reply, or a request
-- that was delivered twice, must not act twice; it fails here and rolls back.
CREATE OR REPLACE FUNCTION once.complete(claim text, status integer, headers jsonb DEFAULT '[]',
    body anycompatible DEFAULT ''::text, retain interval DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    t record := once.token_read(claim);
BEGIN
    IF status NOT BETWEEN 200 AND 599 OR status IS NULL THEN
        PERFORM once.fail('ON004', 'the status of a response is 200 to 599');
    END IF;
    PERFORM once.demand(once.apply_one(1::smallint, t.id, t.epoch, t.claim, false, 0,
        CASE WHEN retain IS NULL THEN 0 ELSE once.span('retention', retain, '3650 days') END,
        1::smallint, status::smallint, once.pack_response(headers, once.bytes_of(body))));
    DELETE FROM once.emitted e WHERE e.record = t.id; -- nobody will emit for it any more
END
$$;

-- The same with headers as a driver sends them, which knows strings only.
CREATE OR REPLACE FUNCTION once.complete(claim text, status integer, headers text, body anycompatible DEFAULT ''::text,
    retain interval DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM once.complete(claim, status, headers::jsonb, once.bytes_of(body), retain);
END
$$;

CREATE OR REPLACE FUNCTION once.note(p_note text) RETURNS bytea
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$ SELECT substr(convert_to(coalesce(p_note, ''), 'UTF8'), 1, 200) $$;

-- The status that stands beside a note. 0: there was none.
CREATE OR REPLACE FUNCTION once.note_status(p_status integer) RETURNS smallint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF coalesce(p_status, 0) <> 0 AND p_status NOT BETWEEN 100 AND 999 THEN
        PERFORM once.fail('ON004', 'a status is 100 to 999, or 0');
    END IF;
    RETURN coalesce(p_status, 0);
END
$$;

-- A lease that was given, or 0: the record's own.
CREATE OR REPLACE FUNCTION once.lease_or_own(p_lease interval) RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$ SELECT CASE WHEN p_lease IS NULL THEN 0 ELSE once.span('lease', p_lease, '24 hours') END $$;

-- It certainly did not take effect, or may be repeated. May be repeated itself. early: it ended before any effect, so that the key
-- need not be bound for long.
CREATE OR REPLACE FUNCTION once.release(claim text, status integer DEFAULT 0, note text DEFAULT '', early boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    t record := once.token_read(claim);
BEGIN
    PERFORM once.demand(once.apply_one(2::smallint, t.id, t.epoch, t.claim, false, 0, CASE WHEN early THEN 1 ELSE 0 END,
        2::smallint, once.note_status(status), once.note(note)));
END
$$;

-- Nobody knows.
CREATE OR REPLACE FUNCTION once.doubt(claim text, lease interval DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    t record := once.token_read(claim);
BEGIN
    PERFORM once.demand(once.apply_one(3::smallint, t.id, t.epoch, t.claim, false, once.lease_or_own(lease), 0,
        0::smallint, 0::smallint, NULL));
END
$$;

-- Still at it. Also tells a worker that is no longer the holder: it fails.
CREATE OR REPLACE FUNCTION once.renew(claim text, lease interval DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    t record := once.token_read(claim);
BEGIN
    PERFORM once.demand(once.apply_one(4::smallint, t.id, t.epoch, t.claim, false, once.lease_or_own(lease), 0,
        0::smallint, 0::smallint, NULL));
END
$$;

-- Decides a record that is unknown, or pending with its lease over. p_outcome: completed (with this response), or failed (it
-- has not happened and no longer can).
CREATE OR REPLACE FUNCTION once.settle(claim text, outcome text, status integer DEFAULT 0, headers jsonb DEFAULT '[]',
    body anycompatible DEFAULT ''::text, note text DEFAULT '', force boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    t record := once.token_read(claim);
    answer once.answer;
BEGIN
    IF outcome = 'completed' AND status BETWEEN 200 AND 599 THEN
        answer := once.apply_one(5::smallint, t.id, t.epoch, t.claim, coalesce(force, false), 0, 0, 1::smallint, status::smallint,
                                 once.pack_response(headers, once.bytes_of(body)));
    ELSIF outcome = 'failed' THEN
        answer := once.apply_one(6::smallint, t.id, t.epoch, t.claim, coalesce(force, false), 0, 0, 2::smallint,
                                 once.note_status(status), once.note(note));
    ELSE
        PERFORM once.fail('ON004', 'outcome is completed (with a status of 200 to 599) or failed');
    END IF;
    PERFORM once.demand(answer);
END
$$;

CREATE OR REPLACE FUNCTION once.settle(claim text, outcome text, status integer, headers text,
    body anycompatible DEFAULT ''::text, note text DEFAULT '', force boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM once.settle(claim, outcome, status, headers::jsonb, once.bytes_of(body), note, force);
END
$$;

-- Removes a record: the key counts as never used.
CREATE OR REPLACE FUNCTION once.purge(claim text, force boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    t record := once.token_read(claim);
BEGIN
    PERFORM once.demand(once.apply_one(8::smallint, t.id, t.epoch, t.claim, coalesce(force, false), 0, 0, 0::smallint,
        0::smallint, NULL));
END
$$;

-- Looks at a record without asking to run. No row: there is none.
CREATE OR REPLACE FUNCTION once.get(scope text, key text) RETURNS SETOF once.records
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT r.* FROM once.records r WHERE r.id = once.record_id($1, $2) $$;

-- Locks the record of a claim that holds, until the transaction ends. The record's `created`.
CREATE OR REPLACE FUNCTION once.hold(p_token text, OUT id bytea, OUT created bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    t record := once.token_read(p_token);
    v_state smallint;
BEGIN
    PERFORM once.take(t.id);
    SELECT k.id, k.created, k.state INTO id, created, v_state FROM once.keys k
    WHERE k.id = t.id AND k.epoch = t.epoch AND k.claim = t.claim;
    IF v_state = 2 THEN
        PERFORM once.fail('ON002', 'this claim is completed already');
    ELSIF v_state IS NULL OR v_state = 3 THEN
        PERFORM once.fail('ON001', 'the claim is no longer yours');
    END IF;
END
$$;

-- Multi-step work: where it got to, and what is needed to go on from there. In the transaction of the step itself.
CREATE OR REPLACE FUNCTION once.checkpoint(claim text, name text, state jsonb DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    held record := once.hold(claim);
BEGIN
    IF name IS NULL THEN
        PERFORM once.fail('ON004', 'a checkpoint has a name');
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

-- The last checkpoint of this record, by whichever claim of it. No row: begin at the beginning.
CREATE OR REPLACE FUNCTION once.resume(claim text) RETURNS TABLE (name text, state jsonb, at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    held record := once.hold(claim);
BEGIN
    RETURN QUERY SELECT c.name, c.state, c.at FROM once.checkpoints c WHERE c.id = held.id AND c.created = held.created;
END
$$;

-- One at a time for a natural key (an account, an order), until the transaction ends.
CREATE OR REPLACE FUNCTION once.lock(natural_key text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF natural_key IS NULL THEN
        PERFORM once.fail('ON004', 'there is nothing to lock');
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(natural_key, 7378697629483820646));
END
$$;
