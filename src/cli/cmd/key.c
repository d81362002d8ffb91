/*
 * once key: keys are made and checked. No store is needed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include <once/key.h>

#include "base/bytes.h"
#include "cli/commands.h"
#include "cli/file.h"
#include "cli/text.h"
#include "cli/units.h"

#define NEW_MAX     1000000
#define PAYLOAD_MAX (64 * 1024 * 1024)

/* An error of a key function; all of them are about what was given. */
static int key_failed(const once__cli_command_t *command, int code, const once_error_t *err)
{
    const char *text = err->text[0] != '\0' ? err->text : once_error_text(code);

    if (code == ONCE_E_IO || code == ONCE_E_NOMEM) {
        once__cli_say("%s", text);
        return ONCE__CLI_STORE;
    }
    return once__cli_usage(command, "%s", text);
}

static int print_key(const once__cli_command_t *command, int code, const once_key_t *key,
                     const once_error_t *err)
{
    if (code != ONCE_OK) {
        return key_failed(command, code, err);
    }
    printf("%s\n", key->text);
    return ONCE__CLI_OK;
}

/* --------------------------------------------------------------------------------------------------------------- new */

typedef struct new_settings {
    int v7;
    once__cli_number_t count;
} new_settings_t;

static int run_new(const once__cli_call_t *call)
{
    const new_settings_t *set = call->settings;
    uint64_t count = set->count.given ? set->count.value : 1;
    once_error_t err = {0};

    if (count == 0 || count > NEW_MAX) {
        return once__cli_usage(call->command, "--count must be between 1 and %d", NEW_MAX);
    }
    for (uint64_t i = 0; i < count; i++) {
        char uuid[ONCE_UUID_SIZE];
        int code = set->v7 ? once_key_uuid7(uuid) : once_key_uuid4(uuid);
        if (code != ONCE_OK) {
            return key_failed(call->command, code, &err);
        }
        puts(uuid);
    }
    return ONCE__CLI_OK;
}

static const once__cli_option_t new_options[] = {
    {"v7", 0, ONCE__CLI_FLAG, NULL, "time-ordered (version 7) instead of random (version 4)",
     offsetof(new_settings_t, v7)},
    {"count", 'n', ONCE__CLI_NUMBER, "N", "make N keys (default 1)",
     offsetof(new_settings_t, count)},
    {0},
};

const once__cli_command_t once__cli_key_new = {
    .name = "key new",
    .operands = "",
    .summary = "make a new key (UUID)",
    .options = new_options,
    .settings_size = sizeof(new_settings_t),
    .run = run_new,
};

/* ------------------------------------------------------------------------------------------------------------ derive */

typedef struct derive_settings {
    const char *parent;
    const char *step;
} derive_settings_t;

static int run_derive(const once__cli_call_t *call)
{
    const derive_settings_t *set = call->settings;
    once_error_t err = {0};
    once_key_t key;
    int code;

    if (set->parent == NULL || set->step == NULL) {
        return once__cli_usage(call->command,
                               "missing option; both are needed: --parent KEY --step NAME");
    }
    code = once_key_derive(once__slice_of(set->parent), once__slice_of(set->step), &key, &err);
    return print_key(call->command, code, &key, &err);
}

static const once__cli_option_t derive_options[] = {
    {"parent", 0, ONCE__CLI_TEXT, "KEY", "the key of the whole operation",
     offsetof(derive_settings_t, parent)},
    {"step", 0, ONCE__CLI_TEXT, "NAME", "the name of the step", offsetof(derive_settings_t, step)},
    {0},
};

const once__cli_command_t once__cli_key_derive = {
    .name = "key derive",
    .operands = "",
    .summary = "derive the key of one step, to be sent to a third party",
    .details =
        "It depends only on the parent key and the step's name, so an operation that is resumed\n"
        "sends the same key. It reveals nothing about the parent.\n",
    .options = derive_options,
    .settings_size = sizeof(derive_settings_t),
    .run = run_derive,
};

/* -------------------------------------------------------------------------------------------------------------- hash */

typedef struct hash_settings {
    const char *principal;
    const char *action;
    const char *payload_file;
    once__cli_number_t bucket;
    const char *at;
} hash_settings_t;

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int run_hash(const once__cli_call_t *call)
{
    const hash_settings_t *set = call->settings;
    once__cli_bytes_t payload = {0};
    once_key_parts_t parts = ONCE_KEY_PARTS_INIT;
    once_error_t err = {0};
    once_key_t key;
    int code = ONCE__CLI_OK;

    parts.when_ms = now_ms();
    if (set->principal == NULL || set->action == NULL) {
        return once__cli_usage(call->command,
                               "missing option; both are needed: --principal P --action A");
    }
    if (set->at != NULL && once__cli_read_time(set->at, &parts.when_ms) != 0) {
        return once__cli_usage(call->command,
                               "--at needs Unix seconds or UTC as 2031-05-17T08:30:00Z, not \"%s\"",
                               once__cli_shown(set->at).text);
    }
    if (set->payload_file != NULL) {
        code = once__cli_read_file(set->payload_file, PAYLOAD_MAX, &payload);
    }
    if (code == ONCE__CLI_OK) {
        parts.principal = once__slice_of(set->principal);
        parts.action = once__slice_of(set->action);
        parts.payload = (once_slice_t){payload.data, payload.len};
        parts.bucket_ms = set->bucket.value;
        code = print_key(call->command, once_key_deterministic(&parts, &key, &err), &key, &err);
    }
    once__cli_bytes_free(&payload);
    return code;
}

/* clang-format off */
static const once__cli_option_t hash_options[] = {
    {"principal", 0, ONCE__CLI_TEXT, "P", "who does it", offsetof(hash_settings_t, principal)},
    {"action", 0, ONCE__CLI_TEXT, "A", "what is done", offsetof(hash_settings_t, action)},
    {"payload-file", 0, ONCE__CLI_TEXT, "FILE", "with this content (-: stdin)", offsetof(hash_settings_t, payload_file)},
    {"bucket", 0, ONCE__CLI_DURATION, "TIME", "a new key in every period of this length (default 0: never)",
     offsetof(hash_settings_t, bucket)},
    {"at", 0, ONCE__CLI_TEXT, "TIME", "a time other than now: Unix seconds or 2031-05-17T08:30:00Z",
     offsetof(hash_settings_t, at)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_key_hash = {
    .name = "key hash",
    .operands = "",
    .summary = "make a key from content: principal, action and payload",
    .details =
        "For clients that cannot remember a key: the same input gives the same key on every\n"
        "machine. Legitimate repeats within one bucket are swallowed, and two calls a moment "
        "apart\n"
        "can fall into two buckets; prefer \"once key new\".\n",
    .options = hash_options,
    .settings_size = sizeof(hash_settings_t),
    .run = run_hash,
};

/* ----------------------------------------------------------------------------------------------------------- compose */

static int run_compose(const once__cli_call_t *call)
{
    once_slice_t parts[ONCE_KEY_MAX];
    once_error_t err = {0};
    once_key_t key;
    int code;

    for (size_t i = 0; i < call->operand_count; i++) {
        parts[i] = once__slice_of(call->operands[i]);
    }
    code = once_key_composite(parts, call->operand_count, &key, &err);
    return print_key(call->command, code, &key, &err);
}

const once__cli_command_t once__cli_key_compose = {
    .name = "key compose",
    .operands = "PART...",
    .summary = "join parts into a business key: order 42 refund gives order:42:refund",
    .details =
        "A part may have letters, digits and . _ ~ - only, so that two different lists of parts\n"
        "never give the same key.\n",
    .operands_min = 1,
    .operands_max = ONCE_KEY_MAX,
    .run = run_compose,
};

/* ------------------------------------------------------------------------------------------------------------- check */

typedef struct check_settings {
    int strict;
} check_settings_t;

static int check(const check_settings_t *set, once_slice_t value)
{
    once_error_t err = {0};
    once_key_t key;
    int code = once_key_parse(&value, 1, set->strict ? ONCE_KEY_STRICT : 0, &key, &err);

    if (code == ONCE_OK) {
        printf("%s\n", key.text);
        return ONCE__CLI_OK;
    }
    once__cli_say("not a key: %s", err.text[0] != '\0' ? err.text : once_error_text(code));
    return ONCE__CLI_NO;
}

static int run_check(const once__cli_call_t *call)
{
    once__cli_bytes_t bytes = {0};
    int code;

    if (call->operand_count > 0) {
        return check(call->settings, once__slice_of(call->operands[0]));
    }
    code = once__cli_read_file("-", PAYLOAD_MAX, &bytes);
    if (code == ONCE__CLI_OK) {
        once_slice_t value;
        once__cli_chomp(&bytes);
        value.data = bytes.data;
        value.len = bytes.len;
        code = check(call->settings, value);
    }
    once__cli_bytes_free(&bytes);
    return code;
}

static const once__cli_option_t check_options[] = {
    {"strict", 0, ONCE__CLI_FLAG, NULL, "accept only the quoted form of the IETF draft",
     offsetof(check_settings_t, strict)},
    {0},
};

const once__cli_command_t once__cli_key_check = {
    .name = "key check",
    .operands = "[VALUE]",
    .summary = "validate a key: print it without quotes, or say what is wrong",
    .details = "Reads standard input if no value is given. Exits with 1 if it is not a key.\n",
    .operands_max = 1,
    .options = check_options,
    .settings_size = sizeof(check_settings_t),
    .run = run_check,
};
