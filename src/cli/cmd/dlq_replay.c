/*
 * once dlq replay: publishes dead letters again, to be handled again.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "broker/dead_letter.h"
#include "cli/commands.h"
#include "cli/letters.h"
#include "cli/operator.h"
#include "cli/options.h"
#include "cli/store.h"
#include "cli/text.h"

typedef struct settings {
    const char *to;
    once__cli_list_t ids;
    int all, any;
    const char *store;
    once__cli_operator_t operator;
} settings_t;

static int is_chosen(void *data, const once__broker_browsed_t *letter)
{
    const settings_t *set = data;
    once_slice_t id = once__broker_browsed_header(letter, ONCE__BROKER_DEAD_LETTER_ID);

    for (size_t i = 0; i < set->ids.count; i++) {
        if (id.data != NULL && strlen(set->ids.items[i]) == id.len &&
            memcmp(set->ids.items[i], id.data, id.len) == 0) {
            return 1;
        }
    }
    return set->ids.count == 0;
}

/* The store of the consumer, which has its audit trail. */
static int open_store(const once__cli_call_t *call, const settings_t *set, once_t **once)
{
    once__cli_call_t there = *call;
    int code;

    there.url = once__cli_store_option(set->store);
    code = once__cli_open(&there, once);
    if (code != ONCE__CLI_OK) {
        once__cli_note("the replay is recorded in the audit trail of the consumer's store: name it "
                       "with --store");
    }
    return code == ONCE__CLI_OK ? once__cli_operator_act(*once, &set->operator) : code;
}

static int run_replay(const once__cli_call_t *call)
{
    settings_t set = *(const settings_t *)call->settings;
    once__cli_replay_t replay = {.from = call->operands[0],
                                 .to = set.to,
                                 .any = set.any,
                                 .all = set.all,
                                 .is_chosen = is_chosen,
                                 .data = &set};
    uint64_t count = 0;
    char error[400];
    int code = once__cli_check_values(call);

    if (code == ONCE__CLI_OK && set.to != NULL &&
        strlen(set.to) >= ONCE__BROKER_DEAD_LETTER_TOPIC_SIZE) {
        code = once__cli_usage(call->command, "--to is too long");
    }
    if (code == ONCE__CLI_OK && once__cli_replay_check(&replay, error, sizeof(error)) != 0) {
        code = once__cli_usage(call->command, "%s", error);
    }
    if (code == ONCE__CLI_OK) {
        code = once__cli_operator_check(call->command, &set.operator);
    }
    if (code == ONCE__CLI_OK) {
        code = open_store(call, &set, &replay.once);
    }
    if (code == ONCE__CLI_OK) {
        code = once__cli_replay(&replay, &count);
        printf("replayed %" PRIu64 "\n", count);
    }
    once__cli_close(replay.once);
    return code;
}

/* clang-format off */
static const once__cli_option_t options[] = {
    {"to", 0, ONCE__CLI_TEXT, "NAME", "topic or queue to publish to (default: NAME for letters in NAME.dlq)",
     offsetof(settings_t, to)},
    {"any", 0, ONCE__CLI_FLAG, NULL, "publish each to wherever it says it came from", offsetof(settings_t, any)},
    {"id", 0, ONCE__CLI_LIST, "ID", "replay only this event; may be repeated", offsetof(settings_t, ids)},
    {"all", 0, ONCE__CLI_FLAG, NULL, "Kafka: also those already replayed", offsetof(settings_t, all)},
    ONCE__CLI_OPERATOR_OPTIONS(offsetof(settings_t, operator)),
    {"store", 0, ONCE__CLI_TEXT, "URL", "the consumer's store (default ONCE_STORE, or local:./once-data)", offsetof(settings_t, store)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_dlq_replay = {
    .name = "dlq replay",
    .operands = "FROM",
    .summary = "publish dead letters again, to be handled again",
    .details =
        "FROM is kafka://HOST[:PORT]/TOPIC or amqp[s]://HOST[:PORT]/VHOST/QUEUE, such as\n"
        "amqp://127.0.0.1/%2F/orders.dlq. Each is published without the headers that\n"
        "once consume added, and removed when the broker has confirmed it; with Kafka the offset\n"
        "of the group once-dlq advances instead. A record that was released is claimed again; an\n"
        "id reused with another payload stays a mismatch. If a letter has no payload, its message\n"
        "is fetched from where it came from. A letter that says it came from a topic other than\n"
        "the one these letters belong to (orders for orders.dlq) is kept, unless --any. Each is\n"
        "added to the audit trail of the consumer's store, before it is published and after.\n",
    .store = ONCE__CLI_NO_STORE,
    .operands_min = 1,
    .operands_max = 1,
    .options = options,
    .settings_size = sizeof(settings_t),
    .run = run_replay,
};
