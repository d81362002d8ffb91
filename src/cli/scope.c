#include "cli/scope.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "cli/store.h"
#include "cli/text.h"

#define SCOPE_MAX (64 * 1024)

int once__cli_scope_given(const once__cli_scope_t *scope)
{
    return scope->text != NULL || scope->file != NULL;
}

int once__cli_scope_read(const once__cli_command_t *command, const once__cli_scope_t *scope,
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

int once__cli_scope_hash(once_t *once, once_slice_t scope, uint8_t hash[ONCE_SCOPE_HASH_SIZE])
{
    int error = once__cli_wait_for_secrets(once);

    if (error == ONCE_OK) {
        error = once_scope_hash_of(once, scope, hash);
    }
    return error == ONCE_OK ? ONCE__CLI_OK : failed(once, "find the scope", error);
}

int once__cli_id_of(once_t *once, once_slice_t scope, const char *key, uint8_t id[ONCE_ID_SIZE])
{
    int error = once__cli_wait_for_secrets(once);

    if (error == ONCE_OK) {
        error = once_record_id_of(once, scope, once__slice_of(key), id);
    }
    return error == ONCE_OK ? ONCE__CLI_OK : failed(once, "find the key", error);
}
