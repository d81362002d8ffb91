-- Version 5 of the schema: the table of records that 0005-before.sql has made takes the place of the former one, which goes when
-- the functions have been replaced (functions/13-former.sql).

SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL lock_timeout = '5s'; -- of a transaction that stays open; gateways wait meanwhile

LOCK TABLE once.keys IN ACCESS EXCLUSIVE MODE;
DO $$
DECLARE
    v_block bigint := 0;
BEGIN
    IF NOT EXISTS (SELECT FROM once.settings WHERE name = 'keys_next') THEN
        WHILE v_block IS NOT NULL LOOP
            v_block := once._prepare(v_block);
        END LOOP;
    END IF;
END
$$;
DELETE FROM once.settings WHERE name = 'keys_next';
DROP FUNCTION once._prepare(bigint);
DROP TRIGGER keys_next_follow ON once.keys;
DROP FUNCTION once._keys_next_follow();

ALTER INDEX once.keys_pkey RENAME TO keys_former_pkey;
ALTER TABLE once.keys RENAME TO keys_former;
ALTER TABLE once.keys_next RENAME TO keys;
ALTER INDEX once.keys_next_pkey RENAME TO keys_pkey;
UPDATE once.sweeps SET block = 0, began = 0 WHERE name = 'keys';

-- What responses and descriptions have in common (docs/decisions/postgres-bytes.md). Never changed, and not removed while records
-- refer to them, by number. A program names the one that it packs with by number and content: after a failover or a restore, another one may
-- have the number.
CREATE TABLE once.dictionaries (
    number smallint PRIMARY KEY CHECK (number BETWEEN 1 AND 127),
    made timestamptz NOT NULL DEFAULT clock_timestamp(),
    bytes bytea NOT NULL, -- of responses
    about bytea NOT NULL, -- of descriptions
    retired boolean NOT NULL DEFAULT false, -- nothing more is packed with it: it has what was erased
    touched_bytes integer[] NOT NULL DEFAULT '{}', -- where `bytes` have something that an erased record had, from 1
    touched_about integer[] NOT NULL DEFAULT '{}',
    name bytea NOT NULL GENERATED ALWAYS AS (set_byte(decode('00', 'hex'), 0, number::integer) || substr(sha256(bytes || about), 1, 4)) STORED
);

ALTER TYPE once.answer ADD ATTRIBUTE about bytea, ADD ATTRIBUTE cause bytea;
ALTER TYPE once.claimed ADD ATTRIBUTE expires timestamptz; -- with replay: until when the response is kept
