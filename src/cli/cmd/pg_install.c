/*
 * once pg install, once pg upgrade: the schema `once` in a PostgreSQL database.
 *
 * All in one transaction, under a lock of its own: several machines that start at once do it one after the other, and one that
 * fails leaves what was there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <once/once.h>

#include "cli/commands.h"
#include "cli/config.h"
#include "cli/pg.h"
#include "cli/text.h"

#define SERVER_OLDEST 140000 /* ranges of row addresses, which the reaper walks along */

typedef struct settings {
    const char *config;
    const char *sql;
    int cron;
    int print;
    int no_secrets;
} settings_t;

/* ------------------------------------------------------------------------------------------------------- whose objects */

#define OBJECTS(catalog, owner, namespace)                                                         \
    "UNION ALL SELECT (pg_identify_object('" catalog "'::regclass, oid, 0)).identity, " owner " "  \
    "FROM " catalog                                                                                \
    " WHERE " namespace " = (SELECT oid FROM pg_namespace WHERE nspname = 'once') "

/*
 * Functions of the schema run with the rights of the role that installs them. If they use tables or functions of another role,
 * that role gets those rights.
 */

/* Objects in the schema that are not ours, the schema itself first. */
static const char foreign_object[] =
    "SELECT format('%s belongs to the role %I', what, rolname) FROM ("
    "SELECT 0 AS place, 'the schema once' AS what, nspowner AS owner "
    "FROM pg_namespace WHERE nspname = 'once' UNION ALL SELECT 1, o.* FROM ("
    "SELECT ''::text, 0::oid WHERE false " /* clang-format off */
    OBJECTS("pg_class", "relowner", "relnamespace")
    OBJECTS("pg_proc", "proowner", "pronamespace")
    OBJECTS("pg_type", "typowner", "typnamespace")
    OBJECTS("pg_operator", "oprowner", "oprnamespace")
    OBJECTS("pg_opclass", "opcowner", "opcnamespace")
    OBJECTS("pg_opfamily", "opfowner", "opfnamespace")
    OBJECTS("pg_collation", "collowner", "collnamespace")
    OBJECTS("pg_conversion", "conowner", "connamespace")
    OBJECTS("pg_statistic_ext", "stxowner", "stxnamespace") /* clang-format on */
    ") AS o) AS found JOIN pg_roles r ON r.oid = owner "
    "WHERE rolname <> current_user ORDER BY place, what LIMIT 1";

/*
 * Functions and operators of other roles that a table, a view, a trigger or a function of the schema calls; what came with an
 * extension is not meant. Found first and named then: not everything that is depended on has a name.
 */
static const char foreign_code[] =
    "WITH used AS MATERIALIZED ("
    "SELECT d.classid, d.objid, d.objsubid, d.refclassid, d.refobjid, rolname FROM pg_depend d "
    "LEFT JOIN pg_proc p ON d.refclassid = 'pg_proc'::regclass AND p.oid = refobjid "
    "LEFT JOIN pg_operator o ON d.refclassid = 'pg_operator'::regclass AND o.oid = refobjid "
    "JOIN pg_roles r ON r.oid = coalesce(proowner, oprowner) "
    "JOIN pg_namespace n ON n.oid = coalesce(pronamespace, oprnamespace) "
    "WHERE d.classid <> 0 AND nspname <> 'pg_catalog' AND rolname <> current_user "
    "AND NOT EXISTS (SELECT FROM pg_depend e WHERE e.classid = d.refclassid "
    "AND e.objid = d.refobjid AND e.deptype = 'e')) "
    "SELECT format('%s calls %s, which belongs to the role %I', caller.identity, called.identity, "
    "rolname) FROM used d "
    "CROSS JOIN pg_identify_object_as_address(d.classid, d.objid, d.objsubid) AS a "
    "CROSS JOIN pg_identify_object(d.classid, d.objid, d.objsubid) AS caller "
    "CROSS JOIN pg_identify_object(d.refclassid, d.refobjid, 0) AS called "
    "WHERE caller.schema = 'once' OR a.object_names[1] = 'once' LIMIT 1";

static int refuse(PGconn *conn, const char *query, const char *advice)
{
    PGresult *result = PQexec(conn, query);
    int code = ONCE__CLI_OK;

    if (PQresultStatus(result) != PGRES_TUPLES_OK) {
        once__cli_pg_complain(conn, "cannot read who owns the schema");
        code = ONCE__CLI_STORE;
    } else if (PQntuples(result) > 0) {
        once__cli_say("%s; %s", PQgetvalue(result, 0, 0), advice);
        code = ONCE__CLI_REFUSED;
    }
    PQclear(result);
    return code;
}

static int check_objects(PGconn *conn)
{
    return refuse(conn, foreign_object,
                  "what is installed there would run with your rights. Connect as that role if it "
                  "is the one that installs once here; if not, have it removed: DROP SCHEMA once "
                  "CASCADE");
}

static int check_code(PGconn *conn)
{
    return refuse(
        conn, foreign_code,
        "it would run with the rights of everyone who uses the schema. Nothing was changed; "
        "remove it first (docs/postgres.md, \"Installing\")");
}

/* ------------------------------------------------------------------------------------------------------------ applying */

static int apply_version(PGconn *conn, const char *name, const char *text)
{
    char insert[160];

    snprintf(insert, sizeof(insert),
             "INSERT INTO once.versions (version, program) VALUES (%d, '%s')",
             once__cli_pg_file_version(name), once_version());
    return once__cli_pg_run(conn, name, text) == 0 && once__cli_pg_run(conn, name, insert) == 0
               ? 0
               : -1;
}

/* Of a new installation the secrets, too: not of one that is there, whose secrets may be in a file. */
static int apply_files(PGconn *conn, const once__cli_pg_sql_t *sql, int have, int no_secrets)
{
    static const char *const last[] = {"roles.sql", "grants.sql", "secrets.sql"};
    size_t count = have == 0 && !no_secrets ? 3 : 2;

    /* By name: what goes before a version comes first. An upgrade has done that already (prepare). */
    for (size_t i = 0; i < sql->count; i++) {
        const char *name = sql->files[i].name, *text = sql->files[i].text;
        if ((have == 0 && once__cli_pg_before_version(name) > 0 &&
             once__cli_pg_run(conn, name, text) != 0) ||
            (once__cli_pg_file_version(name) > have && apply_version(conn, name, text) != 0)) {
            return -1;
        }
    }
    for (size_t i = 0; i < sql->count; i++) {
        if (strncmp(sql->files[i].name, "functions/", 10) == 0 &&
            once__cli_pg_run(conn, sql->files[i].name, sql->files[i].text) != 0) {
            return -1;
        }
    }
    for (size_t n = 0; n < count; n++) {
        for (size_t i = 0; i < sql->count; i++) {
            if (strcmp(sql->files[i].name, last[n]) == 0 &&
                once__cli_pg_run(conn, last[n], sql->files[i].text) != 0) {
                return -1;
            }
        }
    }
    return 0;
}

static int begin(PGconn *conn)
{
    return once__cli_pg_begin(conn) == 0 &&
                   once__cli_pg_run(
                       conn, "cannot begin",
                       "SET LOCAL client_min_messages = warning; SET LOCAL lock_timeout = '10s'; "
                       "SET LOCAL check_function_bodies = off; SELECT "
                       "pg_advisory_xact_lock(hashtextextended('once.install', 0::bigint))") == 0
               ? 0
               : -1;
}

/* ----------------------------------------------------------------------------------------------------------- preparing */

/* Copies in many short transactions what the version will need: once._prepare says where to go on. */
static int copy_all(PGconn *conn)
{
    char query[96] = "SELECT once._prepare(0)";
    char *next = once__cli_pg_begin(conn) == 0 ? once__cli_pg_ask(conn, query) : NULL;

    while (next != NULL && *next != '\0' && once__cli_pg_run(conn, "cannot copy", "COMMIT") == 0) {
        snprintf(query, sizeof(query), "SELECT once._prepare(%lld)", strtoll(next, NULL, 10));
        free(next);
        next = once__cli_pg_begin(conn) == 0 ? once__cli_pg_ask(conn, query) : NULL;
    }
    if (next == NULL || *next != '\0') {
        free(next);
        return -1;
    }
    free(next);
    return once__cli_pg_run(conn, "cannot copy", "COMMIT");
}

/*
 * What an upgrade needs and can do while programs go on with the former version. All of it may be repeated: after an upgrade that
 * was stopped, the next one goes on.
 */
static int prepare(PGconn *conn, const once__cli_pg_sql_t *sql)
{
    int code = begin(conn) == 0 ? check_objects(conn) : ONCE__CLI_STORE;
    int have = code == ONCE__CLI_OK ? once__cli_pg_version(conn) : -1;
    const char *text = NULL;

    for (size_t i = 0; i < sql->count && have > 0; i++) {
        int version = once__cli_pg_before_version(sql->files[i].name);
        text = version > have ? sql->files[i].text : text;
    }
    if (code == ONCE__CLI_OK &&
        (have < 0 || (text != NULL && once__cli_pg_run(conn, "cannot prepare", text) != 0) ||
         once__cli_pg_run(conn, "cannot prepare", "COMMIT") != 0 ||
         (text != NULL && copy_all(conn) != 0))) {
        code = ONCE__CLI_STORE;
    }
    if (code != ONCE__CLI_OK) {
        PQclear(PQexec(conn, "ROLLBACK"));
    }
    return code;
}

/* The whole change. `upgrade`: there must be something to upgrade. */
static int change(PGconn *conn, const once__cli_pg_sql_t *sql, int upgrade, int no_secrets)
{
    int code = check_objects(conn);
    int have = code == ONCE__CLI_OK ? once__cli_pg_version(conn) : -1;

    if (have < 0) {
        return code != ONCE__CLI_OK ? code : ONCE__CLI_STORE;
    }
    if (have > sql->newest) {
        once__cli_say("the schema has version %d, this program only knows %d: use a newer once",
                      have, sql->newest);
        return ONCE__CLI_REFUSED;
    }
    if (upgrade && have == 0) {
        once__cli_say("the schema is not installed: run \"once pg install\"");
        return ONCE__CLI_NOT_FOUND;
    }
    if (!upgrade && have != 0 && have < sql->newest) {
        once__cli_say("version %d is installed; \"once pg upgrade\" brings it to %d", have,
                      sql->newest);
        return ONCE__CLI_REFUSED;
    }
    if ((have == 0 &&
         once__cli_pg_run(conn, "cannot create the schema", "CREATE SCHEMA once") != 0) ||
        apply_files(conn, sql, have, no_secrets) != 0) {
        return ONCE__CLI_STORE;
    }
    code = check_code(conn);
    if (code != ONCE__CLI_OK || once__cli_pg_run(conn, "cannot commit", "COMMIT") != 0) {
        return code != ONCE__CLI_OK ? code : ONCE__CLI_STORE;
    }
    if (have == sql->newest) {
        printf("version %d was installed already; functions and grants were refreshed\n", have);
    } else if (have == 0) {
        printf("installed version %d\n", sql->newest);
    } else {
        printf("upgraded from version %d to %d\n", have, sql->newest);
    }
    return ONCE__CLI_OK;
}

/* Whether pg_cron is there; 1 only if it can be used. */
static const char cron_is_there[] = "SELECT count(*) FROM pg_extension WHERE extname = 'pg_cron'";
static const char cron_is_ours[] =
    "SELECT count(*) FROM pg_namespace WHERE nspname = 'cron' "
    "AND has_schema_privilege(oid, 'USAGE') AND to_regclass('cron.job') IS NOT NULL "
    "AND has_table_privilege(to_regclass('cron.job'), 'SELECT')";

/* Our job as an earlier program made it. */
static const char cron_has_job[] =
    "SELECT count(*) FROM cron.job WHERE jobname = 'once-reap' AND username = current_user "
    "AND database = current_database() AND command = 'SELECT once.reap()'";

/* Returns the number that the query gives; -1: it failed. */
static int ask_count(PGconn *conn, const char *query)
{
    char *text = once__cli_pg_ask(conn, query);
    int count = text != NULL ? (int)strtol(text, NULL, 10) : -1;

    free(text);
    return count;
}

/* A job of an earlier program is replaced unasked: it called once.reap, which does too little at a time. */
static int schedule(PGconn *conn, int asked)
{
    int there = once__cli_pg_begin(conn) == 0 ? ask_count(conn, cron_is_there) : -1;

    if (there > 0 && !asked) {
        there = ask_count(conn, cron_is_ours);
        there = there > 0 ? ask_count(conn, cron_has_job) : there;
    }
    if (there < 0) {
        return ONCE__CLI_STORE;
    }
    if (there == 0) {
        if (asked) {
            puts("pg_cron is not in this database: gateways remove expired records themselves");
        }
        return ONCE__CLI_OK;
    }
    if (once__cli_pg_run(conn, "cannot schedule",
                         "SELECT cron.schedule('once-reap'::text, '* * * * *'::text, "
                         "'CALL once.reap_for()'::text); COMMIT") != 0) {
        return ONCE__CLI_STORE;
    }
    puts("scheduled: pg_cron removes expired records every minute");
    return ONCE__CLI_OK;
}

/* For administrators who want to read it first, and to apply it by their own means. */
static int print_all(const once__cli_pg_sql_t *sql, int no_secrets)
{
    puts("BEGIN;\nSET LOCAL search_path = pg_catalog, pg_temp;\n"
         "SET LOCAL client_min_messages = warning;\nSET LOCAL check_function_bodies = off;\n"
         "CREATE SCHEMA once;");
    for (size_t i = 0; i < sql->count; i++) {
        int version = once__cli_pg_file_version(sql->files[i].name);
        if (once__cli_pg_before_version(sql->files[i].name) > 0) {
            printf("-- %s\n%s\n", sql->files[i].name, sql->files[i].text);
        } else if (version > 0) {
            printf("-- %s\n%s\nINSERT INTO once.versions (version, program) VALUES (%d, '%s');\n",
                   sql->files[i].name, sql->files[i].text, version, once_version());
        }
    }
    for (int pass = 0; pass < (no_secrets ? 3 : 4); pass++) {
        for (size_t i = 0; i < sql->count; i++) {
            const char *name = sql->files[i].name;
            int when = strncmp(name, "functions/", 10) == 0 ? 0
                       : strcmp(name, "roles.sql") == 0     ? 1
                       : strcmp(name, "grants.sql") == 0    ? 2
                                                            : 3;
            if (once__cli_pg_file_version(name) == 0 && once__cli_pg_before_version(name) == 0 &&
                when == pass) {
                printf("-- %s\n%s\n", name, sql->files[i].text);
            }
        }
    }
    puts("COMMIT;");
    return ONCE__CLI_OK;
}

static int install(const once__cli_call_t *call, const once__cli_pg_sql_t *sql, int upgrade)
{
    const settings_t *set = call->settings;
    PGconn *conn;
    int code = once__cli_pg_connect(call->url, &conn);

    if (code != ONCE__CLI_OK) {
        return code;
    }
    if (PQserverVersion(conn) < SERVER_OLDEST) {
        once__cli_say("the server is older than PostgreSQL 14");
        code = ONCE__CLI_REFUSED;
    } else {
        code = upgrade ? prepare(conn, sql) : ONCE__CLI_OK;
        if (code == ONCE__CLI_OK) {
            code = begin(conn) == 0 ? change(conn, sql, upgrade, set->no_secrets) : ONCE__CLI_STORE;
        }
    }
    if (code == ONCE__CLI_OK) {
        code = schedule(conn, set->cron);
    }
    PQfinish(conn);
    return code;
}

static int run(const once__cli_call_t *call, int upgrade)
{
    const settings_t *set = call->settings;
    once__cli_pg_sql_t sql;
    int code = once__cli_pg_sql_load(&sql, set->sql);

    if (code == ONCE__CLI_OK) {
        code = set->print ? print_all(&sql, set->no_secrets) : install(call, &sql, upgrade);
    }
    once__cli_pg_sql_free(&sql);
    return code;
}

static int run_install(const once__cli_call_t *call)
{
    return run(call, 0);
}

static int run_upgrade(const once__cli_call_t *call)
{
    return run(call, 1);
}

/* clang-format off */
static const once__cli_option_t install_options[] = {
    ONCE__CLI_CONFIG_OPTION(offsetof(settings_t, config)),
    {"cron", 0, ONCE__CLI_FLAG, NULL, "let pg_cron remove expired records, where it is installed", offsetof(settings_t, cron)},
    {"no-secrets", 0, ONCE__CLI_FLAG, NULL, "create no secrets: programs read them from a file (secrets=file:PATH)",
     offsetof(settings_t, no_secrets)},
    {"print", 0, ONCE__CLI_FLAG, NULL, "print the SQL instead of applying it", offsetof(settings_t, print)},
    {"sql", 0, ONCE__CLI_TEXT, "DIRECTORY", "apply the files in DIRECTORY instead of the built-in ones", offsetof(settings_t, sql)},
    {0},
};
static const once__cli_option_t upgrade_options[] = {
    ONCE__CLI_CONFIG_OPTION(offsetof(settings_t, config)),
    {"cron", 0, ONCE__CLI_FLAG, NULL, "let pg_cron remove expired records, where it is installed", offsetof(settings_t, cron)},
    {"sql", 0, ONCE__CLI_TEXT, "DIRECTORY", "apply the files in DIRECTORY instead of the built-in ones", offsetof(settings_t, sql)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_pg_install = {
    .name = "pg install",
    .operands = "[URL]",
    .summary = "create the schema `once` in a PostgreSQL database",
    .details =
        "Plain SQL in one transaction: no extension, no superuser; the user needs CREATE on the\n"
        "database, and CREATEROLE for the roles once_gateway, once_application, once_relay,\n"
        "once_monitor and once_operator, which are then granted to the users that need them.\n"
        "Running it again does no harm.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .options = install_options,
    .settings_size = sizeof(settings_t),
    .run = run_install,
};

const once__cli_command_t once__cli_pg_upgrade = {
    .name = "pg upgrade",
    .operands = "[URL]",
    .summary = "upgrade the schema to this program's version",
    .details =
        "Upgrade the schema first, then the programs: those of the previous version can keep\n"
        "running meanwhile.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .options = upgrade_options,
    .settings_size = sizeof(settings_t),
    .run = run_upgrade,
};
