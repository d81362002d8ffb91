/*
 * once backup: a copy of a local store, while programs use it.
 */
#include <inttypes.h>
#include <stdio.h>

#include <once/local.h>

#include "cli/commands.h"
#include "cli/progress.h"
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
        once__cli_say("%" PRIu64 " ranges of the store are damaged, and so is the copy: see "
                      "\"once fsck\"",
                      report.damaged);
    }
    once__cli_note(
        report.secrets
            ? "the copy holds the secrets and the stored responses: keep it like the store"
            : "the copy holds the stored responses, but no secrets: copy their file, too");
    return ONCE__CLI_OK;
}

const once__cli_command_t once__cli_backup = {
    .name = "backup",
    .operands = "[URL] DIRECTORY",
    .summary = "copies a local store while programs use it",
    .details =
        "Everything that was acknowledged before the command began is in the copy, and the copy\n"
        "is a store. DIRECTORY must not exist, or be empty. It holds the secrets and the stored\n"
        "responses: keep it like the store itself.\n"
        "\n"
        "To go back to it: stop every program that uses the store, move its directory away, and\n"
        "move (or copy) DIRECTORY to its place. What happened since the copy is forgotten then.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .operands_min = 1,
    .operands_max = 1,
    .run = run_backup,
};
