-- A key for one step of a larger operation, to be sent to a third party: the same for every attempt, another one for every record and
-- step. What once_pg_derive() in C gives, too.
CREATE OR REPLACE FUNCTION once.derive(claim text, step text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SECURITY DEFINER SET search_path = once, pg_temp
AS $$
DECLARE
    t record := once.token_read(claim);
    bits bit varying;
BEGIN
    IF coalesce(step, '') = '' THEN
        PERFORM once.fail('ON004', 'a derived key needs a step');
    END IF;
    bits := ('x' || encode(sha256(once.part('once key derive 1') || once.part(convert_to(encode(t.id, 'hex'), 'UTF8'))
                                  || once.part(convert_to(step, 'UTF8'))), 'hex'))::bit(256) || B'0000';
    RETURN 'd1-' || (SELECT string_agg(substr('abcdefghijklmnopqrstuvwxyz234567', substring(bits, 5 * n + 1, 5)::bit(5)::integer + 1,
                                              1), '' ORDER BY n) FROM generate_series(0, 51) AS n);
END
$$;
