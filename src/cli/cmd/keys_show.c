/*
 * once keys show: one record with everything that is known about it.
 */
#include <stdio.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/record.h"
#include "cli/store.h"
#include "cli/select.h"
#include "cli/text.h"

typedef struct settings {
    once__cli_target_t target;
    int headers;
    int body;
    int force;
    int json;
} settings_t;

/* The stored body is whatever a backend once sent: a terminal gets it only on request. */
static int write_body(const settings_t *set, const once_record_t *record)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    int error;

    if (isatty(STDOUT_FILENO) && !set->force) {
        once__cli_say(
            "the body may contain bytes that control the terminal: redirect it to a file, "
            "or add --force");
        return ONCE__CLI_REFUSED;
    }
    error = once_record_response(record, &response);
    if (error == ONCE_E_NOT_FOUND) {
        once__cli_say("the record is %s: it has no response",
                      once_state_name(once_record_state(record)));
        return ONCE__CLI_NOT_FOUND;
    }
    if (error != ONCE_OK) {
        return once__cli_store_failed("read the response", error);
    }
    if (response.body_omitted) {
        once__cli_say(response.body_omitted == ONCE_BODY_ERASED
                          ? "the response was erased, all but its status"
                          : "the body was not stored, only the status and the headers");
        return ONCE__CLI_NOT_FOUND;
    }
    fwrite(response.body.data, 1, response.body.len, stdout);
    return ONCE__CLI_OK;
}

static void print_advice(const once_record_t *record)
{
    if (!once__cli_record_stuck(record)) {
        return;
    }
    puts("\nOnce you know what happened:");
    puts("  it took effect                             once keys settle --completed --status NNN "
         "...");
    puts("  it has not happened and no longer can      once keys release ...");
    if (once_record_recover(record) != ONCE_RECOVER_HOLD) {
        puts("Otherwise there is nothing to do: the next request with this key runs it again.");
    }
}

static int show(const settings_t *set, const once_record_t *record)
{
    unsigned parts = ONCE__CLI_RESPONSE | ONCE__CLI_CLAIM | (set->headers ? ONCE__CLI_HEADERS : 0);
    once__cli_json_t json;
    int error;

    if (set->body) {
        return write_body(set, record);
    }
    if (set->json) {
        int code;
        error = once__cli_record_json(record, parts, &json);
        code = once__cli_json_print(&json);
        if (code != ONCE__CLI_OK) {
            return code;
        }
    } else {
        error = once__cli_record_text(record, parts);
        print_advice(record);
    }
    return error == ONCE_OK ? ONCE__CLI_OK : once__cli_store_failed("read the response", error);
}

static int run_show(const once__cli_call_t *call)
{
    settings_t set = *(const settings_t *)call->settings;
    once_answer_t *answer = NULL;
    once_t *once;
    int code;

    if (set.body && (set.json || set.headers)) {
        return once__cli_usage(
            call->command,
            "--body writes only the body: it cannot be combined with --json or --headers");
    }
    set.target.id = call->operand_count > 0 ? call->operands[0] : NULL;
    code = once__cli_open(call, &once);
    if (code == ONCE__CLI_OK) {
        code = once__cli_target_read(call->command, &set.target, once, &answer);
    }
    if (code == ONCE__CLI_OK) {
        code = show(&set, once_answer_record(answer));
    }
    once_answer_free(answer);
    once__cli_close(once);
    return code;
}

/* clang-format off */
static const once__cli_option_t options[] = {
    ONCE__CLI_SCOPE_OPTIONS(offsetof(settings_t, target.scope)),
    ONCE__CLI_KEY_OPTION(offsetof(settings_t, target.key)),
    {"headers", 0, ONCE__CLI_FLAG, NULL, "include header values of the response", offsetof(settings_t, headers)},
    {"body", 0, ONCE__CLI_FLAG, NULL, "write the stored body, and nothing else, to standard output", offsetof(settings_t, body)},
    {"force", 0, ONCE__CLI_FLAG, NULL, "with --body: even if standard output is a terminal", offsetof(settings_t, force)},
    {"json", 0, ONCE__CLI_FLAG, NULL, "one JSON object", offsetof(settings_t, json)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_keys_show = {
    .name = "keys show",
    .operands = "[URL] [ID]",
    .summary = "show one record: state, claim, lease, retention, response",
    .details =
        "The operand is the record's id (64 hex digits, or the first 8 or more) or its key; or\n"
        "name the record by --scope and --key. Header values and the body are shown only on\n"
        "request.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .operands_max = 1,
    .options = options,
    .settings_size = sizeof(settings_t),
    .run = run_show,
};
