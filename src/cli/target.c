#include "cli/target.h"

#include <string.h>

#include "cli/store.h"
#include "cli/text.h"

#define ID_DIGITS ((size_t)(2 * ONCE_ID_SIZE))

/* A search for the records whose id begins with `prefix` (lower case). */
typedef struct search {
    const char *prefix;
    size_t len;
    unsigned found;
    uint8_t id[ONCE_ID_SIZE];
} search_t;

static int compare(once_t *once, const once_record_t *record, void *data)
{
    search_t *search = data;
    char hex[ID_DIGITS + 1];

    once__cli_hex(hex, once_record_id(record), ONCE_ID_SIZE);
    if (strncasecmp(hex, search->prefix, search->len) != 0) {
        return 0;
    }
    memcpy(search->id, once_record_id(record), ONCE_ID_SIZE);
    search->found++;
    return search->found > 1;
}

/* Stores find records by their whole id only, so the beginning of one has to be searched for. */
static int find_prefix(once_t *once, const char *prefix, uint8_t id[ONCE_ID_SIZE])
{
    const once_filter_t all = ONCE_FILTER_INIT;
    search_t search = {prefix, strlen(prefix), 0, {0}};
    int code = once_record_scan_sync(once, &all, compare, &search, NULL);

    if (code != ONCE_OK) {
        return once__cli_store_failed("search the records", code);
    }
    if (search.found == 0) {
        once__cli_say("there is no record whose id begins with %s", prefix);
        return ONCE__CLI_NOT_FOUND;
    }
    if (search.found > 1) {
        once__cli_say("several ids begin with %s: give more digits (once keys list --wide)",
                      prefix);
        return ONCE__CLI_USAGE;
    }
    memcpy(id, search.id, ONCE_ID_SIZE);
    return ONCE__CLI_OK;
}

static int id_from_text(const once__cli_command_t *command, once_t *once, const char *text,
                        uint8_t id[ONCE_ID_SIZE])
{
    size_t len = strlen(text);

    if (!once__cli_is_hex(text) || len < ONCE__CLI_ID_MIN || len > ID_DIGITS) {
        return once__cli_usage(command,
                               "a record id is %zu hex digits, or its first %d or more, "
                               "not \"%s\"",
                               ID_DIGITS, ONCE__CLI_ID_MIN, once__cli_shown(text).text);
    }
    if (len == ID_DIGITS) {
        return once__cli_unhex(id, ONCE_ID_SIZE, text) == 0 ? ONCE__CLI_OK : ONCE__CLI_USAGE;
    }
    return find_prefix(once, text, id);
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
        return once__cli_usage(command, "name the record by its id, or by scope and key; not both");
    }
    if (target->id != NULL) {
        return id_from_text(command, once, target->id, id);
    }
    if (target->key == NULL) {
        return once__cli_usage(command, "which record? Give its id, or --scope SCOPE --key KEY");
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
    once__cli_say("refused: the record has another claim by now; look again with \"once keys "
                  "show\" before deciding");
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
