/*
 * once audit list, once audit verify: what people have decided, and whether the trail is whole.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <once/audit.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/store.h"
#include "cli/table.h"
#include "cli/text.h"

typedef struct settings {
    once__cli_number_t since;
    const char *head;
    int json;
} settings_t;

#define HASH_TEXT (2 * ONCE_AUDIT_HASH_SIZE + 1)

/* ------------------------------------------------------------------------------------------------------------- list */

typedef struct listing {
    const settings_t *set;
    char since[ONCE__TIME_SIZE]; /* entries before it are not shown; "": all are */
    once__cli_table_t table;
    uint64_t shown, faults;
    int code;
} listing_t;

static const char *member(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return text != NULL ? text : "";
}

static void add(once__cli_table_t *table, const char *text, size_t width)
{
    char shown[ONCE__CLI_ESCAPED_SIZE(512)];

    once__cli_escape(shown, width + 1 < sizeof(shown) ? width + 1 : sizeof(shown),
                     once__slice_of(text));
    once__cli_table_add(table, "%s", shown[0] != '\0' ? shown : "-");
}

/* "event 0192... orders paid", or the beginning of the record's id. */
static void add_object(once__cli_table_t *table, const json_t *entry)
{
    const char *record = member(entry, "record"), *event = member(entry, "event");
    char text[640];

    if (event[0] != '\0') {
        snprintf(text, sizeof(text), "event %.36s %s", event, member(entry, "object"));
    } else if (record[0] != '\0') {
        snprintf(text, sizeof(text), "%.16s epoch %" PRIu64, record,
                 (uint64_t)json_integer_value(json_object_get(entry, "epoch")));
    } else {
        snprintf(text, sizeof(text), "%.600s", member(entry, "object"));
    }
    add(table, text, 90);
}

static void add_change(once__cli_table_t *table, const json_t *entry)
{
    const char *from = member(entry, "from"), *to = member(entry, "to");
    const char *result = member(entry, "result");
    char text[256];

    if (strcmp(member(entry, "step"), "intent") == 0) {
        snprintf(text, sizeof(text), "%s", from[0] != '\0' ? from : "-");
    } else {
        snprintf(text, sizeof(text), "%.60s%s%.60s%s%.60s", from,
                 from[0] != '\0' && to[0] != '\0' ? " -> " : "", to,
                 result[0] != '\0' && (from[0] != '\0' || to[0] != '\0') ? ", " : "", result);
    }
    add(table, text, 60);
}

static void add_row(listing_t *listing, const once_audit_entry_t *entry, const json_t *words)
{
    once__cli_table_t *table = &listing->table;
    char step[48];
    json_int_t of = json_integer_value(json_object_get(words, "of"));

    once__cli_table_add(table, "%" PRIu64, entry->number);
    add(table, member(words, "time"), 24);
    add(table, member(words, "by"), 40);
    add(table, member(words, "act"), 32);
    if (of > 0) {
        snprintf(step, sizeof(step), "result of %" JSON_INTEGER_FORMAT, of);
    }
    add(table, of > 0 ? step : member(words, "step"), 32);
    add_object(table, words);
    add_change(table, words);
    add(table, member(words, "note"), 200);
}

static int print_entry(const once_audit_entry_t *entry, json_t *words)
{
    char hash[HASH_TEXT];
    once__cli_json_t json;

    once__hex(hash, entry->hash, ONCE_AUDIT_HASH_SIZE);
    once__cli_json_start(&json);
    once__cli_json_number(&json, "number", entry->number);
    if (words != NULL) {
        json.broken |= json_object_update(json.object, words) != 0;
    } else {
        once__cli_json_bytes(&json, "line", entry->json);
    }
    once__cli_json_text(&json, "hash", hash);
    once__cli_json_text(&json, "check", once_audit_fault_name(entry->fault));
    return once__cli_json_print(&json);
}

static int list_entry(once_t *once, const once_audit_entry_t *entry, void *data)
{
    listing_t *listing = data;
    json_t *words = json_loadb(entry->json.data, entry->json.len, 0, NULL);

    listing->faults += entry->fault != ONCE_AUDIT_FINE;
    if (words == NULL || strcmp(member(words, "time"), listing->since) >= 0) {
        listing->shown++;
        if (listing->set->json) {
            listing->code = print_entry(entry, words);
        } else if (words != NULL) {
            add_row(listing, entry, words);
        } else {
            once__cli_say("an entry cannot be read: run \"once audit verify\"");
        }
    }
    json_decref(words);
    return listing->code != ONCE__CLI_OK;
}

static int run_list(const once__cli_call_t *call)
{
    static const char *const heads[] = {">NUMBER", "TIME", "BY",    "ACT",
                                        "STEP",    "ON",   "STATE", "NOTE"};
    listing_t listing = {.set = call->settings};
    uint64_t now = (uint64_t)time(NULL) * 1000;
    once_t *once = NULL;
    int code = once__cli_open(call, &once), error;

    if (code != ONCE__CLI_OK) {
        return code;
    }
    if (listing.set->since.given) {
        once__time_format(listing.since,
                          listing.set->since.value < now ? now - listing.set->since.value : 0);
    }
    once__cli_table_start(&listing.table, heads, sizeof(heads) / sizeof(heads[0]));
    error = once_audit_scan_sync(once, list_entry, &listing, NULL);
    if (error != ONCE_OK) {
        listing.code = once__cli_store_failed("read the audit trail", error);
    }
    if (!listing.set->json && listing.shown == 0 && listing.code == ONCE__CLI_OK) {
        puts("no decisions");
    } else if (!listing.set->json && once__cli_table_print(&listing.table) != 0) {
        once__cli_say("out of memory");
        listing.code = ONCE__CLI_STORE;
    }
    if (listing.code == ONCE__CLI_OK && listing.faults > 0) {
        once__cli_say("the trail is not whole: run \"once audit verify\"");
        listing.code = ONCE__CLI_NO;
    }
    once__cli_close(once);
    return listing.code;
}

/* ----------------------------------------------------------------------------------------------------------- verify */

typedef struct check {
    const settings_t *set;
    uint64_t entries, faults;
    uint64_t *open; /* intents without a result so far */
    size_t open_count, open_room;
    int is_head_found;
    char head[HASH_TEXT]; /* of the last entry */
    int code;
} check_t;

static void remember(check_t *check, uint64_t number)
{
    uint64_t *open = once__grow(check->open, &check->open_room, check->open_count + 1,
                                sizeof(open[0]), SIZE_MAX / sizeof(open[0]));

    if (open == NULL) {
        once__cli_say("out of memory");
        check->code = ONCE__CLI_STORE;
        return;
    }
    check->open = open;
    check->open[check->open_count++] = number;
}

static void forget(check_t *check, uint64_t number)
{
    for (size_t i = check->open_count; i > 0; i--) { /* a result comes soon after its intent */
        if (check->open[i - 1] == number) {
            memmove(&check->open[i - 1], &check->open[i],
                    (check->open_count - i) * sizeof(check->open[0]));
            check->open_count--;
            return;
        }
    }
}

static void tell_fault(const check_t *check, const once_audit_entry_t *entry)
{
    static const char *const meanings[] = {
        [ONCE_AUDIT_UNREADABLE] = "is not an entry",
        [ONCE_AUDIT_CHANGED] = "was changed: its hash is not that of its content",
        [ONCE_AUDIT_MISSING] = "does not follow the one before it: entries are missing",
        [ONCE_AUDIT_REPLACED] = "was written after another entry than the one before it",
    };

    if (!check->set->json) {
        printf("entry %" PRIu64 " %s\n", entry->number != 0 ? entry->number : check->entries,
               meanings[entry->fault]);
    }
}

static int check_entry(once_t *once, const once_audit_entry_t *entry, void *data)
{
    check_t *check = data;
    json_t *words = json_loadb(entry->json.data, entry->json.len, 0, NULL);
    json_int_t of = json_integer_value(json_object_get(words, "of"));

    check->entries++;
    if (entry->fault != ONCE_AUDIT_FINE) {
        check->faults++;
        tell_fault(check, entry);
    }
    if (strcmp(member(words, "step"), "intent") == 0) {
        remember(check, entry->number);
    } else if (of > 0) {
        forget(check, (uint64_t)of);
    }
    json_decref(words);
    once__hex(check->head, entry->hash, ONCE_AUDIT_HASH_SIZE);
    check->is_head_found |= check->set->head != NULL && strcmp(check->head, check->set->head) == 0;
    return check->code != ONCE__CLI_OK;
}

static void print_check(const check_t *check)
{
    int lost_head = check->set->head != NULL && !check->is_head_found;

    for (size_t i = 0; i < check->open_count; i++) {
        printf("entry %" PRIu64 " is an intent without a result: the program ended before it could "
               "add one, or is at work. Look at the record\n",
               check->open[i]);
    }
    if (lost_head) {
        puts("no entry has the hash of --head: the end of the trail is missing, or it was "
             "rewritten");
    }
    printf("%" PRIu64 " entr%s, %s\n", check->entries, check->entries == 1 ? "y" : "ies",
           check->faults > 0 || lost_head ? "not whole" : "whole");
    if (check->entries > 0) {
        printf("head %s\n", check->head);
    }
}

static int print_check_json(const check_t *check)
{
    once__cli_json_t json;
    json_t *open = json_array();

    for (size_t i = 0; i < check->open_count; i++) {
        json_array_append_new(open, json_integer((json_int_t)check->open[i]));
    }
    once__cli_json_start(&json);
    once__cli_json_number(&json, "entries", check->entries);
    once__cli_json_number(&json, "faults", check->faults);
    once__cli_json_put(&json, "open", open);
    once__cli_json_text(&json, "head", check->head);
    if (check->set->head != NULL) {
        once__cli_json_bool(&json, "head_found", check->is_head_found);
    }
    return once__cli_json_print(&json);
}

static int run_verify(const once__cli_call_t *call)
{
    check_t check = {.set = call->settings};
    uint8_t hash[ONCE_AUDIT_HASH_SIZE];
    once_t *once = NULL;
    int code, error;

    if (check.set->head != NULL &&
        (once__unhex(hash, sizeof(hash), check.set->head, strlen(check.set->head)) != 0)) {
        return once__cli_usage(call->command, "--head needs the 64 hex digits of an earlier head");
    }
    code = once__cli_open(call, &once);
    if (code != ONCE__CLI_OK) {
        return code;
    }
    error = once_audit_scan_sync(once, check_entry, &check, NULL);
    if (error != ONCE_OK) {
        check.code = once__cli_store_failed("read the audit trail", error);
    }
    if (check.code == ONCE__CLI_OK && check.set->json) {
        check.code = print_check_json(&check);
    } else if (check.code == ONCE__CLI_OK) {
        print_check(&check);
    }
    if (check.code == ONCE__CLI_OK &&
        (check.faults > 0 || (check.set->head != NULL && !check.is_head_found))) {
        check.code = ONCE__CLI_NO;
    }
    free(check.open);
    once__cli_close(once);
    return check.code;
}

/* clang-format off */
static const once__cli_option_t list_options[] = {
    {"since", 0, ONCE__CLI_DURATION, "AGE", "only entries that are not older", offsetof(settings_t, since)},
    {"json", 0, ONCE__CLI_FLAG, NULL, "JSON lines, one object per entry", offsetof(settings_t, json)},
    {0},
};

static const once__cli_option_t verify_options[] = {
    {"head", 0, ONCE__CLI_TEXT, "HASH", "the head of an earlier run, which must still be there", offsetof(settings_t, head)},
    {"json", 0, ONCE__CLI_FLAG, NULL, "one JSON object", offsetof(settings_t, json)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_audit_list = {
    .name = "audit list",
    .operands = "[URL]",
    .summary = "list what people have decided: settle, release, purge, erase, retry, drop, replay",
    .details = "Every decision has an intent, added before it took effect, and a result.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .options = list_options,
    .settings_size = sizeof(settings_t),
    .run = run_list,
};

const once__cli_command_t once__cli_audit_verify = {
    .name = "audit verify",
    .operands = "[URL]",
    .summary = "check that no entry of the audit trail was changed or removed",
    .details =
        "Each entry carries the hash of the one before it. What is missing at the end does not\n"
        "show, and a user that may write to the store can rewrite the whole trail: keep the head\n"
        "that is printed elsewhere, and compare it the next time with --head.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .options = verify_options,
    .settings_size = sizeof(settings_t),
    .run = run_verify,
};
