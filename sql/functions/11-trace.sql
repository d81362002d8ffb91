-- One operation from end to end, for `once trace`.

SET LOCAL search_path = pg_catalog, pg_temp;

-- What belongs to a record, in order. `what` is
--   transaction  that wrote the record last, `detail` is its id; `at` is its commit, if the server keeps that
--                (track_commit_timestamp)
--   checkpoint   the last one, `detail` is its name
--   waiting      an event in the outbox
--   dead         an event that was given up; `detail` is why
--   published    an event; `detail` is where (only if relays keep that: once relay --trace)
--   handled      an event; `detail` is the subscriber in whose inbox it is (once.accept)
CREATE OR REPLACE FUNCTION once.trace(p_record bytea)
RETURNS TABLE (what text, event uuid, at timestamptz, topic text, type text, detail text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_xmin xid;
    v_commit timestamptz;
BEGIN
    SELECT k.xmin INTO v_xmin FROM once.keys k
    WHERE k.id = once._short_id(p_record) AND k.tail = substr(p_record, 17);
    IF FOUND THEN
        IF current_setting('track_commit_timestamp') = 'on' THEN
            v_commit := pg_xact_commit_timestamp(v_xmin);
        END IF;
        RETURN QUERY SELECT 'transaction', NULL::uuid, v_commit, NULL, NULL, v_xmin::text;
    END IF;
    RETURN QUERY SELECT 'checkpoint', NULL::uuid, c.at, NULL, NULL, c.name FROM once.checkpoints c WHERE c.id = p_record;
    RETURN QUERY
    WITH RECURSIVE events AS (
        SELECT 'waiting' AS what, o.id, o.at, o.topic, o.type, NULL AS detail FROM once.outbox o WHERE o.record = p_record
        UNION ALL
        SELECT 'dead', d.id, d.died, d.topic, d.type, d.reason FROM once.outbox_dead d WHERE d.record = p_record
        UNION ALL
        SELECT 'published', p.event, p.at, p.topic, p.type, p.destination FROM once.published p WHERE p.record = p_record
    ), subscribers AS ( -- there are few: each is found by a look into the index
        SELECT min(i.subscriber) AS name FROM once.inbox i
        UNION ALL
        SELECT (SELECT min(i.subscriber) FROM once.inbox i WHERE i.subscriber > s.name) FROM subscribers s WHERE s.name IS NOT NULL
    )
    SELECT e.what, e.id, e.at, e.topic, e.type, e.detail FROM events e
    UNION ALL
    SELECT 'handled', e.id, i.at, e.topic, e.type, i.subscriber
    FROM (SELECT DISTINCT ON (v.id) v.id, v.topic, v.type FROM events v) AS e
    CROSS JOIN subscribers s
    JOIN once.inbox i ON i.subscriber = s.name AND i.message_id = e.id::text
    ORDER BY 3, 1;
END
$$;
