SET LOCAL search_path = pg_catalog, pg_temp;

-- A key for one step of a larger operation, to be sent to a third party: the same for every attempt, another one for every record and
-- step, and for a later life of the same key. A claim that was overtaken gets none.
CREATE OR REPLACE FUNCTION once.derive(claim text, step text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    t record := once.token_read(claim);
    v_created bigint := (SELECT k.created FROM once.keys k WHERE k.id = t.id AND k.epoch = t.epoch AND k.claim = t.claim);
    bits bit varying;
BEGIN
    IF coalesce(step, '') = '' THEN
        PERFORM once.fail('ON004', 'a derived key needs a step');
    ELSIF v_created IS NULL THEN
        PERFORM once.fail('ON001', 'the claim is no longer yours');
    END IF;
    bits := ('x' || encode(sha256(once.part('once derive 2') || once.part(t.id) || once.part(int8send(v_created))
                                  || once.part(convert_to(step, 'UTF8'))), 'hex'))::bit(256) || B'0000';
    RETURN 'd2-' || (SELECT string_agg(substr('abcdefghijklmnopqrstuvwxyz234567', substring(bits, 5 * n + 1, 5)::bit(5)::integer + 1,
                                              1), '' ORDER BY n) FROM generate_series(0, 51) AS n);
END
$$;
