/*
 * once keys purge: records are removed, and their keys count as never used.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/operator.h"
#include "cli/select.h"
#include "cli/record.h"
#include "cli/store.h"
#include "cli/text.h"

#define NAMED_MAX 1000 /* records that the audit trail names one by one */

typedef struct settings {
    once__cli_filter_t filter; /* its scope names the record, too, when there is a key */
    const char *key;
    const char *claim;
    once__cli_operator_t operator;
    int all;
    int dry_run;
    int force;
    int yes;
} settings_t;

typedef struct token {
    char text[ONCE_TOKEN_SIZE];
} token_t;

/* What will be removed: each record by the claim that it had when it was seen. */
typedef struct heap {
    token_t *tokens;
    size_t count, room;
    uint64_t states[ONCE_STATE_UNKNOWN + 1];
    int broken;
} heap_t;

static int each(once_t *once, const once_record_t *record, void *data)
{
    heap_t *heap = data;
    token_t *tokens = once__grow(heap->tokens, &heap->room, heap->count + 1, sizeof(tokens[0]),
                                 SIZE_MAX / sizeof(tokens[0]));

    if (tokens == NULL) {
        heap->broken = 1;
        return 1;
    }
    heap->tokens = tokens;
    once_record_token(record, heap->tokens[heap->count].text);
    heap->count++;
    if (once_record_state(record) <= ONCE_STATE_UNKNOWN) {
        heap->states[once_record_state(record)]++;
    }
    return 0;
}

static uint64_t undecided(const heap_t *heap)
{
    return heap->states[ONCE_STATE_PENDING] + heap->states[ONCE_STATE_UNKNOWN];
}

typedef struct heap_text {
    char text[160];
} heap_text_t;

static heap_text_t heap_text(const heap_t *heap)
{
    heap_text_t out;

    snprintf(out.text, sizeof(out.text),
             "%zu %s: %" PRIu64 " pending, %" PRIu64 " completed, %" PRIu64 " failed, %" PRIu64
             " unknown",
             heap->count, heap->count == 1 ? "record" : "records", heap->states[ONCE_STATE_PENDING],
             heap->states[ONCE_STATE_COMPLETED], heap->states[ONCE_STATE_FAILED],
             heap->states[ONCE_STATE_UNKNOWN]);
    return out;
}

/* Removes them one by one. A record that moved on is kept and counted. */
static int purge_all(once_t *once, const settings_t *set, const heap_t *heap, uint64_t *purged)
{
    uint64_t kept = 0;

    for (size_t i = 0; i < heap->count; i++) {
        once_answer_t *answer = NULL;
        int error = once_record_purge_sync(once, heap->tokens[i].text, set->force, &answer);
        if (error == ONCE_OK && once_answer_outcome(answer) != ONCE_OUTCOME_DONE) {
            kept++;
        }
        once_answer_free(answer);
        if (error != ONCE_OK) {
            printf("purged %" PRIu64 ", then stopped\n", *purged);
            return once__cli_store_failed("purge a record", error);
        }
        *purged = i + 1 - kept;
    }
    printf("purged %" PRIu64 "\n", *purged);
    if (kept > 0) {
        once__cli_say("kept %" PRIu64 ": they changed meanwhile%s", kept,
                      set->force ? "" : ", or are pending or unknown (see --force)");
        return ONCE__CLI_REFUSED;
    }
    return ONCE__CLI_OK;
}

/* The trail names each record of a few. Of many it has what was chosen, and how many there were: it is never shortened. */
static int purge(once_t *once, const settings_t *set, const heap_t *heap)
{
    const once__cli_filter_t *filter = &set->filter;
    char object[ONCE_AUDIT_OBJECT_MAX], result[64];
    uint64_t purged = 0, intent;
    int code = once__cli_operator_act(once, &set->operator);

    if (code != ONCE__CLI_OK || heap->count <= NAMED_MAX) {
        return code == ONCE__CLI_OK ? purge_all(once, set, heap, &purged) : code;
    }
    snprintf(object, sizeof(object), "%s%s%.60s%s%s%s%s%s%s%.40s%s", heap_text(heap).text,
             filter->state != NULL ? ", --state " : "", filter->state != NULL ? filter->state : "",
             filter->stuck ? ", --stuck" : "", filter->older.given ? ", --older " : "",
             filter->older.given ? once__cli_duration(filter->older.value).text : "",
             filter->younger.given ? ", --younger " : "",
             filter->younger.given ? once__cli_duration(filter->younger.value).text : "",
             filter->scope_hash != NULL ? ", --scope-hash " : "",
             filter->scope_hash != NULL ? filter->scope_hash : "",
             filter->scope.text != NULL || filter->scope.file != NULL ? ", of one scope" : "");
    intent = once__cli_operator_add(once, "purge", object, 0, "");
    if (intent == 0) {
        return ONCE__CLI_STORE;
    }
    once__cli_operator_covered(once);
    code = purge_all(once, set, heap, &purged);
    snprintf(result, sizeof(result), "purged %" PRIu64, purged);
    if (once__cli_operator_act(once, &set->operator) != ONCE__CLI_OK ||
        once__cli_operator_add(once, "purge", object, intent, result) == 0) {
        code = code == ONCE__CLI_OK ? ONCE__CLI_STORE : code;
    }
    return code;
}

static int ask_and_purge(const once__cli_command_t *command, once_t *once, const settings_t *set,
                         const heap_t *heap)
{
    int code;

    puts(heap_text(heap).text);
    if (heap->count == 0 || set->dry_run) {
        return ONCE__CLI_OK;
    }
    if (undecided(heap) > 0 && !set->force) {
        once__cli_say("refused: %" PRIu64
                      " of them are pending or unknown: the operation may be running, or "
                      "may have taken effect. Settle them, exclude them (--state "
                      "completed,failed), or add --force",
                      undecided(heap));
        return ONCE__CLI_REFUSED;
    }
    puts("\nPurging makes these keys count as never used. A request that is repeated afterwards "
         "takes"
         "\neffect again, and the stored response is gone.");
    code = once__cli_confirm(command, set->yes, "Purge?");
    return code == ONCE__CLI_OK ? purge(once, set, heap) : code;
}

/* One record, named by id or key. */
static int find_one(const once__cli_call_t *call, once_t *once, const settings_t *set, heap_t *heap)
{
    once__cli_target_t target = {
        .id = call->operand_count > 0 ? call->operands[0] : NULL,
        .scope = set->filter.scope,
        .key = set->key,
        .claim = set->claim,
    };
    once_answer_t *answer = NULL;
    int code = once__cli_target_read(call->command, &target, once, &answer);

    if (code == ONCE__CLI_OK) {
        once__cli_record_brief(once_answer_record(answer));
        each(once, once_answer_record(answer), heap);
    }
    once_answer_free(answer);
    return code;
}

static int find_many(const once__cli_call_t *call, once_t *once, const settings_t *set,
                     heap_t *heap)
{
    once__cli_chosen_t chosen;
    int code = once__cli_filter(call->command, &set->filter, once, &chosen);
    int error;

    if (code != ONCE__CLI_OK) {
        return code;
    }
    error = once_record_scan_sync(once, &chosen.filter, each, heap, NULL);
    if (error == ONCE_OK && heap->broken) {
        error = ONCE_E_NOMEM;
    }
    return error == ONCE_OK ? ONCE__CLI_OK : once__cli_store_failed("find the records", error);
}

/* By id or key, by filter, or all: exactly one of them. */
static int check_settings(const once__cli_call_t *call, const settings_t *set, int one)
{
    once__cli_filter_t filter = set->filter;
    int filtered;

    if (set->key != NULL) {
        memset(&filter.scope, 0, sizeof(filter.scope)); /* belongs to the key */
    }
    filtered = once__cli_filter_given(&filter);
    if (one && (filtered || set->all || filter.limit.given)) {
        return once__cli_usage(call->command, "one record is named: a filter, --limit or --all "
                                              "cannot be combined with it");
    }
    if (!one && set->claim != NULL) {
        return once__cli_usage(call->command, "--claim needs one record: give its id or key");
    }
    if (!one && filtered == set->all) {
        return once__cli_usage(call->command, "missing records: name one, give a filter (such as "
                                              "--state failed --older 7d), or --all");
    }
    return set->dry_run ? ONCE__CLI_OK : once__cli_operator_check(call->command, &set->operator);
}

static int run_purge(const once__cli_call_t *call)
{
    const settings_t *set = call->settings;
    int one = call->operand_count > 0 || set->key != NULL;
    heap_t heap = {0};
    once_t *once = NULL;
    int code = check_settings(call, set, one);

    if (code == ONCE__CLI_OK) {
        code = once__cli_open(call, &once);
    }
    if (code == ONCE__CLI_OK) {
        code = one ? find_one(call, once, set, &heap) : find_many(call, once, set, &heap);
    }
    if (code == ONCE__CLI_OK) {
        code = ask_and_purge(call->command, once, set, &heap);
    }
    free(heap.tokens);
    once__cli_close(once);
    return code;
}

/* clang-format off */
static const once__cli_option_t options[] = {
    ONCE__CLI_KEY_OPTION(offsetof(settings_t, key)),
    ONCE__CLI_CLAIM_OPTION(offsetof(settings_t, claim)),
    ONCE__CLI_FILTER_OPTIONS(offsetof(settings_t, filter)),
    {"all", 0, ONCE__CLI_FLAG, NULL, "purge every record of the store", offsetof(settings_t, all)},
    {"dry-run", 'n', ONCE__CLI_FLAG, NULL, "count them and exit", offsetof(settings_t, dry_run)},
    ONCE__CLI_OPERATOR_OPTIONS(offsetof(settings_t, operator)),
    {"force", 0, ONCE__CLI_FLAG, NULL, "purge pending and unknown records, too", offsetof(settings_t, force)},
    {"yes", 'y', ONCE__CLI_FLAG, NULL, "do not ask", offsetof(settings_t, yes)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_keys_purge = {
    .name = "keys purge",
    .operands = "[URL] [ID]",
    .summary = "remove records: their keys count as never used",
    .details =
        "Purges one record, or all that match a filter. Counts them, asks, and removes each only\n"
        "if it has not changed since it was counted. A purged key can run again; to let a stuck\n"
        "operation run again, \"once keys release\" is safer. The audit trail has each of them, "
        "or\n"
        "what was chosen and how many if there are more than 1000.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .operands_max = 1,
    .options = options,
    .settings_size = sizeof(settings_t),
    .run = run_purge,
};
