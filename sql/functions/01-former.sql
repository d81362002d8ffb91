-- Functions of earlier versions that must go before those of this version come.

SET LOCAL search_path = pg_catalog, pg_temp;

-- A call would fit both the former function and the one that takes its place. Programs that call the former one find the new one,
-- which accepts the same arguments.
DROP FUNCTION IF EXISTS once.claim(text, text, text, text, bytea, text, interval, interval, boolean, uuid);
DROP FUNCTION IF EXISTS once.complete(text, integer, jsonb, bytea, interval);
DROP FUNCTION IF EXISTS once.settle(text, text, integer, jsonb, bytea, text, boolean);
DROP FUNCTION IF EXISTS once.emit(text, text, text, bytea, jsonb, text, uuid);
DROP FUNCTION IF EXISTS once.release(text, integer, text);
DROP FUNCTION IF EXISTS once._apply(smallint, text, boolean, bigint, bigint, smallint, integer, bytea);
DROP FUNCTION IF EXISTS once.doubt(text, interval);
DROP FUNCTION IF EXISTS once._ends(smallint, smallint, bigint, bigint, bigint);
DROP FUNCTION IF EXISTS once.claim(text, text, text, text, anycompatible, text, interval, interval, boolean, uuid);
DROP FUNCTION IF EXISTS once.store_claim(smallint, bytea[], bytea[], smallint[], bigint[], bigint[], bytea[], bytea[], bytea[]);
DROP FUNCTION IF EXISTS once.store_claim(smallint, bytea[], bytea[], smallint[], bigint[], bigint[], bytea[], bytea[], bytea[],
    bytea);
DROP FUNCTION IF EXISTS once.store_apply(smallint, bytea[], smallint[], integer[], bytea[], boolean[], bigint[], bigint[], smallint[],
    smallint[], bytea[]);
DROP FUNCTION IF EXISTS once.store_get(bytea[]);
DROP FUNCTION IF EXISTS once.store_list(bytea, bigint, integer, boolean, bigint, bigint, bytea);
DROP FUNCTION IF EXISTS once.store_scan(bytea, bigint, integer, boolean, bigint, bigint, bytea);
DROP FUNCTION IF EXISTS once.store_secrets_load(text);
DROP FUNCTION IF EXISTS once._sweep_inbox(bigint, bigint, integer);
DROP FUNCTION IF EXISTS once.purge(text, boolean);
DROP FUNCTION IF EXISTS once.outbox_retry(uuid[]);
DROP FUNCTION IF EXISTS once.outbox_drop(uuid[]);
DROP FUNCTION IF EXISTS once.relay_published(tid[], smallint[], bigint[], uuid[]);

-- Private functions have names that begin with an underscore (docs/decisions/sql-private.md). Before, they had these. No program
-- calls them. All in one statement: some depend on others.
DO $$
DECLARE
    former text;
BEGIN
    SELECT string_agg(p.oid::regprocedure::text, ', ') INTO former
    FROM pg_proc p
    WHERE p.pronamespace = 'once'::regnamespace AND p.proname = ANY (ARRAY[
        'apply_one', 'bytes_of', 'count_claim', 'demand', 'emitter', 'event_id', 'event_number', 'fail', 'fingerprints', 'get_le32',
        'group_of', 'header_pairs', 'hmac', 'hold', 'inbox_retention', 'is_ours', 'judge_claim', 'last_number', 'le32',
        'lease_or_own', 'lock_of', 'milliseconds', 'milliseconds_of', 'note', 'note_status', 'now_ms', 'outbox_wake',
        'pack_response', 'pad', 'part', 'record_id', 'recover_of', 'scope_hash', 'secrets_keep', 'span', 'sweep_inbox', 'take',
        'text_of', 'token', 'token_read', 'told', 'unpack_response']);
    IF former IS NOT NULL THEN
        EXECUTE 'DROP FUNCTION ' || former;
    END IF;
END
$$;

-- Functions that return more columns than before. Programs name those that they know.
DO $$
BEGIN
    IF pg_get_function_result(to_regprocedure('once.stats()')) NOT LIKE '%behind_ms%' THEN
        DROP FUNCTION once.stats();
    END IF;
END
$$;
