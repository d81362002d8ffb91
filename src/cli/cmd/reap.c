/*
 * once reap: removes what has expired, now.
 */
#include <inttypes.h>
#include <stdio.h>

#include "cli/commands.h"
#include "cli/config.h"
#include "cli/store.h"

typedef struct settings {
    const char *config;
    once__cli_number_t limit;
} settings_t;

static int run_reap(const once__cli_call_t *call)
{
    const settings_t *set = call->settings;
    once_answer_t *answer = NULL;
    once_t *once;
    int code = once__cli_open(call, &once);

    if (code == ONCE__CLI_OK) {
        int error = once_store_reap_sync(once, set->limit.value, &answer);
        if (error == ONCE_OK) {
            printf("removed %" PRIu64 "\n", once_answer_count(answer));
        } else {
            code = once__cli_store_failed("remove expired records", error);
        }
    }
    once_answer_free(answer);
    once__cli_close(once);
    return code;
}

/* clang-format off */
static const once__cli_option_t options[] = {
    ONCE__CLI_CONFIG_OPTION(offsetof(settings_t, config)),
    {"limit", 0, ONCE__CLI_NUMBER, "N", "at most N of them (0: no limit)", offsetof(settings_t, limit)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_reap = {
    .name = "reap",
    .operands = "[URL]",
    .summary = "remove expired records now",
    .details =
        "Programs that use a store do this themselves; this command is for stores that no program\n"
        "is using, and for making room immediately. It removes what has expired and, under the\n"
        "policy retry, what was not touched for a whole retention after its lease. Unknown "
        "records\n"
        "under hold stay until they are settled. In PostgreSQL it also removes messages that the\n"
        "inbox need not remember any more.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .options = options,
    .settings_size = sizeof(settings_t),
    .run = run_reap,
};
