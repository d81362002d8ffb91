-- Reading records.

SET LOCAL search_path = pg_catalog, pg_temp;

-- The records with these ids that have not expired, as committed: locks do not matter.
CREATE OR REPLACE FUNCTION once.store_get(p_id bytea[], p_dictionary bytea DEFAULT NULL) RETURNS SETOF once.answer
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_clock bigint := once._now_ms();
    v_dictionary CONSTANT smallint := once._dictionary_held(p_dictionary);
BEGIN
    RETURN QUERY
    SELECT once._full_id(k.id, tail), once._outcome_none(), v_clock, created, changed, lease_until, lease_ms::bigint, expires,
           once._ttl_ms(ttl), epoch, schema, state, recover, flags, kind, status, claim, fingerprint, scope,
           once._key_for(key, v_dictionary), once._payload_for(kind, payload, v_dictionary), once._about_for(about, v_dictionary),
           cause
    FROM unnest(p_id) AS a (id) JOIN once.keys k ON k.id = once._short_id(a.id) AND k.tail = substr(a.id, 17)
    WHERE NOT once._is_expired(state, expires, v_clock);
END
$$;

-- Looks at the next p_limit records after p_after, in the order of their ids, and answers those that pass the filter: states as
-- bits (0: all), stuck ones only, ages, and the beginning of a scope hash. The id of the last row is how far it got; its outcome
-- says whether there may be more.
CREATE OR REPLACE FUNCTION once.store_scan(p_after bytea, p_limit bigint, p_states integer, p_stuck boolean,
    p_older_ms bigint, p_younger_ms bigint, p_scope bytea, p_dictionary bytea DEFAULT NULL)
RETURNS SETOF once.answer
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_sort = off SET enable_bitmapscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_clock bigint := once._now_ms();
    v_dictionary CONSTANT smallint := once._dictionary_held(p_dictionary);
    v_after CONSTANT uuid := once._short_id(p_after || decode(repeat('00', 16), 'hex')); -- it may be empty
    v_ids uuid[];
    v_last uuid;
    v_seen bigint;
    v_more CONSTANT smallint := 1;
    v_end CONSTANT smallint := 2;
BEGIN
    v_ids := ARRAY(SELECT k.id FROM once.keys k WHERE k.id > v_after ORDER BY k.id LIMIT p_limit);
    v_seen := cardinality(v_ids);
    v_last := v_ids[v_seen];
    RETURN QUERY
    SELECT once._full_id(k.id, tail), once._outcome_none(), v_clock, created, changed, lease_until, lease_ms::bigint, expires,
           once._ttl_ms(ttl), epoch, schema, state, recover, flags, kind, status, claim, fingerprint, scope,
           once._key_for(key, v_dictionary), once._payload_for(kind, payload, v_dictionary), once._about_for(about, v_dictionary),
           cause
    FROM once.keys k
    WHERE k.id > v_after AND k.id <= v_last
      AND NOT once._is_expired(state, expires, v_clock)
      AND (p_states = 0 OR p_states & (1 << state) <> 0)
      AND (NOT p_stuck OR state = once._state_unknown() OR state = once._state_pending() AND v_clock >= lease_until)
      AND greatest(v_clock - created, 0) >= p_older_ms
      AND (p_younger_ms = 0 OR greatest(v_clock - created, 0) < p_younger_ms)
      AND substr(scope, 1, length(p_scope)) = p_scope;
    RETURN QUERY
    SELECT once._full_id(coalesce(v_last, v_after), substr(p_after, 17)), CASE WHEN v_seen < p_limit THEN v_end ELSE v_more END, v_clock, 0::bigint, 0::bigint,
           0::bigint, 0::bigint, 0::bigint, 0::bigint, 0, 0::smallint, 0::smallint, 0::smallint, 0::smallint, 0::smallint,
           0::smallint, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea;
END
$$;

-- The same without claims, fingerprints and payloads: for roles that may only look.
CREATE OR REPLACE FUNCTION once.store_list(p_after bytea, p_limit bigint, p_states integer, p_stuck boolean,
    p_older_ms bigint, p_younger_ms bigint, p_scope bytea, p_dictionary bytea DEFAULT NULL)
RETURNS SETOF once.answer
LANGUAGE sql STABLE SECURITY DEFINER ROWS 100 SET search_path = pg_catalog, pg_temp
AS $$
    SELECT id, outcome, now, created, changed, lease_until, lease_ms, expires, ttl_ms, epoch, schema, state, recover, flags,
           CASE kind WHEN once._payload_erased() THEN kind ELSE once._payload_none() END, status, decode(repeat('00', 16), 'hex'),
           decode(repeat('00', 37), 'hex'), scope, key, NULL::bytea,
           about, cause
    FROM once.store_scan($1, $2, $3, $4, $5, $6, $7, $8)
$$;

-- Counts records; reads the whole table. `bytes` is the size of the rows, without free space; `behind_ms` is for how long the record
-- has been expired that waits longest for its removal.
CREATE OR REPLACE FUNCTION once.stats(OUT pending bigint, OUT completed bigint, OUT failed bigint, OUT unknown bigint,
    OUT stuck bigint, OUT expired bigint, OUT oldest_ms bigint, OUT bytes bigint, OUT now bigint, OUT behind_ms bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_clock bigint := once._now_ms();
BEGIN
    SELECT count(*) FILTER (WHERE live AND state = once._state_pending()),
           count(*) FILTER (WHERE live AND state = once._state_completed()),
           count(*) FILTER (WHERE live AND state = once._state_failed()),
           count(*) FILTER (WHERE live AND state = once._state_unknown()),
           count(*) FILTER (WHERE live AND (state = once._state_unknown()
                                            OR state = once._state_pending() AND v_clock >= lease_until)),
           count(*) FILTER (WHERE NOT live),
           coalesce(max(greatest(v_clock - created, 0)) FILTER (WHERE live), 0), coalesce(sum(size), 0),
           coalesce(max(v_clock - expires) FILTER (WHERE NOT live), 0)
    INTO pending, completed, failed, unknown, stuck, expired, oldest_ms, bytes, behind_ms
    FROM (SELECT state, lease_until, created, expires, 200 + octet_length(key) + octet_length(about) + octet_length(payload) AS size,
                 NOT once._is_expired(state, expires, v_clock) AS live
          FROM once.keys) AS k;
    now := v_clock;
END
$$;

-- About how many records there are and how much room they take, cheap for any number of them. A small table is counted. Of a large
-- one, PostgreSQL's statistics give the live rows (after a crash, which loses them, the rows that the last vacuum left), and a
-- sample of pages the size of a row. Neither counts the room that removed rows leave for new ones.
CREATE OR REPLACE FUNCTION once.size(OUT records bigint, OUT bytes bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
    v_table CONSTANT oid := 'once.keys'::regclass;
    v_pages bigint := pg_relation_size(v_table) / current_setting('block_size')::bigint;
    v_exact CONSTANT bigint := 1024;
    v_sample CONSTANT bigint := 64;
    v_row numeric;
BEGIN
    IF v_pages <= v_exact THEN
        SELECT count(*), coalesce(sum(200 + octet_length(key) + octet_length(about) + octet_length(payload)), 0)
        INTO records, bytes FROM once.keys;
        RETURN;
    END IF;
    SELECT avg(200 + octet_length(key) + octet_length(about) + octet_length(payload)) INTO v_row
    FROM once.keys TABLESAMPLE SYSTEM (100.0 * v_sample / v_pages);
    SELECT greatest(pg_stat_get_live_tuples(v_table),
                    CASE WHEN coalesce(pg_stat_get_last_vacuum_time(v_table), pg_stat_get_last_autovacuum_time(v_table),
                                       pg_stat_get_last_analyze_time(v_table), pg_stat_get_last_autoanalyze_time(v_table)) IS NULL
                         THEN c.reltuples::bigint END)
    INTO records FROM pg_class c WHERE c.oid = v_table;
    bytes := records * coalesce(v_row, 500);
END
$$;

-- Records in readable form. Calls no private function: a view calls functions with the rights of the role that reads it.
CREATE OR REPLACE VIEW once.records AS
SELECT uuid_send(id) || tail AS id, encode(scope, 'hex') AS scope_hash,
       CASE WHEN length(key) = 17 AND get_byte(key, 0) = 0 THEN encode(substr(key, 2), 'hex')::uuid::text
            ELSE nullif(convert_from(key, 'LATIN1'), '') END AS key,
       (ARRAY['pending', 'completed', 'failed', 'unknown'])[state] AS state,
       (ARRAY['retry', 'transactional', 'hold'])[recover + 1] AS recover,
       epoch, nullif(status, 0) AS status,
       to_timestamp(created / 1000.0) AS created, to_timestamp(changed / 1000.0) AS changed,
       to_timestamp(lease_until / 1000.0) AS lease_until, to_timestamp(nullif(expires, 0) / 1000.0) AS expires,
       nullif(length(payload), 0) AS payload_bytes,
       CASE kind WHEN 2 /* once._payload_note() */ THEN convert_from(payload, 'LATIN1') END AS note,
       once.about_description(about) AS description, once.about_holder(about) AS holder,
       CASE WHEN flags & 1 /* once._flag_by_lease() */ <> 0 THEN 'lease over'
            WHEN once.about_text(cause) <> '' THEN once.about_text(cause)
            WHEN kind = 2 AND payload <> '' THEN convert_from(payload, 'LATIN1') END AS cause,
       id AS half, kind = 3 /* once._payload_erased() */ AS erased,
       once.about_attempts(epoch, cause) AS attempts
FROM once.keys;
