-- Functions that were here before and would stand in the way of those that take their place: a call would fit both. Programs that
-- call them find the new ones, which take what they took.

SET LOCAL search_path = pg_catalog, pg_temp;

DROP FUNCTION IF EXISTS once.claim(text, text, text, text, bytea, text, interval, interval, boolean, uuid);
DROP FUNCTION IF EXISTS once.complete(text, integer, jsonb, bytea, interval);
DROP FUNCTION IF EXISTS once.settle(text, text, integer, jsonb, bytea, text, boolean);
DROP FUNCTION IF EXISTS once.emit(text, text, text, bytea, jsonb, text, uuid);
DROP FUNCTION IF EXISTS once.release(text, integer, text);
DROP FUNCTION IF EXISTS once.emitter(text);
DROP FUNCTION IF EXISTS once.event_number();
DROP FUNCTION IF EXISTS once.store_claim(smallint, bytea[], bytea[], smallint[], bigint[], bigint[], bytea[], bytea[], bytea[]);
DROP FUNCTION IF EXISTS once.store_secrets_load(text);
