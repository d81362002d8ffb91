/*
 * once dlq list: the dead letters of a topic or queue.
 */
#include <inttypes.h>
#include <stdio.h>

#include "broker/browse.h"
#include "broker/dead_letter.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/letters.h"
#include "cli/table.h"
#include "cli/text.h"
#include "cli/options.h"

#define LIMIT     1000 /* where nothing else is asked for */
#define CELL_SIZE 61

typedef struct settings {
    once__cli_number_t limit;
    int all, json;
} settings_t;

static const char *const columns[] = {
    ONCE__BROKER_DEAD_LETTER_TIME,   ONCE__BROKER_DEAD_LETTER_ID,
    ONCE__BROKER_DEAD_LETTER_REASON, ONCE__BROKER_DEAD_LETTER_STATUS,
    ONCE__BROKER_DEAD_LETTER_TRIES,  ONCE__BROKER_DEAD_LETTER_SOURCE,
    ONCE__BROKER_DEAD_LETTER_DETAIL};
static const char *const heads[] = {"TIME", "ID", "REASON", "STATUS", ">TRIES", "SOURCE", "WHY"};
#define COLUMNS (sizeof(columns) / sizeof(columns[0]))

typedef struct listing {
    const settings_t *set;
    uint64_t limit, seen;
    once__cli_table_t table;
    int code;
} listing_t;

static void add_row(listing_t *listing, const once__broker_browsed_t *message)
{
    char cell[CELL_SIZE];

    for (size_t i = 0; i < COLUMNS; i++) {
        once_slice_t value = once__broker_browsed_header(message, columns[i]);
        once__cli_escape(cell, sizeof(cell), value);
        once__cli_table_add(&listing->table, "%s", value.data != NULL ? cell : "-");
    }
}

static int print_json(const once__broker_browsed_t *message)
{
    once__cli_json_t json;

    once__cli_letter_json(message, &json);
    return once__cli_json_print(&json);
}

static once__broker_choice_t show(void *data, const once__broker_browsed_t *message)
{
    listing_t *listing = data;

    if (listing->limit != 0 && listing->seen == listing->limit) {
        once__cli_note("there are more than these %" PRIu64 ": --limit 0 lists all",
                       listing->limit);
        return ONCE__BROKER_ENOUGH;
    }
    listing->seen++;
    if (listing->set->json) {
        listing->code = print_json(message);
    } else {
        add_row(listing, message);
    }
    return listing->code == ONCE__CLI_OK ? ONCE__BROKER_LEAVE : ONCE__BROKER_ENOUGH;
}

static int run_list(const once__cli_call_t *call)
{
    const settings_t *set = call->settings;
    listing_t listing = {.set = set, .limit = set->limit.given ? set->limit.value : LIMIT};
    char error[400];
    int code = once__cli_check_values(call);

    if (code != ONCE__CLI_OK) {
        return code;
    }
    once__cli_table_start(&listing.table, heads, COLUMNS);
    if (once__broker_browse(call->operands[0], set->all, show, &listing, error, sizeof(error)) !=
        0) {
        once__cli_say("dlq list: %s", error);
        listing.code = ONCE__CLI_STORE;
    }
    if (listing.code != ONCE__CLI_OK && listing.seen == 0) {
        return listing.code; /* no head of a table above nothing */
    }
    if (!set->json && once__cli_table_print(&listing.table) != 0) {
        once__cli_say("out of memory");
        listing.code = ONCE__CLI_STORE;
    }
    return listing.code;
}

/* clang-format off */
static const once__cli_option_t options[] = {
    {"limit", 0, ONCE__CLI_NUMBER, "N", "at most N messages (default 1000; 0: no limit)", offsetof(settings_t, limit)},
    {"all", 0, ONCE__CLI_FLAG, NULL, "Kafka: also those already replayed", offsetof(settings_t, all)},
    {"json", 0, ONCE__CLI_FLAG, NULL, "JSON lines", offsetof(settings_t, json)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_dlq_list = {
    .name = "dlq list",
    .operands = "FROM",
    .summary = "list the dead letters of a topic or queue, and why they failed",
    .details =
        "FROM is kafka://HOST[:PORT]/TOPIC or amqp[s]://HOST[:PORT]/VHOST/QUEUE, such as\n"
        "kafka://127.0.0.1:9092/orders.dlq. Nothing is changed. With Kafka, letters that were\n"
        "already replayed are left out. With RabbitMQ, other consumers cannot see the messages\n"
        "while they are listed.\n",
    .store = ONCE__CLI_NO_STORE,
    .operands_min = 1,
    .operands_max = 1,
    .options = options,
    .settings_size = sizeof(settings_t),
    .run = run_list,
};
