SET LOCAL search_path = pg_catalog, pg_temp;

-- Roles to grant to users. If the installing user may not create roles, an administrator has to.
DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['once_gateway', 'once_application', 'once_relay', 'once_monitor', 'once_operator'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
            EXCEPTION
            WHEN duplicate_object OR unique_violation THEN NULL; -- another installation just did
            WHEN insufficient_privilege THEN
                RAISE WARNING 'role % does not exist and cannot be created by this user: CREATE ROLE % NOLOGIN, then upgrade',
                    wanted, wanted;
            END;
        END IF;
    END LOOP;
END
$$;
