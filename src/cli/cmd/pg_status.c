/*
 * once pg status: what is installed, and how the tables are.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/pg.h"
#include "cli/text.h"

typedef struct settings {
    int json;
} settings_t;

/* Names and values, in the order of the output. */
static const char query[] =
    "SELECT 'server', current_setting('server_version') "
    "UNION ALL SELECT 'version', (SELECT max(version) FROM once.versions)::text "
    "UNION ALL SELECT 'applied', (SELECT to_char(max(applied) AT TIME ZONE 'UTC', "
    "'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') "
    "                             FROM once.versions) "
    "UNION ALL SELECT 'roles', (SELECT coalesce(string_agg(rolname, ' ' ORDER BY rolname), 'none') "
    "FROM pg_roles "
    "                           WHERE rolname IN ('once_gateway', 'once_application', "
    "'once_relay', 'once_monitor', 'once_operator')) "
    "UNION ALL SELECT 'secrets', CASE WHEN EXISTS (SELECT FROM once.secrets) THEN 'present' ELSE "
    "'none yet' END "
    /* Exact where that takes no time. */
    "UNION ALL SELECT CASE WHEN few THEN 'records' ELSE 'records_about' END, "
    "CASE WHEN few THEN (SELECT count(*) FROM once.keys) "
    "ELSE (SELECT greatest(n_live_tup, 0) FROM pg_stat_all_tables WHERE relid = "
    "'once.keys'::regclass) END::text "
    "FROM (SELECT pg_relation_size('once.keys') <= 64 * 1048576 AS few) AS size "
    "UNION ALL SELECT 'dead_rows', (SELECT n_dead_tup::text FROM pg_stat_all_tables "
    "                               WHERE relid = 'once.keys'::regclass) "
    "UNION ALL SELECT 'hot_updates', (SELECT CASE WHEN n_tup_upd > 0 THEN (100 * n_tup_hot_upd / "
    "n_tup_upd)::text || '%' "
    "                                 ELSE 'none yet' END FROM pg_stat_all_tables WHERE relid = "
    "'once.keys'::regclass) "
    "UNION ALL SELECT 'bytes', pg_total_relation_size('once.keys')::text "
    "UNION ALL SELECT 'outbox_bytes', pg_total_relation_size('once.outbox')::text "
    "UNION ALL SELECT 'inbox_bytes', pg_total_relation_size('once.inbox')::text "
    "UNION ALL SELECT 'swept', (SELECT coalesce(to_char(ended AT TIME ZONE 'UTC', "
    "'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), "
    "                           'never') FROM once.sweeps WHERE name = 'keys') "
    "UNION ALL SELECT 'pg_cron', CASE WHEN EXISTS (SELECT FROM pg_extension WHERE extname = "
    "'pg_cron') "
    "                            THEN 'present' ELSE 'none' END";

static int print_json(const PGresult *result)
{
    once__cli_json_t json;

    once__cli_json_start(&json);
    for (int i = 0; i < PQntuples(result); i++) {
        const char *value = PQgetvalue(result, i, 1);
        size_t digits = strspn(value, "0123456789");
        if (digits > 0 && value[digits] == '\0') {
            once__cli_json_number(&json, PQgetvalue(result, i, 0), strtoull(value, NULL, 10));
        } else {
            once__cli_json_text(&json, PQgetvalue(result, i, 0), value);
        }
    }
    return once__cli_json_print(&json);
}

static int print_all(PGconn *conn, int json)
{
    PGresult *result = PQexec(conn, query);
    int code = ONCE__CLI_OK;

    if (PQresultStatus(result) != PGRES_TUPLES_OK) {
        once__cli_pg_complain(conn, "cannot read the state of the schema");
        code = ONCE__CLI_STORE;
    } else if (json) {
        code = print_json(result);
    } else {
        for (int i = 0; i < PQntuples(result); i++) {
            const char *name = PQgetvalue(result, i, 0);
            int uncounted = strcmp(name, "records_about") == 0;
            int estimated = uncounted || strcmp(name, "dead_rows") == 0;
            printf("%-12s %s%s\n", uncounted ? "records" : name, estimated ? "about " : "",
                   PQgetvalue(result, i, 1));
        }
    }
    PQclear(result);
    return code;
}

static int run_status(const once__cli_call_t *call)
{
    const settings_t *set = call->settings;
    once__cli_pg_sql_t sql;
    PGconn *conn = NULL;
    int have, code = once__cli_pg_sql_load(&sql, NULL);

    code = code == ONCE__CLI_OK ? once__cli_pg_connect(call->url, &conn) : code;
    if (code != ONCE__CLI_OK) {
        return code;
    }
    have = once__cli_pg_begin(conn) == 0 ? once__cli_pg_version(conn) : -1;
    if (have < 0) {
        code = ONCE__CLI_STORE;
    } else if (have == 0) {
        once__cli_say("the schema is not installed: run \"once pg install\"");
        code = ONCE__CLI_NO;
    } else {
        code = print_all(conn, set->json);
    }
    if (code == ONCE__CLI_OK && have != sql.newest) {
        once__cli_say("the schema has version %d, this program needs %d%s", have, sql.newest,
                      have < sql.newest ? ": run \"once pg upgrade\"" : "");
        code = ONCE__CLI_NO;
    }
    PQfinish(conn);
    return code;
}

/* clang-format off */
static const once__cli_option_t options[] = {
    {"json", 0, ONCE__CLI_FLAG, NULL, "one JSON object", offsetof(settings_t, json)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_pg_status = {
    .name = "pg status",
    .operands = "[URL]",
    .summary = "show what is installed in a PostgreSQL database",
    .details =
        "Exits with 1 if the schema is missing or has another version than this program. Run it\n"
        "as the user that installed the schema, or as an administrator.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .options = options,
    .settings_size = sizeof(settings_t),
    .run = run_status,
};
