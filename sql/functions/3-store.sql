-- The rules of the record (lib/core/rules.c) over arrays: what a gateway's loop turn collected, in one statement.
--
-- Nothing here waits for anybody. An existing row that somebody else has locked is skipped; a row is inserted only after its
-- advisory lock was taken without waiting. What was skipped is not in the answer: busy, for now.
--
-- Each id may occur once in a call. p_schema is the newest schema that the caller can read.
--
-- The planner is told to go by the primary key, whatever it knows about the table: plans are made once per session, often
-- while the table is empty.

SET LOCAL search_path = pg_catalog, pg_temp;

-- The rows of the table that begin with "claim", from the second on; the first is that there is no record. Two digits: the
-- outcome (32 is mine), and the deed: 0 nothing, 1 a new record in its place, 2 grant after a release, 3 grant after a doubt or a
-- lease that ran out, 4 unknown by lease.
CREATE OR REPLACE FUNCTION once.judge_claim(newer boolean, same boolean, mine boolean, hold boolean, state smallint,
    flags smallint, lease_until bigint, expires bigint, now bigint)
RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN newer                                               THEN 30  -- newer version: busy
    WHEN state IN (2, 3) AND expires <> 0 AND now >= expires THEN 11  -- expired, as if there were none: run
    WHEN NOT same                                            THEN 40  -- mismatch
    WHEN state = 3 AND mine                                  THEN 80  -- released claim again: lost
    WHEN state = 3                                           THEN 12  -- failed: run
    WHEN state = 1 AND mine                                  THEN 10  -- same claim again: run
    WHEN state = 1 AND now < lease_until                     THEN 30  -- lease live: busy
    WHEN state = 1 AND hold                                  THEN 54  -- lease over, hold: unknown
    WHEN state = 1                                           THEN 13  -- lease over: run
    WHEN state = 4 AND mine AND flags & 1 <> 0               THEN 320 -- unknown by lease: mine
    WHEN state = 4 AND (mine OR hold)                        THEN 50  -- unknown
    WHEN state = 4 AND now < lease_until                     THEN 30  -- lease live: busy
    WHEN state = 4                                           THEN 13  -- lease over: run
    ELSE                                                          20  -- completed: replay
    END;

-- p_mark is that of the caller's record secret. With another than the store's, the same key has another id, and would run under both:
-- one row without an id, whose outcome is 33, says that nothing was done. None: the ids were made here, or the secrets are in a file.
-- First what is new is inserted. If that is all, one row without an id says so: all are granted, as they were asked for, at `now`.
-- If not, all are judged; those that were just inserted are the same claim again. What changes nothing is answered from what is
-- there, without a lock: a replay is a read.
CREATE OR REPLACE FUNCTION once.store_claim(p_schema smallint, p_id bytea[], p_claim bytea[], p_recover smallint[],
    p_lease_ms bigint[], p_ttl_ms bigint[], p_fingerprints bytea[], p_scope bytea[], p_key bytea[],
    p_mark bytea DEFAULT NULL)
RETURNS SETOF once.answer
LANGUAGE plpgsql SECURITY DEFINER ROWS 100
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan SET lock_timeout = '3s'
AS $$
#variable_conflict use_column
DECLARE
    v_clock bigint := once.now_ms();
    v_made bigint;
    v_all once.answer;
BEGIN
    IF p_mark <> '' AND p_mark <> ALL (ARRAY(SELECT s.inner_pad FROM once.secret_pads s WHERE s.name = 'mark')) THEN
        v_all.outcome := 33;
        v_all.now := v_clock;
        RETURN NEXT v_all;
        RETURN;
    END IF;
    INSERT INTO once.keys (created, changed, lease_until, lease_ms, expires, ttl_ms, epoch, schema, state, recover, flags,
                           id, claim, fingerprint, scope, key)
    SELECT v_clock, v_clock, v_clock + p_lease_ms[a.n], p_lease_ms[a.n], 0, p_ttl_ms[a.n], 1, 1, 1, p_recover[a.n], 0,
           a.id, p_claim[a.n], substr(p_fingerprints[a.n], 1, 37), p_scope[a.n], p_key[a.n]
    FROM (SELECT u.id, u.n
          FROM unnest(p_id) WITH ORDINALITY AS u (id, n)
          WHERE NOT EXISTS (SELECT FROM once.keys k WHERE k.id = u.id)
          OFFSET 0) AS a -- by itself, or the planner tries the locks of records that are there
    WHERE pg_try_advisory_xact_lock(once.lock_of(a.id))
    ON CONFLICT (id) DO NOTHING;
    GET DIAGNOSTICS v_made = ROW_COUNT;
    IF v_made = cardinality(p_id) THEN
        v_all.outcome := 1;
        v_all.now := v_clock;
        RETURN NEXT v_all; -- all of them new, as most are
        RETURN;
    END IF;

    RETURN QUERY
    WITH ask AS MATERIALIZED (
        SELECT k.*, a.id AS a_id, a.claim AS a_claim, a.recover AS a_recover, a.lease_ms AS a_lease_ms, a.ttl_ms AS a_ttl_ms,
               a.fingerprints, a.scope AS a_scope, a.key AS a_key,
               once.judge_claim(k.schema > p_schema,
                   k.fingerprint IN (substr(a.fingerprints, 1, 37), substr(a.fingerprints, 38, 37),
                                     substr(a.fingerprints, 75, 37), substr(a.fingerprints, 112, 37)),
                   k.claim = a.claim, greatest(k.recover, a.recover) = 2, k.state, k.flags, k.lease_until, k.expires,
                   greatest(v_clock, k.changed)) AS judgement
        FROM unnest(p_id, p_claim, p_recover, p_lease_ms, p_ttl_ms, p_fingerprints, p_scope, p_key)
             AS a (id, claim, recover, lease_ms, ttl_ms, fingerprints, scope, key)
        JOIN once.keys k ON k.id = a.id
    ), held AS MATERIALIZED (
        -- Judged again: it may have changed before the lock was there.
        SELECT k.*, a.a_claim, a.a_recover, a.a_lease_ms, a.a_ttl_ms, a.a_scope, a.a_key,
               substr(a.fingerprints, 1, 37) AS a_fingerprint,
               greatest(v_clock, k.changed) AS now,
               once.judge_claim(k.schema > p_schema,
                   k.fingerprint IN (substr(a.fingerprints, 1, 37), substr(a.fingerprints, 38, 37),
                                     substr(a.fingerprints, 75, 37), substr(a.fingerprints, 112, 37)),
                   k.claim = a.a_claim, greatest(k.recover, a.a_recover) = 2, k.state, k.flags, k.lease_until, k.expires,
                   greatest(v_clock, k.changed)) AS judgement
        FROM ask a JOIN once.keys k ON k.id = a.a_id
        WHERE a.judgement % 10 <> 0
        FOR UPDATE OF k SKIP LOCKED
    ), changed AS (
        UPDATE once.keys k SET
            changed = j.now,
            created = CASE deed WHEN 1 THEN j.now ELSE k.created END,
            state = CASE deed WHEN 4 THEN 4 ELSE 1 END,
            -- Released and not kept for less than its ttl: it may have taken effect before that.
            flags = CASE deed WHEN 1 THEN 0 WHEN 3 THEN (k.flags | 2) & ~1 WHEN 4 THEN k.flags | 1
                    ELSE k.flags & ~1 | CASE WHEN k.expires <> 0 AND k.expires < k.changed + k.ttl_ms THEN 0 ELSE 4 END END,
            recover = CASE deed WHEN 1 THEN j.a_recover WHEN 4 THEN k.recover ELSE greatest(k.recover, j.a_recover) END,
            epoch = CASE deed WHEN 1 THEN 1 WHEN 4 THEN k.epoch ELSE k.epoch + 1 END,
            schema = CASE deed WHEN 1 THEN 1 ELSE k.schema END,
            fingerprint = CASE deed WHEN 1 THEN j.a_fingerprint ELSE k.fingerprint END,
            scope = CASE deed WHEN 1 THEN j.a_scope ELSE k.scope END,
            key = CASE deed WHEN 1 THEN j.a_key ELSE k.key END,
            claim = CASE deed WHEN 4 THEN k.claim ELSE j.a_claim END,
            lease_ms = CASE deed WHEN 4 THEN k.lease_ms ELSE j.a_lease_ms END,
            lease_until = CASE deed WHEN 4 THEN k.lease_until ELSE j.now + j.a_lease_ms END,
            ttl_ms = CASE deed WHEN 4 THEN k.ttl_ms ELSE j.a_ttl_ms END,
            expires = CASE deed WHEN 4 THEN k.expires ELSE 0 END,
            kind = CASE deed WHEN 4 THEN k.kind ELSE 0 END,
            status = CASE deed WHEN 4 THEN k.status ELSE 0 END,
            payload = CASE deed WHEN 4 THEN k.payload END
        FROM (SELECT h.*, h.judgement % 10 AS deed FROM held h) AS j
        WHERE k.id = j.id AND deed <> 0
        RETURNING k.*, j.judgement, j.now
    )
    SELECT id, (judgement / 10)::smallint, greatest(v_clock, changed), created, changed, lease_until, lease_ms, expires, ttl_ms,
           epoch, schema, state, recover, flags, kind, status, claim, fingerprint, scope, key, payload
    FROM ask WHERE judgement % 10 = 0
    UNION ALL
    SELECT id, (judgement / 10)::smallint, now, created, changed, lease_until, lease_ms, expires, ttl_ms, epoch, schema, state,
           recover, flags, kind, status, claim, fingerprint, scope, key, payload
    FROM changed
    UNION ALL
    SELECT id, (judgement / 10)::smallint, now, created, changed, lease_until, lease_ms, expires, ttl_ms, epoch, schema, state,
           recover, flags, kind, status, claim, fingerprint, scope, key, payload
    FROM held WHERE judgement % 10 = 0;
END
$$;

-- Everything else that can happen to a record. p_event: 1 complete, 2 release, 3 doubt, 4 renew, 5 settle completed, 6 settle
-- failed, 8 purge. A lease or ttl of 0 means the record's own; the ttl of a release: how long to remember what ended before any
-- effect, 0: it may have had one. Plain completions come first; the first answer of an id counts.
CREATE OR REPLACE FUNCTION once.store_apply(p_schema smallint, p_id bytea[], p_event smallint[], p_epoch integer[],
    p_claim bytea[], p_force boolean[], p_lease_ms bigint[], p_ttl_ms bigint[], p_kind smallint[], p_status smallint[],
    p_payload bytea[])
RETURNS SETOF once.answer
LANGUAGE plpgsql SECURITY DEFINER ROWS 100
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan SET lock_timeout = '3s'
AS $$
#variable_conflict use_column
DECLARE
    v_clock bigint := once.now_ms();
    v_answered bigint := 0;
BEGIN
    IF 1 = ANY (p_event) THEN
        RETURN QUERY
        WITH held AS MATERIALIZED (
            SELECT k.ctid AS place, a.n
            FROM unnest(p_id) WITH ORDINALITY AS a (id, n)
            JOIN once.keys k ON k.id = a.id
            WHERE p_event[a.n] = 1 AND k.claim = p_claim[a.n] AND k.epoch = p_epoch[a.n] AND k.state IN (1, 4)
              AND k.schema <= p_schema
            FOR UPDATE OF k SKIP LOCKED
        )
        UPDATE once.keys k SET
            changed = greatest(v_clock, k.changed), state = 2, flags = 0, kind = p_kind[h.n], status = p_status[h.n],
            payload = p_payload[h.n], ttl_ms = coalesce(nullif(p_ttl_ms[h.n], 0), k.ttl_ms),
            expires = greatest(v_clock, k.changed) + coalesce(nullif(p_ttl_ms[h.n], 0), k.ttl_ms)
        FROM held h
        WHERE k.ctid = h.place
        RETURNING k.id, 6::smallint, k.changed, k.created, k.changed, k.lease_until, k.lease_ms, k.expires, k.ttl_ms, k.epoch,
            k.schema, k.state, k.recover, k.flags, 0::smallint, 0::smallint, k.claim, k.fingerprint, NULL::bytea, NULL::bytea,
            NULL::bytea;
        GET DIAGNOSTICS v_answered = ROW_COUNT;
        IF v_answered = cardinality(p_id) THEN
            RETURN; -- completions that nobody else touched, as most are
        END IF;
    END IF;

    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT k.*, a.event, a.lease_ms AS a_lease_ms, a.ttl_ms AS a_ttl_ms, a.kind AS a_kind, a.status AS a_status,
               a.payload AS a_payload, a.force,
               greatest(v_clock, k.changed) AS now,
               k.claim = a.claim AND k.epoch = a.epoch AS mine
        FROM unnest(p_id, p_event, p_epoch, p_claim, p_force, p_lease_ms, p_ttl_ms, p_kind, p_status, p_payload)
             AS a (id, event, epoch, claim, force, lease_ms, ttl_ms, kind, status, payload)
        JOIN once.keys k ON k.id = a.id
        FOR UPDATE OF k SKIP LOCKED
    ), judged AS MATERIALIZED (
        -- deed: 0 nothing, 1 completed, 2 failed, 3 unknown and the lease is over, 4 unknown for a lease, 5 extend, 6 remove;
        -- 7: it expired, nothing
        SELECT h.*, r[1] AS outcome, r[2] AS deed
        FROM held h, LATERAL (SELECT CASE
            WHEN schema > p_schema AND event <> 8                        THEN '{3,0}' -- newer version: busy
            WHEN state IN (2, 3) AND expires <> 0 AND now >= expires
                 AND schema <= p_schema AND event <= 4                   THEN '{8,7}' -- expired, as if there were none: lost
            WHEN state IN (2, 3) AND expires <> 0 AND now >= expires
                 AND schema <= p_schema                                  THEN '{9,7}' -- refused
            WHEN NOT mine AND event <= 4                                 THEN '{8,0}' -- stale: lost
            WHEN NOT mine                                                THEN '{9,0}' -- refused
            WHEN event = 8 AND (state IN (2, 3) OR force)                THEN '{6,6}' -- purge
            WHEN event = 8                                               THEN '{9,0}'
            WHEN state = 2                                               THEN '{7,0}' -- completed by this claim: already
            WHEN state = 3 AND event IN (2, 6)                           THEN '{6,0}' -- released, settled again
            WHEN state = 3 AND event <= 4                                THEN '{8,0}' -- released before: lost
            WHEN state = 3                                               THEN '{9,0}'
            WHEN event = 1                                               THEN '{6,1}' -- complete
            WHEN event = 2 AND flags & 2 <> 0                            THEN '{6,3}' -- release after an earlier doubt
            WHEN event = 2                                               THEN '{6,2}' -- release
            WHEN event = 3 AND (state = 1 OR flags & 1 <> 0)             THEN '{6,4}' -- doubt
            WHEN event = 3                                               THEN '{6,0}' -- doubt again
            WHEN event = 4                                               THEN '{6,5}' -- renew
            WHEN now < lease_until AND NOT force                         THEN '{9,0}' -- settle while the lease is live
            WHEN event = 5                                               THEN '{6,1}' -- settle completed
            ELSE                                                              '{6,2}' -- settle failed
            END::smallint[] AS r) AS rule
    ), gone AS (
        DELETE FROM once.keys k USING judged j WHERE k.id = j.id AND j.deed = 6
    ), left_over AS (
        DELETE FROM once.checkpoints c USING judged j WHERE c.id = j.id AND j.deed = 6
    ), events AS (
        DELETE FROM once.emitted e USING judged j WHERE e.record = j.id AND j.deed = 6
    ), changed AS (
        UPDATE once.keys k SET
            changed = j.now,
            state = CASE j.deed WHEN 1 THEN 2 WHEN 2 THEN 3 WHEN 5 THEN k.state ELSE 4 END,
            flags = CASE j.deed WHEN 1 THEN 0 WHEN 2 THEN 0 WHEN 5 THEN k.flags ELSE k.flags & ~1 END,
            lease_until = CASE j.deed
                WHEN 3 THEN least(k.lease_until, j.now)
                WHEN 4 THEN j.now + coalesce(nullif(j.a_lease_ms, 0), k.lease_ms)
                WHEN 5 THEN greatest(k.lease_until, j.now + coalesce(nullif(j.a_lease_ms, 0), k.lease_ms))
                ELSE k.lease_until END,
            ttl_ms = CASE WHEN j.deed <= 2 AND j.event <> 2 AND j.a_ttl_ms <> 0 THEN j.a_ttl_ms ELSE k.ttl_ms END,
            expires = CASE
                WHEN j.deed > 2 THEN k.expires
                WHEN j.event <> 2 THEN j.now + coalesce(nullif(j.a_ttl_ms, 0), k.ttl_ms)
                WHEN j.a_ttl_ms <> 0 AND k.flags & 4 = 0 THEN j.now + least(greatest(j.a_ttl_ms, 2 * k.lease_ms), k.ttl_ms)
                ELSE j.now + k.ttl_ms END,
            kind = CASE WHEN j.deed <= 3 THEN j.a_kind ELSE k.kind END,
            status = CASE WHEN j.deed <= 3 THEN j.a_status ELSE k.status END,
            payload = CASE WHEN j.deed <= 3 THEN j.a_payload ELSE k.payload END
        FROM judged j
        WHERE k.id = j.id AND j.deed BETWEEN 1 AND 5
        RETURNING k.*, j.outcome, j.now
    )
    -- What was done need not be sent back whole.
    SELECT id, outcome, now, created, changed, lease_until, lease_ms, expires, ttl_ms, epoch, schema, state, recover,
           flags, 0::smallint, 0::smallint, claim, fingerprint, NULL::bytea, NULL::bytea, NULL::bytea
    FROM changed
    UNION ALL
    SELECT id, outcome, now, created, changed, lease_until, lease_ms, expires, ttl_ms, epoch, schema, state, recover,
           flags, kind, status, claim, fingerprint, scope, key, CASE WHEN outcome <> 6 THEN payload END
    FROM judged WHERE deed = 0
    UNION ALL
    SELECT id, outcome, now, 0, 0, 0, 0, 0, 0, 0, 0::smallint, 0::smallint, 0::smallint, 0::smallint, 0::smallint, 0::smallint,
           NULL, NULL, NULL, NULL, NULL
    FROM judged WHERE deed >= 6;

    GET DIAGNOSTICS v_answered = ROW_COUNT;
    IF v_answered < cardinality(p_id) THEN
        -- No row at all: lost or refused. A row that an application holds in an open transaction: a renewal of it counts as
        -- done, because somebody is at work. What is left is locked by another batch, which will not take long.
        RETURN QUERY
        SELECT a.id, (CASE WHEN k.id IS NOT NULL THEN 6 WHEN a.event <= 4 THEN 8 ELSE 9 END)::smallint,
               greatest(v_clock, k.changed), coalesce(k.created, 0), coalesce(k.changed, 0), coalesce(k.lease_until, 0),
               coalesce(k.lease_ms, 0), coalesce(k.expires, 0), coalesce(k.ttl_ms, 0), coalesce(k.epoch, 0),
               coalesce(k.schema, 0::smallint), coalesce(k.state, 0::smallint), coalesce(k.recover, 0::smallint),
               coalesce(k.flags, 0::smallint), 0::smallint, 0::smallint, k.claim, k.fingerprint, NULL::bytea, NULL::bytea,
               NULL::bytea
        FROM unnest(p_id, p_event) AS a (id, event)
        LEFT JOIN once.keys k ON k.id = a.id
        WHERE k.id IS NULL OR (a.event = 4 AND NOT pg_try_advisory_xact_lock_shared(once.lock_of(a.id)));
    END IF;
END
$$;

-- Waits for whoever has the record, and takes it for the rest of the transaction: for those who call in one of their own.
CREATE OR REPLACE FUNCTION once.take(p_id bytea) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(once.lock_of(p_id));
    PERFORM FROM once.keys k WHERE k.id = p_id FOR UPDATE;
END
$$;

CREATE OR REPLACE FUNCTION once.apply_one(p_event smallint, p_id bytea, p_epoch integer, p_claim bytea, p_force boolean,
    p_lease_ms bigint, p_ttl_ms bigint, p_kind smallint, p_status smallint, p_payload bytea)
RETURNS once.answer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    answer once.answer;
BEGIN
    PERFORM once.take(p_id);
    SELECT * INTO answer FROM once.store_apply(1::smallint, ARRAY[p_id], ARRAY[p_event], ARRAY[p_epoch], ARRAY[p_claim],
        ARRAY[p_force], ARRAY[p_lease_ms], ARRAY[p_ttl_ms], ARRAY[p_kind], ARRAY[p_status], ARRAY[p_payload]);
    RETURN answer;
END
$$;
