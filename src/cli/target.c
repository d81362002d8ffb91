#include "cli/target.h"

#include <string.h>

#include "base/bytes.h"
#include "cli/store.h"
#include "cli/text.h"

#define ID_DIGITS ((size_t)(2 * ONCE_ID_SIZE))

/* A search for the records whose id begins with `text`, or, where there is none, whose key it is. */
typedef struct search {
    const char *text;
    size_t len;
    unsigned ids, keys; /* how many were found */
    uint8_t id[ONCE_ID_SIZE];
} search_t;

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
        search->keys++;
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
    search_t search = {text, strlen(text), 0, 0, {0}};
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
        once__cli_say("%u scopes have a record with the key \"%s\": give its id (once keys list "
                      "--wide), or --scope and --key",
                      search.keys, once__cli_shown(text).text);
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
    int code = once__cli_scope_read(command, &target->scope, &scope);

    if (code == ONCE__CLI_OK) {
        once_slice_t slice = {scope.data, scope.len};
        code = once__cli_id_of(once, slice, target->key, id);
    }
    once__cli_bytes_free(&scope);
    return code;
}

static int find_id(const once__cli_command_t *command, once_t *once,
                   const once__cli_target_t *target, uint8_t id[ONCE_ID_SIZE])
{
    int by_key = target->key != NULL || once__cli_scope_given(&target->scope);

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
    if (!once__cli_scope_given(&target->scope)) {
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
