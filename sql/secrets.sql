SET LOCAL search_path = pg_catalog, pg_temp;

-- The secrets of a new installation (docs/format.md), so that once.claim works at once; otherwise the first program that opens the
-- store would make them. Each is 32 bytes from three random UUIDs, which have 366 random bits of the server's strong source.
DO $$
DECLARE
    v_secrets text[] := ARRAY(SELECT encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
                                                   || uuid_send(gen_random_uuid())), 'hex') FROM generate_series(1, 2));
BEGIN
    PERFORM once.store_secrets_load(format(E'once-secrets 1\nrecord %s\nfingerprint 1 %s 0 %s\n', v_secrets[1], once._now_ms(),
                                           v_secrets[2]));
END
$$;
