-- Messages out and in, in the transaction that they belong to.

-- Writes an event that is published if and only if this transaction commits. Returns its id, which a consumer gives to accept.
-- With a claim that no longer holds it fails.
CREATE OR REPLACE FUNCTION once.emit(topic text, key text, type text, payload bytea, headers jsonb DEFAULT '{}',
    claim text DEFAULT NULL)
RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = once, pg_temp
AS $$
DECLARE
    v_id uuid := gen_random_uuid();
    v_record bytea;
    v_cause bytea;
    t record;
BEGIN
    IF claim IS NOT NULL THEN
        -- The record may be completed by this very transaction already.
        t := once.token_read(claim);
        PERFORM once.take(t.id);
        SELECT k.id, k.key INTO v_record, v_cause FROM once.keys k
        WHERE k.id = t.id AND k.epoch = t.epoch AND k.claim = t.claim AND k.state <> 3;
        IF v_record IS NULL THEN
            PERFORM once.fail('ON001', 'the claim is no longer yours');
        END IF;
    END IF;
    INSERT INTO once.outbox (id, topic, key, type, payload, headers, record, cause)
    VALUES (v_id, $1, $2, $3, $4, coalesce($5, '{}'), v_record, v_cause);
    PERFORM once.outbox_wake();
    RETURN v_id;
END
$$;

-- Is this message new to the subscriber? Waits for another transaction that is handling it. False: it was handled.
CREATE OR REPLACE FUNCTION once.accept(subscriber text, message_id text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = once, pg_temp
AS $$
BEGIN
    INSERT INTO once.inbox (subscriber, message_id) VALUES ($1, $2) ON CONFLICT DO NOTHING;
    RETURN FOUND;
END
$$;
