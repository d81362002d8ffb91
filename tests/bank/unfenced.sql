-- For tests only: the same bank without its fence and without its last line of defence. once.complete and once.emit succeed with a
-- claim that is stale or completed already, and a key may be in bank.transfers more than once. A test that does not notice the
-- double that this allows is no test.

CREATE OR REPLACE FUNCTION once._fail(code text, message text, hint text) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF code NOT IN ('ON001', 'ON002') THEN
        RAISE EXCEPTION USING ERRCODE = code, MESSAGE = 'once: ' || message, HINT = hint;
    END IF;
END
$$;

ALTER TABLE bank.transfers DROP CONSTRAINT transfers_once;

-- A stale claim has no record whose events could be counted.
CREATE OR REPLACE FUNCTION once._event_number(p_record bytea, p_claim bytea, p_slot uuid, p_payload bytea) RETURNS integer
LANGUAGE sql
AS $$ SELECT 0 $$;
