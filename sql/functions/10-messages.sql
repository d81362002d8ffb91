-- Events to publish and messages received, in the transaction that they belong to.

SET LOCAL search_path = pg_catalog, pg_temp;

-- The id of an event that belongs to a record. It depends on the operation and its checkpoint, not on the attempt: a step that is
-- repeated emits the same events again (docs/decisions/event-ids.md). A UUID of version 8.
CREATE OR REPLACE FUNCTION once._event_id(p_record bytea, p_created bigint, p_checkpoint text, p_number integer, p_topic text,
    p_key text, p_type text)
RETURNS uuid
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp -- a function in SQL would be planned for each event
AS $$
DECLARE
    hash bytea := substr(sha256(once._framed('event') || once._framed(p_record) || once._framed(int8send(p_created))
        || once._framed(convert_to(coalesce(p_checkpoint, ''), 'UTF8')) || once._framed(int4send(p_number))
        || once._framed(convert_to(p_topic, 'UTF8')) || once._framed(convert_to(coalesce(p_key, ''), 'UTF8'))
        || once._framed(convert_to(p_type, 'UTF8'))), 1, 16);
BEGIN
    RETURN encode(set_byte(set_byte(hash, 6, get_byte(hash, 6) & 15 | 128), 8, get_byte(hash, 8) & 63 | 128), 'hex')::uuid;
END
$$;

-- The number of an event among those of a claim with the same topic, key, type and checkpoint (p_slot): 0, 1, 2, across
-- transactions. If another transaction has emitted one with the same payload, it is that event again: the reply to its COMMIT was
-- lost, for example. The caller has locked the record: no other transaction counts meanwhile.
CREATE OR REPLACE FUNCTION once._event_number(p_record bytea, p_claim bytea, p_slot uuid, p_payload bytea) RETURNS integer
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

-- The same after this transaction has completed the record, so that no other can emit for it: -2, -3. Rolling back to a savepoint
-- takes numbers back.
CREATE OR REPLACE FUNCTION once._event_number_completed() RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    number integer := coalesce(nullif(current_setting('once.events', true), ''), '0');
BEGIN
    PERFORM set_config('once.events', (number + 1)::text, true);
    RETURN -2 - number;
END
$$;

-- Whether this very transaction wrote the row. Only for rows that it sees: what is in progress and visible is its own.
CREATE OR REPLACE FUNCTION once._is_written_here(p_xmin xid, p_changed bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    current bigint := pg_current_xact_id()::text;
    distance bigint := (p_xmin::text::bigint - current) & 4294967295;
BEGIN
    -- The transaction id of an old row may have wrapped around. A minute: the clock may have gone back.
    IF p_changed < once._timestamp_ms(transaction_timestamp()) - 60000 THEN
        RETURN false;
    END IF;
    distance := CASE WHEN distance >= 2147483648 THEN distance - 4294967296 ELSE distance END;
    RETURN pg_xact_status((current + distance)::text::xid8) = 'in progress';
END
$$;

-- Locks the record that a claim emits events for. Fails unless the claim holds, or this very transaction has completed it.
CREATE OR REPLACE FUNCTION once._lock_emitter(p_token text, OUT id bytea, OUT created bigint, OUT claim bytea, OUT cause bytea,
    OUT completed boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    t record := once._token_decode(p_token);
    v_state smallint;
    v_ours boolean;
BEGIN
    PERFORM once._lock_record(t.id);
    SELECT t.id, k.created, k.claim, once._key_for(k.key, NULL), k.state, k.state = once._state_completed(),
           CASE WHEN k.state = once._state_completed() THEN once._is_written_here(k.xmin, k.changed) END
    INTO id, created, claim, cause, v_state, completed, v_ours
    FROM once.keys k
    WHERE k.id = once._short_id(t.id) AND k.tail = substr(t.id, 17) AND k.epoch = t.epoch AND k.claim = t.claim;
    IF completed AND NOT v_ours THEN
        PERFORM once._fail_claim('already');
    ELSIF v_state IS NULL OR v_state = once._state_failed() THEN
        PERFORM once._fail_claim('lost');
    END IF;
END
$$;

-- The group of an event. What is in one group is published by one relay at a time; events without a key have no order.
CREATE OR REPLACE FUNCTION once._outbox_group(key text, id uuid) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (coalesce(hashtextextended(key, 0::bigint), uuid_hash_extended(id, 0::bigint)) & 63::bigint)::smallint;

-- Writes an event that is published if and only if this transaction commits. Returns its id, which a consumer gives to accept:
-- event_id if given; with a claim, the same in every attempt; otherwise random. Fails with a claim that no longer holds.
CREATE OR REPLACE FUNCTION once.emit(topic text, key text, type text, payload anycompatible, headers jsonb DEFAULT '{}',
    claim text DEFAULT NULL, event_id uuid DEFAULT NULL)
RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_id uuid := event_id;
    v_payload CONSTANT bytea := once._to_bytes(payload);
    v_record bytea;
    v_cause bytea;
    v_reserved text;
    v_checkpoint text;
    v_number integer;
    held record;
BEGIN
    IF coalesce(topic, '') = '' OR type IS NULL OR payload IS NULL OR coalesce(jsonb_typeof(headers), 'object') <> 'object' THEN
        PERFORM once._fail('ON004', 'an event needs a topic, a type and a payload; its headers are an object',
            'A payload may be empty, but not NULL.');
    END IF;
    IF headers <> '{}' THEN -- a message has one identity, and relays write it
        SELECT name INTO v_reserved FROM jsonb_object_keys(headers) AS name
        WHERE name ~* '^((ce|cloudevents|once|webhook)[-_:]|(message[-_]id|idempotency[-_]key)$)' LIMIT 1;
        IF FOUND THEN
            PERFORM once._fail('ON004', format('an event cannot have a header %s: that name is reserved for what the relay says'
                ' (ce-*, cloudEvents:*, once-*, webhook-*, message-id, idempotency-key); leave it out', left(v_reserved, 100)),
                'Leave the header out, or give it another name.');
        END IF;
    END IF;
    IF claim IS NOT NULL THEN
        held := once._lock_emitter(claim);
        v_record := held.id;
        v_cause := held.cause;
        IF v_id IS NULL THEN
            SELECT c.name INTO v_checkpoint FROM once.checkpoints c WHERE c.id = held.id AND c.created = held.created;
            v_number := CASE WHEN held.completed THEN once._event_number_completed()
                ELSE once._event_number(held.id, held.claim,
                    once._event_id(held.id, held.created, v_checkpoint, -1, topic, key, type), v_payload) END;
            v_id := once._event_id(held.id, held.created, v_checkpoint, v_number, topic, key, type);
        END IF;
    END IF;
    v_id := coalesce(v_id, gen_random_uuid());
    INSERT INTO once.outbox (id, grp, topic, key, type, payload, headers, record, cause)
    VALUES (v_id, once._outbox_group($2, v_id), $1, $2, $3, v_payload, coalesce($5, '{}'), v_record, v_cause);
    PERFORM once._notify_relays();
    RETURN v_id;
END
$$;

-- The same for drivers that send headers as a string.
CREATE OR REPLACE FUNCTION once.emit(topic text, key text, type text, payload anycompatible, headers text,
    claim text DEFAULT NULL, event_id uuid DEFAULT NULL)
RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN once.emit(topic, key, type, once._to_bytes(payload), headers::jsonb, claim, event_id);
END
$$;

-- Whether this message is new to the subscriber. Waits for another transaction that is handling it. False: it was handled.
CREATE OR REPLACE FUNCTION once.accept(subscriber text, message_id text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF coalesce(octet_length(subscriber), 0) NOT BETWEEN 1 AND 1000
       OR coalesce(octet_length(message_id), 0) NOT BETWEEN 1 AND 1000 THEN
        PERFORM once._fail('ON004', 'a message needs a subscriber and an id, each of 1 to 1000 bytes',
            'The id is that of the message, for example the header ce-id.');
    END IF;
    INSERT INTO once.inbox (subscriber, message_id) VALUES ($1, $2) ON CONFLICT DO NOTHING;
    IF FOUND THEN
        RETURN true;
    END IF;
    PERFORM once._await_standby();
    RETURN false;
END
$$;
