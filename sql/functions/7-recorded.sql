SET LOCAL search_path = pg_catalog, pg_temp;

-- The response that this very claim recorded: for a backend that repeated its transaction, or got its request twice, and was
-- refused with ON002. No row: this claim recorded none. What came of a claim that was taken over is not told.
CREATE OR REPLACE FUNCTION once.recorded(claim text) RETURNS SETOF once.claimed
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    t record := once.token_read(claim);
    told once.claimed;
    response record;
BEGIN
    SELECT k.status, r.* INTO response
    FROM once.keys k, LATERAL once.unpack_response(k.payload) AS r
    WHERE k.id = t.id AND k.epoch = t.epoch AND k.claim = t.claim AND k.state = 2 AND k.kind = 1 AND once.now_ms() < k.expires;
    IF FOUND THEN
        told.outcome := 'replay';
        told.epoch := t.epoch;
        told.status := response.status;
        told.headers := response.headers;
        told.body := response.body;
        told.stored := response.stored;
        RETURN NEXT told;
    END IF;
END
$$;
