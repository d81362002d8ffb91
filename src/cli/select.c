#include "cli/select.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "cli/store.h"
#include "cli/text.h"

/* --------------------------------------------------------------------------------------------------------------- scope */

#define SCOPE_MAX (64 * 1024)

static int scope_given(const once__cli_scope_t *scope)
{
    return scope->text != NULL || scope->file != NULL;
}

/* The scope's bytes; free with once__cli_bytes_free. Returns ONCE__CLI_OK, or an exit code after an error message. */
static int scope_read(const once__cli_command_t *command, const once__cli_scope_t *scope,
                      once__cli_bytes_t *bytes)
{
    int code;

    if (scope->text != NULL && scope->file != NULL) {
        return once__cli_usage(command, "give --scope or --scope-file, not both");
    }
    if (scope->text != NULL) {
        bytes->data = strdup(scope->text);
        bytes->len = strlen(scope->text);
        return bytes->data != NULL ? ONCE__CLI_OK
                                   : once__cli_store_failed("read the scope", ONCE_E_NOMEM);
    }
    code = once__cli_read_file(scope->file, SCOPE_MAX, bytes);
    if (code == ONCE__CLI_OK) {
        once__cli_chomp(bytes);
    }
    return code;
}

/* The store answers, but keeps its secrets from this user: a once_monitor or once_operator. */
static int failed(once_t *once, const char *what, int error)
{
    char trouble[2];

    if (error != ONCE_E_CONFIG || once_store_trouble(once, trouble, sizeof(trouble)) > 0) {
        return once__cli_store_failed(what, error);
    }
    once__cli_say(
        "cannot %s: that needs the store's secrets, which this user may not read; use the "
        "record's id from \"once keys list\", or a user with the role once_gateway",
        what);
    return ONCE__CLI_STORE;
}

/*
 * The scope's keyed hash, and the id of one of its records. Both wait for the store's secrets. They return ONCE__CLI_OK, or an exit
 * code after an error message.
 */
static int scope_hash_of(once_t *once, once_slice_t scope, uint8_t hash[ONCE_SCOPE_HASH_SIZE])
{
    int error = once__cli_wait_for_secrets(once);

    if (error == ONCE_OK) {
        error = once_scope_hash_of(once, scope, hash);
    }
    return error == ONCE_OK ? ONCE__CLI_OK : failed(once, "find the scope", error);
}

static int id_of(once_t *once, once_slice_t scope, const char *key, uint8_t id[ONCE_ID_SIZE])
{
    int error = once__cli_wait_for_secrets(once);

    if (error == ONCE_OK) {
        error = once_record_id_of(once, scope, once__slice_of(key), id);
    }
    return error == ONCE_OK ? ONCE__CLI_OK : failed(once, "find the key", error);
}

/* -------------------------------------------------------------------------------------------------------------- filter */

static const once_state_t states[] = {
    ONCE_STATE_PENDING,
    ONCE_STATE_COMPLETED,
    ONCE_STATE_FAILED,
    ONCE_STATE_UNKNOWN,
};

/* The bit of a state's name; 0: no such state. */
static unsigned state_bit(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        const char *known = once_state_name(states[i]);
        if (strlen(known) == len && strncmp(known, name, len) == 0) {
            return 1u << states[i];
        }
    }
    return 0;
}

static int read_states(const once__cli_command_t *command, const char *list, unsigned *bits)
{
    const char *at = list;

    for (;;) {
        size_t len = strcspn(at, ",");
        unsigned bit = state_bit(at, len);
        if (bit == 0) {
            return once__cli_usage(command,
                                   "--state needs a list of pending, completed, failed and "
                                   "unknown, separated by commas, not \"%s\"",
                                   once__cli_shown(list).text);
        }
        *bits |= bit;
        if (at[len] == '\0') {
            return ONCE__CLI_OK;
        }
        at += len + 1;
    }
}

static int read_scope_hash(const once__cli_command_t *command, const char *hex,
                           once__cli_chosen_t *chosen)
{
    size_t len = strlen(hex) / 2;

    if (len == 0 || len > ONCE_SCOPE_HASH_SIZE ||
        once__unhex(chosen->scope_hash, len, hex, strlen(hex)) != 0) {
        return once__cli_usage(command,
                               "--scope-hash needs 2 to %d hex digits, two for each byte, not "
                               "\"%s\"",
                               2 * ONCE_SCOPE_HASH_SIZE, once__cli_shown(hex).text);
    }
    chosen->filter.scope_hash = chosen->scope_hash;
    chosen->filter.scope_hash_len = len;
    return ONCE__CLI_OK;
}

static int choose_scope(const once__cli_command_t *command, const once__cli_scope_t *scope,
                        once_t *once, once__cli_chosen_t *chosen)
{
    once__cli_bytes_t bytes = {0};
    int code = scope_read(command, scope, &bytes);

    if (code == ONCE__CLI_OK) {
        once_slice_t slice = {bytes.data, bytes.len};
        code = scope_hash_of(once, slice, chosen->scope_hash);
        chosen->filter.scope_hash = chosen->scope_hash;
        chosen->filter.scope_hash_len = ONCE_SCOPE_HASH_SIZE;
    }
    once__cli_bytes_free(&bytes);
    return code;
}

static int choose_subject(const once__cli_command_t *command, const char *subject, once_t *once,
                          once__cli_chosen_t *chosen)
{
    int error;

    if (*subject == '\0') {
        return once__cli_usage(command, "--subject is empty: records without a subject have none");
    }
    error = once__cli_wait_for_secrets(once);
    if (error == ONCE_OK) {
        error = once_subject_hash_of(once, once__slice_of(subject), chosen->subject_hash);
    }
    chosen->filter.subject_hash = chosen->subject_hash;
    return error == ONCE_OK ? ONCE__CLI_OK : failed(once, "find the subject", error);
}

int once__cli_filter_given(const once__cli_filter_t *settings)
{
    return settings->state != NULL || settings->stuck || settings->older.given ||
           settings->younger.given || settings->scope_hash != NULL || settings->subject != NULL ||
           scope_given(&settings->scope);
}

int once__cli_filter(const once__cli_command_t *command, const once__cli_filter_t *settings,
                     once_t *once, once__cli_chosen_t *chosen)
{
    const once_filter_t all = ONCE_FILTER_INIT;
    int code = ONCE__CLI_OK;

    chosen->filter = all;
    chosen->filter.stuck = settings->stuck;
    chosen->filter.older_than_ms = settings->older.value;
    chosen->filter.younger_than_ms = settings->younger.value;
    chosen->filter.limit = settings->limit.value;
    if (settings->younger.given && settings->younger.value == 0) {
        return once__cli_usage(command, "--younger must be greater than 0");
    }
    if (settings->scope_hash != NULL && scope_given(&settings->scope)) {
        return once__cli_usage(command, "give --scope-hash or the scope itself, not both");
    }
    if (settings->state != NULL) {
        code = read_states(command, settings->state, &chosen->filter.states);
    }
    if (code == ONCE__CLI_OK && settings->scope_hash != NULL) {
        code = read_scope_hash(command, settings->scope_hash, chosen);
    }
    if (code == ONCE__CLI_OK && scope_given(&settings->scope)) {
        code = choose_scope(command, &settings->scope, once, chosen);
    }
    if (code == ONCE__CLI_OK && settings->subject != NULL) {
        code = choose_subject(command, settings->subject, once, chosen);
    }
    return code;
}

/* ---------------------------------------------------------------------------------------------------------- one record */

#define ID_DIGITS  ((size_t)(2 * ONCE_ID_SIZE))
#define CANDIDATES 10 /* that are shown when a key has several records */

/* A search for the records whose id begins with `text`, or, where there is none, whose key it is. */
typedef struct search {
    const char *text;
    size_t len;
    unsigned ids, keys; /* how many were found */
    uint8_t id[ONCE_ID_SIZE];
    struct {
        char id[9], scope[2 * ONCE_SCOPE_HASH_SIZE + 1];
        once_state_t state;
    } candidates[CANDIDATES]; /* of the keys, the first ones */
} search_t;

static void note_candidate(search_t *search, const once_record_t *record)
{
    if (search->keys < CANDIDATES) {
        once__hex(search->candidates[search->keys].id, once_record_id(record), 4);
        once__hex(search->candidates[search->keys].scope, once_record_scope_hash(record),
                  ONCE_SCOPE_HASH_SIZE);
        search->candidates[search->keys].state = once_record_state(record);
    }
    search->keys++;
}

static void tell_candidates(const search_t *search)
{
    unsigned count = search->keys < CANDIDATES ? search->keys : CANDIDATES;

    for (unsigned i = 0; i < count; i++) {
        once__cli_say("  %s, %s, scope hash %s", search->candidates[i].id,
                      once_state_name(search->candidates[i].state), search->candidates[i].scope);
    }
}

static int compare(once_t *once, const once_record_t *record, void *data)
{
    search_t *search = data;
    once_slice_t key = once_record_key(record);
    char hex[ID_DIGITS + 1];

    once__hex(hex, once_record_id(record), ONCE_ID_SIZE);
    if (search->len >= ONCE__CLI_ID_MIN && strncasecmp(hex, search->text, search->len) == 0) {
        search->ids++;
        memcpy(search->id, once_record_id(record), ONCE_ID_SIZE);
    } else if (key.len == search->len && memcmp(key.data, search->text, key.len) == 0) {
        note_candidate(search, record);
        if (search->ids == 0) {
            memcpy(search->id, once_record_id(record), ONCE_ID_SIZE);
        }
    }
    return search->ids > 1;
}

/* Stores find records by their whole id only, so the beginning of one and a key without its scope have to be searched for. */
static int find_record(once_t *once, const char *text, uint8_t id[ONCE_ID_SIZE])
{
    const once_filter_t all = ONCE_FILTER_INIT;
    search_t search = {.text = text, .len = strlen(text)};
    int code = once_record_scan_sync(once, &all, compare, &search, NULL);

    if (code != ONCE_OK) {
        return once__cli_store_failed("search the records", code);
    }
    if (search.ids + search.keys == 0) {
        once__cli_say(
            "no record has the key \"%s\", or an id of %zu hex digits that begins with it",
            once__cli_shown(text).text, ID_DIGITS);
        return ONCE__CLI_NOT_FOUND;
    }
    if (search.ids > 1) {
        once__cli_say("several ids begin with %s: give more digits (once keys list --wide)", text);
        return ONCE__CLI_USAGE;
    }
    if (search.ids == 0 && search.keys > 1) {
        once__cli_say("%u scopes have a record with the key \"%s\": give its id, or --scope and "
                      "--key",
                      search.keys, once__cli_shown(text).text);
        tell_candidates(&search);
        return ONCE__CLI_USAGE;
    }
    memcpy(id, search.id, ONCE_ID_SIZE);
    return ONCE__CLI_OK;
}

static int id_from_text(once_t *once, const char *text, uint8_t id[ONCE_ID_SIZE])
{
    if (strlen(text) == ID_DIGITS && once__unhex(id, ONCE_ID_SIZE, text, strlen(text)) == 0) {
        return ONCE__CLI_OK;
    }
    return find_record(once, text, id);
}

static int id_from_key(const once__cli_command_t *command, once_t *once,
                       const once__cli_target_t *target, uint8_t id[ONCE_ID_SIZE])
{
    once__cli_bytes_t scope = {0};
    int code = scope_read(command, &target->scope, &scope);

    if (code == ONCE__CLI_OK) {
        once_slice_t slice = {scope.data, scope.len};
        code = id_of(once, slice, target->key, id);
    }
    once__cli_bytes_free(&scope);
    return code;
}

static int find_id(const once__cli_command_t *command, once_t *once,
                   const once__cli_target_t *target, uint8_t id[ONCE_ID_SIZE])
{
    int by_key = target->key != NULL || scope_given(&target->scope);

    if (target->id != NULL && by_key) {
        return once__cli_usage(command, "give the record's id, or --scope and --key, not both");
    }
    if (target->id != NULL) {
        return id_from_text(once, target->id, id);
    }
    if (target->key == NULL) {
        return once__cli_usage(command,
                               "missing record: give its id or key, or --scope SCOPE --key KEY");
    }
    if (!scope_given(&target->scope)) {
        return once__cli_usage(command, "--key needs the scope: --scope SCOPE, --scope-file FILE, "
                                        "or --scope \"\" for the empty one");
    }
    return id_from_key(command, once, target, id);
}

static int check_claim(const once__cli_target_t *target, const once_answer_t *answer)
{
    char token[ONCE_TOKEN_SIZE];

    if (target->claim == NULL) {
        return ONCE__CLI_OK;
    }
    once_record_token(once_answer_record(answer), token);
    if (strcmp(token, target->claim) == 0) {
        return ONCE__CLI_OK;
    }
    once__cli_say("refused: the record has another claim now; look again with \"once keys "
                  "show\" before you decide");
    return ONCE__CLI_REFUSED;
}

int once__cli_target_read(const once__cli_command_t *command, const once__cli_target_t *target,
                          once_t *once, once_answer_t **answer)
{
    uint8_t id[ONCE_ID_SIZE];
    int code = find_id(command, once, target, id);
    int error;

    *answer = NULL;
    if (code != ONCE__CLI_OK) {
        return code;
    }
    error = once_record_get_sync(once, id, answer);
    if (error != ONCE_OK) {
        return once__cli_store_failed("read the record", error);
    }
    code = check_claim(target, *answer);
    if (code != ONCE__CLI_OK) {
        once_answer_free(*answer);
        *answer = NULL;
    }
    return code;
}
