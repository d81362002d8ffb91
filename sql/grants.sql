SET LOCAL search_path = pg_catalog, pg_temp;

-- Each role gets the functions that it needs. Only the owner can touch tables, and call functions that are not named here.
REVOKE ALL ON ALL TABLES IN SCHEMA once FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA once FROM PUBLIC;
REVOKE ALL ON SCHEMA once FROM PUBLIC;
DO $$
DECLARE
    given record;
BEGIN
    FOR given IN
        SELECT r.rolname, p.oid::regprocedure AS function
        FROM (VALUES
            ('once_application', ARRAY['version', 'claim', 'complete', 'release', 'doubt', 'renew', 'checkpoint', 'resume',
                                       'lock', 'emit', 'accept', 'get', 'recorded', 'derive']),
            ('once_gateway', ARRAY['version', 'store_claim', 'store_apply', 'store_get', 'store_scan', 'store_list',
                                   'store_secrets_load', 'store_secrets_swap', 'store_dictionary',
                                   'about_description', 'about_holder', 'about_text', 'about_attempts', 'stats', 'size', 'expiry',
                                   'reap', 'reap_turn', 'reap_for', 'sweep', 'sweep_inbox', 'settle', 'purge', 'get', 'audit_read',
                                   'trace', 'derive']),
            ('once_relay', ARRAY['version', 'relay_turn', 'relay_end', 'relay_fetch', 'relay_published', 'relay_dead',
                                 'outbox_lag', 'outbox_list', 'outbox_retry', 'outbox_drop']),
            -- Reads, but sees neither secrets nor responses nor claims.
            ('once_monitor', ARRAY['version', 'stats', 'size', 'expiry', 'store_list', 'get', 'outbox_lag', 'about_description',
                                   'about_holder', 'about_text', 'about_attempts']),
            -- Decides unknown records, purges and erases. Has no secrets, so that it cannot claim.
            ('once_operator', ARRAY['version', 'stats', 'size', 'expiry', 'store_list', 'store_scan', 'store_get', 'store_apply',
                                    'settle', 'purge', 'erase', 'get', 'outbox_lag', 'about_description',
                                    'about_holder', 'about_text', 'about_attempts', 'store_dictionary', 'store_scrub',
                                    'audit_add', 'audit_read', 'trace', 'derive'])
        ) AS needs (role, names)
        JOIN pg_roles r ON r.rolname = needs.role
        JOIN pg_proc p ON p.pronamespace = 'once'::regnamespace AND p.proname = ANY (needs.names)
    LOOP
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO %I', given.function, given.rolname);
    END LOOP;
    FOR given IN
        SELECT rolname FROM pg_roles
        WHERE rolname IN ('once_gateway', 'once_application', 'once_relay', 'once_monitor', 'once_operator')
    LOOP
        EXECUTE format('GRANT USAGE ON SCHEMA once TO %I', given.rolname);
        IF given.rolname IN ('once_gateway', 'once_monitor', 'once_operator') THEN
            EXECUTE format('GRANT SELECT ON once.records TO %I', given.rolname);
        END IF;
    END LOOP;
END
$$;
