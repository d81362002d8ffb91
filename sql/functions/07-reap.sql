-- Removing expired records and messages: page by page through the table, in its physical order. That needs no index, which every
-- completion would have to keep up to date. How often the reaper passes follows what it finds (docs/decisions/postgres-expiry.md).

SET LOCAL search_path = pg_catalog, pg_temp;

-- ------------------------------------------------------------------------------------------------------------ pages

-- From when on a record is removed. NULL: never.
CREATE OR REPLACE FUNCTION once._ends(state smallint, recover smallint, expires bigint, lease_until bigint, ttl integer)
RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN state IN (once._state_completed(), once._state_failed()) THEN nullif(expires, 0)
            WHEN recover <> once._recover_hold() THEN lease_until + once._ttl_ms(ttl) END;

-- Removes at most p_limit expired records from the pages p_from to p_to - 1. seen: all rows there; late: for how long the record had
-- been expired that had waited longest, NULL if there was none.
CREATE OR REPLACE FUNCTION once._sweep_keys(p_from bigint, p_to bigint, p_limit bigint,
    OUT seen bigint, OUT removed bigint, OUT late bigint)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan -- or planning would take longer than looking
AS $$
#variable_conflict use_column
DECLARE
    v_clock CONSTANT bigint := once._now_ms();
    v_from CONSTANT tid := format('(%s,0)', p_from)::tid;
    v_to CONSTANT tid := format('(%s,0)', p_to)::tid;
BEGIN
    -- Most pages have nothing to remove: looking costs less than locking.
    SELECT count(*), v_clock - min(ends) INTO seen, late
    FROM (SELECT CASE WHEN schema <= once._schema() AND greatest(v_clock, changed) >=
                           once._ends(state, recover, expires, lease_until, ttl)
                      THEN once._ends(state, recover, expires, lease_until, ttl) END AS ends
          FROM once.keys k WHERE k.ctid >= v_from AND k.ctid < v_to) AS looked;
    removed := 0;
    IF late IS NULL THEN
        RETURN;
    END IF;
    WITH over AS MATERIALIZED (
        SELECT k.ctid AS place, once._full_id(k.id, k.tail) AS id FROM once.keys k
        WHERE k.ctid >= v_from AND k.ctid < v_to AND schema <= once._schema()
          AND greatest(v_clock, changed) >= once._ends(state, recover, expires, lease_until, ttl)
        LIMIT greatest(p_limit, 0)
        FOR UPDATE OF k SKIP LOCKED
    ), points AS (
        DELETE FROM once.checkpoints c USING over o WHERE c.id = o.id
    ), events AS (
        DELETE FROM once.emitted e USING over o WHERE e.record = o.id
    ), gone AS (
        DELETE FROM once.keys k WHERE k.ctid = ANY (ARRAY(SELECT place FROM over)) RETURNING 1
    )
    SELECT count(*) INTO removed FROM gone;
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

-- The same for messages that were handled before p_before.
CREATE OR REPLACE FUNCTION once._sweep_inbox(p_from bigint, p_to bigint, p_limit bigint, p_before timestamptz,
    OUT seen bigint, OUT removed bigint, OUT late bigint)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_from CONSTANT tid := format('(%s,0)', p_from)::tid;
    v_to CONSTANT tid := format('(%s,0)', p_to)::tid;
BEGIN
    SELECT count(*), CASE WHEN min(at) < p_before THEN once._interval_ms(p_before - min(at)) END INTO seen, late
    FROM once.inbox i WHERE i.ctid >= v_from AND i.ctid < v_to;
    removed := 0;
    IF late IS NULL THEN
        RETURN;
    END IF;
    WITH over AS MATERIALIZED (
        SELECT i.ctid AS place FROM once.inbox i
        WHERE i.ctid >= v_from AND i.ctid < v_to AND at < p_before
        LIMIT greatest(p_limit, 0)
        FOR UPDATE OF i SKIP LOCKED
    ), gone AS (
        DELETE FROM once.inbox i WHERE i.ctid = ANY (ARRAY(SELECT place FROM over)) RETURNING 1
    )
    SELECT count(*) INTO removed FROM gone;
END
$$;

-- Goes through the pages of p_table (keys, inbox) from p_from on and removes at most p_limit rows that are over, for about
-- p_budget_ms (NULL: as long as it takes). next_block is where to go on, of `blocks`; NULL at the end of the table.
CREATE OR REPLACE FUNCTION once._sweep(p_table text, p_from bigint, p_limit bigint, p_budget_ms integer,
    OUT removed bigint, OUT next_block bigint, OUT blocks bigint, OUT seen bigint, OUT late bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_start CONSTANT timestamptz := clock_timestamp();
    v_before timestamptz;
    v_pages bigint := 32; -- at a time: some 300 records
    v_part record;
BEGIN
    blocks := pg_relation_size('once.' || p_table) / current_setting('block_size')::bigint;
    removed := 0;
    seen := 0;
    late := 0;
    next_block := p_from;
    IF p_table = 'inbox' THEN
        v_before := v_start - once._inbox_retention();
        v_pages := 8; -- some 700 messages
    END IF;
    WHILE next_block < blocks LOOP
        IF p_table = 'inbox' THEN
            SELECT * INTO v_part FROM once._sweep_inbox(next_block, next_block + v_pages, p_limit - removed, v_before);
        ELSE
            SELECT * INTO v_part FROM once._sweep_keys(next_block, next_block + v_pages, p_limit - removed);
        END IF;
        removed := removed + v_part.removed;
        late := greatest(late, v_part.late);
        IF removed >= p_limit THEN
            RETURN; -- there may be more in these pages
        END IF;
        seen := seen + v_part.seen;
        next_block := next_block + v_pages;
        IF clock_timestamp() > v_start + make_interval(secs => p_budget_ms / 1000.0) THEN
            RETURN;
        END IF;
    END LOOP;
    next_block := NULL;
END
$$;

-- For once reap, which goes through the whole table, whatever the schedule says.
CREATE OR REPLACE FUNCTION once.sweep(p_from bigint, p_limit bigint, p_budget_ms integer,
    OUT removed bigint, OUT next_block bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT removed, next_block FROM once._sweep('keys', $1, $2, $3)
$$;

CREATE OR REPLACE FUNCTION once.sweep_inbox(p_from bigint, p_limit bigint, p_budget_ms integer,
    OUT removed bigint, OUT next_block bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT removed, next_block FROM once._sweep('inbox', $1, $2, $3)
$$;

-- -------------------------------------------------------------------------------------------------------- schedule

-- The part of the rows that may be expired when the reaper comes: how much larger than its contents a table may become.
CREATE OR REPLACE FUNCTION once._reap_share() RETURNS numeric LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 0.2;
-- Removing fewer rows than these in a pass is no reason to pass more often.
CREATE OR REPLACE FUNCTION once._reap_few() RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 1000::bigint;

-- How long the next pass should take, after one that should have taken `period` ms and removed some of the rows that it saw, the
-- oldest of which had expired `late` ms before: these have expired in that time, and in the next period a share may. At least a
-- second; where nothing expires, a minute for each 8,192 pages (64 MB), at most 6 hours.
CREATE OR REPLACE FUNCTION once._next_period(period bigint, seen bigint, removed bigint, late bigint, blocks bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN least(greatest(CASE WHEN removed < once._reap_few() THEN period * 2
                           ELSE least(greatest((least(late, period) * once._reap_share() * seen / removed)::bigint, period / 4),
                                      period * 2) END, 1000),
             least(greatest(60000, 60000 * blocks / 8192), 21600000));

-- Goes on with the pass through p_table, and says when that is due again. The caller has the reaper's lock.
CREATE OR REPLACE FUNCTION once._reap(p_table text, p_limit bigint, p_budget_ms integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_start CONSTANT bigint := once._now_ms();
    v_now bigint;
    v_pass once.sweeps;
    v_part record;
BEGIN
    SELECT * INTO v_pass FROM once.sweeps WHERE name = p_table;
    IF v_pass.block = 0 OR v_pass.began = 0 THEN
        v_pass.began := v_start;
        v_pass.seen := 0;
        v_pass.removed := 0;
        v_pass.late := 0;
    END IF;
    SELECT * INTO v_part FROM once._sweep(p_table, v_pass.block, p_limit, p_budget_ms);
    v_now := once._now_ms();
    v_pass.seen := v_pass.seen + v_part.seen;
    v_pass.removed := v_pass.removed + v_part.removed;
    v_pass.late := greatest(v_pass.late, v_part.late);
    v_pass.due := v_now + greatest(v_now - v_start, 1) * 2; -- at most a third of the time
    IF v_part.next_block IS NULL THEN
        v_pass.period := once._next_period(v_pass.period, v_pass.seen, v_pass.removed, v_pass.late, v_part.blocks);
        v_pass.due := greatest(v_pass.due, v_pass.began + v_pass.period);
        v_pass.last_late := v_pass.late;
        v_pass.ended := clock_timestamp();
    ELSIF v_pass.removed < once._reap_few() OR v_pass.removed < v_pass.seen * once._reap_share() THEN
        -- Spread over the period, or over a shorter one, if what is left of the table is like what was seen.
        v_pass.due := greatest(v_pass.due, v_pass.began + v_part.next_block * least(v_pass.period,
            once._next_period(v_pass.period, v_pass.seen * v_part.blocks / v_part.next_block, v_pass.removed, v_pass.late,
                              v_part.blocks)) / v_part.blocks);
    END IF; -- otherwise there is much to do: at once
    UPDATE once.sweeps
    SET block = coalesce(v_part.next_block, 0), ended = v_pass.ended, due = v_pass.due, period = v_pass.period,
        began = v_pass.began, seen = v_pass.seen, removed = v_pass.removed, late = v_pass.late, last_late = v_pass.last_late
    WHERE name = p_table;
    RETURN v_part.removed;
END
$$;

CREATE OR REPLACE FUNCTION once._reap_lock() RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT pg_try_advisory_xact_lock(hashtextextended('once.reap', 0))
$$;

-- How far behind expiry is: for how long the row had been expired that waited longest, in the last two passes; if there was any,
-- at least as long as the last pass is ago; and longer by as much as a reaper is overdue.
CREATE OR REPLACE FUNCTION once._behind(p_table text) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN pg_relation_size('once.' || name) = 0 THEN 0
                WHEN now - due > 60000 THEN greatest(late, last_late) + now - due
                WHEN late > 0 THEN greatest(late, last_late, now - began)
                ELSE last_late END
    FROM once.sweeps, once._now_ms() AS now WHERE name = p_table
$$;

-- A turn of the reaper: removes what is due, for some 40 ms of each table, and says after how many milliseconds to call it again. A
-- session that finds nothing to do, because another one reaps, need not come back soon.
CREATE OR REPLACE FUNCTION once.reap_turn(OUT removed bigint, OUT pause_ms bigint, OUT behind_ms bigint,
    OUT messages_behind_ms bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_table text;
    v_is_mine boolean := false;
    v_all CONSTANT bigint := 1000000000;
    v_budget_ms CONSTANT integer := 40;
    v_slack_ms CONSTANT bigint := 50; -- clocks of hosts do not run alike
    v_other_ms CONSTANT bigint := 10000;
BEGIN
    removed := 0;
    pause_ms := 0;
    IF once._reap_lock() THEN
        FOR v_table IN SELECT name FROM once.sweeps WHERE due <= once._now_ms() + v_slack_ms ORDER BY due LOOP
            removed := removed + once._reap(v_table, v_all, v_budget_ms);
            v_is_mine := true;
        END LOOP;
        SELECT greatest(min(due) - once._now_ms(), 1) INTO pause_ms FROM once.sweeps;
    END IF;
    IF NOT v_is_mine THEN
        pause_ms := greatest(pause_ms, v_other_ms);
    END IF;
    behind_ms := once._behind('keys');
    messages_behind_ms := once._behind('inbox');
END
$$;

-- Reaps for as long as there is something to do, in transactions of its own, at most for p_time: for pg_cron, and any scheduler that
-- comes once a minute. A procedure that commits can have neither the rights nor the settings of its owner.
CREATE OR REPLACE PROCEDURE once.reap_for(p_time interval DEFAULT '55 seconds')
LANGUAGE plpgsql
AS $$
DECLARE
    v_end CONSTANT timestamptz := pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) p_time;
    v_next timestamptz;
BEGIN
    LOOP
        PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
        SELECT clock_timestamp() + make_interval(secs => pause_ms / 1000.0) INTO v_next FROM once.reap_turn();
        EXIT WHEN v_next > v_end;
        LOOP
            COMMIT; -- also while it waits: what an open transaction can see, vacuum cannot remove
            PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
            EXIT WHEN clock_timestamp() >= v_next;
            PERFORM pg_sleep(least(extract(epoch FROM v_next - clock_timestamp()), 1));
        END LOOP;
    END LOOP;
END
$$;

-- Removes some expired records and messages, from where the last call stopped, whether it is due or not. Returns the number of
-- records; 0 if another session is reaping.
CREATE OR REPLACE FUNCTION once.reap(p_limit bigint DEFAULT 10000, p_budget_ms integer DEFAULT 200) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_removed bigint;
BEGIN
    IF NOT once._reap_lock() THEN
        RETURN 0;
    END IF;
    v_removed := once._reap('keys', p_limit, p_budget_ms);
    PERFORM once._reap('inbox', p_limit, p_budget_ms / 4);
    RETURN v_removed;
END
$$;

-- How far expiry is behind, for records and for messages, and about how many messages there are. Cheap.
CREATE OR REPLACE FUNCTION once.expiry(OUT behind_ms bigint, OUT messages bigint, OUT messages_behind_ms bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_exact CONSTANT bigint := 1024; -- pages that are counted
BEGIN
    behind_ms := once._behind('keys');
    messages_behind_ms := once._behind('inbox');
    IF pg_relation_size('once.inbox') <= v_exact * current_setting('block_size')::bigint THEN
        SELECT count(*) INTO messages FROM once.inbox;
    ELSE
        messages := greatest(pg_stat_get_live_tuples('once.inbox'::regclass), 0);
    END IF;
END
$$;
