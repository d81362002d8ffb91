-- Dictionaries after records were erased (docs/decisions/erase.md): what they were made of may be gone.

SET LOCAL search_path = pg_catalog, pg_temp;

-- Whether one of these places of a dictionary belongs to no eight bytes that at least 8 of the samples have. Zeros are gaps.
CREATE OR REPLACE FUNCTION once._is_stale(p_dictionary bytea, p_places integer[], p_samples bytea[]) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET jit = off SET work_mem = '32MB'
AS $$
BEGIN
    RETURN EXISTS (
        WITH common AS MATERIALIZED (
            SELECT w.word
            FROM (SELECT DISTINCT s.n, substr(s.bytes, i, 8) AS word
                  FROM unnest(p_samples) WITH ORDINALITY AS s (bytes, n), generate_series(1, length(s.bytes) - 7) AS i) AS w
            GROUP BY w.word HAVING count(*) >= 8
        )
        SELECT i FROM unnest(p_places) AS i WHERE get_byte(p_dictionary, i - 1) <> 0
        EXCEPT
        SELECT i + n FROM generate_series(1, length(p_dictionary) - 7) AS i, generate_series(0, 7) AS n
        WHERE substr(p_dictionary, i, 8) IN (SELECT c.word FROM common c));
END
$$;

-- Where a dictionary has eight bytes in common with one of the texts.
CREATE OR REPLACE FUNCTION once._places_of(p_dictionary bytea, p_texts bytea[]) RETURNS integer[]
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_hashjoin = on -- which once.store_apply has off
AS $$
BEGIN
    RETURN ARRAY(
        SELECT DISTINCT i + n FROM generate_series(1, length(p_dictionary) - 7) AS i, generate_series(0, 7) AS n
        WHERE substr(p_dictionary, i, 8) IN (SELECT substr(t.bytes, j, 8) FROM unnest(p_texts) AS t (bytes),
                                                    generate_series(1, length(t.bytes) - 7) AS j));
END
$$;

-- Notes which places of the dictionaries have what these records say, before they are erased.
CREATE OR REPLACE FUNCTION once._touch_dictionaries(p_id bytea[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_payloads bytea[];
    v_abouts bytea[];
BEGIN
    SELECT array_agg(CASE k.kind WHEN once._payload_response() THEN once._payload_for(k.kind, k.payload, NULL) ELSE '' END),
           array_agg(once._about_for(k.about, NULL))
    INTO v_payloads, v_abouts
    FROM unnest(p_id) AS a (id) JOIN once.keys k ON k.id = once._short_id(a.id) AND k.tail = substr(a.id, 17)
    WHERE k.kind <> once._payload_erased();
    UPDATE once.dictionaries d
    SET touched_bytes = CASE WHEN n.bytes <@ d.touched_bytes THEN d.touched_bytes
                             ELSE ARRAY(SELECT unnest(d.touched_bytes) UNION SELECT unnest(n.bytes)) END,
        touched_about = CASE WHEN n.about <@ d.touched_about THEN d.touched_about
                             ELSE ARRAY(SELECT unnest(d.touched_about) UNION SELECT unnest(n.about)) END
    FROM (SELECT c.number, once._places_of(c.bytes, v_payloads) AS bytes, once._places_of(c.about, v_abouts) AS about
          FROM once.dictionaries c) AS n
    WHERE d.number = n.number AND NOT (n.bytes = '{}' AND n.about = '{}'); -- a new version also if it has them: see below
END
$$;

-- Takes dictionaries out of use that have what was erased and too few of the records still say. Ids are hashes: records that follow one another
-- have nothing else in common, and 512 of them are a sample of all.
CREATE OR REPLACE FUNCTION once._retire_dictionaries() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_from CONSTANT uuid := gen_random_uuid();
    v_payloads bytea[];
    v_abouts bytea[];
BEGIN
    SELECT array_agg(substr(once._payload_for(s.kind, s.payload, NULL), 1, 1024)), array_agg(once._about_for(s.about, NULL))
    INTO v_payloads, v_abouts
    FROM (SELECT n.* FROM (SELECT k.* FROM once.keys k WHERE k.id >= v_from ORDER BY k.id LIMIT 512) AS n
          UNION ALL
          SELECT n.* FROM (SELECT k.* FROM once.keys k WHERE k.id < v_from ORDER BY k.id LIMIT 512) AS n
          LIMIT 512) AS s
    WHERE s.kind = once._payload_response();
    -- What is touched while this looks, also where it was before, is judged by the next: the samples may be of before.
    UPDATE once.dictionaries d SET retired = n.stale, touched_bytes = '{}', touched_about = '{}'
    FROM (SELECT c.number, c.xmin AS seen, once._is_stale(c.bytes, c.touched_bytes, v_payloads)
                 OR once._is_stale(c.about, c.touched_about, v_abouts) AS stale
          FROM once.dictionaries c WHERE NOT c.retired AND NOT (c.touched_bytes = '{}' AND c.touched_about = '{}')) AS n
    WHERE d.number = n.number AND d.xmin = n.seen;
END
$$;

-- One step of taking erased texts out of the dictionaries: the first with p_after NULL, the next with what the one before returned as
-- `after` and `still`, until `after` is NULL. Records that were packed with a dictionary which has to go are stored as they were
-- before packing. `still` counts those that the pass has met so far; locked ones are left for the next pass. After a pass that
-- met none the dictionary is removed: the transactions that could name it had ended when the pass began.
CREATE OR REPLACE FUNCTION once.store_scrub(p_after uuid, p_still bigint,
    OUT after uuid, OUT still bigint, OUT rewritten bigint, OUT removed bigint)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET lock_timeout = '300ms'
AS $$
DECLARE
    v_wait CONSTANT uuid := '00000000-0000-0000-0000-000000000000'; -- for what was packed before it was retired
    v_begin CONSTANT uuid := '00000000-0000-0000-0000-000000000001';
    v_numbers smallint[];
    v_ids uuid[];
BEGIN
    still := p_still;
    rewritten := 0;
    removed := 0;
    IF p_after IS NULL THEN
        PERFORM once._retire_dictionaries();
    ELSIF p_after = v_wait THEN
        BEGIN
            LOCK TABLE once.dictionaries IN ACCESS EXCLUSIVE MODE;
            after := v_begin;
        EXCEPTION WHEN lock_not_available THEN
            after := v_wait;
        END;
        RETURN;
    END IF;
    v_numbers := ARRAY(SELECT d.number FROM once.dictionaries d WHERE d.retired);
    IF p_after IS NULL OR v_numbers = '{}' THEN
        after := CASE WHEN v_numbers <> '{}' THEN v_wait END;
        RETURN;
    END IF;
    v_ids := ARRAY(SELECT k.id FROM once.keys k WHERE k.id > p_after ORDER BY k.id LIMIT 500);
    WITH found AS MATERIALIZED (
        SELECT k.id FROM once.keys k
        WHERE k.id > p_after AND k.id <= v_ids[cardinality(v_ids)]
          AND (once._packed_with(k.about) = ANY (v_numbers)
               OR k.kind = once._payload_response() AND once._packed_with(k.payload) = ANY (v_numbers))
    ), held AS MATERIALIZED (
        SELECT k.id FROM once.keys k JOIN found f ON f.id = k.id FOR UPDATE OF k SKIP LOCKED
    ), done AS (
        UPDATE once.keys k SET
            payload = CASE WHEN k.kind = once._payload_response() AND once._packed_with(k.payload) = ANY (v_numbers)
                           THEN coalesce(once._unpack(k.payload, 'bytes'), k.payload) ELSE k.payload END,
            about = CASE WHEN once._packed_with(k.about) = ANY (v_numbers)
                         THEN coalesce(once._unpack(k.about, 'about'), '') ELSE k.about END
        FROM held h WHERE k.id = h.id
        RETURNING k.id, k.kind = once._payload_response() AND once._packed_with(k.payload) = ANY (v_numbers) AS damaged
    )
    SELECT count(*) FILTER (WHERE NOT d.damaged), p_still + count(*) - count(*) FILTER (WHERE d.damaged) INTO rewritten, still
    FROM found f LEFT JOIN done d ON d.id = f.id;
    after := v_ids[500];
    IF after IS NULL AND still = 0 THEN
        DELETE FROM once.dictionaries d WHERE d.number = ANY (v_numbers);
        removed := cardinality(v_numbers);
    ELSIF after IS NULL THEN
        after := v_begin; -- once more
        still := 0;
    END IF;
END
$$;
