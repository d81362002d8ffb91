#include "cli/filter.h"

#include <string.h>

#include "base/bytes.h"
#include "cli/text.h"

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

static int read_scope(const once__cli_command_t *command, const once__cli_scope_t *scope,
                      once_t *once, once__cli_chosen_t *chosen)
{
    once__cli_bytes_t bytes = {0};
    int code = once__cli_scope_read(command, scope, &bytes);

    if (code == ONCE__CLI_OK) {
        once_slice_t slice = {bytes.data, bytes.len};
        code = once__cli_scope_hash(once, slice, chosen->scope_hash);
        chosen->filter.scope_hash = chosen->scope_hash;
        chosen->filter.scope_hash_len = ONCE_SCOPE_HASH_SIZE;
    }
    once__cli_bytes_free(&bytes);
    return code;
}

int once__cli_filter_given(const once__cli_filter_t *settings)
{
    return settings->state != NULL || settings->stuck || settings->older.given ||
           settings->younger.given || settings->scope_hash != NULL ||
           once__cli_scope_given(&settings->scope);
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
    if (settings->scope_hash != NULL && once__cli_scope_given(&settings->scope)) {
        return once__cli_usage(command, "give --scope-hash or the scope itself, not both");
    }
    if (settings->state != NULL) {
        code = read_states(command, settings->state, &chosen->filter.states);
    }
    if (code == ONCE__CLI_OK && settings->scope_hash != NULL) {
        code = read_scope_hash(command, settings->scope_hash, chosen);
    }
    if (code == ONCE__CLI_OK && once__cli_scope_given(&settings->scope)) {
        code = read_scope(command, &settings->scope, once, chosen);
    }
    return code;
}
