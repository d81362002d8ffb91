/*
 * once keys purge: records are removed, and their keys count as never used. once keys erase: their texts are, and their outcomes
 * stay.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"
#include "cli/operator.h"
#include "cli/select.h"
#include "cli/record.h"
#include "cli/store.h"
#include "cli/text.h"

#define NAMED_MAX 1000 /* records that the audit trail names one by one */
#define WAIT_MS   ((uint64_t)120000)
#define PAUSE_NS  100000000 /* before the store is asked again what is left */

typedef struct settings {
    once__cli_filter_t filter; /* its scope names the record, too, when there is a key */
    const char *key;
    const char *claim;
    once__cli_operator_t operator;
    int all;
    int dry_run;
    int force;
    int yes;
    once__cli_number_t wait;
    int finish;
    int json;
} settings_t;

/* What is done to each record. */
typedef struct verb {
    const char *name, *past, *question;
    const char *meaning; /* said before the question */
    int is_erase;
} verb_t;

static const verb_t purge_verb = {
    .name = "purge",
    .past = "purged",
    .question = "Purge?",
    .meaning =
        "\nPurging makes these keys count as never used. A request that is repeated afterwards "
        "takes\neffect again, and the stored response is gone.",
};
static const verb_t erase_verb = {
    .name = "erase",
    .past = "erased",
    .question = "Erase?",
    .meaning =
        "\nErasing takes key, description, subject and response away for good. The operations stay "
        "done:\na request that is repeated is answered with the status alone. Backups, snapshots "
        "and "
        "replicas\nof the store are out of reach, and have it all.",
    .is_erase = 1,
};

typedef struct token {
    char text[ONCE_TOKEN_SIZE];
} token_t;

/* What will be done it to: each record by the claim that it had when it was seen. */
typedef struct heap {
    const verb_t *verb;
    token_t *tokens;
    size_t count, room;
    uint64_t states[ONCE_STATE_UNKNOWN + 1];
    uint64_t seen;   /* all of them */
    uint64_t erased; /* that need not be erased again */
    int broken;
} heap_t;

static int is_undecided(const once_record_t *record)
{
    return once_record_state(record) == ONCE_STATE_PENDING ||
           once_record_state(record) == ONCE_STATE_UNKNOWN;
}

static int each(once_t *once, const once_record_t *record, void *data)
{
    heap_t *heap = data;
    token_t *tokens;

    heap->seen++;
    if (once_record_state(record) <= ONCE_STATE_UNKNOWN) {
        heap->states[once_record_state(record)]++;
    }
    if (heap->verb->is_erase && (once_record_is_erased(record) || is_undecided(record))) {
        heap->erased += (uint64_t)once_record_is_erased(record);
        return 0;
    }
    tokens = once__grow(heap->tokens, &heap->room, heap->count + 1, sizeof(tokens[0]),
                        SIZE_MAX / sizeof(tokens[0]));
    if (tokens == NULL) {
        heap->broken = 1;
        return 1;
    }
    heap->tokens = tokens;
    once_record_token(record, heap->tokens[heap->count].text);
    heap->count++;
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
             "%" PRIu64 " %s: %" PRIu64 " pending, %" PRIu64 " completed, %" PRIu64
             " failed, %" PRIu64 " unknown",
             heap->seen, heap->seen == 1 ? "record" : "records", heap->states[ONCE_STATE_PENDING],
             heap->states[ONCE_STATE_COMPLETED], heap->states[ONCE_STATE_FAILED],
             heap->states[ONCE_STATE_UNKNOWN]);
    return out;
}

/* What came of it. */
typedef struct tally {
    uint64_t done, kept;    /* records; kept: they changed meanwhile */
    uint64_t left, damaged; /* segments of a local store that still have texts */
    uint64_t cleared;       /* those that had */
} tally_t;

static void say_done(const settings_t *set, const verb_t *verb, const tally_t *tally,
                     const char *more)
{
    if (!set->json) {
        printf("%s %" PRIu64 "%s\n", verb->past, tally->done, more);
    }
}

/* One by one. A record that moved on is kept and counted. */
static int apply_all(once_t *once, const settings_t *set, const heap_t *heap, tally_t *tally)
{
    const verb_t *verb = heap->verb;
    once__cli_progress_t progress;
    int error = ONCE_OK;

    once__cli_progress_start(&progress);
    for (size_t i = 0; i < heap->count && error == ONCE_OK; i++) {
        const char *token = heap->tokens[i].text;
        once_answer_t *answer = NULL;
        error = verb->is_erase ? once_record_erase_sync(once, token, &answer)
                               : once_record_purge_sync(once, token, set->force, &answer);
        if (error == ONCE_OK) {
            int done = once_answer_outcome(answer) == ONCE_OUTCOME_DONE;
            tally->done += (uint64_t)done;
            tally->kept += (uint64_t)!done;
        }
        once_answer_free(answer);
        once__cli_progress_show(&progress, i + 1, heap->count);
    }
    once__cli_progress_clear(&progress);
    say_done(set, verb, tally, error == ONCE_OK ? "" : ", then stopped");
    if (error != ONCE_OK) {
        return once__cli_store_failed(verb->is_erase ? "erase a record" : "purge a record", error);
    }
    if (tally->kept > 0) {
        once__cli_say("kept %" PRIu64 ": they changed meanwhile%s", tally->kept,
                      set->force || verb->is_erase ? ""
                                                   : ", or are pending or unknown (see --force)");
        return ONCE__CLI_REFUSED;
    }
    return ONCE__CLI_OK;
}

/* The trail names each record of a few. Of many it has what was chosen, and how many there were: it is never shortened. */
static int apply(once_t *once, const settings_t *set, const heap_t *heap, tally_t *tally)
{
    const once__cli_filter_t *filter = &set->filter;
    char object[ONCE_AUDIT_OBJECT_MAX], result[64];
    uint64_t intent;
    int code = once__cli_operator_act(once, &set->operator);

    if (code != ONCE__CLI_OK || heap->count <= NAMED_MAX) {
        return code == ONCE__CLI_OK ? apply_all(once, set, heap, tally) : code;
    }
    snprintf(object, sizeof(object), "%s%s%.60s%s%s%s%s%s%s%.40s%s%s", heap_text(heap).text,
             filter->state != NULL ? ", --state " : "", filter->state != NULL ? filter->state : "",
             filter->stuck ? ", --stuck" : "", filter->older.given ? ", --older " : "",
             filter->older.given ? once__cli_duration(filter->older.value).text : "",
             filter->younger.given ? ", --younger " : "",
             filter->younger.given ? once__cli_duration(filter->younger.value).text : "",
             filter->scope_hash != NULL ? ", --scope-hash " : "",
             filter->scope_hash != NULL ? filter->scope_hash : "",
             filter->scope.text != NULL || filter->scope.file != NULL ? ", of one scope" : "",
             filter->subject != NULL ? ", of one subject" : "");
    intent = once__cli_operator_add(once, heap->verb->name, object, 0, "");
    if (intent == 0) {
        return ONCE__CLI_STORE;
    }
    once__cli_operator_covered(once);
    code = apply_all(once, set, heap, tally);
    snprintf(result, sizeof(result), "%s %" PRIu64, heap->verb->past, tally->done);
    if (once__cli_operator_act(once, &set->operator) != ONCE__CLI_OK ||
        once__cli_operator_add(once, heap->verb->name, object, intent, result) == 0) {
        code = code == ONCE__CLI_OK ? ONCE__CLI_STORE : code;
    }
    return code;
}

static int ask_and_apply(const once__cli_command_t *command, once_t *once, const settings_t *set,
                         const heap_t *heap, tally_t *tally)
{
    int code;

    if (!set->json) {
        puts(heap_text(heap).text);
    }
    if (set->dry_run || (heap->count == 0 && (heap->seen == 0 || heap->verb->is_erase))) {
        return ONCE__CLI_OK;
    }
    if (undecided(heap) > 0 && !set->force && !heap->verb->is_erase) {
        once__cli_say("refused: %" PRIu64
                      " of them are pending or unknown: the operation may be running, or "
                      "may have taken effect. Settle them, exclude them (--state "
                      "completed,failed), or add --force",
                      undecided(heap));
        return ONCE__CLI_REFUSED;
    }
    if (!set->json) {
        puts(heap->verb->meaning);
    }
    code = once__cli_confirm(command, set->yes, heap->verb->question);
    return code == ONCE__CLI_OK ? apply(once, set, heap, tally) : code;
}

/* ---------------------------------------------------------------------------------------------------------- clearing */

static uint64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Step by step, until nothing is left that can be cleared away, or the time is over. */
static int clear_steps(once_t *once, uint64_t until, tally_t *tally)
{
    const struct timespec pause = {0, PAUSE_NS};
    once__cli_progress_t progress;
    uint64_t most = 0, before;
    int error;

    once__cli_progress_start(&progress);
    do {
        once_answer_t *answer = NULL;
        before = tally->left;
        error = once_store_scrub_sync(once, &answer);
        if (error == ONCE_OK) {
            tally->left = once_answer_count(answer);
            tally->damaged = once_answer_damaged(answer);
            most = tally->left > most ? tally->left : most;
            once__cli_progress_show(&progress, most - tally->left, most);
        }
        once_answer_free(answer);
        if (error == ONCE_OK && tally->left > 1 && tally->left == before) {
            (void)nanosleep(&pause, NULL); /* other processes have them */
        }
    } while (error == ONCE_OK && tally->left > tally->damaged && now_ms() < until);
    once__cli_progress_clear(&progress);
    tally->cleared = most - tally->left;
    return error;
}

/* What the texts were written to goes as well, if the store keeps that for a while; also what an earlier run left. */
static int clear_away(once_t *once, const settings_t *set, tally_t *tally)
{
    uint64_t wait = set->wait.given ? set->wait.value : WAIT_MS;
    int error = clear_steps(once, now_ms() + wait, tally);

    if (error != ONCE_OK) {
        return once__cli_store_failed("clear away what was erased", error);
    }
    if (tally->cleared > 0 && !set->json) {
        printf("cleared away %" PRIu64 " %s of the log\n", tally->cleared,
               tally->cleared == 1 ? "segment" : "segments");
    }
    if (tally->damaged > 0) {
        once__cli_say("%" PRIu64
                      " damaged segments may still have texts: repair them with once fsck "
                      "--repair, then run once keys erase --finish",
                      tally->damaged);
    } else if (tally->left > 0) {
        once__cli_say(
            "%" PRIu64
            " segments of the log, or dictionaries, may still have texts: other processes "
            "are using them, and let go when they next write or reap. Run once keys "
            "erase --finish",
            tally->left);
    }
    return tally->left > 0 ? ONCE__CLI_NO : ONCE__CLI_OK;
}

static int print_json(const heap_t *heap, const tally_t *tally)
{
    once__cli_json_t json;

    once__cli_json_start(&json);
    once__cli_json_number(&json, "records", heap->seen);
    once__cli_json_number(&json, "erased", tally->done);
    once__cli_json_number(&json, "already_erased", heap->erased);
    once__cli_json_number(&json, "undecided", undecided(heap));
    once__cli_json_number(&json, "changed", tally->kept);
    once__cli_json_number(&json, "segments_cleared", tally->cleared);
    once__cli_json_number(&json, "segments_left", tally->left);
    once__cli_json_number(&json, "segments_damaged", tally->damaged);
    return once__cli_json_print(&json);
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
        if (!set->json) {
            once__cli_record_brief(once_answer_record(answer));
        }
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

static int find(const once__cli_call_t *call, once_t *once, const settings_t *set, int one,
                heap_t *heap)
{
    return one ? find_one(call, once, set, heap) : find_many(call, once, set, heap);
}

static int run_purge(const once__cli_call_t *call)
{
    const settings_t *set = call->settings;
    int one = call->operand_count > 0 || set->key != NULL;
    heap_t heap = {.verb = &purge_verb};
    tally_t tally = {0};
    once_t *once = NULL;
    int code = check_settings(call, set, one);

    if (code == ONCE__CLI_OK) {
        code = once__cli_open(call, &once);
    }
    if (code == ONCE__CLI_OK) {
        code = find(call, once, set, one, &heap);
    }
    if (code == ONCE__CLI_OK) {
        code = ask_and_apply(call->command, once, set, &heap, &tally);
    }
    free(heap.tokens);
    once__cli_close(once);
    return code;
}

/* An earlier run may have been killed when the key was gone, and before its bytes were: so these go whatever is found. */
static int erase(const once__cli_call_t *call, once_t *once, const settings_t *set, int one)
{
    heap_t heap = {.verb = &erase_verb};
    tally_t tally = {0};
    int code = set->finish ? ONCE__CLI_OK : find(call, once, set, one, &heap), cleared;

    if (code == ONCE__CLI_OK && !set->finish) {
        code = ask_and_apply(call->command, once, set, &heap, &tally);
    }
    if (!set->dry_run && undecided(&heap) > 0 &&
        (code == ONCE__CLI_OK || code == ONCE__CLI_REFUSED)) {
        once__cli_say("%" PRIu64
                      " of them are pending or unknown, and not erased: settle them first "
                      "(once keys settle)",
                      undecided(&heap));
        code = ONCE__CLI_REFUSED;
    }
    if (!set->dry_run && (code == ONCE__CLI_OK || code == ONCE__CLI_NOT_FOUND || tally.done > 0)) {
        cleared = clear_away(once, set, &tally);
        code = code == ONCE__CLI_OK ? cleared : code;
    }
    if (set->json && (code == ONCE__CLI_OK || heap.seen > 0)) {
        int printed = print_json(&heap, &tally);
        code = code == ONCE__CLI_OK ? printed : code;
    }
    free(heap.tokens);
    return code;
}

static int run_erase(const once__cli_call_t *call)
{
    const settings_t *set = call->settings;
    int one = call->operand_count > 0 || set->key != NULL;
    once_t *once = NULL;
    int code = set->finish ? ONCE__CLI_OK : check_settings(call, set, one);

    if (set->finish && (one || set->all || once__cli_filter_given(&set->filter))) {
        code = once__cli_usage(call->command, "--finish erases nothing more: it cannot be combined "
                                              "with records");
    }
    if (code == ONCE__CLI_OK) {
        code = once__cli_open(call, &once);
    }
    if (code == ONCE__CLI_OK) {
        code = erase(call, once, set, one);
    }
    once__cli_close(once);
    return code;
}

/* clang-format off */
static const once__cli_option_t purge_options[] = {
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
static const once__cli_option_t erase_options[] = {
    ONCE__CLI_KEY_OPTION(offsetof(settings_t, key)),
    ONCE__CLI_CLAIM_OPTION(offsetof(settings_t, claim)),
    ONCE__CLI_FILTER_OPTIONS(offsetof(settings_t, filter)),
    {"all", 0, ONCE__CLI_FLAG, NULL, "erase every record of the store", offsetof(settings_t, all)},
    {"dry-run", 'n', ONCE__CLI_FLAG, NULL, "count them and exit", offsetof(settings_t, dry_run)},
    ONCE__CLI_OPERATOR_OPTIONS(offsetof(settings_t, operator)),
    {"wait", 0, ONCE__CLI_DURATION, "TIME", "for other processes to let go of files (default 2m)",
     offsetof(settings_t, wait)},
    {"finish", 0, ONCE__CLI_FLAG, NULL, "only clear away what earlier runs have left", offsetof(settings_t, finish)},
    {"json", 0, ONCE__CLI_FLAG, NULL, "one JSON object", offsetof(settings_t, json)},
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
    .options = purge_options,
    .settings_size = sizeof(settings_t),
    .run = run_purge,
};

const once__cli_command_t once__cli_keys_erase = {
    .name = "keys erase",
    .operands = "[URL] [ID]",
    .summary = "erase the texts of records; their outcomes stay",
    .details =
        "Erases one record, or all that match a filter, such as --subject: key, description,\n"
        "holder, subject, note, and headers and body of the response. The operation stays done: a\n"
        "request that is repeated is answered with its status and \"Once-Body: erased\". Pending "
        "and\n"
        "unknown records are left alone: settle them first. In a local store the command waits\n"
        "until the files have nothing of it left; if it is stopped before, --finish goes on, or "
        "the\n"
        "same command again. Backups, snapshots and replicas are out of reach. The audit trail "
        "has\n"
        "each of them without its texts, or how many if there are more than 1000.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .operands_max = 1,
    .options = erase_options,
    .settings_size = sizeof(settings_t),
    .run = run_erase,
};
