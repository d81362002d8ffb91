/*
 * once keys export: every record as a JSON line.
 */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/select.h"
#include "cli/record.h"
#include "cli/store.h"
#include "cli/text.h"

#define PROGRESS_STEP 1000 /* records between two looks at the progress line */

typedef struct settings {
    once__cli_filter_t filter;
    int headers;
    int bodies;
} settings_t;

typedef struct export
{
    unsigned parts;
    uint64_t count;
    uint64_t unreadable; /* responses */
    int progress;        /* stderr is a terminal */
    int code;            /* once__cli_exit */
}
export_t;

static void show_progress(const export_t *export)
{
    if (export->progress && export->count % PROGRESS_STEP == 0) {
        fprintf(stderr, "\r%" PRIu64 " records", export->count);
        fflush(stderr);
    }
}

static int each(once_t *once, const once_record_t *record, void *data)
{
    export_t *export = data;
    once__cli_json_t json;

    if (once__cli_record_json(record, export->parts, &json) != ONCE_OK) {
        export->unreadable++;
    }
    export->code = once__cli_json_print(&json);
    export->count++;
    show_progress(export);
    /* Nothing reads any more: a full disk, a closed pipe. */
    return export->code != ONCE__CLI_OK || ferror(stdout);
}

static int tell(const export_t *export)
{
    if (export->progress && export->count >= PROGRESS_STEP) {
        fprintf(stderr, "\r%" PRIu64 " records\n", export->count);
    }
    if (export->unreadable > 0) {
        once__cli_say("%" PRIu64 " responses cannot be read; their records have a "
                      "\"response_error\" instead",
                      export->unreadable);
        return ONCE__CLI_STORE;
    }
    return export->code;
}

static int run_export(const once__cli_call_t *call)
{
    const settings_t *set = call->settings;
    export_t export = {
        .parts = ONCE__CLI_RESPONSE | (set->headers ? ONCE__CLI_HEADERS : 0) |
                 (set->bodies ? ONCE__CLI_HEADERS | ONCE__CLI_BODY : 0),
        .progress = isatty(STDERR_FILENO) && !isatty(STDOUT_FILENO),
    };
    once__cli_chosen_t chosen;
    once_answer_t *answer = NULL;
    once_t *once;
    int code = once__cli_open(call, &once);

    if (code == ONCE__CLI_OK) {
        code = once__cli_filter(call->command, &set->filter, once, &chosen);
    }
    if (code == ONCE__CLI_OK) {
        int error = once_record_scan_sync(once, &chosen.filter, each, &export, &answer);
        code = once__cli_tell_damaged(answer, tell(&export));
        if (error != ONCE_OK) {
            code = once__cli_store_failed("read all records; the output is incomplete", error);
        }
    }
    once_answer_free(answer);
    once__cli_close(once);
    return code;
}

/* clang-format off */
static const once__cli_option_t options[] = {
    ONCE__CLI_FILTER_OPTIONS(offsetof(settings_t, filter)),
    {"headers", 0, ONCE__CLI_FLAG, NULL, "include header values of the responses", offsetof(settings_t, headers)},
    {"bodies", 0, ONCE__CLI_FLAG, NULL, "include header values and bodies (base64)", offsetof(settings_t, bodies)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_keys_export = {
    .name = "keys export",
    .operands = "[URL]",
    .summary = "write every record as a JSON line",
    .details =
        "Has every record that existed during the whole export; records that come or go meanwhile\n"
        "may or may not be in it. Bodies may be personal data: they are left out by default.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .options = options,
    .settings_size = sizeof(settings_t),
    .run = run_export,
};
