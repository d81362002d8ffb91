/*
 * once backup: a copy of a local store, while programs use it.
 */
#include <inttypes.h>
#include <stdio.h>

#include <once/local.h>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/text.h"
#include "cli/units.h"

static void progress(uint64_t done, uint64_t total, void *data)
{
    once__cli_progress_show(data, done, total);
}

static int run_backup(const once__cli_call_t *call)
{
    once_local_backup_options_t options = ONCE_LOCAL_BACKUP_OPTIONS_INIT;
    once_local_backup_report_t report = ONCE_LOCAL_BACKUP_REPORT_INIT;
    const char *destination = call->operands[0];
    once__cli_progress_t shown;
    once_error_t err = {0};
    int code;

    once__cli_progress_start(&shown);
    options.progress = progress;
    options.data = &shown;
    code = once_local_backup(call->url, destination, &options, &report, &err);
    once__cli_progress_clear(&shown);
    if (code != ONCE_OK) {
        once__cli_say("cannot copy the store: %s", err.text);
        return code == ONCE_E_CONFIG || code == ONCE_E_UNSUPPORTED ? ONCE__CLI_USAGE
                                                                   : ONCE__CLI_STORE;
    }
    printf("copied %" PRIu64 " segments, %s\n", report.segments, once__cli_size(report.bytes).text);
    if (report.damaged > 0) {
        once__cli_say("damaged ranges in the store, and so in the copy: %" PRIu64
                      "; run \"once fsck\"",
                      report.damaged);
    }
    once__cli_note(
        report.secrets
            ? "the copy holds the secrets and the stored responses: protect it like the store"
            : "the copy holds the stored responses, but not the secrets: copy their file as well");
    return ONCE__CLI_OK;
}

const once__cli_command_t once__cli_backup = {
    .name = "backup",
    .operands = "[URL] DIRECTORY",
    .summary = "copy a local store while programs use it",
    .details =
        "The copy is itself a store, and has everything that was acknowledged before the command\n"
        "started. DIRECTORY must be empty or not exist. It holds the secrets and the stored\n"
        "responses: protect it like the store itself.\n"
        "\n"
        "To restore it, stop every program that uses the store, move the store's directory away,\n"
        "and move (or copy) DIRECTORY into its place. What happened after the copy is lost.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .operands_min = 1,
    .operands_max = 1,
    .run = run_backup,
};
