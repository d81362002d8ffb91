-- Messages out and in, in the transaction that they belong to.

SET LOCAL search_path = pg_catalog, pg_temp;

-- The id of an event that belongs to a record: by the operation and how far it got, not by the attempt, so that whoever repeats a
-- step emits the same events again (docs/decisions/event-ids.md). A UUID of version 8.
CREATE OR REPLACE FUNCTION once.event_id(p_record bytea, p_created bigint, p_checkpoint text, p_number integer, p_topic text,
    p_key text, p_type text)
RETURNS uuid
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp -- in SQL it would be planned anew for each event
AS $$
DECLARE
    hash bytea := substr(sha256(once.part('event') || once.part(p_record) || once.part(int8send(p_created))
                                || once.part(convert_to(coalesce(p_checkpoint, ''), 'UTF8')) || once.part(int4send(p_number))
                                || once.part(convert_to(p_topic, 'UTF8')) || once.part(convert_to(coalesce(p_key, ''), 'UTF8'))
                                || once.part(convert_to(p_type, 'UTF8'))), 1, 16);
BEGIN
    RETURN encode(set_byte(set_byte(hash, 6, get_byte(hash, 6) & 15 | 128), 8, get_byte(hash, 8) & 63 | 128), 'hex')::uuid;
END
$$;

-- Which of the events of a claim that have the same topic, key, type and checkpoint (p_slot) it is: 0, 1, 2, in whichever
-- transactions they are. One that another transaction has emitted with the same payload is that one again: its COMMIT was not seen, say.
-- The caller has the record: nobody else counts meanwhile.
CREATE OR REPLACE FUNCTION once.event_number(p_record bytea, p_claim bytea, p_slot uuid, p_payload bytea) RETURNS integer
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_xid CONSTANT xid8 := pg_current_xact_id();
    v_payload CONSTANT bytea := substr(sha256(p_payload), 1, 16);
    v_number integer;
BEGIN
    IF NOT EXISTS (SELECT FROM once.emitted e -- if the first is ours, all are
                   WHERE e.record = p_record AND e.claim = p_claim AND e.slot = p_slot AND e.number = 0 AND e.made = v_xid) THEN
        SELECT e.number INTO v_number FROM once.emitted e
        WHERE e.record = p_record AND e.claim = p_claim AND e.slot = p_slot AND e.payload = v_payload AND e.used <> v_xid
        ORDER BY e.number LIMIT 1;
        IF FOUND THEN
            UPDATE once.emitted e SET used = v_xid
            WHERE e.record = p_record AND e.claim = p_claim AND e.slot = p_slot AND e.number = v_number;
            RAISE WARNING USING MESSAGE = 'once: another transaction has emitted this event with this claim: it gets the same id',
                HINT = 'If it is another event, emit it in the same transaction, set a checkpoint between them, or give event_id.';
            RETURN v_number;
        END IF;
    END IF;
    v_number := coalesce((SELECT e.number FROM once.emitted e
                          WHERE e.record = p_record AND e.claim = p_claim AND e.slot = p_slot
                          ORDER BY e.number DESC LIMIT 1) + 1, 0);
    INSERT INTO once.emitted (made, used, number, slot, record, claim, payload)
    VALUES (v_xid, v_xid, v_number, p_slot, p_record, p_claim, v_payload)
    ON CONFLICT DO NOTHING; -- under REPEATABLE READ: 40001 for one that the snapshot does not show
    RETURN v_number;
END
$$;

-- The same after this transaction has completed the record, so that no other will emit for it: -2, -3. A savepoint that is rolled back
-- takes its numbers along.
CREATE OR REPLACE FUNCTION once.last_number() RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    number integer := coalesce(nullif(current_setting('once.events', true), ''), '0');
BEGIN
    PERFORM set_config('once.events', (number + 1)::text, true);
    RETURN -2 - number;
END
$$;

-- Did this very transaction write the row? Only for rows that it sees: what is in progress and visible is its own.
CREATE OR REPLACE FUNCTION once.is_ours(p_xmin xid, p_changed bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    current bigint := pg_current_xact_id()::text;
    distance bigint := (p_xmin::text::bigint - current) & 4294967295;
BEGIN
    -- Of old rows the number says nothing: it may have come round. A minute: the clock may have gone back.
    IF p_changed < once.milliseconds_of(transaction_timestamp()) - 60000 THEN
        RETURN false;
    END IF;
    distance := CASE WHEN distance >= 2147483648 THEN distance - 4294967296 ELSE distance END;
    RETURN pg_xact_status((current + distance)::text::xid8) = 'in progress';
END
$$;

-- The record that a claim may emit events for: it holds, or this very transaction has completed it.
CREATE OR REPLACE FUNCTION once.emitter(p_token text, OUT id bytea, OUT created bigint, OUT claim bytea, OUT cause bytea,
    OUT completed boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    t record := once.token_read(p_token);
    v_state smallint;
    v_ours boolean;
BEGIN
    PERFORM once.take(t.id);
    SELECT k.id, k.created, k.claim, k.key, k.state, k.state = 2, CASE WHEN k.state = 2 THEN once.is_ours(k.xmin, k.changed) END
    INTO id, created, claim, cause, v_state, completed, v_ours
    FROM once.keys k WHERE k.id = t.id AND k.epoch = t.epoch AND k.claim = t.claim;
    IF v_state = 2 AND NOT v_ours THEN
        PERFORM once.fail('ON002', 'this claim is completed already');
    ELSIF v_state IS NULL OR v_state = 3 THEN
        PERFORM once.fail('ON001', 'the claim is no longer yours');
    END IF;
END
$$;

-- The group of an event. What is in one group is published by one relay at a time; events without a key have no order.
CREATE OR REPLACE FUNCTION once.group_of(key text, id uuid) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (coalesce(hashtextextended(key, 0::bigint), uuid_hash_extended(id, 0::bigint)) & 63::bigint)::smallint;

-- Writes an event that is published if and only if this transaction commits. Returns its id, which a consumer gives to accept:
-- event_id if given; with a claim, the same in every attempt; otherwise a random one. With a claim that no longer holds it fails.
CREATE OR REPLACE FUNCTION once.emit(topic text, key text, type text, payload anycompatible, headers jsonb DEFAULT '{}',
    claim text DEFAULT NULL, event_id uuid DEFAULT NULL)
RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_id uuid := event_id;
    v_payload CONSTANT bytea := once.bytes_of(payload);
    v_record bytea;
    v_cause bytea;
    v_reserved text;
    v_checkpoint text;
    held record;
BEGIN
    IF coalesce(topic, '') = '' OR type IS NULL OR payload IS NULL OR coalesce(jsonb_typeof(headers), 'object') <> 'object' THEN
        PERFORM once.fail('ON004', 'an event needs a topic, a type and a payload; its headers are an object');
    END IF;
    IF headers <> '{}' THEN -- a message has one identity: what relays write cannot be said by an event's header
        SELECT name INTO v_reserved FROM jsonb_object_keys(headers) AS name
        WHERE name ~* '^((ce|cloudevents|once|webhook)[-_:]|(message[-_]id|idempotency[-_]key)$)' LIMIT 1;
        IF FOUND THEN
            PERFORM once.fail('ON004', format('an event cannot have a header %s: that name is reserved for what the relay says'
                ' (ce-*, cloudEvents:*, once-*, webhook-*, message-id, idempotency-key); leave it out', left(v_reserved, 100)));
        END IF;
    END IF;
    IF claim IS NOT NULL THEN
        held := once.emitter(claim);
        v_record := held.id;
        v_cause := held.cause;
        IF v_id IS NULL THEN
            SELECT c.name INTO v_checkpoint FROM once.checkpoints c WHERE c.id = held.id AND c.created = held.created;
            v_id := once.event_id(held.id, held.created, v_checkpoint, CASE WHEN held.completed THEN once.last_number()
                ELSE once.event_number(held.id, held.claim, once.event_id(held.id, held.created, v_checkpoint, -1, topic, key, type),
                                       v_payload) END, topic, key, type);
        END IF;
    END IF;
    v_id := coalesce(v_id, gen_random_uuid());
    INSERT INTO once.outbox (id, grp, topic, key, type, payload, headers, record, cause)
    VALUES (v_id, once.group_of($2, v_id), $1, $2, $3, v_payload, coalesce($5, '{}'), v_record, v_cause);
    PERFORM once.outbox_wake();
    RETURN v_id;
END
$$;

-- The same with headers as a driver sends them, which knows strings only.
CREATE OR REPLACE FUNCTION once.emit(topic text, key text, type text, payload anycompatible, headers text,
    claim text DEFAULT NULL, event_id uuid DEFAULT NULL)
RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN once.emit(topic, key, type, once.bytes_of(payload), headers::jsonb, claim, event_id);
END
$$;

-- Is this message new to the subscriber? Waits for another transaction that is handling it. False: it was handled.
CREATE OR REPLACE FUNCTION once.accept(subscriber text, message_id text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF coalesce(octet_length(subscriber), 0) NOT BETWEEN 1 AND 1000
       OR coalesce(octet_length(message_id), 0) NOT BETWEEN 1 AND 1000 THEN
        PERFORM once.fail('ON004', 'a message needs a subscriber and an id, each of 1 to 1000 bytes');
    END IF;
    INSERT INTO once.inbox (subscriber, message_id) VALUES ($1, $2) ON CONFLICT DO NOTHING;
    RETURN FOUND;
END
$$;
