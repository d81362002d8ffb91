/*
 * once outbox list, retry, drop: events that were given up, and those that wait.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"
#include "cli/operator.h"
#include "cli/outbox.h"
#include "cli/pg.h"
#include "cli/table.h"
#include "cli/text.h"
#include "cli/units.h"
#include "cli/options.h"

#define LIMIT     1000
#define KEY_WIDTH 40

enum { ID, AGE, DEAD, TOPIC, KEY, TYPE, BYTES, TRIES, REASON };

typedef struct settings {
    once__cli_number_t limit;
    int waiting, json;
    int all, yes;
    once__cli_operator_t operator;
} settings_t;

/* The beginning of an id: hex digits and dashes. */
static int is_id(const char *text)
{
    return text[0] != '\0' && strlen(text) <= 36 &&
           strspn(text, "0123456789abcdefABCDEF-") == strlen(text);
}

static PGresult *ask(PGconn *conn, const char *statement, int count, const char *const *values)
{
    PGresult *result = PQexecParams(conn, statement, count, NULL, values, NULL, NULL, 0);

    if (PQresultStatus(result) == PGRES_TUPLES_OK) {
        return result;
    }
    once__cli_say("%s", PQerrorMessage(conn));
    PQclear(result);
    return NULL;
}

static PGresult *list(PGconn *conn, int waiting, const char *id, uint64_t limit)
{
    char number[24];
    const char *values[] = {waiting ? "t" : "f", id, limit > 0 ? number : NULL};

    snprintf(number, sizeof(number), "%" PRIu64, limit < INT64_MAX ? limit : INT64_MAX);
    return ask(conn, "SELECT * FROM once.outbox_list($1, pg_catalog.lower($2), $3)", 3, values);
}

/* ------------------------------------------------------------------------------------------------------------- list */

static void event_json(PGresult *result, int row, int waiting, once__cli_json_t *json)
{
    once__cli_json_start(json);
    once__cli_json_text(json, "id", PQgetvalue(result, row, ID));
    once__cli_json_text(json, "state", waiting ? "waiting" : "dead");
    once__cli_json_number(json, "age_ms", strtoull(PQgetvalue(result, row, AGE), NULL, 10));
    once__cli_json_text(json, "topic", PQgetvalue(result, row, TOPIC));
    once__cli_json_put(json, "key",
                       PQgetisnull(result, row, KEY) ? json_null()
                                                     : json_string(PQgetvalue(result, row, KEY)));
    once__cli_json_text(json, "type", PQgetvalue(result, row, TYPE));
    once__cli_json_number(json, "bytes", strtoull(PQgetvalue(result, row, BYTES), NULL, 10));
    if (!waiting) {
        once__cli_json_number(json, "dead_ms", strtoull(PQgetvalue(result, row, DEAD), NULL, 10));
        once__cli_json_number(json, "tries", strtoull(PQgetvalue(result, row, TRIES), NULL, 10));
        once__cli_json_text(json, "reason", PQgetvalue(result, row, REASON));
    }
}

static void add_text(once__cli_table_t *table, const PGresult *result, int row, int field,
                     size_t width)
{
    char text[ONCE__CLI_ESCAPED_SIZE(256)];

    once__cli_escape(text, width + 1 < sizeof(text) ? width + 1 : sizeof(text),
                     once__slice_of(PQgetvalue(result, row, field)));
    once__cli_table_add(table, "%s", PQgetisnull(result, row, field) ? "-" : text);
}

static int print_table(PGresult *result, int rows, int waiting)
{
    static const char *const dead_heads[] = {"ID",    ">AGE", ">DEAD", ">TRIES", ">SIZE",
                                             "TOPIC", "TYPE", "KEY",   "REASON"};
    static const char *const waiting_heads[] = {"ID", ">AGE", ">SIZE", "TOPIC", "TYPE", "KEY"};
    once__cli_table_t table;

    once__cli_table_start(&table, waiting ? waiting_heads : dead_heads,
                          waiting ? sizeof(waiting_heads) / sizeof(waiting_heads[0])
                                  : sizeof(dead_heads) / sizeof(dead_heads[0]));
    for (int row = 0; row < rows; row++) {
        once__cli_table_add(&table, "%s", PQgetvalue(result, row, ID));
        once__cli_table_add(
            &table, "%s",
            once__cli_duration(strtoull(PQgetvalue(result, row, AGE), NULL, 10)).text);
        if (!waiting) {
            once__cli_table_add(
                &table, "%s",
                once__cli_duration(strtoull(PQgetvalue(result, row, DEAD), NULL, 10)).text);
            once__cli_table_add(&table, "%s", PQgetvalue(result, row, TRIES));
        }
        once__cli_table_add(
            &table, "%s", once__cli_size(strtoull(PQgetvalue(result, row, BYTES), NULL, 10)).text);
        add_text(&table, result, row, TOPIC, KEY_WIDTH);
        add_text(&table, result, row, TYPE, KEY_WIDTH);
        add_text(&table, result, row, KEY, KEY_WIDTH);
        if (!waiting) {
            add_text(&table, result, row, REASON, 120);
        }
    }
    if (once__cli_table_print(&table) != 0) {
        once__cli_say("out of memory");
        return ONCE__CLI_STORE;
    }
    return ONCE__CLI_OK;
}

static int print_list(const settings_t *set, PGresult *result, uint64_t limit)
{
    int rows = PQntuples(result), more = limit != 0 && (uint64_t)rows > limit;
    int code = ONCE__CLI_OK;

    rows = more ? (int)limit : rows;
    if (more) {
        once__cli_note("there are more than these %" PRIu64 ": --limit 0 lists all", limit);
    }
    if (set->json) {
        for (int row = 0; row < rows && code == ONCE__CLI_OK; row++) {
            once__cli_json_t json;
            event_json(result, row, set->waiting, &json);
            code = once__cli_json_print(&json);
        }
        return code;
    }
    if (rows == 0) {
        puts(set->waiting ? "no events are waiting" : "no dead events");
        return ONCE__CLI_OK;
    }
    return print_table(result, rows, set->waiting);
}

static int run_list(const once__cli_call_t *call)
{
    const settings_t *set = call->settings;
    uint64_t limit = set->limit.given ? set->limit.value : LIMIT;
    const char *id = call->operand_count > 0 ? call->operands[0] : "";
    PGresult *result;
    PGconn *conn;
    int code;

    code = once__cli_check_values(call);
    if (code != ONCE__CLI_OK) {
        return code;
    }
    if (call->operand_count > 0 && !is_id(id)) {
        return once__cli_usage(call->command, "\"%s\" is not the beginning of an event id",
                               once__cli_shown(id).text);
    }
    code = once__cli_pg_connect(call->url, &conn);
    if (code != ONCE__CLI_OK) {
        return code;
    }
    result = list(conn, set->waiting, id, limit == 0 ? 0 : limit + 1);
    code = result != NULL ? print_list(set, result, limit) : ONCE__CLI_STORE;
    PQclear(result);
    PQfinish(conn);
    return code;
}

int once__cli_outbox_json(const char *url, int waiting, uint64_t limit, json_t **events)
{
    PGresult *result;
    PGconn *conn;
    int code = once__cli_pg_connect(url, &conn);

    *events = json_array();
    if (code != ONCE__CLI_OK) {
        return code;
    }
    result = list(conn, waiting, "", limit);
    code = result != NULL ? ONCE__CLI_OK : ONCE__CLI_STORE;
    for (int row = 0; result != NULL && row < PQntuples(result); row++) {
        once__cli_json_t json;
        event_json(result, row, waiting, &json);
        (void)json_array_append_new(*events, json.object);
    }
    PQclear(result);
    PQfinish(conn);
    return code;
}

/* ------------------------------------------------------------------------------------------------------ retry, drop */

static const char retry_statement[] = "SELECT once.outbox_retry($1::pg_catalog.uuid[], $2, $3)";
static const char drop_statement[] = "SELECT once.outbox_drop($1::pg_catalog.uuid[], $2, $3)";

/* `ids` is a text array; NULL: all that are dead. Returns how many there were, or -1 after saying why not. */
static int64_t change_events(PGconn *conn, const char *statement, const char *ids,
                             const once__cli_operator_t *operator)
{
    once__cli_name_t name = once__cli_operator_name(operator);
    const char *values[3] = {ids, name.text, operator->note };
    PGresult *result = ask(conn, statement, 3, values);
    int64_t count = result != NULL ? strtoll(PQgetvalue(result, 0, 0), NULL, 10) : -1;

    PQclear(result);
    return count;
}

int once__cli_outbox_decide(const char *url, int drop, const char *const *ids, size_t count,
                            const once__cli_operator_t *operator, int64_t * changed)
{
    char *array = calloc(count + 1, 40);
    size_t len = 0;
    PGconn *conn;
    int code = array != NULL ? ONCE__CLI_OK : ONCE__CLI_STORE;

    for (size_t i = 0; code == ONCE__CLI_OK && i < count; i++) {
        if (!is_id(ids[i]) || strlen(ids[i]) != 36) {
            once__cli_say("\"%s\" is not the id of an event", once__cli_shown(ids[i]).text);
            code = ONCE__CLI_USAGE;
        } else {
            len += (size_t)sprintf(array + len, "%c%s", i == 0 ? '{' : ',', ids[i]);
        }
    }
    if (code == ONCE__CLI_OK) {
        memcpy(array + len, count > 0 ? "}" : "{}", count > 0 ? 2 : 3);
        code = once__cli_pg_connect(url, &conn);
    }
    if (code == ONCE__CLI_OK) {
        *changed = change_events(conn, drop ? drop_statement : retry_statement, array, operator);
        code = *changed >= 0 ? ONCE__CLI_OK : ONCE__CLI_STORE;
        PQfinish(conn);
    }
    free(array);
    return code;
}

int once__cli_outbox_count(const char *url, const char *const *ids, size_t count, int64_t *found)
{
    PGconn *conn;
    int code = once__cli_pg_connect(url, &conn);

    *found = 0;
    if (code != ONCE__CLI_OK) {
        return code;
    }
    for (size_t i = 0; code == ONCE__CLI_OK && i < count; i++) {
        PGresult *result = is_id(ids[i]) ? list(conn, 0, ids[i], 1) : NULL;
        *found += result != NULL ? PQntuples(result) : 0;
        code = result != NULL ? ONCE__CLI_OK : !is_id(ids[i]) ? ONCE__CLI_USAGE : ONCE__CLI_STORE;
        PQclear(result);
    }
    if (code == ONCE__CLI_USAGE) {
        once__cli_say("an event is named by its id");
    }
    PQfinish(conn);
    return code;
}

/* All dead events that the operands name, as a text array; NULL after saying why not. */
static char *find(PGconn *conn, const once__cli_call_t *call, int *code)
{
    char *ids = calloc(call->operand_count + 1, 40);
    size_t len = 1;

    *code = ids != NULL ? ONCE__CLI_OK : ONCE__CLI_STORE;
    for (size_t i = 0; *code == ONCE__CLI_OK && i < call->operand_count; i++) {
        PGresult *result = list(conn, 0, call->operands[i], 2);
        int count = result != NULL ? PQntuples(result) : -1;
        if (count == 1) {
            len +=
                (size_t)sprintf(ids + len, "%s%s", len > 1 ? "," : "", PQgetvalue(result, 0, ID));
        } else if (count >= 0) {
            once__cli_say(count == 0 ? "no dead event has the id %s"
                                     : "the ids of several dead events begin with %s",
                          once__cli_shown(call->operands[i]).text);
        }
        *code = count == 1   ? ONCE__CLI_OK
                : count < 0  ? ONCE__CLI_STORE
                : count == 0 ? ONCE__CLI_NOT_FOUND
                             : ONCE__CLI_USAGE;
        PQclear(result);
    }
    if (*code != ONCE__CLI_OK) {
        free(ids);
        return NULL;
    }
    ids[0] = '{';
    ids[len] = '}';
    return ids;
}

static int change(const once__cli_call_t *call, PGconn *conn, const char *statement,
                  const char *done)
{
    const settings_t *set = call->settings;
    char *ids = NULL;
    int64_t count;
    int code = ONCE__CLI_OK;

    if (!set->all) {
        ids = find(conn, call, &code);
        if (ids == NULL) {
            return code;
        }
    }
    count = change_events(conn, statement, ids, &set->operator);
    if (count < 0) {
        code = ONCE__CLI_STORE;
    } else {
        printf("%" PRId64 " %s\n", count, done);
    }
    free(ids);
    return code;
}

static int run_change(const once__cli_call_t *call, const char *statement, const char *question,
                      const char *done)
{
    const settings_t *set = call->settings;
    PGconn *conn;
    int code;

    if (set->all == (call->operand_count > 0)) {
        return once__cli_usage(call->command, "missing events: give their ids, or --all");
    }
    for (size_t i = 0; i < call->operand_count; i++) {
        if (!is_id(call->operands[i])) {
            return once__cli_usage(call->command, "\"%s\" is not the beginning of an event id",
                                   once__cli_shown(call->operands[i]).text);
        }
    }
    code = once__cli_operator_check(call->command, &set->operator);
    if (code == ONCE__CLI_OK) {
        code = once__cli_confirm(call->command, set->yes || question == NULL,
                                 question != NULL ? question : "");
    }
    if (code == ONCE__CLI_OK) {
        code = once__cli_pg_connect(call->url, &conn);
    }
    if (code == ONCE__CLI_OK) {
        code = change(call, conn, statement, done);
        PQfinish(conn);
    }
    return code;
}

static int run_retry(const once__cli_call_t *call)
{
    return run_change(call, retry_statement, NULL, "events queued to be published again");
}

static int run_drop(const once__cli_call_t *call)
{
    return run_change(call, drop_statement, "These events will never be published. Drop them?",
                      "events dropped");
}

/* clang-format off */
static const once__cli_option_t list_options[] = {
    {"waiting", 0, ONCE__CLI_FLAG, NULL, "events that wait to be published, instead of dead ones", offsetof(settings_t, waiting)},
    {"limit", 0, ONCE__CLI_NUMBER, "N", "at most N events (default 1000; 0: no limit)", offsetof(settings_t, limit)},
    {"json", 0, ONCE__CLI_FLAG, NULL, "JSON lines, one object per event", offsetof(settings_t, json)},
    {0},
};

static const once__cli_option_t retry_options[] = {
    {"all", 0, ONCE__CLI_FLAG, NULL, "all dead events", offsetof(settings_t, all)},
    ONCE__CLI_OPERATOR_OPTIONS(offsetof(settings_t, operator)),
    {0},
};

static const once__cli_option_t drop_options[] = {
    {"all", 0, ONCE__CLI_FLAG, NULL, "all dead events", offsetof(settings_t, all)},
    ONCE__CLI_OPERATOR_OPTIONS(offsetof(settings_t, operator)),
    {"yes", 0, ONCE__CLI_FLAG, NULL, "do not ask", offsetof(settings_t, yes)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_outbox_list = {
    .name = "outbox list",
    .operands = "[URL] [ID]",
    .summary = "list dead events of the outbox, oldest first",
    .details =
        "An event is dead when the destination refused it for good, or when it failed too often\n"
        "(once relay --tries). With ID, only events whose id begins with it are listed. Payloads\n"
        "and headers are not shown.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .operands_max = 1,
    .options = list_options,
    .settings_size = sizeof(settings_t),
    .run = run_list,
};

const once__cli_command_t once__cli_outbox_retry = {
    .name = "outbox retry",
    .operands = "[URL] [ID]...",
    .summary = "requeue dead events",
    .details =
        "They keep their ids and queue behind everything that waits: later events of the same key\n"
        "may have been published already. Each is added to the audit trail.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .operands_max = 64,
    .options = retry_options,
    .settings_size = sizeof(settings_t),
    .run = run_retry,
};

const once__cli_command_t once__cli_outbox_drop = {
    .name = "outbox drop",
    .operands = "[URL] [ID]...",
    .summary = "remove dead events for good",
    .details = "Each is added to the audit trail of the store.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .operands_max = 64,
    .options = drop_options,
    .settings_size = sizeof(settings_t),
    .run = run_drop,
};
