/*
 * once serve: libonce as HTTP and JSON.
 */
#include "serve/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/config.h"
#include "cli/options.h"
#include "cli/store.h"
#include "cli/text.h"
#include "service/signals.h"

#define CONNECTIONS_MAX 100000
#define REQUEST_MAX     (256ull * 1024 * 1024)

typedef struct settings {
    const char *config;
    const char *listen, *socket_mode, *token_file, *metrics, *log;
    const char *ttl, *lease, *record, *release;
    once__cli_number_t connections, request, idle, drain;
    int scope_required;
} settings_t;

static uint64_t or_default(const once__cli_number_t *number, uint64_t value)
{
    return number->given ? number->value : value;
}

/* "redis" of rediss://, redis+sentinel:// and redis://. */
static const char *kind_of(const char *url)
{
    static const char *const kinds[] = {"memory", "local", "postgres", "redis"};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strncmp(url, kinds[i], strlen(kinds[i])) == 0) {
            return kinds[i];
        }
    }
    return "other";
}

static int read_mode(const once__cli_call_t *call, unsigned *mode)
{
    const char *text = ((const settings_t *)call->settings)->socket_mode;
    char *end;

    *mode = 0600;
    if (text == NULL) {
        return ONCE__CLI_OK;
    }
    *mode = (unsigned)strtoul(text, &end, 8);
    if (*end != '\0' || strlen(text) < 3 || strlen(text) > 4 || (*mode & ~0660u) != 0 ||
        (*mode & 0600) != 0600) {
        return once__cli_usage(call->command, "--socket-mode must be 0600, 0620 or 0660");
    }
    return ONCE__CLI_OK;
}

static int read_settings(const once__cli_call_t *call, once__serve_settings_t *out)
{
    const settings_t *set = call->settings;

    *out = (once__serve_settings_t){
        .listen = set->listen != NULL ? set->listen : "unix:once.sock",
        .token_file = set->token_file,
        .metrics = set->metrics,
        .store = kind_of(call->url),
        .connections = or_default(&set->connections, 1000),
        .request_bytes = or_default(&set->request, 24ull * 1024 * 1024),
        .idle_ms = or_default(&set->idle, 600000),
        .drain_ms = or_default(&set->drain, 10000),
        .needs_scope = set->scope_required,
    };
    if (out->connections < 1 || out->connections > CONNECTIONS_MAX) {
        return once__cli_usage(call->command, "--connections must be between 1 and %d",
                               CONNECTIONS_MAX);
    }
    if (out->request_bytes < 1024 || out->request_bytes > REQUEST_MAX) {
        return once__cli_usage(call->command, "--max-request must be between 1k and 256m");
    }
    if (out->idle_ms < 1000) {
        return once__cli_usage(call->command, "--idle must be at least 1s");
    }
    return read_mode(call, &out->socket_mode);
}

/* What the command line says, or the store's URL, whose options are those of a handle. */
static int set_policy(const once__cli_call_t *call, once_policy_t *policy, const char *recover)
{
    const settings_t *set = call->settings;
    const char *const parts[][2] = {{"lease", set->lease},
                                    {"ttl", set->ttl},
                                    {"record", set->record},
                                    {"release", set->release},
                                    {"recover", recover}};
    once_error_t err = {0};
    char text[256];

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const char *value = parts[i][1];
        if (value == NULL &&
            once_store_option(call->url, parts[i][0], text, sizeof(text)) == ONCE_OK) {
            value = text;
        }
        if (value != NULL && once_policy_set(policy, parts[i][0], value, &err) != ONCE_OK) {
            return once__cli_usage(call->command, "--%s: %s", parts[i][0], err.text);
        }
    }
    return ONCE__CLI_OK;
}

static int make_policies(const once__cli_call_t *call, once_policy_t **hold, once_policy_t **retry)
{
    int code;

    *hold = once_policy_new();
    *retry = once_policy_new();
    if (*hold == NULL || *retry == NULL) {
        once__cli_say("out of memory");
        return ONCE__CLI_STORE;
    }
    code = set_policy(call, *hold, "hold");
    return code == ONCE__CLI_OK ? set_policy(call, *retry, "retry") : code;
}

static int open_store(const once__cli_call_t *call, once_t **once)
{
    static const char *const options[] = {"reap", "1m", NULL}; /* unlike commands, it stays */
    int code = once__cli_open_url(call->url, options, once), error;

    if (code == ONCE__CLI_OK) {
        error = once__cli_wait_for_secrets(*once);
        if (error != ONCE_OK) {
            code = once__cli_store_failed("use the store", error);
        }
    }
    if (code != ONCE__CLI_OK) {
        once__cli_close(*once);
    }
    return code;
}

static int serve(const once__cli_call_t *call, once__serve_settings_t *with,
                 const once__service_log_t *log)
{
    static const int codes[] = {
        [ONCE__SERVE_ENDED] = ONCE__CLI_OK,
        [ONCE__SERVE_ABORTED] = ONCE__CLI_NO,
        [ONCE__SERVE_WRONG] = ONCE__CLI_USAGE,
        [ONCE__SERVE_FAILED] = ONCE__CLI_STORE,
    };
    char error[400] = "";
    once_t *once = NULL;
    int code, end;

    with->signals = once__service_signals_open(); /* before any thread begins: they inherit it */
    if (with->signals < 0) {
        once__cli_say("cannot receive signals");
        return ONCE__CLI_STORE;
    }
    code = open_store(call, &once);
    if (code == ONCE__CLI_OK) {
        end = once__serve_run(with, once, log, error, sizeof(error));
        code = codes[end];
        if (end == ONCE__SERVE_WRONG) {
            code = once__cli_usage(call->command, "%s", error);
        } else if (end == ONCE__SERVE_FAILED) {
            once__cli_say("serve: %s", error);
        }
    }
    (void)close(with->signals);
    return code;
}

static int run_serve(const once__cli_call_t *call)
{
    const settings_t *set = call->settings;
    once__service_log_t log = {"serve", ONCE__SERVICE_LOG_INFO, STDOUT_FILENO};
    once_policy_t *hold = NULL, *retry = NULL;
    once__serve_settings_t with;
    int code = once__cli_check_values(call);

    if (code == ONCE__CLI_OK) {
        code = read_settings(call, &with);
    }
    if (code == ONCE__CLI_OK && set->log != NULL &&
        once__service_log_level_read(set->log, &log.level) != 0) {
        code = once__cli_usage(call->command, "--log must be debug, info, warn or error");
    }
    if (code == ONCE__CLI_OK) {
        code = make_policies(call, &hold, &retry);
    }
    if (code == ONCE__CLI_OK) {
        with.hold = hold;
        with.retry = retry;
        code = serve(call, &with, &log);
    }
    once_policy_free(hold);
    once_policy_free(retry);
    return code;
}

/* clang-format off */
static const once__cli_option_t options[] = {
    ONCE__CLI_CONFIG_OPTION(offsetof(settings_t, config)),
    {"listen", 0, ONCE__CLI_TEXT, "ADDRESS", "unix:PATH, 127.0.0.1:PORT or [::1]:PORT (default unix:once.sock)",
     offsetof(settings_t, listen)},
    {"socket-mode", 0, ONCE__CLI_TEXT, "MODE", "who may use a unix socket: 0600 (default), 0620, 0660",
     offsetof(settings_t, socket_mode)},
    {"token-file", 0, ONCE__CLI_TEXT, "FILE", "the token that callers over TCP show; made if there is none",
     offsetof(settings_t, token_file)},
    {"scope-required", 0, ONCE__CLI_FLAG, NULL, "refuse requests without a scope, or with an empty one", offsetof(settings_t, scope_required)},
    {"ttl", 0, ONCE__CLI_TEXT, "TIME", "how long an answer is kept, unless the claim says (default 24h)", offsetof(settings_t, ttl)},
    {"lease", 0, ONCE__CLI_TEXT, "TIME", "how long a silent caller is presumed alive, unless the claim says (default 30s)",
     offsetof(settings_t, lease)},
    {"record", 0, ONCE__CLI_TEXT, "STATUSES", "statuses that finish records (default 2xx,3xx,4xx)", offsetof(settings_t, record)},
    {"release", 0, ONCE__CLI_TEXT, "STATUSES", "statuses that are sent before any effect (default 401,403,407,421,425,429)",
     offsetof(settings_t, release)},
    {"connections", 0, ONCE__CLI_NUMBER, "N", "at most N connections at a time (default 1000)", offsetof(settings_t, connections)},
    {"max-request", 0, ONCE__CLI_SIZE, "SIZE", "the biggest request (default 24m)", offsetof(settings_t, request)},
    {"idle", 0, ONCE__CLI_DURATION, "TIME", "close a connection without claims that asks nothing for so long (default 10m)",
     offsetof(settings_t, idle)},
    {"metrics", 0, ONCE__CLI_TEXT, "ADDRESS", "also serve /metrics, /health and /ready at PORT (of 127.0.0.1) or IP:PORT, without a token",
     offsetof(settings_t, metrics)},
    {"log", 0, ONCE__CLI_TEXT, "LEVEL", "debug, info, warn, error (default info)", offsetof(settings_t, log)},
    {"drain", 0, ONCE__CLI_DURATION, "TIME", "how long to wait for answers in flight at the end (default 10s)",
     offsetof(settings_t, drain)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_serve = {
    .name = "serve",
    .operands = "[URL]",
    .summary = "serve a store as HTTP and JSON, for programs in any language",
    .details =
        "    once serve redis://127.0.0.1 --listen unix:/run/once/once.sock\n"
        "\n"
        "A program asks POST /v1/claim before it does the work, and POST /v1/finish after it;\n"
        "docs/serve.md has every operation, openapi/serve.yaml describes them. A unix socket is\n"
        "protected by its mode. A port is on loopback only and needs --token-file: callers send\n"
        "Authorization: Bearer TOKEN; HUP reads the file again.\n"
        "Logs JSON lines to standard output. INT and TERM finish answers in flight first.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .options = options,
    .settings_size = sizeof(settings_t),
    .run = run_serve,
};
