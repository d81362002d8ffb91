/*
 * once gate: a gateway in front of a backend, from one command line.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "cli/config.h"
#include "cli/store.h"
#include "cli/text.h"
#include "gate/internal.h"
#include "service/log.h"

/* Opens and closes the store: a problem is reported here instead of as 503 to every client. */
static int check_store(const once__gate_plan_t *plan)
{
    static const char *const none[] = {NULL};
    once_t *once = NULL;
    int code = once__cli_open_url(plan->store, none, &once);

    if (code == ONCE__CLI_OK) {
        int error = once__cli_wait_for_secrets(once);
        if (error != ONCE_OK) {
            code = once__cli_store_failed("use the store", error);
        }
    }
    once__cli_close(once);
    return code;
}

static int check_addresses(const once__gate_plan_t *plan)
{
    int code = plan->has_status ? once__gate_check_address(&plan->status) : ONCE__CLI_OK;

    for (size_t i = 0; code == ONCE__CLI_OK && i < plan->listen_count; i++) {
        code = once__gate_check_address(&plan->listen[i]);
    }
    return code;
}

static const char *const meanings[][2] = {
    {"retry", "if a response is lost, a retry runs the operation again: it may take effect twice"},
    {"hold", "if a response is lost, the operation never runs again until someone settles it"},
    {"transactional", "the backend's transaction decides; nothing takes effect twice"},
};

#define MEANING_COUNT (sizeof(meanings) / sizeof(meanings[0]))

/* What happens after a lost response is the first thing to know about a gate. */
static void tell_policy(const char *policy)
{
    for (size_t i = 0; i < MEANING_COUNT; i++) {
        if (strcmp(policy, meanings[i][0]) == 0) {
            printf("           recover=%s: %s\n", policy, meanings[i][1]);
        }
    }
}

/* A document may have hundreds of routes: each of their policies is explained once. */
static void tell_described(const once__gate_plan_t *plan)
{
    once__gate_tell_openapi(plan);
    for (size_t m = 0; m < MEANING_COUNT; m++) {
        int found = 0;
        for (size_t i = 0; !found && i < plan->route_count; i++) {
            const once__gate_route_t *route = &plan->routes[i];
            found = route->pattern != NULL && !route->off &&
                    strcmp(once__gate_policy(plan, route), meanings[m][0]) == 0;
        }
        if (found) {
            tell_policy(meanings[m][0]);
        }
    }
}

static void tell_routes(const once__gate_plan_t *plan)
{
    if (plan->route_count == 0 && plan->options->profile != NULL) {
        printf("  guarded  the methods of profile %s on every path\n",
               once__cli_shown(plan->options->profile).text);
        tell_policy(once__gate_policy(plan, NULL));
    } else if (plan->route_count == 0) {
        puts("  guarded  POST and PATCH on every path");
        tell_policy(once__gate_policy(plan, NULL));
    }
    for (size_t i = 0; i < plan->route_count; i++) {
        if (plan->routes[i].pattern != NULL) {
            continue;
        }
        printf("  guarded  %s %s%s\n", plan->routes[i].methods,
               once__cli_shown(plan->routes[i].path).text, plan->routes[i].exact ? "" : "...");
        tell_policy(once__gate_policy(plan, &plan->routes[i]));
    }
    tell_described(plan);
}

static void tell_scope(const once__gate_plan_t *plan)
{
    printf("  scope    %s%s\n", plan->scope.shown,
           plan->scope.optional ? " if present; requests without it share one key space" : "");
    if (plan->scope_is_default) {
        puts("           (requests without it get 400; if tokens rotate, give --scope a stable "
             "identity)");
    }
}

/* Nothing in a local URL is secret; once__cli_shown_url hides what may be in others. */
static void show_store(const once__gate_plan_t *plan, char store[ONCE__GATE_PATH_SIZE])
{
    if (strncmp(plan->store, "local:", 6) == 0) {
        once__cli_escape(store, ONCE__GATE_PATH_SIZE, once__slice_of(plan->store));
    } else {
        snprintf(store, ONCE__GATE_PATH_SIZE, "%s", once__cli_shown_url(plan->store).text);
    }
}

static void tell_plan_json(const once__gate_plan_t *plan)
{
    const once__service_log_t log = {"gate", ONCE__SERVICE_LOG_INFO, STDOUT_FILENO};
    char store[ONCE__GATE_PATH_SIZE];

    show_store(plan, store);
    for (size_t i = 0; i < plan->listen_count; i++) {
        once__service_log(
            &log, ONCE__SERVICE_LOG_INFO, "started",
            ONCE__SERVICE_FIELDS(
                once__service_field_text("version", once_version()),
                once__service_field_text("listen", plan->listen[i].text),
                once__service_field_text("upstream", plan->upstream.text),
                once__service_field_text("store", store),
                once__service_field_text("status", plan->has_status ? plan->status.text : NULL)));
    }
    if (!once__gate_upstream_answers(&plan->upstream)) {
        once__service_log(&log, ONCE__SERVICE_LOG_WARN,
                          "the backend does not accept connections yet: requests get 502 until "
                          "it does",
                          NULL);
    }
}

static void tell_plan(const once__gate_plan_t *plan)
{
    const char *scheme = plan->tls_cert[0] != '\0' ? "https" : "http";
    char store[ONCE__GATE_PATH_SIZE];

    if (plan->options->log_json) {
        tell_plan_json(plan);
        return;
    }
    for (size_t i = 0; i < plan->listen_count; i++) {
        int is_unix = plan->listen[i].sockaddr.ss_family == AF_UNIX;
        printf("once gate: %s%s%s -> %s\n", is_unix ? "" : scheme, is_unix ? "" : "://",
               plan->listen[i].text, plan->upstream.text);
    }
    if (!once__gate_upstream_answers(&plan->upstream)) {
        puts("  backend  does not accept connections yet: requests get 502 until it does");
    }
    tell_routes(plan);
    tell_scope(plan);
    if (plan->auth.given) {
        printf("  auth     %s%s is asked before a stored response is sent\n",
               plan->auth.own ? plan->auth.server.text : plan->upstream.text, plan->auth.path);
    }
    show_store(plan, store);
    printf("  store    %s\n", store);
    if (strncmp(plan->store, "memory:", 7) == 0) {
        puts("           (lost when the gate stops or reloads)");
    }
    if (plan->user[0] != '\0') {
        printf("  user     %s\n", plan->user);
    }
    if (plan->has_status) {
        printf("  status   %s%s: /metrics, /health, /ready\n",
               plan->status.sockaddr.ss_family == AF_UNIX ? "" : "http://", plan->status.text);
    }
    fflush(stdout);
}

/* Opens the store as the user of the workers. */
static int try_store(const once__gate_plan_t *plan)
{
    int made = once__gate_make_store(plan);
    int code = once__gate_as_user(plan, check_store);

    if (code == ONCE__CLI_STORE && plan->user[0] != '\0' && plan->folder[0] != '\0') {
        once__cli_say("requests are served as %s, which must be able to write to the store: "
                      "for example --store local:/var/lib/once",
                      plan->user);
    }
    if (code != ONCE__CLI_OK && made) {
        rmdir(plan->folder);
    }
    return code;
}

static int serve(once__gate_plan_t *plan)
{
    int code = once__gate_find_nginx(plan->options->nginx, plan->nginx);

    if (code == ONCE__CLI_OK) {
        code = check_addresses(plan);
    }
    if (code == ONCE__CLI_OK) {
        code = try_store(plan);
    }
    if (code == ONCE__CLI_OK) {
        tell_plan(plan);
        code = once__gate_run(plan);
    }
    return code;
}

/* ---------------------------------------------------------------------------------------------------------- reload */

static int needs_restart(const char *option)
{
    once__cli_say("--%s is another one now: only a restart of the gate changes it", option);
    return ONCE__CLI_USAGE;
}

/* What nginx could take over, but the gate around it would not know of. */
static int check_same(const once__gate_plan_t *now, const once__gate_plan_t *next)
{
    int same = now->listen_count == next->listen_count;

    for (size_t i = 0; same && i < now->listen_count; i++) {
        same = strcmp(now->listen[i].text, next->listen[i].text) == 0;
    }
    if (!same) {
        return needs_restart("listen");
    }
    if (strcmp(now->status.text, next->status.text) != 0) {
        return needs_restart("status");
    }
    if (strcmp(now->store, next->store) != 0) {
        return needs_restart("store");
    }
    if (strcmp(now->user, next->user) != 0) {
        return needs_restart("user");
    }
    if (now->socket_mode != next->socket_mode) {
        return needs_restart("socket-mode");
    }
    if (now->options->log_json != next->options->log_json) {
        return needs_restart("log-json");
    }
    return strcmp(now->module, next->module) != 0 ? needs_restart("module") : ONCE__CLI_OK;
}

/* The command line once more, with what its file says now. */
typedef struct again {
    once__gate_options_t settings;
    once__cli_config_t config;
    const char **operands;
    once__gate_plan_t *plan;
} again_t;

static int read_again(const once__gate_plan_t *now, again_t *again)
{
    const once__cli_call_t *call = now->call;
    once__cli_parsed_t parsed = {.settings = &again->settings, .config = &again->config};
    int code;

    again->plan = calloc(1, sizeof(*again->plan));
    again->operands =
        calloc((size_t)call->argc + ONCE__CLI_CONFIG_OPERANDS, sizeof(again->operands[0]));
    if (again->plan == NULL || again->operands == NULL) {
        once__cli_say("out of memory");
        return ONCE__CLI_STORE;
    }
    parsed.operands = again->operands;
    code = once__cli_parse(call->command, call->argc, call->argv, &parsed);
    if (code == ONCE__CLI_OK) {
        again->plan->call = call;
        again->plan->options = &again->settings;
        code = once__gate_read_plan(again->plan);
    }
    return code == ONCE__CLI_OK ? check_same(now, again->plan) : code;
}

static void free_again(again_t *again)
{
    if (again->plan != NULL) {
        once__gate_free_plan(again->plan);
    }
    once__cli_config_free(&again->config);
    free(again->operands);
    free(again);
}

static int write_plan(const once__gate_plan_t *plan, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;

    if (out != NULL) {
        once__gate_write_config(plan, out);
    }
    if (out == NULL || fclose(out) != 0) {
        once__cli_say("cannot write %s: %s", path, strerror(errno));
        if (out == NULL && fd >= 0) {
            close(fd);
        }
        return ONCE__CLI_STORE;
    }
    return ONCE__CLI_OK;
}

int once__gate_write_again(const once__gate_plan_t *now, const char *path)
{
    again_t *again = calloc(1, sizeof(*again));
    int code;

    if (again == NULL) {
        once__cli_say("out of memory");
        return ONCE__CLI_STORE;
    }
    code = read_again(now, again);
    if (code == ONCE__CLI_OK) {
        code = write_plan(again->plan, path);
    }
    free_again(again);
    return code;
}

/* --------------------------------------------------------------------------------------------------------- command */

static int check(once__gate_plan_t *plan)
{
    int code = once__gate_find_nginx(plan->options->nginx, plan->nginx);

    if (code == ONCE__CLI_OK) {
        code = once__gate_check(plan);
    }
    if (code == ONCE__CLI_OK) {
        once__gate_tell_openapi(plan);
        puts("once gate: the configuration is good");
    }
    return code;
}

static int run_gate(const once__cli_call_t *call)
{
    once__gate_plan_t *plan = calloc(1, sizeof(*plan));
    int code;

    if (plan == NULL) {
        once__cli_say("out of memory");
        return ONCE__CLI_STORE;
    }
    plan->call = call;
    plan->options = call->settings;
    code = once__gate_read_plan(plan);
    if (code == ONCE__CLI_OK && plan->options->print_config) {
        once__gate_write_config(plan, stdout);
    } else if (code == ONCE__CLI_OK && plan->options->check) {
        code = check(plan);
    } else if (code == ONCE__CLI_OK) {
        code = serve(plan);
    }
    once__gate_free_plan(plan);
    return code;
}

/* clang-format off */
static const once__cli_option_t options[] = {
    {"upstream", 0, ONCE__CLI_TEXT, "URL", "the backend: http://HOST[:PORT], https://..., http://unix:/PATH, PORT",
     offsetof(once__gate_options_t, upstream)},
    {"listen", 0, ONCE__CLI_LIST, "ADDRESS", "where to listen (default 127.0.0.1:8080); may be repeated",
     offsetof(once__gate_options_t, listen)},
    {"store", 0, ONCE__CLI_TEXT, "URL", "the store (default ONCE_STORE, or local:./once-data)",
     offsetof(once__gate_options_t, store)},
    {"route", 0, ONCE__CLI_LIST, "ROUTE", "guard only 'METHODS PATH [NAME=VALUE]...'; may be repeated",
     offsetof(once__gate_options_t, route)},
    {"openapi", 0, ONCE__CLI_TEXT, "FILE", "guard what this OpenAPI 3 document (YAML or JSON) gives an Idempotency-Key",
     offsetof(once__gate_options_t, openapi)},
    {"scope", 0, ONCE__CLI_TEXT, "SCOPE", "whose key it is: header:NAME, cookie:NAME, none; required if other machines can connect",
     offsetof(once__gate_options_t, scope)},
    {"profile", 0, ONCE__CLI_TEXT, "NAME", "speak as this protocol does: default, draft07, stripe, acp, ucp, iceberg",
     offsetof(once__gate_options_t, profile)},
    {"upstream-ca", 0, ONCE__CLI_TEXT, "FILE", "CA certificates (PEM) to verify an https:// backend with (default: the system's)",
     offsetof(once__gate_options_t, upstream_ca)},
    {"auth", 0, ONCE__CLI_TEXT, "URL", "ask it before a stored response is sent: 2xx allows it, other answers replace it",
     offsetof(once__gate_options_t, auth)},
    {"tls-cert", 0, ONCE__CLI_TEXT, "FILE", "serve TLS and HTTP/2 with this certificate (PEM, with its chain)",
     offsetof(once__gate_options_t, tls_cert)},
    {"tls-key", 0, ONCE__CLI_TEXT, "FILE", "the certificate's key (PEM)", offsetof(once__gate_options_t, tls_key)},
    {"status", 0, ONCE__CLI_TEXT, "ADDRESS", "serve /metrics for Prometheus, /health and /ready at ADDRESS",
     offsetof(once__gate_options_t, status)},
    {"log-keys", 0, ONCE__CLI_TEXT, "HOW", "keys in the access log: text (default), hash (the record's id), off",
     offsetof(once__gate_options_t, log_keys)},
    {"log-json", 0, ONCE__CLI_FLAG, NULL, "log as once relay and once consume do: one JSON object on each line",
     offsetof(once__gate_options_t, log_json)},
    {"set", 0, ONCE__CLI_LIST, "DIRECTIVE", "a directive for all routes, such as 'once_wait 5s'; may be repeated",
     offsetof(once__gate_options_t, set)},
    {"workers", 0, ONCE__CLI_NUMBER, "N", "number of worker processes (default 1)", offsetof(once__gate_options_t, workers)},
    {"user", 0, ONCE__CLI_TEXT, "NAME", "run the workers as this user if started by root (default once)",
     offsetof(once__gate_options_t, user)},
    {"socket-mode", 0, ONCE__CLI_TEXT, "MODE", "mode of unix: sockets (default 0600)", offsetof(once__gate_options_t, socket_mode)},
    {"nginx", 0, ONCE__CLI_TEXT, "FILE", "the nginx to run", offsetof(once__gate_options_t, nginx)},
    {"module", 0, ONCE__CLI_TEXT, "FILE", "the module to load: ngx_http_once_module.so", offsetof(once__gate_options_t, module)},
    ONCE__CLI_CONFIG_OPTION(offsetof(once__gate_options_t, config)),
    {"check", 0, ONCE__CLI_FLAG, NULL, "say whether options and configuration are good, and exit",
     offsetof(once__gate_options_t, check)},
    {"print-config", 0, ONCE__CLI_FLAG, NULL, "print the nginx configuration and exit",
     offsetof(once__gate_options_t, print_config)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_gate = {
    .name = "gate",
    .operands = "",
    .summary = "run the gateway: every guarded request takes effect once",
    .details =
        "    once gate --upstream http://127.0.0.1:3000 --route 'POST /payments recover=hold'\n"
        "\n"
        "Runs nginx with the module in front of a backend, in the foreground, logging to standard\n"
        "output. Without --route every POST and PATCH is guarded. PATH matches as a prefix; end "
        "it\n"
        "with $ for an exact match; the longest match wins. NAME is scope, or a directive of the\n"
        "module without \"once_\": ttl, lease, recover, record, release, wait, require, key, ...\n"
        "--openapi adds a route for each path with an operation that has the header parameter\n"
        "Idempotency-Key; --check shows them.\n"
        "INT and QUIT let running requests finish, TERM does not wait, HUP reads the\n"
        "file of --config again, and certificates; what is wrong with it is reported, and the "
        "gate\n"
        "goes on as it was.\n",
    .store = ONCE__CLI_NO_STORE,
    .options = options,
    .settings_size = sizeof(once__gate_options_t),
    .run = run_gate,
};
