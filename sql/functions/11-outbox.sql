-- The outbox as relays see it. docs/relay.md says how work is shared and why no event can be skipped.

SET LOCAL search_path = pg_catalog, pg_temp;

-- Wakes relays that are asleep when this transaction commits. Notifying makes commits wait for each other, so it is left out while
-- relays are awake: they look again by themselves. PREPARE TRANSACTION refuses a transaction that has notified: with
-- once.notify = off no relay is notified, and relays find the events the next time they look.
CREATE OR REPLACE FUNCTION once._notify_relays() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF coalesce(nullif(current_setting('once.notify', true), ''), 'on')::boolean
       AND EXISTS (SELECT FROM once.relays WHERE asleep AND seen + 3 * lease > clock_timestamp()) THEN
        PERFORM pg_notify('once_outbox', '');
    END IF;
END
$$;

-- A relay reports that it is alive, gives groups back, keeps those that it has and takes free ones, up to its share. `rival`:
-- another live relay publishes this outbox to another destination; then nothing is taken.
CREATE OR REPLACE FUNCTION once.relay_turn(p_relay uuid, p_name text, p_destination text, p_lease_ms bigint, p_asleep boolean,
    p_give smallint[], OUT groups smallint[], OUT relays integer, OUT share integer, OUT rival text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    v_lease interval := make_interval(secs => p_lease_ms / 1000.0);
    v_mine integer;
BEGIN
    SELECT destination INTO rival FROM once.relays
    WHERE id <> p_relay AND seen + lease > v_now AND destination <> p_destination LIMIT 1;
    IF rival IS NOT NULL THEN
        RETURN;
    END IF;
    INSERT INTO once.relays AS r (id, name, destination, seen, lease, asleep)
    VALUES (p_relay, p_name, p_destination, v_now, v_lease, p_asleep)
    ON CONFLICT (id) DO UPDATE SET seen = v_now, lease = v_lease, asleep = p_asleep;
    DELETE FROM once.relays
    WHERE id IN (SELECT id FROM once.relays WHERE seen + 10 * lease < v_now FOR UPDATE SKIP LOCKED);
    UPDATE once.outbox_groups SET owner = NULL WHERE owner = p_relay AND grp = ANY (p_give);
    UPDATE once.outbox_groups SET lease_until = v_now + v_lease WHERE owner = p_relay;
    GET DIAGNOSTICS v_mine = ROW_COUNT;
    SELECT count(*) INTO relays FROM once.relays WHERE seen + lease > v_now;
    SELECT (count(*) + relays - 1) / relays INTO share FROM once.outbox_groups;
    IF v_mine < share THEN
        UPDATE once.outbox_groups SET owner = p_relay, epoch = epoch + 1, lease_until = v_now + v_lease
        WHERE grp IN (SELECT grp FROM once.outbox_groups
                      WHERE (owner IS NULL OR lease_until < v_now) AND owner IS DISTINCT FROM p_relay
                        AND NOT grp = ANY (p_give)
                      ORDER BY grp LIMIT share - v_mine FOR UPDATE SKIP LOCKED);
    END IF;
    groups := ARRAY(SELECT grp FROM once.outbox_groups WHERE owner = p_relay ORDER BY grp);
END
$$;

CREATE OR REPLACE FUNCTION once.relay_end(p_relay uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE once.outbox_groups SET owner = NULL WHERE owner = p_relay;
    DELETE FROM once.relays WHERE id = p_relay;
END
$$;

-- The events to publish in some groups, as the caller's statement sees them (the function is STABLE). Values of headers are
-- strings.
--
-- The first row has grp -1. Its topic is the snapshot, its time the server's, its key the groups that the relay owns (others are
-- left out), and its type identifies the server and its last start: snapshots and numbers of one server mean nothing to another,
-- and behind a connection pool nothing else shows that the server changed.
--
-- Then, for each group:
-- - rows up to p_pos that the previous snapshot (p_prev) did not see: their transactions ended since. They are above p_low, or, if
--   one of the transactions p_old ended, above p_low_old. At most 256 of them and as many as fit in p_bytes, but at least one: a
--   relay that gets 256 goes back to the last of them;
-- - the next p_limits rows after p_pos, as many as fit in p_bytes, but at least one, without those of the keys p_not_keys, each in
--   the group at the same place of p_not_groups.
CREATE OR REPLACE FUNCTION once.relay_fetch(p_relay uuid, p_groups smallint[], p_pos bigint[], p_limits integer[],
    p_low bigint[], p_low_old bigint[], p_old xid8[], p_prev pg_snapshot, p_bytes bigint, p_not_groups smallint[],
    p_not_keys text[])
RETURNS TABLE (grp smallint, seq bigint, place tid, id uuid, at timestamptz, topic text, key text, type text,
    payload bytea, headers text, cause bytea)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_now CONSTANT pg_snapshot := pg_current_snapshot();
    v_low bigint[] := p_low;
    v_mine CONSTANT smallint[] := ARRAY(SELECT g.grp FROM once.outbox_groups g
                                        WHERE g.owner = p_relay AND g.lease_until > clock_timestamp());
BEGIN
    IF EXISTS (SELECT FROM unnest(p_old) AS x WHERE pg_visible_in_snapshot(x, v_now)) THEN
        v_low := p_low_old;
    END IF;
    -- the first row: of no group
    RETURN QUERY SELECT -1::smallint, 0::bigint, NULL::tid, NULL::uuid, clock_timestamp(), v_now::text, v_mine::text,
        (SELECT concat_ws(' ', extract(epoch FROM pg_postmaster_start_time()), extract(epoch FROM b.stats_reset))
         FROM pg_stat_bgwriter b),
        NULL::bytea, NULL::text, NULL::bytea;
    RETURN QUERY
    SELECT o.grp, o.seq, o.ctid, o.id, o.at, o.topic, o.key, o.type, o.payload,
        CASE WHEN o.headers = '{}' OR jsonb_typeof(o.headers) <> 'object' THEN '{}'
             WHEN NOT jsonb_path_exists(o.headers, 'strict $.* ? (@.type() != "string")') THEN o.headers::text
             ELSE (SELECT jsonb_object_agg(h.key, coalesce(h.value, 'null'))::text FROM jsonb_each_text(o.headers) AS h) END,
        o.cause
    FROM (
        SELECT late.* FROM unnest(p_groups, p_pos, v_low) AS w (grp, pos, low)
        CROSS JOIN LATERAL (
            SELECT l.ctid, l.*, sum(octet_length(l.payload)) OVER (ORDER BY l.seq ROWS UNBOUNDED PRECEDING) AS total
            FROM once.outbox l
            WHERE l.grp = w.grp AND l.seq > w.low AND l.seq <= w.pos AND NOT pg_visible_in_snapshot(l.xid, p_prev)
            ORDER BY l.seq LIMIT 256
        ) AS late
        WHERE w.low < w.pos AND w.grp = ANY (v_mine)
        UNION ALL
        SELECT next.* FROM unnest(p_groups, p_pos, p_limits) AS w (grp, pos, max)
        CROSS JOIN LATERAL (
            SELECT f.ctid, f.*, sum(octet_length(f.payload)) OVER (ORDER BY f.seq ROWS UNBOUNDED PRECEDING) AS total
            FROM once.outbox f
            WHERE f.grp = w.grp AND f.seq > w.pos
              AND (p_not_keys = '{}' OR f.key IS NULL
                   OR NOT EXISTS (SELECT FROM unnest(p_not_groups, p_not_keys) AS n (grp, key)
                                  WHERE n.grp = w.grp AND n.key = f.key))
            ORDER BY f.seq LIMIT w.max
        ) AS next
        WHERE w.max > 0 AND w.grp = ANY (v_mine)
    ) AS o
    WHERE o.total - octet_length(o.payload) <= p_bytes;
END
$$;

-- Removes published events: where the rows were when they were read, and by number if they moved since. The id is compared as
-- well: after a failover that lost commits, the same number can belong to another event. Does not wait for the disk: an event that
-- a crash brings back is published again, with the same id.
-- p_trace: where they were published, to be remembered for once.trace; as many again, and twice, are forgotten when they are old.
CREATE OR REPLACE FUNCTION once.relay_published(p_places tid[], p_groups smallint[], p_seqs bigint[], p_ids uuid[],
    p_trace text DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_count bigint;
    v_more bigint := 0;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    IF p_trace IS NOT NULL THEN
        INSERT INTO once.published (record, event, topic, type, destination)
        SELECT o.record, o.id, o.topic, o.type, p_trace
        FROM unnest(p_groups, p_seqs, p_ids) AS d (grp, seq, id)
        JOIN once.outbox o ON o.grp = d.grp AND o.seq = d.seq AND o.id = d.id
        WHERE o.record IS NOT NULL
        ON CONFLICT DO NOTHING; -- published again after a crash
        DELETE FROM once.published p WHERE p.ctid = ANY (ARRAY(
            SELECT f.ctid FROM once.published f
            WHERE f.at < clock_timestamp() - (SELECT s.value::interval FROM once.settings s WHERE s.name = 'trace_retention')
            LIMIT 2 * cardinality(p_ids)));
    END IF;
    DELETE FROM once.outbox o USING unnest(p_places, p_seqs, p_ids) AS d (place, seq, id)
    WHERE o.ctid = d.place AND o.seq = d.seq AND o.id = d.id;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    IF v_count < cardinality(p_seqs) THEN
        DELETE FROM once.outbox o USING unnest(p_groups, p_seqs, p_ids) AS d (grp, seq, id)
        WHERE o.grp = d.grp AND o.seq = d.seq AND o.id = d.id;
        GET DIAGNOSTICS v_more = ROW_COUNT;
    END IF;
    RETURN v_count + v_more;
END
$$;

-- Moves an event to the dead ones. False if it was not there.
CREATE OR REPLACE FUNCTION once.relay_dead(p_group smallint, p_seq bigint, p_id uuid, p_tries integer,
    p_reason text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    WITH gone AS (
        DELETE FROM once.outbox o WHERE o.grp = p_group AND o.seq = p_seq AND o.id = p_id RETURNING o.*
    )
    INSERT INTO once.outbox_dead (seq, at, id, tries, reason, topic, key, type, payload, headers, record, cause)
    SELECT seq, at, id, p_tries, p_reason, topic, key, type, payload, headers, record, cause FROM gone;
    RETURN FOUND;
END
$$;

-- How far the relays are behind. At most 200 events of each group are counted; the number of the others is estimated. `oldest` is
-- the oldest of the first events of the groups, which is close enough.
CREATE OR REPLACE FUNCTION once.outbox_lag(OUT events bigint, OUT oldest timestamptz, OUT dead bigint, OUT server timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
BEGIN
    SELECT coalesce(sum(CASE WHEN c.counted < 200 THEN c.counted
                             ELSE 200 * ((l.seq - c.first) / greatest(c.upto - c.first, 1)::float8) END), 0)::bigint, min(c.at)
    INTO events, oldest
    FROM once.outbox_groups g
    CROSS JOIN LATERAL (SELECT count(*) AS counted, min(f.seq) AS first, max(f.seq) AS upto, min(f.at) AS at
                        FROM (SELECT o.seq, o.at FROM once.outbox o WHERE o.grp = g.grp ORDER BY o.seq LIMIT 200) AS f) AS c
    LEFT JOIN LATERAL (SELECT o.seq FROM once.outbox o WHERE o.grp = g.grp ORDER BY o.seq DESC LIMIT 1) AS l ON true;
    SELECT count(*) INTO dead FROM once.outbox_dead;
    server := clock_timestamp();
END
$$;

-- Dead events, or (p_waiting) those that wait to be published, oldest first. p_id: the beginning of an id.
CREATE OR REPLACE FUNCTION once.outbox_list(p_waiting boolean, p_id text, p_limit bigint)
RETURNS TABLE (id uuid, age_ms bigint, dead_ms bigint, topic text, key text, type text, bytes bigint, tries integer, reason text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    IF p_waiting THEN
        RETURN QUERY SELECT o.id, once._interval_ms(clock_timestamp() - o.at), NULL::bigint, o.topic, o.key, o.type,
            octet_length(o.payload)::bigint, 0, ''
        FROM once.outbox o WHERE o.id::text LIKE p_id || '%' ORDER BY o.seq LIMIT p_limit;
    ELSE
        RETURN QUERY SELECT d.id, once._interval_ms(clock_timestamp() - d.at), once._interval_ms(clock_timestamp() - d.died),
            d.topic, d.key, d.type, octet_length(d.payload)::bigint, d.tries, d.reason
        FROM once.outbox_dead d WHERE d.id::text LIKE p_id || '%' ORDER BY d.number LIMIT p_limit;
    END IF;
END
$$;

-- The trail of a decision about dead events. NULL: all of them.
CREATE OR REPLACE FUNCTION once._audit_dead(p_act text, p_ids uuid[], p_by text, p_note text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_dead record;
BEGIN
    FOR v_dead IN SELECT d.id, d.record, d.topic, d.type FROM once.outbox_dead d
                  WHERE p_ids IS NULL OR d.id = ANY (p_ids) ORDER BY d.number FOR UPDATE LOOP
        PERFORM once._audit(p_act, p_by, p_note, jsonb_build_object('event', v_dead.id, 'record', encode(v_dead.record, 'hex'),
            'object', left(v_dead.topic || ' ' || v_dead.type, 512), 'from', 'dead', 'result', 'done'));
    END LOOP;
END
$$;

-- Requeues dead events behind everything that waits, with the ids that they have. NULL: all of them.
CREATE OR REPLACE FUNCTION once.outbox_retry(p_ids uuid[], p_by text DEFAULT NULL, p_note text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_count bigint;
BEGIN
    PERFORM once._audit_dead('outbox retry', p_ids, p_by, p_note);
    WITH gone AS (
        DELETE FROM once.outbox_dead d WHERE p_ids IS NULL OR d.id = ANY (p_ids) RETURNING d.*
    )
    INSERT INTO once.outbox (at, id, grp, topic, key, type, payload, headers, record, cause)
    SELECT at, id, once._outbox_group(key, id), topic, key, type, payload, headers, record, cause FROM gone ORDER BY number;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    PERFORM once._notify_relays();
    RETURN v_count;
END
$$;

-- Deletes dead events. NULL: all of them.
CREATE OR REPLACE FUNCTION once.outbox_drop(p_ids uuid[], p_by text DEFAULT NULL, p_note text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_count bigint;
BEGIN
    PERFORM once._audit_dead('outbox drop', p_ids, p_by, p_note);
    DELETE FROM once.outbox_dead d WHERE p_ids IS NULL OR d.id = ANY (p_ids);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;
