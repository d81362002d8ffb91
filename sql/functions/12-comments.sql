-- The manual inside the database: \df+ once.*, \d+ once.records, \dT+ once.*.

SET LOCAL search_path = pg_catalog, pg_temp;

COMMENT ON SCHEMA once IS 'Makes operations take effect exactly once. Private functions have names that begin with an underscore.';

DO $$
DECLARE
    found record;
BEGIN
    FOR found IN
        SELECT p.oid::regprocedure AS function, c.words
        FROM (VALUES
            -- For applications.
            ('claim',
                'Asks whether to run an operation. outcome: run (do it, then call once.complete in the same transaction),'
                ' replay (send the recorded status, headers and body), busy (ask again after retry_after), mismatch (the key'
                ' was used for another request), unknown (it may have taken effect; an operator settles it). body is text,'
                ' json, jsonb or bytea. recover says what happens when the holder disappears: retry and transactional run it'
                ' again, hold does not. description says what it was (default: method and target without query). wait => false'
                ' answers busy instead of waiting for another transaction. Fails with'
                ' ON004, ON005.'),
            ('complete',
                'Records the response of an operation in the transaction of its effect. Fails if the claim is no longer the'
                ' holder''s (ON001) or is completed already (ON002): then roll back. body is text, json, jsonb or bytea;'
                ' headers are an object or an array of [name, value]; retain is how long the response is kept (default: the'
                ' ttl of the claim).'),
            ('recorded',
                'The response that this very claim recorded, for a transaction that was refused with ON002. No row if there'
                ' is none.'),
            ('release',
                'The operation did not take effect, or may be repeated: the next request with this key runs it. early =>'
                ' true if it ended before any effect: the key is then remembered for a short time only.'),
            ('doubt',
                'It is not known whether the operation took effect: the record becomes unknown. cause says why (timeout).'),
            ('renew',
                'Extends the lease of a claim while its operation runs. Fails if the claim is no longer the holder''s'
                ' (ON001).'),
            ('checkpoint',
                'Records the last finished step of an operation of several steps, with what the next step needs. Call it in'
                ' the transaction of the step.'),
            ('resume', 'The last checkpoint of the record. No row: begin at the beginning.'),
            ('derive', 'A key for one step, to be sent to a third party: the same in every attempt of the operation.'),
            ('lock', 'Locks a natural key (an account, an order) until the transaction ends.'),
            ('emit',
                'Writes an event that once relay publishes if and only if this transaction commits. Returns the id of the'
                ' event: with a claim it is the same in every attempt. payload is text, json, jsonb or bytea; headers are an'
                ' object. Events with the same key are published in order.'),
            ('accept',
                'Whether a message is new to the subscriber: if so, handle it in this transaction. False: it was handled.'),
            ('get', 'Reads a record without asking to run. No row if there is none.'),
            -- For operators.
            ('settle',
                'Decides a record that is unknown: outcome is completed (with this response) or failed (it has not'
                ' happened, and no longer can). Fails with ON006 while the lease is live, unless force is true.'),
            ('purge',
                'Removes a record: its key counts as never used. A record that is pending or unknown only with force =>'
                ' true. The note is for the audit trail.'),
            ('erase',
                'Erases key, description, holder, subject, cause and response of a completed or failed record. Its outcome and'
                ' status stay: the operation does not run again. Former versions of the row go with VACUUM; WAL, replicas and'
                ' backups keep them as long as they are kept. The note is for the audit trail.'),
            ('trace', 'For once trace: what belongs to a record: its transaction, checkpoint, events, and who handled them.'),
            ('audit_read', 'For gateways and once audit: entries of the audit trail.'),
            ('audit_add', 'For once keys settle and the like: adds the next entry to the audit trail.'),
            ('stats', 'Counts records by state. Reads the whole table.'),
            ('size', 'About how many records there are and how many bytes they take. Cheap.'),
            ('reap_for',
                'Removes expired records and messages for as long as there are many, in transactions of its own, at most for'
                ' p_time. For pg_cron: CALL once.reap_for() every minute.'),
            ('reap', 'Removes some expired records and messages. Returns how many records; 0 if another session is reaping.'),
            ('expiry',
                'How far the removal of expired records and messages is behind, and about how many messages the inbox has.'
                ' Cheap.'),
            ('reap_turn', 'For gateways: a turn of the reaper. Says after how many milliseconds to call it again.'),
            ('sweep', 'Removes expired records from one page of the table on: for once reap.'),
            ('sweep_inbox', 'Removes old messages from one page of the inbox on: for once reap.'),
            ('version', 'The version of the schema.'),
            -- For the programs: gateways, once relay, the command line.
            ('store_claim', 'For gateways: decides the claims of one turn.'),
            ('store_apply', 'For gateways: applies completions, releases, doubts, renewals, settlements, purges and erasures.'),
            ('store_get', 'For gateways: reads records by id.'),
            ('store_scan', 'For gateways and operators: records in the order of their ids, filtered.'),
            ('store_list', 'For monitoring: like store_scan, without claims, fingerprints and payloads.'),
            ('store_dictionary', 'For gateways: the newest dictionary; the given one, if there is none or it is time for another.'),
            ('store_scrub', 'For once keys erase: takes erased texts out of the dictionaries, a step at a time.'),
            ('about_description', 'For once.records: what was asked.'),
            ('about_attempts', 'For once.records: what became of earlier attempts.'),
            ('about_text', 'For once.records: text that is stored as bytes.'),
            ('about_holder', 'For once.records: which process has the claim, or had the last one.'),
            ('store_secrets_load', 'For gateways: the secrets of the installation; stores the given ones if there are none.'),
            ('store_secrets_swap', 'For gateways: replaces the secrets of the installation if they are still the given ones.'),
            ('relay_turn', 'For once relay: a sign of life; gives back and takes groups of the outbox.'),
            ('relay_end', 'For once relay: gives all groups back.'),
            ('relay_fetch', 'For once relay: the next events of some groups.'),
            ('relay_published', 'For once relay: removes events that were published.'),
            ('relay_dead', 'For once relay: moves an event that cannot be published to once.outbox_dead.'),
            ('outbox_lag', 'How many events wait to be published, since when, and how many are dead.'),
            ('outbox_list', 'Lists dead events, or those that wait.'),
            ('outbox_retry', 'Requeues dead events. NULL: all of them. Who and why are for the audit trail.'),
            ('outbox_drop', 'Deletes dead events. NULL: all of them. Who and why are for the audit trail.')
        ) AS c (name, words)
        JOIN pg_proc p ON p.pronamespace = 'once'::regnamespace AND p.proname = c.name
        UNION ALL
        SELECT p.oid::regprocedure, 'Private: only other functions of once call it.'
        FROM pg_proc p WHERE p.pronamespace = 'once'::regnamespace AND starts_with(p.proname::text, '_')
    LOOP
        EXECUTE format('COMMENT ON ROUTINE %s IS %L', found.function, found.words);
    END LOOP;
END
$$;

COMMENT ON TYPE once.claimed IS 'What once.claim and once.recorded return.';
COMMENT ON COLUMN once.claimed.outcome IS 'run, replay, busy, mismatch, unknown; mine and lost only if a claim id is used again';
COMMENT ON COLUMN once.claimed.claim IS 'with run: for once.complete, release, doubt, renew, checkpoint, resume, derive and emit';
COMMENT ON COLUMN once.claimed.epoch IS 'how often the operation was started';
COMMENT ON COLUMN once.claimed.retry_after IS 'with busy: when to ask again';
COMMENT ON COLUMN once.claimed.status IS 'with replay: of the recorded response';
COMMENT ON COLUMN once.claimed.headers IS 'with replay: an array of [name, value]';
COMMENT ON COLUMN once.claimed.body IS 'with replay: of the recorded response';
COMMENT ON COLUMN once.claimed.stored IS 'with replay: plain, compressed, sealed, omitted or erased; SQL can read only plain responses';
COMMENT ON COLUMN once.claimed.expires IS 'with replay: until when the response is kept';
COMMENT ON TYPE once.answer IS 'What the functions once.store_* return: the outcome, and the record as it is afterwards.';

COMMENT ON VIEW once.records IS 'The records in readable form.';
COMMENT ON COLUMN once.records.scope_hash IS 'hash of the scope, in hex: the scope itself is not stored';
COMMENT ON COLUMN once.records.state IS
    'pending (claimed), completed, failed (did not take effect) or unknown (may have taken effect)';
COMMENT ON COLUMN once.records.recover IS 'what happens when the holder disappears: retry, transactional or hold';
COMMENT ON COLUMN once.records.epoch IS 'how often the operation was started';
COMMENT ON COLUMN once.records.lease_until IS 'until when a silent holder counts as alive';
COMMENT ON COLUMN once.records.expires IS 'when a completed or failed record is forgotten; NULL: not';
COMMENT ON COLUMN once.records.note IS 'why it was released or settled';
COMMENT ON COLUMN once.records.description IS 'what was asked, such as POST /payments';
COMMENT ON COLUMN once.records.holder IS 'host and process that has the claim, or had the last one';
COMMENT ON COLUMN once.records.attempts IS 'what became of earlier attempts, the newest first: epoch, state, ended, cause, holder';
COMMENT ON COLUMN once.records.cause IS 'why it is in its state: the cause of a doubt, a note, or that its lease is over';
COMMENT ON COLUMN once.records.erased IS 'its key, description and response were erased; the outcome stays';
COMMENT ON COLUMN once.records.half IS 'the first half of the id: records are found by it, not by the id';

COMMENT ON TABLE once.keys IS 'One row per record. Read once.records instead; numbers and times are explained in docs/postgres.md.';
COMMENT ON TABLE once.checkpoints IS 'The last checkpoint of operations of several steps.';
COMMENT ON TABLE once.outbox IS 'Events to publish, until they are published.';
COMMENT ON COLUMN once.outbox.grp IS 'events of one group are published by one relay at a time';
COMMENT ON COLUMN once.outbox.record IS 'id of the record whose claim emitted it';
COMMENT ON COLUMN once.outbox.cause IS 'key of that record';
COMMENT ON TABLE once.outbox_dead IS 'Events that were given up: the broker refuses them, or they failed too often.';
COMMENT ON TABLE once.outbox_groups IS 'Which relay has which group of the outbox.';
COMMENT ON TABLE once.relays IS 'The relays that are running.';
COMMENT ON TABLE once.emitted IS 'The events that open claims have emitted, to give repeated ones the same id.';
COMMENT ON TABLE once.inbox IS 'Messages that were handled (once.accept).';
COMMENT ON TABLE once.audit IS 'What people have decided. Read it with once audit list; rows are never changed or removed.';
COMMENT ON TABLE once.published IS 'Where events of records were published (once relay --trace).';
COMMENT ON TABLE once.settings IS
    'inbox_retention: how long handled messages are remembered; trace_retention: how long published events are.';
COMMENT ON TABLE once.secrets IS 'The secrets of the installation.';
COMMENT ON TABLE once.secret_pads IS 'The same secrets, as HMAC needs them.';
COMMENT ON TABLE once.dictionaries IS 'What many responses and descriptions have in common: rows refer to it.';
COMMENT ON TABLE once.sweeps IS 'Where the reaper goes on, and when.';
COMMENT ON TABLE once.versions IS 'The versions of the schema that were applied.';
