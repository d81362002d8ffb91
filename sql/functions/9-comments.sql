-- What \df+ once.* shows.

SET LOCAL search_path = pg_catalog, pg_temp;

DO $$
DECLARE
    said record;
BEGIN
    FOR said IN
        SELECT p.oid::regprocedure AS function, c.words
        FROM (VALUES
            ('claim', 'Asks whether to run. outcome: run (do it, then once.complete), replay (status, headers and body of the recorded'
                      ' response), busy, mismatch, unknown. body is text, json, jsonb or bytea.'),
            ('complete', 'Records the response in this transaction. Fails for a claim that is not the holder''s any more (ON001) or is'
                         ' completed already (ON002). body is text, json, jsonb or bytea; headers an object or an array of [name, value].'),
            ('recorded', 'The response that this very claim recorded: for a transaction that was refused with ON002.'),
            ('release', 'It did not take effect: the next request with this key runs it.'),
            ('doubt', 'Nobody knows whether it took effect.'),
            ('renew', 'Still at it: prolongs the lease. Fails for a claim that is not the holder''s any more (ON001).'),
            ('checkpoint', 'In the transaction of a step: where work of several steps got to.'),
            ('resume', 'The last checkpoint of this record. No row: begin at the beginning.'),
            ('derive', 'A key for a step that a third party does: the same in every attempt.'),
            ('lock', 'One at a time for a natural key (an account, an order), until the transaction ends.'),
            ('emit', 'Writes an event that is published if and only if this transaction commits. Returns its id. payload is text, json,'
                     ' jsonb or bytea; headers an object.'),
            ('accept', 'Is this message new to the subscriber? Handle it in this transaction. False: it was handled.'),
            ('get', 'Looks at a record without asking to run. No row: there is none.'),
            ('settle', 'Decides what is unknown: completed (with this response), or failed (it has not happened and no longer can).'),
            ('purge', 'Removes a record: its key counts as never used.'),
            ('stats', 'Counts records. Reads the whole table.'),
            ('reap', 'Removes some of what expired; returns how many.'),
            ('version', 'Version of the schema.')
        ) AS c (name, words)
        JOIN pg_proc p ON p.pronamespace = 'once'::regnamespace AND p.proname = c.name
    LOOP
        EXECUTE format('COMMENT ON FUNCTION %s IS %L', said.function, said.words);
    END LOOP;
END
$$;
