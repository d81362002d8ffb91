-- The rules of the record (lib/core/rules.c) over arrays: the operations that a gateway collected in one turn, in one statement.
-- tests/postgres/test_rules.c compares them with the table in C in every situation.
--
-- Nothing here waits. A row that another transaction has locked is skipped; a row is inserted only after its advisory lock was
-- taken without waiting. What was skipped is missing in the answer: the caller treats it as busy, for now.
--
-- Each id may occur once in a call. p_schema is the newest schema that the caller can read. p_dictionary is the name of the dictionary
-- that it has: what was packed with another one is unpacked here. Empty: it has none. NULL: nor does it know of short keys. What it
-- has packed is stored only if the store has that dictionary now: if not, nothing is done, and the answer is one row without an id
-- and with the outcome other_dictionary; the caller then sends it unpacked. So whatever has a record has its dictionary: a standby,
-- a backup, what a crash leaves.
--
-- Rows are found by the first half of the id, and compared by the second. If two ids ever had the first half in common, the later
-- one would be busy: never taken for the other.
--
-- The planner is made to use the primary key whatever it knows about the table: plans are made once per session, often while the
-- table is empty.

SET LOCAL search_path = pg_catalog, pg_temp;

-- Whether one of the asker's fingerprints, up to four of 37 bytes each, is the record's.
CREATE OR REPLACE FUNCTION once._is_same_request(fingerprint bytea, fingerprints bytea) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN fingerprint IN (substr(fingerprints, 1, 37), substr(fingerprints, 38, 37), substr(fingerprints, 75, 37),
                       substr(fingerprints, 112, 37));

-- Which rule decides a claim on a record that is there: the rows of the table that begin with "claim", from the second on.
CREATE OR REPLACE FUNCTION once._claim_rule(newer boolean, same boolean, mine boolean, hold boolean, state smallint,
    flags smallint, lease_until bigint, expires bigint, now bigint)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN newer                                                                         THEN 'newer'
    WHEN once._is_expired(state, expires, now)                                         THEN 'expired'
    WHEN NOT same                                                                      THEN 'mismatch'
    WHEN state = once._state_completed()                                               THEN 'completed'
    WHEN state = once._state_failed() AND mine                                         THEN 'released'
    WHEN state = once._state_failed()                                                  THEN 'failed'
    WHEN state = once._state_pending() AND mine                                        THEN 'repeated'
    WHEN state = once._state_unknown() AND mine AND flags & once._flag_by_lease() <> 0 THEN 'mine'
    WHEN state = once._state_unknown() AND (mine OR hold)                              THEN 'unknown'
    WHEN now < lease_until                                                             THEN 'live'
    WHEN hold                                                                          THEN 'lapsed'
    ELSE                                                                                    'takeover'
    END;

CREATE OR REPLACE FUNCTION once._claim_outcome(rule text) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN rule IN ('expired', 'failed', 'repeated', 'takeover') THEN once._outcome_run()
    WHEN rule = 'completed'                                    THEN once._outcome_replay()
    WHEN rule IN ('newer', 'live')                             THEN once._outcome_busy()
    WHEN rule = 'mismatch'                                     THEN once._outcome_mismatch()
    WHEN rule IN ('unknown', 'lapsed')                         THEN once._outcome_unknown()
    WHEN rule = 'released'                                     THEN once._outcome_lost()
    WHEN rule = 'mine'                                         THEN once._outcome_mine()
    END;

-- expired: a new record in its place; failed, takeover: the next epoch is granted; lapsed: unknown from now on.
CREATE OR REPLACE FUNCTION once._claim_changes(rule text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN rule IN ('expired', 'failed', 'takeover', 'lapsed');

-- p_mark is the mark of the caller's record secret. With another secret than the store's, the same key has another id and would run
-- under both: then nothing is done, and the answer is one row without an id and with the outcome other_secrets. NULL or empty: the
-- ids were made here, or the secrets are in a file.
--
-- New records are inserted first. If all are new, the answer is one row without an id: all are granted as they were asked for, at
-- `now`. If not, the rule of each is found; those that were just inserted are repeated claims. A rule that changes nothing is
-- answered from the row as it is, without a lock: a replay is a read (but see once._await_standby).
CREATE OR REPLACE FUNCTION once.store_claim(p_schema smallint, p_id bytea[], p_claim bytea[], p_recover smallint[],
    p_lease_ms bigint[], p_ttl_ms bigint[], p_fingerprints bytea[], p_scope bytea[], p_key bytea[],
    p_mark bytea DEFAULT NULL, p_about bytea[] DEFAULT NULL, p_dictionary bytea DEFAULT NULL)
RETURNS SETOF once.answer
LANGUAGE plpgsql SECURITY DEFINER ROWS 100
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan SET lock_timeout = '3s'
AS $$
#variable_conflict use_column
DECLARE
    v_clock bigint := once._now_ms();
    v_dictionary CONSTANT smallint := once._dictionary_held(p_dictionary);
    v_made bigint;
    v_all once.answer;
BEGIN
    IF EXISTS (SELECT FROM unnest(p_about) AS a (bytes)
               WHERE bytes >= E'\\x80' AND get_byte(bytes, 0) - 128 <> coalesce(v_dictionary, 0)) THEN
        v_all.outcome := once._outcome_other_dictionary();
        v_all.now := v_clock;
        RETURN NEXT v_all;
        RETURN;
    END IF;
    IF p_mark <> '' AND p_mark <> ALL (ARRAY(SELECT s.inner_pad FROM once.secret_pads s WHERE s.name = 'mark')) THEN
        v_all.outcome := once._outcome_other_secrets();
        v_all.now := v_clock;
        RETURN NEXT v_all;
        RETURN;
    END IF;
    INSERT INTO once.keys (created, changed, lease_until, lease_ms, expires, ttl, epoch, schema, state, recover, flags,
                           id, tail, claim, fingerprint, scope, key, about)
    SELECT v_clock, v_clock, v_clock + p_lease_ms[a.n], once._to_integer(p_lease_ms[a.n]), 0, once._ttl_pack(p_ttl_ms[a.n]), 1,
           once._schema(), once._state_pending(), p_recover[a.n], 0, a.short, substr(a.id, 17), p_claim[a.n],
           substr(p_fingerprints[a.n], 1, 37), p_scope[a.n], p_key[a.n], coalesce(p_about[a.n], '')
    FROM (SELECT u.id, u.short, u.n
          FROM (SELECT i.id, once._short_id(i.id) AS short, i.n FROM unnest(p_id) WITH ORDINALITY AS i (id, n) OFFSET 0) AS u
          WHERE NOT EXISTS (SELECT FROM once.keys k WHERE k.id = u.short)
          OFFSET 0) AS a -- or the planner would take the locks of records that are there
    WHERE pg_try_advisory_xact_lock(once._lock_key(a.id))
    ON CONFLICT (id) DO NOTHING;
    GET DIAGNOSTICS v_made = ROW_COUNT;
    IF v_made = cardinality(p_id) THEN
        v_all.outcome := once._outcome_run();
        v_all.now := v_clock;
        RETURN NEXT v_all; -- all are new, as in most calls
        RETURN;
    END IF;

    PERFORM once._await_standby();
    RETURN QUERY
    WITH ask AS MATERIALIZED (
        SELECT k.*, a.claim AS a_claim, a.recover AS a_recover, a.lease_ms AS a_lease_ms, a.ttl_ms AS a_ttl_ms,
               a.fingerprints, a.scope AS a_scope, a.key AS a_key, coalesce(a.about, '') AS a_about,
               once._claim_rule(k.schema > p_schema, once._is_same_request(k.fingerprint, a.fingerprints), k.claim = a.claim,
                   greatest(k.recover, a.recover) = once._recover_hold(), k.state, k.flags, k.lease_until, k.expires,
                   greatest(v_clock, k.changed)) AS rule
        FROM unnest(p_id, p_claim, p_recover, p_lease_ms, p_ttl_ms, p_fingerprints, p_scope, p_key, p_about)
             AS a (id, claim, recover, lease_ms, ttl_ms, fingerprints, scope, key, about)
        JOIN once.keys k ON k.id = once._short_id(a.id) AND k.tail = substr(a.id, 17)
    ), held AS MATERIALIZED (
        -- Again, now that it is locked: it may have changed meanwhile.
        SELECT k.*, a.a_claim, a.a_recover, a.a_lease_ms, a.a_ttl_ms, a.a_scope, a.a_key, a.a_about,
               substr(a.fingerprints, 1, 37) AS a_fingerprint,
               greatest(v_clock, k.changed) AS now,
               once._claim_rule(k.schema > p_schema, once._is_same_request(k.fingerprint, a.fingerprints), k.claim = a.a_claim,
                   greatest(k.recover, a.a_recover) = once._recover_hold(), k.state, k.flags, k.lease_until, k.expires,
                   greatest(v_clock, k.changed)) AS rule
        FROM ask a JOIN once.keys k ON k.id = a.id
        WHERE once._claim_changes(a.rule)
        FOR UPDATE OF k SKIP LOCKED
    ), changed AS (
        UPDATE once.keys k SET
            changed = j.now,
            created = CASE j.rule WHEN 'expired' THEN j.now ELSE k.created END,
            state = CASE j.rule WHEN 'lapsed' THEN once._state_unknown() ELSE once._state_pending() END,
            flags = CASE j.rule
                WHEN 'expired' THEN 0
                WHEN 'takeover' THEN (k.flags | once._flag_doubted()) & ~once._flag_by_lease()
                WHEN 'lapsed' THEN k.flags | once._flag_by_lease()
                -- A release that is kept for its whole ttl may have come after an effect.
                ELSE k.flags & ~once._flag_by_lease()
                     | CASE WHEN k.expires <> 0 AND k.expires < k.changed + once._ttl_ms(k.ttl) THEN 0 ELSE once._flag_had_effect() END
                END,
            recover = CASE j.rule WHEN 'expired' THEN j.a_recover WHEN 'lapsed' THEN k.recover
                                  ELSE greatest(k.recover, j.a_recover) END,
            epoch = CASE j.rule WHEN 'expired' THEN 1 WHEN 'lapsed' THEN k.epoch ELSE k.epoch + 1 END,
            schema = CASE j.rule WHEN 'expired' THEN once._schema() ELSE k.schema END,
            fingerprint = CASE j.rule WHEN 'expired' THEN j.a_fingerprint ELSE k.fingerprint END,
            scope = CASE j.rule WHEN 'expired' THEN j.a_scope ELSE k.scope END,
            key = CASE j.rule WHEN 'lapsed' THEN k.key ELSE j.a_key END, -- it may have been erased
            claim = CASE j.rule WHEN 'lapsed' THEN k.claim ELSE j.a_claim END,
            lease_ms = CASE j.rule WHEN 'lapsed' THEN k.lease_ms ELSE once._to_integer(j.a_lease_ms) END,
            lease_until = CASE j.rule WHEN 'lapsed' THEN k.lease_until ELSE j.now + j.a_lease_ms END,
            ttl = CASE j.rule WHEN 'lapsed' THEN k.ttl ELSE once._ttl_pack(j.a_ttl_ms) END,
            expires = CASE j.rule WHEN 'lapsed' THEN k.expires ELSE 0 END,
            kind = CASE j.rule WHEN 'lapsed' THEN k.kind ELSE once._payload_none() END,
            status = CASE j.rule WHEN 'lapsed' THEN k.status ELSE 0 END,
            payload = CASE j.rule WHEN 'lapsed' THEN k.payload ELSE '' END,
            about = CASE j.rule WHEN 'lapsed' THEN k.about ELSE j.a_about END,
            cause = CASE j.rule
                WHEN 'expired' THEN ''
                WHEN 'lapsed' THEN once._why('', once._attempts_of(k.cause))
                ELSE once._why('', once._attempt(k.state, k.flags, k.lease_until, k.changed, k.about, k.cause, k.kind, k.payload)
                                   || once._attempts_of(k.cause)) END
        FROM held j
        WHERE k.id = j.id AND once._claim_changes(j.rule)
        RETURNING k.*, j.rule, j.now
    )
    SELECT once._full_id(id, tail), once._claim_outcome(rule), greatest(v_clock, changed), created, changed, lease_until,
           lease_ms::bigint, expires, once._ttl_ms(ttl), epoch, schema, state, recover, flags, kind, status, claim, fingerprint, scope,
           once._key_for(key, v_dictionary), once._payload_for(kind, payload, v_dictionary), once._about_for(about, v_dictionary),
           cause
    FROM ask WHERE NOT once._claim_changes(rule)
    UNION ALL
    SELECT once._full_id(id, tail), once._claim_outcome(rule), now, created, changed, lease_until, lease_ms::bigint, expires,
           once._ttl_ms(ttl), epoch, schema, state, recover, flags, kind, status, claim, fingerprint, scope,
           once._key_for(key, v_dictionary), once._payload_for(kind, payload, v_dictionary), once._about_for(about, v_dictionary),
           cause
    FROM changed
    UNION ALL
    SELECT once._full_id(id, tail), once._claim_outcome(rule), now, created, changed, lease_until, lease_ms::bigint, expires,
           once._ttl_ms(ttl), epoch, schema, state, recover, flags, kind, status, claim, fingerprint, scope,
           once._key_for(key, v_dictionary), once._payload_for(kind, payload, v_dictionary), once._about_for(about, v_dictionary),
           cause
    FROM held WHERE NOT once._claim_changes(rule);
END
$$;

-- The key of a record is also in the events that it emitted, until they are published or dropped. Those of erased records lose it.
CREATE OR REPLACE FUNCTION once._erase_causes(p_id bytea[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_erased CONSTANT bytea[] := ARRAY(SELECT a.id FROM unnest(p_id) AS a (id)
        JOIN once.keys k ON k.id = once._short_id(a.id) AND k.tail = substr(a.id, 17) WHERE k.kind = once._payload_erased());
BEGIN
    UPDATE once.outbox o SET cause = NULL WHERE o.record = ANY (v_erased) AND o.cause IS NOT NULL;
    UPDATE once.outbox_dead d SET cause = NULL WHERE d.record = ANY (v_erased) AND d.cause IS NOT NULL;
END
$$;

-- Every other event (once._event). A lease or ttl of 0 is the record's own; the ttl of a release is how long to remember an
-- operation that ended before any effect, 0 if it may have had one. Plain completions come first; the first answer of an id counts.
CREATE OR REPLACE FUNCTION once.store_apply(p_schema smallint, p_id bytea[], p_event smallint[], p_epoch integer[],
    p_claim bytea[], p_force boolean[], p_lease_ms bigint[], p_ttl_ms bigint[], p_kind smallint[], p_status smallint[],
    p_payload bytea[], p_cause bytea[] DEFAULT NULL, p_dictionary bytea DEFAULT NULL)
RETURNS SETOF once.answer
LANGUAGE plpgsql SECURITY DEFINER ROWS 100
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan SET lock_timeout = '3s'
AS $$
#variable_conflict use_column
DECLARE
    v_clock bigint := once._now_ms();
    v_dictionary CONSTANT smallint := once._dictionary_held(p_dictionary);
    v_refused once.answer;
    v_answered bigint := 0;
    v_changing CONSTANT text[] := ARRAY['complete', 'fail', 'release in doubt', 'doubt', 'renew'];
    v_removing CONSTANT text[] := ARRAY['purge', 'expired']; -- nothing is left to answer from
BEGIN
    IF EXISTS (SELECT FROM unnest(p_payload, p_kind) AS a (bytes, kind)
               WHERE bytes >= E'\\x80' AND kind = once._payload_response()
                 AND get_byte(bytes, 0) - 128 <> coalesce(v_dictionary, 0)) THEN
        v_refused.outcome := once._outcome_other_dictionary();
        v_refused.now := v_clock;
        RETURN NEXT v_refused;
        RETURN;
    END IF;
    IF once._event_erase() = ANY (p_event) THEN
        PERFORM once._touch_dictionaries(p_id);
    END IF;
    IF once._event_complete() = ANY (p_event) THEN
        RETURN QUERY
        WITH held AS MATERIALIZED (
            SELECT k.ctid AS place, a.n
            FROM unnest(p_id) WITH ORDINALITY AS a (id, n)
            JOIN once.keys k ON k.id = once._short_id(a.id) AND k.tail = substr(a.id, 17)
            WHERE p_event[a.n] = once._event_complete() AND k.claim = p_claim[a.n] AND k.epoch = p_epoch[a.n]
              AND k.state IN (once._state_pending(), once._state_unknown()) AND k.schema <= p_schema
            FOR UPDATE OF k SKIP LOCKED
        )
        UPDATE once.keys k SET
            changed = greatest(v_clock, k.changed), state = once._state_completed(), flags = 0, kind = p_kind[h.n],
            status = p_status[h.n], payload = coalesce(p_payload[h.n], ''),
            cause = CASE k.cause WHEN '' THEN coalesce(p_cause[h.n], '')
                                 ELSE once._why(coalesce(p_cause[h.n], ''), once._attempts_of(k.cause)) END,
            ttl = coalesce(once._ttl_pack(nullif(p_ttl_ms[h.n], 0)), k.ttl),
            expires = greatest(v_clock, k.changed) + coalesce(nullif(p_ttl_ms[h.n], 0), once._ttl_ms(k.ttl))
        FROM held h
        WHERE k.ctid = h.place
        RETURNING once._full_id(k.id, k.tail), once._outcome_done(), k.changed, k.created, k.changed, k.lease_until,
            k.lease_ms::bigint, k.expires, once._ttl_ms(k.ttl), k.epoch, k.schema, k.state, k.recover, k.flags, once._payload_none(),
            0::smallint, k.claim, k.fingerprint, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea;
        GET DIAGNOSTICS v_answered = ROW_COUNT;
        IF v_answered = cardinality(p_id) THEN
            RETURN; -- completions of claims that still hold, as in most calls
        END IF;
    END IF;

    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT k.*, a.event, a.lease_ms AS a_lease_ms, a.ttl_ms AS a_ttl_ms, a.kind AS a_kind, a.status AS a_status,
               coalesce(a.payload, '') AS a_payload, coalesce(a.cause, '') AS a_cause, a.force,
               greatest(v_clock, k.changed) AS now,
               k.claim = a.claim AND k.epoch = a.epoch AS mine
        FROM unnest(p_id, p_event, p_epoch, p_claim, p_force, p_lease_ms, p_ttl_ms, p_kind, p_status, p_payload, p_cause)
             AS a (id, event, epoch, claim, force, lease_ms, ttl_ms, kind, status, payload, cause)
        JOIN once.keys k ON k.id = once._short_id(a.id) AND k.tail = substr(a.id, 17)
        FOR UPDATE OF k SKIP LOCKED
    ), ruled AS MATERIALIZED (
        SELECT h.*, CASE
            WHEN schema > p_schema AND event <> once._event_purge()                        THEN 'newer'
            WHEN schema <= p_schema AND once._is_expired(state, expires, now)              THEN 'expired'
            WHEN NOT mine                                                                  THEN 'stale'
            WHEN event = once._event_purge()
                 AND (force OR state IN (once._state_completed(), once._state_failed()))   THEN 'purge'
            WHEN event = once._event_erase()
                 AND state IN (once._state_completed(), once._state_failed())              THEN 'erase'
            WHEN event IN (once._event_purge(), once._event_erase())                       THEN 'refused'
            WHEN state = once._state_completed()                                           THEN 'already'
            WHEN state = once._state_failed()
                 AND event IN (once._event_release(), once._event_settle_failed())         THEN 'again'
            WHEN state = once._state_failed()                                              THEN 'stale'
            WHEN event = once._event_complete()                                            THEN 'complete'
            WHEN event = once._event_release() AND flags & once._flag_doubted() <> 0       THEN 'release in doubt'
            WHEN event = once._event_release()                                             THEN 'fail'
            WHEN event = once._event_doubt()
                 AND (state = once._state_pending() OR flags & once._flag_by_lease() <> 0) THEN 'doubt'
            WHEN event = once._event_doubt()                                               THEN 'again'
            WHEN event = once._event_renew()                                               THEN 'renew'
            WHEN now < lease_until AND NOT force                                           THEN 'refused'
            WHEN event = once._event_settle_completed()                                    THEN 'complete'
            ELSE                                                                                'fail'
            END AS rule
        FROM held h
    ), judged AS MATERIALIZED (
        SELECT r.*, CASE
            WHEN rule = 'newer'                                             THEN once._outcome_busy()
            WHEN rule = 'already'                                           THEN once._outcome_already()
            WHEN rule IN ('expired', 'stale') AND once._is_by_holder(event) THEN once._outcome_lost()
            WHEN rule IN ('expired', 'stale', 'refused')                    THEN once._outcome_refused()
            ELSE                                                                 once._outcome_done()
            END AS outcome
        FROM ruled r
    ), gone AS (
        DELETE FROM once.keys k USING judged j WHERE k.id = j.id AND j.rule = 'purge'
    ), checkpoints_gone AS (
        -- A failed operation can be run again, and goes on from its checkpoint.
        DELETE FROM once.checkpoints c USING judged j
        WHERE c.id = once._full_id(j.id, j.tail) AND (j.rule = 'purge' OR j.rule = 'erase' AND j.state = once._state_completed())
    ), events_gone AS (
        DELETE FROM once.emitted e USING judged j WHERE e.record = once._full_id(j.id, j.tail) AND j.rule = 'purge'
    ), erased AS (
        -- Nothing else changes: what is erased decides as before.
        UPDATE once.keys k SET kind = once._payload_erased(), payload = '', key = '', about = '', cause = ''
        FROM judged j WHERE k.id = j.id AND j.rule = 'erase'
    ), changed AS (
        UPDATE once.keys k SET
            changed = j.now,
            state = CASE j.rule WHEN 'complete' THEN once._state_completed() WHEN 'fail' THEN once._state_failed()
                                WHEN 'renew' THEN k.state ELSE once._state_unknown() END,
            flags = CASE WHEN j.rule IN ('complete', 'fail') THEN 0 WHEN j.rule = 'renew' THEN k.flags
                         ELSE k.flags & ~once._flag_by_lease() END,
            lease_until = CASE j.rule
                WHEN 'release in doubt' THEN least(k.lease_until, j.now)
                WHEN 'doubt' THEN j.now + coalesce(nullif(j.a_lease_ms, 0), k.lease_ms)
                WHEN 'renew' THEN greatest(k.lease_until, j.now + coalesce(nullif(j.a_lease_ms, 0), k.lease_ms))
                ELSE k.lease_until END,
            ttl = CASE WHEN j.rule IN ('complete', 'fail') AND j.event <> once._event_release() AND j.a_ttl_ms <> 0
                       THEN once._ttl_pack(j.a_ttl_ms) ELSE k.ttl END,
            expires = CASE
                WHEN j.rule NOT IN ('complete', 'fail') THEN k.expires
                WHEN j.event <> once._event_release() THEN j.now + coalesce(nullif(j.a_ttl_ms, 0), once._ttl_ms(k.ttl))
                WHEN j.a_ttl_ms <> 0 AND k.flags & once._flag_had_effect() = 0
                    THEN j.now + least(greatest(j.a_ttl_ms, 2 * k.lease_ms::bigint), once._ttl_ms(k.ttl))
                ELSE j.now + once._ttl_ms(k.ttl) END,
            kind = CASE WHEN j.rule IN ('doubt', 'renew') THEN k.kind ELSE j.a_kind END,
            status = CASE WHEN j.rule IN ('doubt', 'renew') THEN k.status ELSE j.a_status END,
            payload = CASE WHEN j.rule IN ('doubt', 'renew') THEN k.payload ELSE j.a_payload END,
            cause = CASE j.rule WHEN 'renew' THEN k.cause ELSE once._why(j.a_cause, once._attempts_of(k.cause)) END
        FROM judged j
        WHERE k.id = j.id AND j.rule = ANY (v_changing)
        RETURNING k.*, j.outcome, j.now
    )
    -- A change that was made need not be answered with the whole record.
    SELECT once._full_id(id, tail), outcome, now, created, changed, lease_until, lease_ms::bigint, expires, once._ttl_ms(ttl), epoch,
           schema, state, recover, flags, once._payload_none(), 0::smallint, claim, fingerprint, NULL::bytea, NULL::bytea,
           NULL::bytea, NULL::bytea, NULL::bytea
    FROM changed
    UNION ALL
    SELECT once._full_id(id, tail), outcome, now, created, changed, lease_until, lease_ms::bigint, expires, once._ttl_ms(ttl), epoch,
           schema, state, recover, flags, kind, status, claim, fingerprint, scope, once._key_for(key, v_dictionary),
           CASE WHEN outcome <> once._outcome_done() THEN once._payload_for(kind, payload, v_dictionary) END,
           once._about_for(about, v_dictionary), cause
    FROM judged WHERE rule <> ALL (v_changing || v_removing)
    UNION ALL
    SELECT once._full_id(id, tail), outcome, now, 0, 0, 0, 0, 0, 0, 0, 0::smallint, 0::smallint, 0::smallint, 0::smallint,
           0::smallint, 0::smallint, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM judged WHERE rule = ANY (v_removing);

    GET DIAGNOSTICS v_answered = ROW_COUNT;
    IF once._event_erase() = ANY (p_event) THEN
        PERFORM once._erase_causes(p_id);
    END IF;
    IF v_answered < cardinality(p_id) THEN
        -- No row: lost or refused. A row that an application has locked in an open transaction: a renewal counts as done, because
        -- the application is at work. The others are locked by another batch, which will not take long.
        RETURN QUERY
        SELECT a.id, CASE WHEN k.id IS NOT NULL THEN once._outcome_done()
                          WHEN once._is_by_holder(a.event) THEN once._outcome_lost() ELSE once._outcome_refused() END,
               greatest(v_clock, k.changed), coalesce(k.created, 0), coalesce(k.changed, 0), coalesce(k.lease_until, 0),
               coalesce(k.lease_ms, 0)::bigint, coalesce(k.expires, 0), coalesce(once._ttl_ms(k.ttl), 0), coalesce(k.epoch, 0),
               coalesce(k.schema, 0::smallint), coalesce(k.state, 0::smallint), coalesce(k.recover, 0::smallint),
               coalesce(k.flags, 0::smallint), 0::smallint, 0::smallint, k.claim, k.fingerprint, NULL::bytea, NULL::bytea,
               NULL::bytea, NULL::bytea, NULL::bytea
        FROM unnest(p_id, p_event) AS a (id, event)
        LEFT JOIN once.keys k ON k.id = once._short_id(a.id) AND k.tail = substr(a.id, 17)
        WHERE k.id IS NULL OR (a.event = once._event_renew() AND NOT pg_try_advisory_xact_lock_shared(once._lock_key(a.id)));
    END IF;
END
$$;

-- Locks a record until the transaction ends, and waits for another transaction that has it: for the functions that applications
-- call in their own transactions.
CREATE OR REPLACE FUNCTION once._lock_record(p_id bytea) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(once._lock_key(p_id));
    PERFORM FROM once.keys k WHERE k.id = once._short_id(p_id) AND k.tail = substr(p_id, 17) FOR UPDATE;
END
$$;
