/*
 * once secret: a new secret for fingerprints (rotate), one for the signatures of webhooks (webhook).
 */
#include <inttypes.h>
#include <stdio.h>

#include "broker/http/signature.h"
#include "cli/commands.h"
#include "cli/store.h"
#include "cli/text.h"
#include "cli/units.h"

#define KEEP_MS (UINT64_C(48) * 3600 * 1000)

typedef struct settings {
    once__cli_number_t keep;
} settings_t;

static int run_rotate(const once__cli_call_t *call)
{
    const settings_t *set = call->settings;
    uint64_t keep_ms = set->keep.given ? set->keep.value : KEEP_MS;
    once_answer_t *answer = NULL;
    once_t *once;
    int code = once__cli_open(call, &once);

    if (code == ONCE__CLI_OK) {
        int error = once__cli_wait_for_secrets(once);
        if (error == ONCE_OK) {
            error = once_secret_rotate_sync(once, keep_ms, &answer);
        }
        if (error == ONCE_OK) {
            printf("new fingerprints are made with secret %" PRIu64
                   "; secrets replaced more than %s ago are forgotten\n",
                   once_answer_count(answer), once__cli_duration(keep_ms).text);
        } else if (error == ONCE_E_FULL) {
            (void)fprintf(stderr,
                          "once secret rotate: four secrets are in use, which is the maximum; "
                          "wait until the oldest "
                          "was replaced longer than --keep ago, or choose a shorter --keep\n");
            code = ONCE__CLI_REFUSED;
        } else {
            code = once__cli_store_failed("rotate the secret", error);
        }
    }
    once_answer_free(answer);
    once__cli_close(once);
    return code;
}

/* clang-format off */
static const once__cli_option_t options[] = {
    {"keep", 0, ONCE__CLI_DURATION, "TIME", "forget secrets replaced longer ago than this (default 48h)",
     offsetof(settings_t, keep)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_secret_rotate = {
    .name = "secret rotate",
    .operands = "[URL]",
    .summary = "start a new secret for fingerprints",
    .details =
        "Running programs pick it up themselves, and earlier secrets stay valid for stored\n"
        "records. A record whose secret is forgotten answers mismatch, so keep secrets at least "
        "as\n"
        "long as the longest retention. At most four secrets are kept: do not rotate more than\n"
        "three times within one retention. No secret is printed.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .options = options,
    .settings_size = sizeof(settings_t),
    .run = run_rotate,
};

/* ----------------------------------------------------------------------------------------------------------- webhook */

static int run_webhook(const once__cli_call_t *call)
{
    char secret[ONCE__HTTP_SECRET_TEXT_SIZE];

    if (once__http_secret_new(secret) != 0) {
        once__cli_say("%s: cannot get random bytes", call->command->name);
        return ONCE__CLI_STORE;
    }
    puts(secret);
    return ONCE__CLI_OK;
}

const once__cli_command_t once__cli_secret_webhook = {
    .name = "secret webhook",
    .operands = "",
    .summary = "make a secret for signing webhooks",
    .details =
        "Prints whsec_ and the base64 of 32 random bytes, as Standard Webhooks defines. Only its\n"
        "owner may read the file of once relay --secret-file:\n"
        "    (umask 077; once secret webhook > FILE)\n",
    .store = ONCE__CLI_NO_STORE,
    .run = run_webhook,
};
