/*
 * once convert: a local store of an earlier version becomes one of this version.
 */
#include <inttypes.h>
#include <stdio.h>

#include <once/local.h>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/text.h"

typedef struct settings {
    int accept_loss;
} settings_t;

static void progress(uint64_t done, uint64_t total, void *data)
{
    once__cli_progress_show(data, done, total);
}

static int run_convert(const once__cli_call_t *call)
{
    const settings_t *set = call->settings;
    once_local_convert_options_t options = ONCE_LOCAL_CONVERT_OPTIONS_INIT;
    once_local_convert_report_t report = ONCE_LOCAL_CONVERT_REPORT_INIT;
    once__cli_progress_t shown;
    once_error_t err = {0};
    int code;

    once__cli_progress_start(&shown);
    options.accept_loss = set->accept_loss;
    options.progress = progress;
    options.data = &shown;
    code = once_local_convert(call->url, &options, &report, &err);
    once__cli_progress_clear(&shown);
    if (code != ONCE_OK) {
        once__cli_say("cannot convert the store: %s", err.text);
        return code == ONCE_E_CONFLICT                               ? ONCE__CLI_REFUSED
               : code == ONCE_E_CONFIG || code == ONCE_E_UNSUPPORTED ? ONCE__CLI_USAGE
                                                                     : ONCE__CLI_STORE;
    }
    if (report.converted) {
        printf("converted %" PRIu64 " records\n", report.records);
    } else {
        puts("nothing to convert: the store has the format of this version");
    }
    if (report.left_out > 0) {
        once__cli_say("left out %" PRIu64 " damaged or missing parts: their keys count as never "
                      "used, or are as they were before",
                      report.left_out);
    }
    return ONCE__CLI_OK;
}

/* clang-format off */
static const once__cli_option_t options[] = {
    {"accept-loss", 0, ONCE__CLI_FLAG, NULL, "leave out what is damaged or missing",
     offsetof(settings_t, accept_loss)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_convert = {
    .name = "convert",
    .operands = "[URL]",
    .summary = "give a local store of an earlier version the format of this one",
    .details =
        "Stop every program that uses the store, and copy the directory first: there is no way\n"
        "back to the earlier version. Needs as much room as the store has now. If it is\n"
        "interrupted, run it again.\n"
        "\n"
        "A damaged log is refused: repair it with \"once fsck --repair\" of the earlier version, "
        "or\n"
        "leave out what is damaged with --accept-loss. Those keys count as never used.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .options = options,
    .settings_size = sizeof(settings_t),
    .run = run_convert,
};
