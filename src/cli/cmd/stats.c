/*
 * once stats: how many records there are, and whether any need attention.
 */
#include <inttypes.h>
#include <stdio.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/stats.h"
#include "cli/store.h"
#include "cli/console.h"
#include "cli/text.h"
#include "cli/units.h"

typedef struct settings {
    once__cli_number_t max_stuck;
    int json;
} settings_t;

static uint64_t live(const once_stats_t *stats)
{
    return stats->pending + stats->completed + stats->failed + stats->unknown;
}

/* Numbers that ask for attention are red unless they are 0. */
static void count(const char *name, uint64_t number, once__cli_colour_t colour, const char *meaning)
{
    int coloured = colour != ONCE__CLI_PLAIN && number > 0;

    fputs(coloured ? once__cli_colour(stdout, colour) : "", stdout);
    printf("%-10s %10" PRIu64, name, number);
    fputs(coloured ? once__cli_colour(stdout, ONCE__CLI_PLAIN) : "", stdout);
    printf("%s%s\n", meaning[0] != '\0' ? "  " : "", meaning);
}

/* How full it is, behind the bound. */
static void print_part(uint64_t is, uint64_t max)
{
    printf(" (%.*f %%)", is < max / 10 ? 1 : 0, 100.0 * (double)is / (double)max);
}

static void print_expired(const once_stats_t *stats)
{
    char meaning[80] = "not yet removed";

    if (stats->expired > 0) {
        snprintf(meaning, sizeof(meaning), "not yet removed, for up to %s",
                 once__cli_duration(stats->behind_ms).text);
    }
    count("expired", stats->expired, ONCE__CLI_PLAIN, meaning);
}

static void print_messages(const once_stats_t *stats)
{
    char meaning[80];

    snprintf(meaning, sizeof(meaning), "about, in the inbox; removed up to %s late",
             once__cli_duration(stats->messages_behind_ms).text);
    count("messages", stats->messages, ONCE__CLI_PLAIN, meaning);
}

static void print_text(const once_stats_t *stats)
{
    count("pending", stats->pending, ONCE__CLI_PLAIN, "");
    count("completed", stats->completed, ONCE__CLI_PLAIN, "");
    count("failed", stats->failed, ONCE__CLI_PLAIN, "");
    count("unknown", stats->unknown, ONCE__CLI_RED, "");
    count("stuck", stats->stuck, ONCE__CLI_RED, "pending with the lease over, or unknown");
    print_expired(stats);
    printf("%-10s %10s\n", "oldest",
           live(stats) > 0 ? once__cli_duration(stats->oldest_ms).text : "-");
    printf("%-10s %10" PRIu64, "records", live(stats));
    if (stats->max_records != 0) {
        printf("  of %" PRIu64 " at most", stats->max_records);
        print_part(live(stats) + stats->expired, stats->max_records);
    }
    printf("\n%-10s %10s", "size", once__cli_size(stats->bytes).text);
    if (stats->max_bytes != 0) {
        printf("  of %s at most", once__cli_size(stats->max_bytes).text);
        print_part(stats->bytes, stats->max_bytes);
    }
    puts("");
    if (stats->messages > 0) {
        print_messages(stats);
    }
    if (stats->segments + stats->index_bytes > 0) {
        printf("%-10s %10" PRIu64 "\n", "segments", stats->segments);
        printf("%-10s %10s\n", "index", once__cli_size(stats->index_bytes).text);
    }
    if (stats->damaged > 0) {
        count("damaged", stats->damaged, ONCE__CLI_RED,
              "records that cannot be read: run \"once fsck\"");
    }
    if (stats->quarantined > 0) {
        count("quarantine", stats->quarantined, ONCE__CLI_RED, "damaged ranges: run \"once fsck\"");
    }
}

void once__cli_stats_json(const once_stats_t *stats, once__cli_json_t *json)
{
    once__cli_json_start(json);
    once__cli_json_number(json, "pending", stats->pending);
    once__cli_json_number(json, "completed", stats->completed);
    once__cli_json_number(json, "failed", stats->failed);
    once__cli_json_number(json, "unknown", stats->unknown);
    once__cli_json_number(json, "stuck", stats->stuck);
    once__cli_json_number(json, "expired", stats->expired);
    once__cli_json_number(json, "oldest_ms", stats->oldest_ms);
    once__cli_json_number(json, "records", live(stats));
    once__cli_json_number(json, "max_records", stats->max_records);
    once__cli_json_number(json, "bytes", stats->bytes);
    once__cli_json_number(json, "max_bytes", stats->max_bytes);
    once__cli_json_number(json, "segments", stats->segments);
    once__cli_json_number(json, "index_bytes", stats->index_bytes);
    once__cli_json_number(json, "quarantined", stats->quarantined);
    once__cli_json_number(json, "damaged", stats->damaged);
    once__cli_json_number(json, "behind_ms", stats->behind_ms);
    once__cli_json_number(json, "messages", stats->messages);
    once__cli_json_number(json, "messages_behind_ms", stats->messages_behind_ms);
}

static int tell(const settings_t *set, const once_stats_t *stats)
{
    int code = ONCE__CLI_OK;

    if (set->json) {
        once__cli_json_t json;
        once__cli_stats_json(stats, &json);
        code = once__cli_json_print(&json);
    } else {
        print_text(stats);
    }
    if (code == ONCE__CLI_OK && set->max_stuck.given && stats->stuck > set->max_stuck.value) {
        once__cli_say("stuck records: %" PRIu64 ", more than %" PRIu64
                      ": run \"once keys list --stuck\"",
                      stats->stuck, set->max_stuck.value);
        return ONCE__CLI_NO;
    }
    return code;
}

static int run_stats(const once__cli_call_t *call)
{
    once_answer_t *answer = NULL;
    once_t *once;
    int code = once__cli_open(call, &once);

    if (code == ONCE__CLI_OK) {
        int error = once_store_stats_sync(once, &answer);
        /* The first handle on a new store creates its secrets: wait until that is done. */
        if (error == ONCE_OK) {
            (void)once__cli_wait_for_secrets(once);
        }
        code = error == ONCE_OK ? tell(call->settings, once_answer_stats(answer))
                                : once__cli_store_failed("count the records", error);
    }
    once_answer_free(answer);
    once__cli_close(once);
    return code;
}

/* clang-format off */
static const once__cli_option_t options[] = {
    {"max-stuck", 0, ONCE__CLI_NUMBER, "N", "exit with 1 if more than N records are stuck",
     offsetof(settings_t, max_stuck)},
    {"json", 0, ONCE__CLI_FLAG, NULL, "one JSON object", offsetof(settings_t, json)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_stats = {
    .name = "stats",
    .operands = "[URL]",
    .summary = "count records by state, stuck and expired ones; show age, size and bounds",
    .details = "For monitoring: once stats --max-stuck 0 exits with 1 as soon as a record needs a\n"
               "decision, and with 3 if the store does not answer.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .options = options,
    .settings_size = sizeof(settings_t),
    .run = run_stats,
};
