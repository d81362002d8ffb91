-- Every name of pg_catalog once more in public, where it does harm: functions and operators that fail, types that take no value, tables
-- without columns. With search_path = public, pg_catalog a statement works only if it qualifies everything.
SET search_path = pg_catalog;
SET client_min_messages = error;

DO $$
DECLARE
    it record;
BEGIN
    FOR it IN
        SELECT format('CREATE FUNCTION public.%I(%s) RETURNS bigint LANGUAGE plpgsql AS %L', proname,
                      CASE WHEN proallargtypes IS NULL THEN pg_get_function_arguments(oid) ELSE oidvectortypes(proargtypes) END,
                      format('BEGIN RAISE EXCEPTION ''trapped: %s''; END', proname)) AS statement
        FROM pg_proc p
        WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND provariadic = 0
          AND NOT EXISTS (SELECT FROM unnest(proargtypes) AS t (type) JOIN pg_type ON oid = type WHERE typtype = 'p')
        UNION ALL
        SELECT format('CREATE FUNCTION public.trap(%s) RETURNS boolean LANGUAGE plpgsql AS %L',
                      concat_ws(', ', nullif(format_type(nullif(oprleft, 0), NULL), '???'), format_type(oprright, NULL)),
                      'BEGIN RAISE EXCEPTION ''trapped by an operator''; END')
        FROM (SELECT DISTINCT oprleft, oprright FROM pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprright <> 0) o
        UNION ALL
        SELECT format('CREATE OPERATOR public.%s (FUNCTION = public.trap%s, RIGHTARG = %s)', oprname,
                      CASE WHEN oprleft <> 0 THEN format(', LEFTARG = %s', format_type(oprleft, NULL)) ELSE '' END,
                      format_type(oprright, NULL))
        FROM pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprright <> 0
        UNION ALL
        SELECT format('CREATE TABLE public.%I ()', relname)
        FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v')
        UNION ALL
        SELECT format('CREATE DOMAIN public.%I AS pg_catalog.%I CHECK (false)', typname, typname)
        FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype = 'b' AND typcategory <> 'A'
    LOOP
        BEGIN
            EXECUTE it.statement;
        EXCEPTION WHEN others THEN
            NULL; -- what only the system can have: polymorphic ones, say
        END;
    END LOOP;
END
$$;
