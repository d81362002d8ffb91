/*
 * once gate: a gateway in front of a backend, from one command line.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/gate.h"
#include "cli/store.h"
#include "cli/text.h"

#define CONNECTIONS_MAX 4096
#define WORKERS_MAX     256

typedef struct gate {
    const char *upstream;
    once__cli_list_t listen;
    const char *store;
    once__cli_list_t route;
    const char *scope;
    const char *tls_cert;
    const char *tls_key;
    const char *status;
    once__cli_list_t set;
    once__cli_number_t workers;
    const char *nginx;
    const char *module;
    int print_config;
} gate_t;

/* ------------------------------------------------------------------------------------------------------------- reading */

static int read_addresses(const once__cli_command_t *command, const gate_t *gate,
                          once__gate_plan_t *plan)
{
    int code = ONCE__CLI_OK;

    if (gate->listen.count > ONCE__GATE_LISTEN_MAX) {
        return once__cli_usage(command, "--listen can be given %d times at most",
                               ONCE__GATE_LISTEN_MAX);
    }
    for (size_t i = 0; code == ONCE__CLI_OK && i < gate->listen.count; i++) {
        code = once__gate_read_address(command, "listen", gate->listen.items[i],
                                       &plan->listen[plan->listen_count++]);
    }
    if (gate->listen.count == 0) {
        plan->listen_count = 1;
        code = once__gate_read_address(command, "listen", "127.0.0.1:8080", &plan->listen[0]);
    }
    if (code == ONCE__CLI_OK && gate->status != NULL) {
        plan->has_status = 1;
        code = once__gate_read_address(command, "status", gate->status, &plan->status);
    }
    return code;
}

/* Two locations of one path would be one too many for nginx. */
static int check_routes(const once__cli_command_t *command, const once__gate_plan_t *plan)
{
    for (size_t i = 0; i < plan->route_count; i++) {
        for (size_t j = 0; j < i; j++) {
            const once__gate_route_t *a = &plan->routes[i];
            const once__gate_route_t *b = &plan->routes[j];
            if (a->exact == b->exact && strcmp(a->path, b->path) == 0) {
                return once__cli_usage(command,
                                       "there are two routes for %s: name their methods in one, "
                                       "separated by commas",
                                       once__cli_shown(a->path).text);
            }
        }
    }
    return ONCE__CLI_OK;
}

static int read_routes(const once__cli_command_t *command, const gate_t *gate,
                       once__gate_plan_t *plan)
{
    int code = ONCE__CLI_OK;

    plan->routes = calloc(gate->route.count + 1, sizeof(plan->routes[0]));
    plan->directives = calloc(gate->set.count + 1, sizeof(plan->directives[0]));
    if (plan->routes == NULL || plan->directives == NULL) {
        once__cli_say("out of memory");
        return ONCE__CLI_STORE;
    }
    for (size_t i = 0; code == ONCE__CLI_OK && i < gate->route.count; i++) {
        code = once__gate_read_route(command, gate->route.items[i],
                                     &plan->routes[plan->route_count++]);
    }
    for (size_t i = 0; code == ONCE__CLI_OK && i < gate->set.count; i++) {
        code = once__gate_read_directive(command, gate->set.items[i],
                                         &plan->directives[plan->directive_count++]);
    }
    if (code == ONCE__CLI_OK) {
        code = check_routes(command, plan);
    }
    if (code == ONCE__CLI_OK) {
        plan->scope_is_default = gate->scope == NULL;
        code = once__gate_read_scope(
            command, gate->scope != NULL ? gate->scope : "header:Authorization,optional",
            &plan->scope);
    }
    return code;
}

static int read_tls(const once__cli_command_t *command, const gate_t *gate, once__gate_plan_t *plan)
{
    int code;

    if ((gate->tls_cert == NULL) != (gate->tls_key == NULL)) {
        return once__cli_usage(command, "--tls-cert and --tls-key are needed together");
    }
    if (gate->tls_cert == NULL) {
        return ONCE__CLI_OK;
    }
    code = once__gate_find_file("the certificate", gate->tls_cert, plan->tls_cert);
    if (code == ONCE__CLI_OK) {
        code = once__gate_find_file("the key", gate->tls_key, plan->tls_key);
    }
    if (code == ONCE__CLI_OK && (strchr(plan->tls_cert, '$') || strchr(plan->tls_key, '$'))) {
        code =
            once__cli_usage(command, "nginx takes a $ in the name of a certificate for a variable");
    }
    return code;
}

/* nginx may be run from elsewhere: a relative path becomes an absolute one, its odd characters encoded as in every URL. */
static int read_store(const once__cli_command_t *command, const gate_t *gate,
                      once__gate_plan_t *plan)
{
    const char *url = gate->store != NULL ? gate->store : getenv("ONCE_STORE");
    char folder[1024];
    size_t used;

    if (url == NULL || url[0] == '\0') {
        url = "local:./once-data";
    }
    if (strlen(url) > ONCE__GATE_WORD_MAX) {
        return once__cli_usage(command, "the store's URL is too long");
    }
    if (strncmp(url, "local:", 6) != 0 || url[6] == '/' || url[6] == '\0') {
        snprintf(plan->store, sizeof(plan->store), "%s", url);
        return ONCE__CLI_OK;
    }
    if (getcwd(folder, sizeof(folder)) == NULL) {
        once__cli_say("cannot tell which directory this is: %m");
        return ONCE__CLI_STORE;
    }
    used = (size_t)snprintf(plan->store, sizeof(plan->store), "local:");
    for (const char *at = folder; *at != '\0'; at++) {
        unsigned char byte = (unsigned char)*at;
        int plain = byte > 0x20 && byte < 0x7f && strchr("%?&#\"\\$", byte) == NULL;
        used += (size_t)snprintf(plan->store + used, 4, plain ? "%c" : "%%%02X", byte);
    }
    url += strncmp(url + 6, "./", 2) == 0 ? 8 : 6;
    snprintf(plan->store + used, sizeof(plan->store) - used, "/%s", url);
    return ONCE__CLI_OK;
}

static int read_workers(const once__cli_command_t *command, const gate_t *gate,
                        once__gate_plan_t *plan)
{
    uint64_t workers = gate->workers.given ? gate->workers.value : 1;

    if (workers == 0 || workers > WORKERS_MAX) {
        return once__cli_usage(command, "--workers is 1 to %d", WORKERS_MAX);
    }
    if (workers > 1 && strncmp(plan->store, "memory:", 7) == 0) {
        return once__cli_usage(command, "a store in memory is not shared by several workers");
    }
    plan->workers = (unsigned)workers;
    return ONCE__CLI_OK;
}

/* As many files as the system lets this user open; a connection takes two. */
static void allow_connections(once__gate_plan_t *plan)
{
    struct rlimit limit;

    plan->connections = CONNECTIONS_MAX;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return;
    }
    if (limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max < 65536 ? limit.rlim_max : 65536;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur < 2 * CONNECTIONS_MAX) {
        plan->connections = limit.rlim_cur > 64 ? (unsigned)limit.rlim_cur / 2 : 32;
    }
}

static int read_plan(const once__cli_command_t *command, const gate_t *gate,
                     once__gate_plan_t *plan)
{
    int code;

    if (gate->upstream == NULL) {
        return once__cli_usage(command, "where is the backend? --upstream http://127.0.0.1:3000");
    }
    code = read_addresses(command, gate, plan);
    if (code == ONCE__CLI_OK) {
        code = read_routes(command, gate, plan);
    }
    if (code == ONCE__CLI_OK) {
        code = read_store(command, gate, plan);
    }
    if (code == ONCE__CLI_OK) {
        code = read_workers(command, gate, plan);
    }
    if (code == ONCE__CLI_OK) {
        code = once__gate_read_upstream(command, gate->upstream, &plan->upstream);
    }
    if (code == ONCE__CLI_OK) {
        code = read_tls(command, gate, plan);
    }
    if (code == ONCE__CLI_OK) {
        code = once__gate_find_module(gate->module, plan->module);
    }
    allow_connections(plan);
    return code;
}

static void free_plan(once__gate_plan_t *plan)
{
    for (size_t i = 0; i < plan->route_count; i++) {
        once__gate_words_free(&plan->routes[i].words);
    }
    for (size_t i = 0; i < plan->directive_count; i++) {
        once__gate_words_free(&plan->directives[i]);
    }
    free(plan->routes);
    free(plan->directives);
    free(plan);
}

/* ------------------------------------------------------------------------------------------------------------- running */

/* Opened and closed: what is wrong with the store is told here, in place of 503 to everybody. */
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

static void tell_plan(const once__gate_plan_t *plan)
{
    const char *scheme = plan->tls_cert[0] != '\0' ? "https" : "http";
    char store[ONCE__GATE_PATH_SIZE];

    for (size_t i = 0; i < plan->listen_count; i++) {
        int is_unix = plan->listen[i].sockaddr.ss_family == AF_UNIX;
        printf("once gate: %s%s%s -> %s\n", is_unix ? "" : scheme, is_unix ? "" : "://",
               plan->listen[i].text, plan->upstream.text);
    }
    if (plan->route_count == 0) {
        puts("  guarded  POST and PATCH of every path");
    }
    for (size_t i = 0; i < plan->route_count; i++) {
        printf("  guarded  %s %s%s\n", plan->routes[i].methods,
               once__cli_shown(plan->routes[i].path).text, plan->routes[i].exact ? "" : "...");
    }
    printf("  scope    %s%s\n", plan->scope.told,
           plan->scope.optional ? " where there is one; keys without it are common to all clients"
                                : "");
    if (plan->scope_is_default) {
        puts("           (a token that changes makes its keys new ones: --scope names what is "
             "stable)");
    }
    /* Of a local store nothing is secret; of others once__cli_shown hides what may be. */
    once__cli_escape(store, sizeof(store), once__cli_slice(plan->store));
    printf("  store    %s\n",
           strncmp(plan->store, "local:", 6) == 0 ? store : once__cli_shown(plan->store).text);
    if (strncmp(plan->store, "memory:", 7) == 0) {
        puts("           (forgotten when the gate ends or is reloaded)");
    }
    if (plan->has_status) {
        printf("  status   %s%s/metrics\n",
               plan->status.sockaddr.ss_family == AF_UNIX ? "" : "http://", plan->status.text);
    }
    fflush(stdout);
}

static int serve(const gate_t *gate, once__gate_plan_t *plan)
{
    int code = once__gate_find_nginx(gate->nginx, plan->nginx);

    if (code == ONCE__CLI_OK) {
        code = check_addresses(plan);
    }
    if (code == ONCE__CLI_OK) {
        code = check_store(plan);
    }
    if (code == ONCE__CLI_OK) {
        tell_plan(plan);
        code = once__gate_run(plan);
    }
    return code;
}

static int run_gate(const once__cli_call_t *call)
{
    const gate_t *gate = call->settings;
    once__gate_plan_t *plan = calloc(1, sizeof(*plan));
    int code;

    if (plan == NULL) {
        once__cli_say("out of memory");
        return ONCE__CLI_STORE;
    }
    code = read_plan(call->command, gate, plan);
    if (code == ONCE__CLI_OK && gate->print_config) {
        once__gate_write_config(plan, stdout);
    } else if (code == ONCE__CLI_OK) {
        code = serve(gate, plan);
    }
    free_plan(plan);
    return code;
}

/* clang-format off */
static const once__cli_option_t options[] = {
    {"upstream", 0, ONCE__CLI_TEXT, "URL", "the backend: http://HOST[:PORT], https://..., http://unix:/PATH", offsetof(gate_t, upstream)},
    {"listen", 0, ONCE__CLI_LIST, "ADDRESS", "where to listen; 127.0.0.1:8080. May be repeated", offsetof(gate_t, listen)},
    {"store", 0, ONCE__CLI_TEXT, "URL", "ONCE_STORE, or local:./once-data", offsetof(gate_t, store)},
    {"route", 0, ONCE__CLI_LIST, "ROUTE", "guard this only: 'METHODS PATH [NAME=VALUE]...'. May be repeated", offsetof(gate_t, route)},
    {"scope", 0, ONCE__CLI_TEXT, "SCOPE", "whose key it is: header:NAME, cookie:NAME, none", offsetof(gate_t, scope)},
    {"tls-cert", 0, ONCE__CLI_TEXT, "FILE", "TLS and HTTP/2 with this certificate (PEM, with its chain)", offsetof(gate_t, tls_cert)},
    {"tls-key", 0, ONCE__CLI_TEXT, "FILE", "and this key (PEM)", offsetof(gate_t, tls_key)},
    {"status", 0, ONCE__CLI_TEXT, "ADDRESS", "counters there: /metrics, for Prometheus", offsetof(gate_t, status)},
    {"set", 0, ONCE__CLI_LIST, "DIRECTIVE", "a directive for all of it: 'once_wait 5s'. May be repeated", offsetof(gate_t, set)},
    {"workers", 0, ONCE__CLI_NUMBER, "N", "processes that serve; 1", offsetof(gate_t, workers)},
    {"nginx", 0, ONCE__CLI_TEXT, "FILE", "the nginx to run", offsetof(gate_t, nginx)},
    {"module", 0, ONCE__CLI_TEXT, "FILE", "the module to load: ngx_http_once_module.so", offsetof(gate_t, module)},
    {"print-config", 0, ONCE__CLI_FLAG, NULL, "prints the configuration for nginx, and ends", offsetof(gate_t, print_config)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_gate = {
    .name = "gate",
    .operands = "",
    .summary = "runs the gateway: every guarded request takes effect once",
    .details =
        "    once gate --upstream http://127.0.0.1:3000 --route 'POST /payments recover=hold'\n"
        "\n"
        "Runs nginx with the module in front of a backend, in the foreground, with the log on\n"
        "standard output. Without --route every POST and PATCH is guarded. PATH is a prefix or,\n"
        "with $ behind it, exact; the longest wins. NAME is a directive of the module without\n"
        "\"once_\": ttl, lease, recover, record, release, wait, require, key, fingerprint, ...;\n"
        "and scope. INT and QUIT let requests end first, TERM does not wait, HUP reads\n"
        "certificates again.\n",
    .store = ONCE__CLI_NO_STORE,
    .options = options,
    .settings_size = sizeof(gate_t),
    .run = run_gate,
};
