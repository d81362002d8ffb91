/*
 * once trace: one operation from end to end. The record says what was asked and what became of it; PostgreSQL also knows the
 * transaction, the events, and the inboxes; other stores that are named have the records of consumers.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <once/audit.h>
#include <once/experimental.h>

#include "base/bytes.h"
#include "cli/commands.h"
#include "cli/record.h"
#include "cli/select.h"
#include "cli/store.h"
#include "cli/text.h"
#include "cli/trace.h"
#if ONCE_WITH_POSTGRES
#include "cli/pg.h"
#endif

#define EVENTS_MAX  10000
#define TRAIL_STEPS 20 /* of a view: about two thousand entries */

typedef struct settings {
    once__cli_target_t target;
    once__cli_list_t also;
    once__cli_list_t steps;
    int json;
} settings_t;

/* An event, and where it was seen, in JSON: what is printed as text is read from there. */
typedef struct trace {
    const settings_t *set;
    json_t *root;
    json_t *events;                /* of root */
    char id[2 * ONCE_ID_SIZE + 1]; /* of the record */
    const char *url;               /* of the other store that is being searched */
    int broken;
} trace_t;

static void put(trace_t *trace, json_t *object, const char *name, json_t *value)
{
    trace->broken |= json_object_set_new(object, name, value) != 0;
}

static void put_text(trace_t *trace, json_t *object, const char *name, const char *text)
{
    if (text != NULL && text[0] != '\0') {
        put(trace, object, name, json_string(text));
    }
}

static json_t *append(trace_t *trace, json_t *object, const char *name)
{
    json_t *list = json_object_get(object, name), *item = json_object();

    if (list == NULL) {
        put(trace, object, name, json_array());
        list = json_object_get(object, name);
    }
    trace->broken |= json_array_append_new(list, item) != 0;
    return item;
}

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return text != NULL ? text : "";
}

/* ------------------------------------------------------------------------------------------------------------ database */

#if ONCE_WITH_POSTGRES
enum { WHAT, EVENT, AT, TOPIC, TYPE, DETAIL };

static json_t *event_of(trace_t *trace, const char *id)
{
    size_t i;
    json_t *event;

    json_array_foreach(trace->events, i, event)
    {
        if (strcmp(text_of(event, "id"), id) == 0) {
            return event;
        }
    }
    event = json_object();
    trace->broken |= json_array_append_new(trace->events, event) != 0;
    put_text(trace, event, "id", id);
    return event;
}

static void take_event(trace_t *trace, PGresult *rows, int row)
{
    json_t *event = event_of(trace, PQgetvalue(rows, row, EVENT));
    const char *what = PQgetvalue(rows, row, WHAT), *detail = PQgetvalue(rows, row, DETAIL);

    put_text(trace, event, "topic", PQgetvalue(rows, row, TOPIC));
    put_text(trace, event, "type", PQgetvalue(rows, row, TYPE));
    if (strcmp(what, "handled") == 0) {
        json_t *handled = append(trace, event, "handled");
        put_text(trace, handled, "subscriber", detail);
        put_text(trace, handled, "time", PQgetvalue(rows, row, AT));
        return;
    }
    put_text(trace, event, "state", what);
    put_text(trace, event, "time", PQgetvalue(rows, row, AT));
    put_text(trace, event, strcmp(what, "dead") == 0 ? "reason" : "destination", detail);
}

static void take_row(trace_t *trace, PGresult *rows, int row)
{
    const char *what = PQgetvalue(rows, row, WHAT);

    if (!PQgetisnull(rows, row, EVENT)) {
        take_event(trace, rows, row);
    } else {
        json_t *object = json_object();
        put(trace, trace->root, what, object);
        put_text(trace, object, strcmp(what, "transaction") == 0 ? "id" : "name",
                 PQgetvalue(rows, row, DETAIL));
        put_text(trace, object, "time", PQgetvalue(rows, row, AT));
    }
}

static int take_rows(trace_t *trace, PGconn *conn)
{
    static const char statement[] = "SELECT what, event, pg_catalog.to_char(at AT TIME ZONE 'UTC', "
                                    "'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'), topic, type, detail "
                                    "FROM once.trace(pg_catalog.decode($1, 'hex'))";
    const char *id = trace->id;
    PGresult *rows = PQexecParams(conn, statement, 1, NULL, &id, NULL, NULL, 0);
    int good = PQresultStatus(rows) == PGRES_TUPLES_OK;

    if (!good) {
        once__cli_pg_complain(conn, "cannot read what belongs to the record");
    }
    for (int row = 0; good && row < PQntuples(rows) && row < EVENTS_MAX; row++) {
        take_row(trace, rows, row);
    }
    PQclear(rows);
    return good ? ONCE__CLI_OK : ONCE__CLI_STORE;
}

/* What once.derive gives the backend for a step: the key that a third party got. */
static int take_steps(trace_t *trace, PGconn *conn, const once_record_t *record)
{
    char token[ONCE_TOKEN_SIZE];
    int code = ONCE__CLI_OK;

    once_record_token(record, token);
    for (size_t i = 0; code == ONCE__CLI_OK && i < trace->set->steps.count; i++) {
        const char *values[] = {token, trace->set->steps.items[i]};
        PGresult *row =
            PQexecParams(conn, "SELECT once.derive($1, $2)", 2, NULL, values, NULL, NULL, 0);
        if (PQresultStatus(row) == PGRES_TUPLES_OK && PQntuples(row) == 1) {
            json_t *derived = append(trace, trace->root, "derived");
            put_text(trace, derived, "step", values[1]);
            put_text(trace, derived, "key", PQgetvalue(row, 0, 0));
        } else {
            once__cli_pg_complain(conn, "cannot derive the key of a step");
            code = ONCE__CLI_STORE;
        }
        PQclear(row);
    }
    return code;
}

static int ask_database(trace_t *trace, const char *url, const once_record_t *record)
{
    PGconn *conn;
    int code;

    if (strncmp(url, "postgres", 8) != 0) {
        return ONCE__CLI_OK;
    }
    code = once__cli_pg_connect(url, &conn);
    if (code != ONCE__CLI_OK) {
        return code;
    }
    code = take_rows(trace, conn);
    code = code == ONCE__CLI_OK ? take_steps(trace, conn, record) : code;
    PQfinish(conn);
    return code;
}
#else
static int ask_database(trace_t *trace, const char *url, const once_record_t *record)
{
    return ONCE__CLI_OK;
}
#endif

/* ----------------------------------------------------------------------------------------------------------- decisions */

/* What people have decided about the record: entries of the audit trail that name it. */
static int take_decision(once_t *once, const once_audit_entry_t *entry, void *data)
{
    trace_t *trace = data;
    json_t *words = json_loadb(entry->json.data, entry->json.len, 0, NULL);

    if (strcmp(text_of(words, "record"), trace->id) == 0) {
        trace->broken |= json_object_update(append(trace, trace->root, "decisions"), words) != 0;
    }
    json_decref(words);
    return trace->broken;
}

static int ask_trail(trace_t *trace, once_t *once)
{
    int error = once_audit_scan_sync(once, take_decision, trace, NULL);

    return error == ONCE_OK ? ONCE__CLI_OK : once__cli_store_failed("read the audit trail", error);
}

/* The same for the newest part of a trail, which may be long. Its steps come newest first, and the decisions in their order. */
static int ask_newest(trace_t *trace, once_t *once)
{
    once_page_t page = {.end = 0};
    json_t *all = json_array();
    int error = ONCE_OK;

    for (int i = 0; error == ONCE_OK && i < TRAIL_STEPS && !page.end; i++) {
        json_t *step;
        error = once_audit_page_sync(once, &page, take_decision, trace, NULL);
        step = json_incref(json_object_get(trace->root, "decisions"));
        trace->broken |= step != NULL && json_array_extend(step, all) != 0;
        (void)json_object_del(trace->root, "decisions");
        if (step != NULL) {
            json_decref(all);
            all = step;
        }
    }
    if (json_array_size(all) > 0) {
        put(trace, trace->root, "decisions", json_incref(all));
    }
    json_decref(all);
    put(trace, trace->root, "decisions_cut", json_boolean(error == ONCE_OK && !page.end));
    return error == ONCE_OK ? ONCE__CLI_OK : once__cli_store_failed("read the audit trail", error);
}

/* -------------------------------------------------------------------------------------------------------- other stores */

static void derive(trace_t *trace, json_t *found, once_slice_t key)
{
    for (size_t i = 0; i < trace->set->steps.count; i++) {
        once_slice_t step = once__slice_of(trace->set->steps.items[i]);
        once_key_t derived;
        if (once_key_derive(key, step, &derived, NULL) == ONCE_OK) {
            json_t *object = append(trace, found, "derived");
            put_text(trace, object, "step", trace->set->steps.items[i]);
            put_text(trace, object, "key", derived.text);
        }
    }
}

/* A consumer's record has the event's id as its key, or as a part of it (type:event:user). */
static int look(once_t *once, const once_record_t *record, void *data)
{
    trace_t *trace = data;
    once_slice_t key = once_record_key(record);
    json_t *event;
    size_t i;

    json_array_foreach(trace->events, i, event)
    {
        const char *id = text_of(event, "id");
        if (key.len > 0 && memmem(key.data, key.len, id, strlen(id)) != NULL) {
            json_t *found = append(trace, event, "records");
            once__cli_json_t json;
            (void)once__cli_record_json(record, 0, &json);
            trace->broken |= json.broken || json_object_update(found, json.object) != 0;
            json_decref(json.object);
            put_text(trace, found, "store", once__cli_shown_url(trace->url).text);
            derive(trace, found, key);
        }
    }
    return trace->broken;
}

static int search(trace_t *trace, const once__cli_call_t *call, const char *url)
{
    once__cli_call_t there = *call;
    once_t *once = NULL;
    once_answer_t *answer = NULL;
    int code, error;

    there.url = url;
    trace->url = url;
    code = once__cli_open(&there, &once);
    if (code != ONCE__CLI_OK) {
        return code;
    }
    error = once_record_scan_sync(once, NULL, look, trace, &answer);
    code = error == ONCE_OK ? once__cli_tell_damaged(answer, ONCE__CLI_OK)
                            : once__cli_store_failed("search the store", error);
    once_answer_free(answer);
    once__cli_close(once);
    return code;
}

/* ------------------------------------------------------------------------------------------------------------- output */

/* All values are escaped: keys and reasons come from outside. */
static void line(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void line(const char *name, const char *format, ...)
{
    char text[1500], shown[2000];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    once__cli_escape(shown, sizeof(shown), once__slice_of(text));
    printf("%-12s %s\n", name, shown);
}

static void print_derived(const json_t *owner, const char *name)
{
    size_t i;
    const json_t *derived;

    json_array_foreach(json_object_get(owner, "derived"), i, derived)
    {
        line(name, "%s for step %s", text_of(derived, "key"), text_of(derived, "step"));
    }
}

static void print_event(const json_t *event)
{
    const char *state = text_of(event, "state"), *detail = text_of(event, "destination");
    const json_t *item;
    size_t i;

    puts("");
    line("event", "%s, %s", text_of(event, "id"), text_of(event, "type"));
    line("topic", "%s", text_of(event, "topic"));
    detail = detail[0] != '\0' ? detail : text_of(event, "reason");
    line(state[0] != '\0' ? state : "seen", "%s%s%s", text_of(event, "time"),
         detail[0] == '\0'            ? ""
         : strcmp(state, "dead") == 0 ? ": "
                                      : " to ",
         detail);
    json_array_foreach(json_object_get(event, "handled"), i, item)
    {
        line("handled", "%s by %s (inbox)", text_of(item, "time"), text_of(item, "subscriber"));
    }
    json_array_foreach(json_object_get(event, "records"), i, item)
    {
        line("record", "%s, key %s, last change %s, in %s", text_of(item, "state"),
             text_of(item, "key"), text_of(item, "changed"), text_of(item, "store"));
        print_derived(item, "  key");
    }
}

static int print_text(const trace_t *trace, const once_record_t *record, int is_postgres)
{
    const json_t *part = json_object_get(trace->root, "transaction");
    const json_t *event;
    size_t i;

    (void)once__cli_record_text(record, 0);
    if (part != NULL) {
        line("transaction", "%s%s%s", text_of(part, "id"),
             text_of(part, "time")[0] != '\0' ? ", committed " : "", text_of(part, "time"));
    }
    json_array_foreach(json_object_get(trace->root, "decisions"), i, event)
    {
        const char *result = text_of(event, "result"), *note = text_of(event, "note");
        line("decision", "%s %s by %s, %s%s%s%s", text_of(event, "time"), text_of(event, "act"),
             text_of(event, "by"), text_of(event, "step"), result[0] != '\0' ? " " : "", result,
             note[0] != '\0' ? ":" : "");
        if (note[0] != '\0') {
            line("", "%s", note);
        }
    }
    part = json_object_get(trace->root, "checkpoint");
    if (part != NULL) {
        line("checkpoint", "%s, %s", text_of(part, "name"), text_of(part, "time"));
    }
    print_derived(trace->root, "derived key");
    json_array_foreach(trace->events, i, event)
    {
        print_event(event);
    }
    if (json_array_size(trace->events) == 0) {
        puts(is_postgres ? "\nno events: none was emitted, or what was published is not kept (once "
                           "relay --trace)"
                         : "\nevents are known in PostgreSQL only");
    }
    return ONCE__CLI_OK;
}

static void make_json(trace_t *trace, const once_record_t *record, unsigned parts,
                      once__cli_json_t *json)
{
    once__cli_json_t inner;

    once__cli_json_start(json);
    (void)once__cli_record_json(record, parts, &inner);
    once__cli_json_nest(json, "record", &inner);
    json->broken |= trace->broken || json_object_update(json->object, trace->root) != 0;
}

static void start(trace_t *trace, const once_record_t *record)
{
    trace->root = json_object();
    put(trace, trace->root, "events", json_array());
    trace->events = json_object_get(trace->root, "events");
    once__hex(trace->id, once_record_id(record), ONCE_ID_SIZE);
}

int once__cli_trace_json(const char *url, once_t *once, const once_record_t *record, unsigned parts,
                         once__cli_json_t *json)
{
    static const settings_t none;
    trace_t trace = {.set = &none};
    int code;

    start(&trace, record);
    code = ask_database(&trace, url, record);
    code = code == ONCE__CLI_OK ? ask_newest(&trace, once) : code;
    make_json(&trace, record, parts, json);
    json_decref(trace.root);
    return code;
}

static int trace_record(const once__cli_call_t *call, trace_t *trace, once_t *once,
                        const once_record_t *record)
{
    once__cli_json_t json;
    int code;

    start(trace, record);
    code = ask_database(trace, call->url, record);
    code = code == ONCE__CLI_OK ? ask_trail(trace, once) : code;

    for (size_t i = 0; code == ONCE__CLI_OK && i < trace->set->also.count; i++) {
        code = search(trace, call, trace->set->also.items[i]);
    }
    if (code == ONCE__CLI_OK && trace->broken) {
        once__cli_say("out of memory");
        code = ONCE__CLI_STORE;
    }
    if (code != ONCE__CLI_OK) {
        return code;
    }
    if (!trace->set->json) {
        return print_text(trace, record, strncmp(call->url, "postgres", 8) == 0);
    }
    make_json(trace, record, 0, &json);
    return once__cli_json_print(&json);
}

static int run_trace(const once__cli_call_t *call)
{
    settings_t set = *(const settings_t *)call->settings;
    trace_t trace = {.set = &set};
    once_answer_t *answer = NULL;
    once_t *once = NULL;
    int code;

    set.target.id = set.target.key == NULL && call->operand_count > 0 ? call->operands[0] : NULL;
    code = once__cli_open(call, &once);
    if (code == ONCE__CLI_OK) {
        code = once__cli_target_read(call->command, &set.target, once, &answer);
    }
    if (code == ONCE__CLI_OK) {
        code = trace_record(call, &trace, once, once_answer_record(answer));
    }
    once_answer_free(answer);
    once__cli_close(once);
    json_decref(trace.root);
    return code;
}

/* clang-format off */
static const once__cli_option_t options[] = {
    ONCE__CLI_SCOPE_OPTIONS(offsetof(settings_t, target.scope)),
    ONCE__CLI_KEY_OPTION(offsetof(settings_t, target.key)),
    {"also", 0, ONCE__CLI_LIST, "URL", "search this store, too, for records of the events; may be repeated",
     offsetof(settings_t, also)},
    {"step", 0, ONCE__CLI_LIST, "NAME", "show the key that a third party got for this step; may be repeated",
     offsetof(settings_t, steps)},
    {"json", 0, ONCE__CLI_FLAG, NULL, "one JSON object", offsetof(settings_t, json)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_trace = {
    .name = "trace",
    .operands = "[URL] [KEY]",
    .summary = "follow one operation: request, transaction, events, consumers",
    .details =
        "Shows the record of a key (or id), and with a PostgreSQL store the transaction that "
        "wrote\n"
        "it, the events that it emitted, where each was published (if relays run with --trace)\n"
        "and in whose inbox it is; and what people decided about it. --also names the stores of\n"
        "consumers: records whose keys contain the id of an event. --step shows what once.derive, "
        "or \"once key derive\" for records of\n"
        "consumers, makes of the key for a third party.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .operands_max = 1,
    .options = options,
    .settings_size = sizeof(settings_t),
    .run = run_trace,
};
