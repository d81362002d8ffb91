/*
 * once keys settle, once keys release: a person decides what became of an operation.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/operator.h"
#include "cli/record.h"
#include "cli/settle.h"
#include "cli/store.h"
#include "cli/select.h"
#include "cli/text.h"

typedef struct settings {
    once__cli_target_t target;
    int completed;
    int failed;
    once__cli_number_t status;
    once__cli_list_t headers;
    const char *body_file;
    once__cli_operator_t operator;
    int force;
    int yes;
} settings_t;

static int check_settings(const once__cli_command_t *command, const settings_t *set)
{
    if (set->completed == set->failed) {
        return once__cli_usage(command, "missing decision: --completed, or --failed (it has not "
                                        "happened and no longer can)");
    }
    if (set->status.given && (set->status.value < 100 || set->status.value > 999)) {
        return once__cli_usage(command, "--status must be between 100 and 999, not %" PRIu64,
                               set->status.value);
    }
    if (set->completed && !set->status.given) {
        return once__cli_usage(command, "--completed needs the response's status: --status NNN");
    }
    if (set->completed && (set->status.value < 200 || set->status.value > 599)) {
        return once__cli_usage(command,
                               "--completed needs a --status between 200 and 599, not %" PRIu64,
                               set->status.value);
    }
    if (set->failed && (set->headers.count > 0 || set->body_file != NULL)) {
        return once__cli_usage(command, "--header and --body-file are for --completed: a failed "
                                        "record has no response");
    }
    return once__cli_operator_check(command, &set->operator);
}

static int read_verdict(const once__cli_command_t *command, const settings_t *set,
                        once__cli_verdict_t *verdict, once__cli_bytes_t *body)
{
    const once_response_t empty = ONCE_RESPONSE_INIT;
    int code = check_settings(command, set);

    verdict->completed = set->completed;
    verdict->status = (int)set->status.value;
    verdict->force = set->force;
    verdict->response = empty;
    verdict->response.status = (int)set->status.value;
    verdict->response.headers = verdict->headers;
    verdict->response.header_count = set->headers.count;
    for (size_t i = 0; code == ONCE__CLI_OK && i < set->headers.count; i++) {
        if (once__cli_verdict_header(set->headers.items[i], &verdict->headers[i]) != 0) {
            code = once__cli_usage(command,
                                   "--header needs 'Name: value' without control characters, "
                                   "not \"%s\"",
                                   once__cli_shown(set->headers.items[i]).text);
        }
    }
    if (code == ONCE__CLI_OK && set->body_file != NULL) {
        code = once__cli_read_file(set->body_file, ONCE_BODY_STORE_MAX, body);
        verdict->response.body.data = body->data;
        verdict->response.body.len = body->len;
    }
    return code;
}

static void print_meaning(const once__cli_verdict_t *verdict)
{
    if (verdict->completed) {
        printf(
            "\nSettling it as completed means that it took effect. Every later request with this "
            "key "
            "gets\nstatus %d, %zu header%s and a body of %s, for as long as the record is kept.\n",
            verdict->response.status, verdict->response.header_count,
            verdict->response.header_count == 1 ? "" : "s",
            once__cli_size(verdict->response.body.len).text);
    } else {
        puts("\nSettling it as failed means that it has not happened and no longer can. The next "
             "request with\nthis key runs it again. If the first attempt is still in flight "
             "somewhere, it takes effect twice.");
    }
}

static int settle(const once__cli_command_t *command, const settings_t *set, once_t *once,
                  const once_record_t *record, const once__cli_verdict_t *verdict)
{
    once_state_t state;
    int code;

    once__cli_record_brief(record);
    if (!verdict->completed && once_record_state(record) == ONCE_STATE_FAILED) {
        puts("\nthe record is failed already: nothing was changed");
        return ONCE__CLI_OK;
    }
    code = once__cli_settle_check(verdict, record);
    if (code != ONCE__CLI_OK) {
        return code;
    }
    print_meaning(verdict);
    code = once__cli_confirm(command, set->yes, "Settle it?");
    if (code == ONCE__CLI_OK) {
        code = once__cli_settle(once, &set->operator, verdict, record, &state);
    }
    if (code == ONCE__CLI_OK) {
        printf("\nsettled: the record is now %s\n", once_state_name(state));
    }
    return code;
}

static int settle_target(const once__cli_call_t *call, settings_t *set)
{
    once__cli_verdict_t verdict = {0};
    once__cli_bytes_t body = {0};
    once_answer_t *answer = NULL;
    once_t *once = NULL;
    int code;

    set->target.id = call->operand_count > 0 ? call->operands[0] : NULL;
    code = read_verdict(call->command, set, &verdict, &body);
    if (code == ONCE__CLI_OK) {
        code = once__cli_open(call, &once);
    }
    if (code == ONCE__CLI_OK) {
        code = once__cli_target_read(call->command, &set->target, once, &answer);
    }
    if (code == ONCE__CLI_OK) {
        code = settle(call->command, set, once, once_answer_record(answer), &verdict);
    }
    once_answer_free(answer);
    once__cli_close(once);
    once__cli_bytes_free(&body);
    return code;
}

static int run_settle(const once__cli_call_t *call)
{
    settings_t set = *(const settings_t *)call->settings;

    return settle_target(call, &set);
}

static int run_release(const once__cli_call_t *call)
{
    settings_t set = *(const settings_t *)call->settings;

    set.failed = 1;
    return settle_target(call, &set);
}

/* clang-format off */
#define TARGET_OPTIONS                                                                                                 \
    ONCE__CLI_SCOPE_OPTIONS(offsetof(settings_t, target.scope)),                                                                 \
    ONCE__CLI_KEY_OPTION(offsetof(settings_t, target.key)),                                                                      \
    ONCE__CLI_CLAIM_OPTION(offsetof(settings_t, target.claim))
#define END_OPTIONS                                                                                                    \
    ONCE__CLI_OPERATOR_OPTIONS(offsetof(settings_t, operator)),                                                        \
    {"force", 0, ONCE__CLI_FLAG, NULL, "even while the lease is live: its holder is known to be dead",                 \
     offsetof(settings_t, force)},                                                                                     \
    {"yes", 'y', ONCE__CLI_FLAG, NULL, "do not ask", offsetof(settings_t, yes)},                                       \
    {0}

static const once__cli_option_t settle_options[] = {
    TARGET_OPTIONS,
    {"completed", 0, ONCE__CLI_FLAG, NULL, "it took effect, with this response:", offsetof(settings_t, completed)},
    {"status", 0, ONCE__CLI_NUMBER, "NNN", "status of the response (with --failed: for information)",
     offsetof(settings_t, status)},
    {"header", 0, ONCE__CLI_LIST, "'NAME: VALUE'", "a header of the response; may be repeated",
     offsetof(settings_t, headers)},
    {"body-file", 0, ONCE__CLI_TEXT, "FILE", "body of the response (-: stdin)", offsetof(settings_t, body_file)},
    {"failed", 0, ONCE__CLI_FLAG, NULL, "it has not happened and no longer can", offsetof(settings_t, failed)},
    END_OPTIONS,
};
static const once__cli_option_t release_options[] = {TARGET_OPTIONS, END_OPTIONS};
/* clang-format on */

const once__cli_command_t once__cli_keys_settle = {
    .name = "keys settle",
    .operands = "[URL] [ID]",
    .summary = "decide the outcome of an unknown or stuck operation",
    .details =
        "Shows the record, asks, and writes the decision for exactly the claim that was shown: if\n"
        "the record has changed meanwhile, nothing happens. A completed record is never changed;\n"
        "one with a live lease only with --force. The decision and its reason are added to the\n"
        "audit trail of the store; of a failed record the reason is kept in the record, too.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .operands_max = 1,
    .options = settle_options,
    .settings_size = sizeof(settings_t),
    .run = run_settle,
};

const once__cli_command_t once__cli_keys_release = {
    .name = "keys release",
    .operands = "[URL] [ID]",
    .summary = "let a stuck operation run again: short for settle --failed",
    .details =
        "Only for an operation that has not happened and no longer can. The record does not say\n"
        "whether it has: check what the operation changes (the account, the mail server, the\n"
        "payment provider) first. The decision and its reason are added to the audit trail.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .operands_max = 1,
    .options = release_options,
    .settings_size = sizeof(settings_t),
    .run = run_release,
};
