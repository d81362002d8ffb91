#include "cli/store.h"

#include <inttypes.h>
#include <string.h>

#include <once/local.h>

#include "cli/text.h"

#define SECRETS_WAITS   50 /* once the store has answered something else */
#define SECRETS_WAIT_MS 100

/* What a person can do about an error. */
static const char *advice(int error)
{
    switch (error) {
    case ONCE_E_UNAVAILABLE:
        return "is it running, and is the URL right? ?store_timeout=30s in the URL waits longer";
    case ONCE_E_NOREPLY:
        return "check with \"once keys show\" before you try again";
    case ONCE_E_FULL:
        return "raise the store's bound, or remove records: once reap, once keys purge";
    case ONCE_E_SECRET:
        return "add the secrets that the other programs use: secrets=file:PATH in the URL";
    case ONCE_E_SEALED:
        return "add the key file: encrypt=file:PATH in the URL";
    case ONCE_E_CORRUPT:
        return "keep a copy of the store before changing anything";
    case ONCE_E_KEY:
        return "a key has 1 to 255 bytes";
    case ONCE_E_CONFIG:
        return "is the schema installed (once pg install), and may this user use it?";
    case ONCE_E_CONFLICT:
        return "another program did the same at the same time";
    default:
        return NULL;
    }
}

/* The store of this run: what it says about itself is more than an error's number. */
static once_t *opened;
static int is_waited_for; /* longer than for its first answer */

int once__cli_store_failed(const char *what, int error)
{
    const char *help = advice(error);
    char trouble[500] = "";

    if (opened != NULL && (error == ONCE_E_CONFIG || error == ONCE_E_UNAVAILABLE)) {
        (void)once_store_trouble(opened, trouble, sizeof(trouble));
    }
    if (strstr(trouble, "permission denied") != NULL) {
        once__cli_say(
            "cannot %s: %s; GRANT this user one of the roles once_monitor (stats, keys list), "
            "once_operator (also keys show, settle, purge) and once_gateway",
            what, trouble);
    } else if (strncmp(trouble, "once: ", 6) == 0) { /* the server answers, and knows why not */
        once__cli_say("cannot %s: %s", what, trouble + 6);
    } else if (trouble[0] != '\0' && error == ONCE_E_UNAVAILABLE && !is_waited_for) {
        once__cli_say("cannot %s: the store cannot be reached: %s", what, trouble);
    } else if (trouble[0] != '\0') {
        once__cli_say("cannot %s: %s; the server: %s", what, once_error_text(error), trouble);
    } else if (help != NULL) {
        once__cli_say("cannot %s: %s; %s", what, once_error_text(error), help);
    } else {
        once__cli_say("cannot %s: %s", what, once_error_text(error));
    }
    if (error == ONCE_E_NOT_FOUND) {
        return ONCE__CLI_NOT_FOUND;
    }
    return error == ONCE_E_KEY || error == ONCE_E_INVALID ? ONCE__CLI_USAGE : ONCE__CLI_STORE;
}

int once__cli_tell_damaged(const once_answer_t *answer, int code)
{
    uint64_t damaged = answer != NULL ? once_answer_damaged(answer) : 0;

    if (damaged == 0) {
        return code;
    }
    once__cli_say("%" PRIu64
                  " records cannot be read and are not shown; \"once fsck\" checks a local store",
                  damaged);
    return code == ONCE__CLI_OK ? ONCE__CLI_STORE : code;
}

/* A person is waiting: do not insist, unless the URL says how long to wait for the store. */
static const char *const settings_of_commands[] = {"insist", "off", NULL};
static const char *const none[] = {NULL};

static int set_options(once_options_t *options, const char *const *settings, once_error_t *err)
{
    int code = once_options_set(options, "reap", "off", err);

    for (size_t i = 0; code == ONCE_OK && settings[i] != NULL; i += 2) {
        code = once_options_set(options, settings[i], settings[i + 1], err);
    }
    return code;
}

static int is_opening;

/* Only while a store is being opened: what comes later is the result of a command. */
static void say_opening(once_log_level_t level, const char *message, void *data)
{
    (void)level;
    (void)data;
    if (is_opening) {
        once__cli_say("%s", message);
    }
}

int once__cli_open_url(const char *url, const char *const *settings, once_t **once)
{
    once_options_t *options = once_options_new();
    once_error_t err = {0};
    int code = ONCE_E_NOMEM;

    *once = NULL;
    if (options != NULL) {
        once_options_set_log(options, ONCE_LOG_NOTICE, say_opening, NULL);
        code = set_options(options, settings, &err);
    }
    if (code == ONCE_OK) {
        is_opening = 1;
        code = once_open(url, options, once, &err);
        is_opening = 0;
    }
    once_options_free(options);
    opened = *once;
    if (code == ONCE_OK) {
        return ONCE__CLI_OK;
    }
    once__cli_say("cannot open the store: %s",
                  err.text[0] != '\0' ? err.text : once_error_text(code));
    return code == ONCE_E_CONFIG || code == ONCE_E_UNSUPPORTED ? ONCE__CLI_USAGE : ONCE__CLI_STORE;
}

/* Opening a local store makes it where there is none: a mistyped path must not look like an empty store. */
static int open_existing(const once__cli_call_t *call, const char *const *settings, once_t **once)
{
    once_error_t err = {0};

    *once = NULL;
    if (once_local_exists(call->url, &err) == ONCE_E_NOT_FOUND) {
        once__cli_say("cannot open the store: %s", err.text);
        return ONCE__CLI_STORE;
    }
    is_waited_for = strstr(call->url, "store_timeout=") != NULL;
    return once__cli_open_url(call->url, settings, once);
}

int once__cli_open(const once__cli_call_t *call, once_t **once)
{
    int waits = strstr(call->url, "store_timeout=") != NULL;

    return open_existing(call, waits ? none : settings_of_commands, once);
}

int once__cli_open_threaded(const once__cli_call_t *call, once_t **once)
{
    static const char *const settings[] = {"insist", "off", "thread", "on", NULL};

    return open_existing(call, settings, once);
}

int once__cli_reach(const char *url)
{
    static const uint8_t no_record[ONCE_ID_SIZE];
    int error = ONCE_OK, code = ONCE__CLI_OK;
    once_t *once;

    is_waited_for = strstr(url, "://") == NULL || strstr(url, "store_timeout=") != NULL;
    if (is_waited_for) {
        return ONCE__CLI_OK;
    }
    code = once__cli_open_url(url, settings_of_commands, &once);
    if (code == ONCE__CLI_OK) {
        error = once_record_get_sync(once, no_record, NULL);
    }
    if (error == ONCE_E_UNAVAILABLE) {
        code = once__cli_store_failed("begin", error);
    }
    once__cli_close(once);
    return code;
}

void once__cli_close(once_t *once)
{
    opened = once == opened ? NULL : opened;
    once_close(once, 0);
}

/*
 * Reading a record that is not there waits for the store as long as the URL allows. When the store has answered that, the
 * secrets cannot be far.
 */
int once__cli_wait_for_secrets(once_t *once)
{
    static const uint8_t no_record[ONCE_ID_SIZE];
    const once_slice_t empty = {"", 0};
    uint8_t hash[ONCE_SCOPE_HASH_SIZE];
    int code = once_scope_hash_of(once, empty, hash);

    if (code != ONCE_E_UNAVAILABLE) {
        return code;
    }
    code = once_record_get_sync(once, no_record, NULL);
    if (code != ONCE_OK && code != ONCE_E_NOT_FOUND) {
        return code;
    }
    code = once_scope_hash_of(once, empty, hash);
    for (int i = 0; code == ONCE_E_UNAVAILABLE && i < SECRETS_WAITS; i++) {
        int waited = once_wait(once, SECRETS_WAIT_MS);
        code = waited < 0 ? waited : once_scope_hash_of(once, empty, hash);
    }
    return code;
}
