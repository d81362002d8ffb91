/*
 * once keys list: records as a table or as JSON lines. once keys find: those of one key, in whatever scope.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/select.h"
#include "cli/record.h"
#include "cli/store.h"
#include "cli/table.h"
#include "cli/text.h"

#define LIMIT      1000 /* where nothing else is asked for */
#define KEY_WIDTH  40   /* of the key, in a table that is not wide */
#define TEXT_WIDTH 28   /* likewise of what the record says about itself */
#define ID_DIGITS  (2 * ONCE_ID_SIZE)

typedef struct settings {
    once__cli_filter_t filter;
    int wide;
    int json;
} settings_t;

/* What a table needs of a record: records are gone when the scan's callback returns. */
typedef struct row {
    char id[ID_DIGITS + 1];
    char scope[2 * ONCE_SCOPE_HASH_SIZE + 1];
    once_state_t state;
    once__cli_colour_t colour; /* of the state */
    uint64_t age_ms, idle_ms, bytes;
    once__cli_unit_text_t lease, expires;
    uint32_t epoch;
    once_recover_t recover;
    int status;
    char *what, *cause, *holder, *key; /* escaped; malloc'd */
    once__cli_unit_text_t changed;
} row_t;

typedef struct listing {
    const settings_t *set;
    uint64_t limit; /* 0: none */
    uint64_t seen;
    int more; /* the limit cut it short */
    row_t *rows;
    size_t count, room;
    int code; /* once__cli_exit */
} listing_t;

static row_t *new_row(listing_t *listing)
{
    row_t *rows = once__grow(listing->rows, &listing->room, listing->count + 1, sizeof(rows[0]),
                             SIZE_MAX / sizeof(rows[0]));

    if (rows == NULL) {
        return NULL;
    }
    listing->rows = rows;
    return &rows[listing->count];
}

static char *escaped(once_slice_t bytes, size_t width)
{
    char text[ONCE__CLI_ESCAPED_SIZE(ONCE_DESCRIPTION_MAX)];

    once__cli_escape(text, width != 0 ? width + 1 : sizeof(text), bytes);
    return strdup(bytes.len > 0 ? text : "-");
}

static void free_row(row_t *row)
{
    free(row->what);
    free(row->cause);
    free(row->holder);
    free(row->key);
}

static int collect(listing_t *listing, const once_record_t *record)
{
    row_t *row = new_row(listing);
    int wide = listing->set->wide;

    if (row == NULL) {
        return -1;
    }
    once__hex(row->id, once_record_id(record), ONCE_ID_SIZE);
    once__hex(row->scope, once_record_scope_hash(record), ONCE_SCOPE_HASH_SIZE);
    row->state = once_record_state(record);
    row->colour = once__cli_record_colour(record);
    row->age_ms = once_record_age_ms(record);
    row->idle_ms = once_record_idle_ms(record);
    row->bytes = once_record_bytes(record);
    row->lease = once__cli_record_lease(record);
    row->expires = once__cli_record_expires(record);
    row->epoch = once_record_epoch(record);
    row->recover = once_record_recover(record);
    row->status = once_record_status(record);
    row->changed = once__cli_record_time(record, ONCE_TIME_CHANGED);
    row->what = escaped(once_record_description(record), wide ? 0 : TEXT_WIDTH);
    row->cause = escaped(once_record_cause(record), wide ? 0 : TEXT_WIDTH);
    row->holder = escaped(once_record_holder(record), 0);
    row->key = escaped(once_record_is_erased(record) ? (once_slice_t){"(erased)", 8}
                                                     : once_record_key(record),
                       wide ? 0 : KEY_WIDTH);
    if (row->what == NULL || row->cause == NULL || row->holder == NULL || row->key == NULL) {
        free_row(row);
        return -1;
    }
    listing->count++;
    return 0;
}

static int each(once_t *once, const once_record_t *record, void *data)
{
    listing_t *listing = data;
    once__cli_json_t json;

    if (listing->limit != 0 && listing->seen == listing->limit) {
        listing->more = 1;
        return 1;
    }
    listing->seen++;
    if (listing->set->json) {
        (void)once__cli_record_json(record, 0, &json);
        listing->code = once__cli_json_print(&json);
    } else if (collect(listing, record) != 0) {
        listing->code = once__cli_store_failed("list the records", ONCE_E_NOMEM);
    }
    return listing->code != ONCE__CLI_OK;
}

static int by_id(const void *a, const void *b)
{
    return strcmp(((const row_t *)a)->id, ((const row_t *)b)->id);
}

static int by_age(const void *a, const void *b)
{
    const row_t *left = a;
    const row_t *right = b;

    if (left->age_ms != right->age_ms) {
        return left->age_ms > right->age_ms ? -1 : 1;
    }
    return by_id(a, b);
}

/* The number of digits that keeps all ids of the listing distinct. */
static int id_digits(const listing_t *listing)
{
    size_t digits = 8;

    if (listing->set->wide) {
        return ID_DIGITS;
    }
    if (listing->count > 0) {
        qsort(listing->rows, listing->count, sizeof(row_t), by_id);
    }
    for (size_t i = 1; i < listing->count; i++) {
        const row_t *row = &listing->rows[i];
        while (digits < ID_DIGITS && strncmp(row[-1].id, row->id, digits) == 0) {
            digits++;
        }
    }
    return (int)digits;
}

static void add_row(once__cli_table_t *table, const row_t *row, int wide, int digits)
{
    once__cli_table_add(table, "%.*s", digits, row->id);
    once__cli_table_add(table, "%s", once_state_name(row->state));
    once__cli_table_colour(table, row->colour);
    once__cli_table_add(table, "%s", once__cli_duration(row->age_ms).text);
    once__cli_table_add(table, "%s", row->lease.text);
    once__cli_table_add(table, "%s", row->expires.text);
    once__cli_table_add(table, "%" PRIu32, row->epoch);
    once__cli_table_add(table, "%s", once_recover_name(row->recover));
    once__cli_table_add(table, row->status != 0 ? "%d" : "-", row->status);
    once__cli_table_add(table, "%s", once__cli_size(row->bytes).text);
    if (wide) {
        once__cli_table_add(table, "%s", once__cli_duration(row->idle_ms).text);
        once__cli_table_add(table, "%s", row->changed.text);
        once__cli_table_add(table, "%s", row->scope);
        once__cli_table_add(table, "%s", row->holder);
    }
    once__cli_table_add(table, "%s", row->cause);
    once__cli_table_add(table, "%s", row->what);
    once__cli_table_add(table, "%s", row->key);
}

static int print_table(const listing_t *listing)
{
    static const char *const narrow[] = {"ID",       "STATE",  ">AGE",   ">LEASE",
                                         ">EXPIRES", ">EPOCH", "POLICY", ">STATUS",
                                         ">SIZE",    "CAUSE",  "WHAT",   "KEY"};
    static const char *const wide[] = {"ID",     "STATE",   ">AGE",  ">LEASE", ">EXPIRES", ">EPOCH",
                                       "POLICY", ">STATUS", ">SIZE", ">IDLE",  "CHANGED",  "SCOPE",
                                       "HOLDER", "CAUSE",   "WHAT",  "KEY"};
    once__cli_table_t table;
    int digits = id_digits(listing);

    if (listing->set->wide) {
        once__cli_table_start(&table, wide, sizeof(wide) / sizeof(wide[0]));
    } else {
        once__cli_table_start(&table, narrow, sizeof(narrow) / sizeof(narrow[0]));
    }
    if (listing->count > 0) {
        qsort(listing->rows, listing->count, sizeof(row_t), by_age);
    }
    for (size_t i = 0; i < listing->count; i++) {
        add_row(&table, &listing->rows[i], listing->set->wide, digits);
    }
    if (once__cli_table_print(&table) != 0) {
        return once__cli_store_failed("list the records", ONCE_E_NOMEM);
    }
    return ONCE__CLI_OK;
}

static int print_result(const listing_t *listing)
{
    if (listing->code != ONCE__CLI_OK) {
        return listing->code;
    }
    if (listing->more) {
        once__cli_note("there are more than these %" PRIu64
                       ": --limit 0 lists all; use \"once keys "
                       "export\" for many",
                       listing->limit);
    }
    if (listing->set->json) {
        return ONCE__CLI_OK;
    }
    if (listing->count == 0) {
        puts("no records");
        return ONCE__CLI_OK;
    }
    return print_table(listing);
}

static void free_rows(listing_t *listing)
{
    for (size_t i = 0; i < listing->count; i++) {
        free_row(&listing->rows[i]);
    }
    free(listing->rows);
}

static int run_list(const once__cli_call_t *call)
{
    const settings_t *set = call->settings;
    listing_t listing = {.set = set,
                         .limit = set->filter.limit.given ? set->filter.limit.value : LIMIT};
    once__cli_chosen_t chosen;
    once_answer_t *answer = NULL;
    once_t *once;
    int code = once__cli_open(call, &once);

    if (code == ONCE__CLI_OK) {
        code = once__cli_filter(call->command, &set->filter, once, &chosen);
    }
    if (code == ONCE__CLI_OK) {
        int error;
        /* One more than is shown, to know whether there are more. */
        chosen.filter.limit =
            listing.limit != 0 && listing.limit < UINT64_MAX ? listing.limit + 1 : 0;
        error = once_record_scan_sync(once, &chosen.filter, each, &listing, &answer);
        code = error == ONCE_OK ? once__cli_tell_damaged(answer, print_result(&listing))
                                : once__cli_store_failed("list the records", error);
    }
    once_answer_free(answer);
    free_rows(&listing);
    once__cli_close(once);
    return code;
}

static const once__cli_option_t options[] = {
    ONCE__CLI_FILTER_OPTIONS(offsetof(settings_t, filter)),
    {"wide", 0, ONCE__CLI_FLAG, NULL, "show whole ids and keys, and more columns",
     offsetof(settings_t, wide)},
    {"json", 0, ONCE__CLI_FLAG, NULL, "JSON lines, one object per record",
     offsetof(settings_t, json)},
    {0},
};

const once__cli_command_t once__cli_keys_list = {
    .name = "keys list",
    .operands = "[URL]",
    .summary = "list records, oldest first",
    .details =
        "Without --limit at most 1000 are listed, with a note if there are more; the store "
        "chooses\n"
        "which ones a limit leaves out. Ids are shortened as far as they stay distinct. Every\n"
        "command accepts them like that, but finds a whole one faster.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .options = options,
    .settings_size = sizeof(settings_t),
    .run = run_list,
};

/* ------------------------------------------------------------------------------------------------------------- finding */

/* A key without its scope has no id to look it up by: all records are looked at. */
typedef struct finding {
    listing_t listing;
    once_slice_t key;
    uint64_t looked, total;
    once__cli_progress_t progress;
} finding_t;

static int each_found(once_t *once, const once_record_t *record, void *data)
{
    finding_t *finding = data;
    once_slice_t key = once_record_key(record);

    finding->looked++;
    once__cli_progress_show(&finding->progress, finding->looked, finding->total);
    if (key.len != finding->key.len || memcmp(key.data, finding->key.data, key.len) != 0) {
        return 0;
    }
    once__cli_progress_clear(&finding->progress);
    return each(once, record, &finding->listing);
}

/* Roughly: records come and go. */
static int count_records(once_t *once, uint64_t *count)
{
    once_usage_t usage = ONCE_USAGE_INIT;
    once_answer_t *answer = NULL;
    const once_stats_t *stats;
    int error = once_store_usage(once, &usage);

    *count = usage.records;
    if (error == ONCE_OK && usage.records == 0) {
        error = once_store_stats_sync(once, &answer);
        if (error == ONCE_OK) {
            stats = once_answer_stats(answer);
            *count = stats->pending + stats->completed + stats->failed + stats->unknown;
        }
        once_answer_free(answer);
    }
    return error;
}

static double seconds_since(const struct timespec *begun)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - begun->tv_sec) + (double)(now.tv_nsec - begun->tv_nsec) / 1e9;
}

static int search(finding_t *finding, once_t *once, const once_filter_t *filter)
{
    once_answer_t *answer = NULL;
    struct timespec begun;
    int error = count_records(once, &finding->total), code;

    if (error != ONCE_OK) {
        return once__cli_store_failed("count the records", error);
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &begun);
    once__cli_note("looking at about %" PRIu64 " records", finding->total);
    once__cli_progress_start(&finding->progress);
    error = once_record_scan_sync(once, filter, each_found, finding, &answer);
    once__cli_progress_clear(&finding->progress);
    if (error != ONCE_OK) {
        return once__cli_store_failed("look at all records", error);
    }
    code = print_result(&finding->listing);
    once__cli_note("%" PRIu64 " found among %" PRIu64 " in %.1f s", finding->listing.seen,
                   finding->looked, seconds_since(&begun));
    if (code == ONCE__CLI_OK && finding->listing.seen == 0) {
        code = ONCE__CLI_NOT_FOUND;
    }
    code = once__cli_tell_damaged(answer, code);
    once_answer_free(answer);
    return code;
}

static int run_find(const once__cli_call_t *call)
{
    settings_t set = *(const settings_t *)call->settings;
    finding_t finding = {.listing = {.set = &set}};
    once__cli_chosen_t chosen;
    once_t *once;
    int code;

    if (call->operand_count == 0) {
        return once__cli_usage(call->command, "missing key");
    }
    set.wide = 1;
    finding.key = once__slice_of(call->operands[0]);
    code = once__cli_open(call, &once);
    if (code == ONCE__CLI_OK) {
        code = once__cli_filter(call->command, &set.filter, once, &chosen);
    }
    if (code == ONCE__CLI_OK) {
        code = search(&finding, once, &chosen.filter);
    }
    free_rows(&finding.listing);
    once__cli_close(once);
    return code;
}

static const once__cli_option_t find_options[] = {
    ONCE__CLI_FILTER_OPTIONS(offsetof(settings_t, filter)),
    {"json", 0, ONCE__CLI_FLAG, NULL, "JSON lines, one object per record",
     offsetof(settings_t, json)},
    {0},
};

const once__cli_command_t once__cli_keys_find = {
    .name = "keys find",
    .operands = "[URL] KEY",
    .summary = "find the records of a client's key in every scope",
    .details = "Looks at every record, and says how many there are before, and how long it took. "
               "If you\n"
               "have the scope, \"once keys show --scope SCOPE --key KEY\" finds it at once.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .operands_max = 1,
    .options = find_options,
    .settings_size = sizeof(settings_t),
    .run = run_find,
};
