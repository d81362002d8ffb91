-- Messages out and in, in the transaction that they belong to.

SET LOCAL search_path = pg_catalog, pg_temp;

-- The id of an event that belongs to a record: by the operation and how far it got, not by the attempt, so that whoever repeats a
-- step emits the same events again (docs/decisions/event-ids.md). A UUID of version 8.
CREATE OR REPLACE FUNCTION once.event_id(p_record bytea, p_created bigint, p_checkpoint text, p_number integer, p_topic text,
    p_key text, p_type text)
RETURNS uuid
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT encode(set_byte(set_byte(hash, 6, get_byte(hash, 6) & 15 | 128), 8, get_byte(hash, 8) & 63 | 128), 'hex')::uuid
    FROM (SELECT substr(sha256(once.part('event') || once.part(p_record) || once.part(int8send(p_created))
                               || once.part(convert_to(coalesce(p_checkpoint, ''), 'UTF8')) || once.part(int4send(p_number))
                               || once.part(convert_to(p_topic, 'UTF8')) || once.part(convert_to(coalesce(p_key, ''), 'UTF8'))
                               || once.part(convert_to(p_type, 'UTF8'))), 1, 16) AS hash) AS hashed
$$;

-- Which event of this transaction it is: 0, 1, 2. A savepoint that is rolled back takes its numbers along.
CREATE OR REPLACE FUNCTION once.event_number() RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    number integer := coalesce(nullif(current_setting('once.events', true), ''), '0');
BEGIN
    PERFORM set_config('once.events', (number + 1)::text, true);
    RETURN number;
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
CREATE OR REPLACE FUNCTION once.emitter(p_token text, OUT id bytea, OUT created bigint, OUT cause bytea)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    t record := once.token_read(p_token);
    v_state smallint;
    v_ours boolean;
BEGIN
    PERFORM once.take(t.id);
    SELECT k.id, k.created, k.key, k.state, CASE WHEN k.state = 2 THEN once.is_ours(k.xmin, k.changed) END
    INTO id, created, cause, v_state, v_ours
    FROM once.keys k WHERE k.id = t.id AND k.epoch = t.epoch AND k.claim = t.claim;
    IF v_state = 2 AND NOT v_ours THEN
        PERFORM once.fail('ON002', 'this claim is completed already');
    ELSIF v_state IS NULL OR v_state = 3 THEN
        PERFORM once.fail('ON001', 'the claim is no longer yours');
    END IF;
END
$$;

-- Writes an event that is published if and only if this transaction commits. Returns its id, which a consumer gives to accept:
-- event_id if given; with a claim, the same in every attempt; otherwise a random one. With a claim that no longer holds it fails.
CREATE OR REPLACE FUNCTION once.emit(topic text, key text, type text, payload anycompatible, headers jsonb DEFAULT '{}',
    claim text DEFAULT NULL, event_id uuid DEFAULT NULL)
RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_id uuid := event_id;
    v_record bytea;
    v_cause bytea;
    v_reserved text;
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
        v_id := coalesce(v_id, once.event_id(held.id, held.created, (SELECT c.name FROM once.checkpoints c
            WHERE c.id = held.id AND c.created = held.created), once.event_number(), topic, key, type));
    END IF;
    v_id := coalesce(v_id, gen_random_uuid());
    INSERT INTO once.outbox (id, topic, key, type, payload, headers, record, cause)
    VALUES (v_id, $1, $2, $3, once.bytes_of($4), coalesce($5, '{}'), v_record, v_cause);
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
