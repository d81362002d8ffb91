-- Removing expired records: page by page through the table, in its physical order. That needs no index, which every completion
-- would have to keep up to date (docs/decisions/postgres-expiry.md).

SET LOCAL search_path = pg_catalog, pg_temp;

-- Removes at most p_limit records from page p_from on, for at most p_budget_ms (NULL: as long as it takes). next_block is where to
-- go on; NULL at the end of the table.
CREATE OR REPLACE FUNCTION once.sweep(p_from bigint, p_limit bigint, p_budget_ms integer,
    OUT removed bigint, OUT next_block bigint)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_clock bigint := once._now_ms();
    v_blocks bigint := pg_relation_size('once.keys') / current_setting('block_size')::bigint;
    v_step CONSTANT bigint := 64;
    v_count bigint;
BEGIN
    removed := 0;
    next_block := p_from;
    WHILE next_block < v_blocks LOOP
        WITH over AS MATERIALIZED (
            SELECT k.ctid AS place, k.id FROM once.keys k
            WHERE k.ctid >= format('(%s,0)', next_block)::tid AND k.ctid < format('(%s,0)', next_block + v_step)::tid
              AND schema <= once._schema()
              AND CASE WHEN state IN (once._state_completed(), once._state_failed())
                       THEN once._is_expired(state, expires, greatest(v_clock, changed))
                       ELSE recover <> once._recover_hold() AND greatest(v_clock, changed) >= lease_until + ttl_ms END
            LIMIT greatest(p_limit - removed, 0)
            FOR UPDATE OF k SKIP LOCKED
        ), points AS (
            DELETE FROM once.checkpoints c USING over o WHERE c.id = o.id
        ), events AS (
            DELETE FROM once.emitted e USING over o WHERE e.record = o.id
        ), gone AS (
            DELETE FROM once.keys k WHERE k.ctid = ANY (ARRAY(SELECT place FROM over)) RETURNING 1
        )
        SELECT count(*) INTO v_count FROM gone;
        removed := removed + v_count;
        IF removed >= p_limit THEN
            RETURN; -- there may be more in these pages
        END IF;
        next_block := next_block + v_step;
        IF once._now_ms() - v_clock > p_budget_ms THEN
            RETURN;
        END IF;
    END LOOP;
    next_block := NULL;
END
$$;

-- How long the inbox remembers a message. NULL if the setting is not valid: then no message is forgotten.
CREATE OR REPLACE FUNCTION once._inbox_retention() RETURNS interval
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_value text := (SELECT value FROM once.settings WHERE name = 'inbox_retention');
BEGIN
    IF v_value::interval > '0' THEN
        RETURN v_value::interval;
    END IF;
    RAISE data_exception;
EXCEPTION WHEN data_exception THEN
    RAISE WARNING USING MESSAGE = format('once: inbox_retention in once.settings is not a positive interval (%L): no message is'
                                         ' forgotten', v_value),
        HINT = 'UPDATE once.settings SET value = ''7 days'' WHERE name = ''inbox_retention''';
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION once._sweep_inbox(p_from bigint, p_limit bigint, p_budget_ms integer,
    OUT removed bigint, OUT next_block bigint)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_clock bigint := once._now_ms();
    v_before timestamptz := clock_timestamp() - once._inbox_retention();
    v_blocks bigint := pg_relation_size('once.inbox') / current_setting('block_size')::bigint;
    v_step CONSTANT bigint := 64;
    v_count bigint;
BEGIN
    removed := 0;
    next_block := p_from;
    WHILE next_block < v_blocks LOOP
        WITH over AS MATERIALIZED (
            SELECT i.ctid AS place FROM once.inbox i
            WHERE i.ctid >= format('(%s,0)', next_block)::tid AND i.ctid < format('(%s,0)', next_block + v_step)::tid
              AND at < v_before
            LIMIT greatest(p_limit - removed, 0)
            FOR UPDATE OF i SKIP LOCKED
        ), gone AS (
            DELETE FROM once.inbox i WHERE i.ctid = ANY (ARRAY(SELECT place FROM over)) RETURNING 1
        )
        SELECT count(*) INTO v_count FROM gone;
        removed := removed + v_count;
        IF removed >= p_limit THEN
            RETURN;
        END IF;
        next_block := next_block + v_step;
        IF once._now_ms() - v_clock > p_budget_ms THEN
            RETURN;
        END IF;
    END LOOP;
    next_block := NULL;
END
$$;

-- Removes some expired records and messages, from where the last call stopped. Returns the number of records; 0 if another session
-- is reaping. For gateways, pg_cron, and any scheduler.
CREATE OR REPLACE FUNCTION once.reap(p_limit bigint DEFAULT 10000, p_budget_ms integer DEFAULT 200) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_removed bigint;
    v_inbox bigint;
    v_next bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('once.reap', 0)) THEN
        RETURN 0;
    END IF;
    SELECT s.removed, s.next_block INTO v_removed, v_next
    FROM once.sweep((SELECT block FROM once.sweeps WHERE name = 'keys'), p_limit, p_budget_ms) AS s;
    UPDATE once.sweeps SET block = coalesce(v_next, 0), ended = CASE WHEN v_next IS NULL THEN clock_timestamp() ELSE ended END
    WHERE name = 'keys';
    SELECT s.removed, s.next_block INTO v_inbox, v_next
    FROM once._sweep_inbox((SELECT block FROM once.sweeps WHERE name = 'inbox'), p_limit, p_budget_ms / 4) AS s;
    UPDATE once.sweeps SET block = coalesce(v_next, 0), ended = CASE WHEN v_next IS NULL THEN clock_timestamp() ELSE ended END
    WHERE name = 'inbox';
    RETURN v_removed;
END
$$;
