/*
 * once gate: the command line, checked, as a plan.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <once/local.h>

#include "base/text.h"
#include "cli/text.h"
#include "gate/internal.h"

#define CONNECTIONS_MAX 4096
#define WORKERS_MAX     256
#define MODULE          "ngx_http_once_module.so"

/* An ordinary user's PATH lacks the folders of programs for administrators. */
#define MORE_PATHS "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/nginx/sbin:/opt/nginx/sbin"

/* ---------------------------------------------------------------------------------------------- programs and files */

static int find_file(const char *what, const char *name, char path[ONCE__GATE_PATH_SIZE])
{
    char whole[PATH_MAX];

    if (realpath(name, whole) == NULL || access(whole, R_OK) != 0) {
        once__cli_say("cannot read %s %s: %s", what, once__cli_shown(name).text, strerror(errno));
        return ONCE__CLI_STORE;
    }
    snprintf(path, ONCE__GATE_PATH_SIZE, "%s", whole);
    return ONCE__CLI_OK;
}

int once__gate_find_trusted(const char *option, const char *const *places,
                            char path[ONCE__GATE_PATH_SIZE])
{
    const char *variable = getenv("SSL_CERT_FILE"); /* as in every program that uses OpenSSL */

    if (option != NULL || (variable != NULL && variable[0] != '\0')) {
        return find_file("the certificates", option != NULL ? option : variable, path);
    }
    for (; *places != NULL; places++) {
        if (access(*places, R_OK) == 0) {
            return find_file("the certificates", *places, path);
        }
    }
    once__cli_say("no CA certificates to verify the upstream with: install them (Debian: "
                  "apt install ca-certificates), or give a file with --upstream-ca");
    return ONCE__CLI_STORE;
}

/* Looks for the program in folders separated by colons. */
static int find_in(const char *folders, const char *program, char path[ONCE__GATE_PATH_SIZE])
{
    for (const char *at = folders; at != NULL && *at != '\0';) {
        size_t len = strcspn(at, ":");
        int written = snprintf(path, ONCE__GATE_PATH_SIZE, "%.*s/%s", (int)len, at, program);
        if (len > 0 && written < ONCE__GATE_PATH_SIZE && access(path, X_OK) == 0) {
            return 1;
        }
        at += len + (at[len] == ':');
    }
    return 0;
}

static int look_for_nginx(const char *option, char path[ONCE__GATE_PATH_SIZE])
{
    char whole[PATH_MAX];

    if (option == NULL) {
        return find_in(getenv("PATH"), "nginx", path) || find_in(MORE_PATHS, "nginx", path);
    }
    if (access(option, X_OK) != 0 || realpath(option, whole) == NULL) {
        return 0;
    }
    snprintf(path, ONCE__GATE_PATH_SIZE, "%s", whole);
    return 1;
}

int once__gate_find_nginx(const char *option, char path[ONCE__GATE_PATH_SIZE])
{
    if (look_for_nginx(option, path)) {
        return ONCE__CLI_OK;
    }
    if (option != NULL) {
        once__cli_say("cannot run %s: %s", once__cli_shown(option).text, strerror(errno));
    } else {
        once__cli_say("nginx was not found: install it (Debian: apt install nginx), or give its "
                      "path with --nginx");
    }
    return ONCE__CLI_STORE;
}

/* The folder of this program, without the last slash. */
static int own_folder(char folder[PATH_MAX])
{
    ssize_t len = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    char *slash;

    if (len <= 0) {
        return -1;
    }
    folder[len] = '\0';
    slash = strrchr(folder, '/');
    if (slash == NULL) {
        return -1;
    }
    *slash = '\0';
    return 0;
}

static int find_module(const char *option, char path[ONCE__GATE_PATH_SIZE])
{
    static const char *const places[] = {
        "/../lib/nginx/modules/", /* beside bin, where make install puts it */
        "/",                      /* a build directory */
    };
    static const char *const others[] = {"/usr/lib/nginx/modules/", "/usr/local/lib/nginx/modules/",
                                         "/usr/lib64/nginx/modules/", "/etc/nginx/modules/"};
    char folder[PATH_MAX];
    char tried[PATH_MAX + 64];

    if (option != NULL) {
        return find_file("the module", option, path);
    }
    for (size_t i = 0; i < 2 && own_folder(folder) == 0; i++) {
        snprintf(tried, sizeof(tried), "%s%s%s", folder, places[i], MODULE);
        if (access(tried, R_OK) == 0) {
            return find_file("the module", tried, path);
        }
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        snprintf(tried, sizeof(tried), "%s%s", others[i], MODULE);
        if (access(tried, R_OK) == 0) {
            return find_file("the module", tried, path);
        }
    }
    once__cli_say(MODULE
                  " was not found: build it (make build), install it (make install), or give its "
                  "path with --module");
    return ONCE__CLI_STORE;
}

/* ------------------------------------------------------------------------------------------- the parts of the plan */

static int read_addresses(once__gate_plan_t *plan)
{
    int code = ONCE__CLI_OK;

    if (plan->options->listen.count > ONCE__GATE_LISTEN_MAX) {
        return ONCE__GATE_USAGE("--listen can be given at most %d times", ONCE__GATE_LISTEN_MAX);
    }
    for (size_t i = 0; code == ONCE__CLI_OK && i < plan->options->listen.count; i++) {
        code = once__gate_read_address("listen", plan->options->listen.items[i],
                                       &plan->listen[plan->listen_count++]);
    }
    if (plan->options->listen.count == 0) {
        plan->listen_count = 1;
        code = once__gate_read_address("listen", "127.0.0.1:8080", &plan->listen[0]);
    }
    if (code == ONCE__CLI_OK && plan->options->status != NULL) {
        plan->has_status = 1;
        code = once__gate_read_address("status", plan->options->status, &plan->status);
    }
    for (size_t i = 0; code == ONCE__CLI_OK && plan->has_status && i < plan->listen_count; i++) {
        if (strcmp(plan->status.text, plan->listen[i].text) == 0) {
            code = ONCE__GATE_USAGE("--status needs an address of its own: --listen already has %s",
                                    plan->status.text);
        }
    }
    return code;
}

/* nginx allows one location per path. */
static int check_routes(const once__gate_plan_t *plan)
{
    for (size_t i = 0; i < plan->route_count && plan->routes[i].path != NULL; i++) {
        for (size_t j = 0; j < i; j++) {
            const once__gate_route_t *a = &plan->routes[i];
            const once__gate_route_t *b = &plan->routes[j];
            if (a->exact == b->exact && strcmp(a->path, b->path) == 0) {
                return ONCE__GATE_USAGE("there are two routes for %s: put their methods into one, "
                                        "separated by commas",
                                        once__cli_shown(a->path).text);
            }
        }
    }
    return ONCE__CLI_OK;
}

static int read_routes(once__gate_plan_t *plan)
{
    int code = ONCE__CLI_OK;

    plan->routes = calloc(plan->options->route.count + 1, sizeof(plan->routes[0]));
    plan->directives = calloc(plan->options->set.count + 1, sizeof(plan->directives[0]));
    if (plan->routes == NULL || plan->directives == NULL) {
        once__cli_say("out of memory");
        return ONCE__CLI_STORE;
    }
    for (size_t i = 0; code == ONCE__CLI_OK && i < plan->options->route.count; i++) {
        code = once__gate_read_route(plan->options->route.items[i],
                                     &plan->routes[plan->route_count++]);
    }
    for (size_t i = 0; code == ONCE__CLI_OK && i < plan->options->set.count; i++) {
        code = once__gate_read_directive(plan->options->set.items[i],
                                         &plan->directives[plan->directive_count++]);
    }
    if (code == ONCE__CLI_OK) {
        code = check_routes(plan);
    }
    return code;
}

/* Does a guarded request depend on --scope? */
static int needs_scope(const once__gate_plan_t *plan)
{
    int needs = plan->route_count == 0;

    for (size_t i = 0; i < plan->route_count; i++) {
        needs |= !plan->routes[i].has_scope && !plan->routes[i].off;
    }
    return needs;
}

/*
 * No default scope is right everywhere: one that is too narrow (a token that changes) runs an operation twice, one that is too wide
 * shows responses to others. Addresses of this machine, where people try it out, get a safe one: the header Authorization, which
 * every request must have.
 */
static int read_scope(once__gate_plan_t *plan)
{
    plan->scope_is_default = plan->options->scope == NULL && needs_scope(plan);
    for (size_t i = 0; plan->scope_is_default && i < plan->listen_count; i++) {
        if (!once__gate_is_local(&plan->listen[i])) {
            return ONCE__GATE_USAGE(
                "--listen %s is open to other machines and needs --scope, which says whose key it "
                "is: "
                "a header or cookie that your backend verifies (--scope header:X-Api-Key, --scope "
                "cookie:session), or --scope none if all clients may see each other's responses",
                plan->listen[i].text);
        }
    }
    return once__gate_read_scope(
        plan->options->scope != NULL ? plan->options->scope : "header:Authorization", &plan->scope);
}

/* The mode of unix sockets. */
static int read_socket_mode(once__gate_plan_t *plan)
{
    const char *text = plan->options->socket_mode != NULL ? plan->options->socket_mode : "0600";
    size_t len = strspn(text, "01234567");

    plan->socket_mode = (mode_t)strtoul(text, NULL, 8);
    if (len < 3 || len > 4 || text[len] != '\0' || plan->socket_mode > 0777) {
        return ONCE__GATE_USAGE("--socket-mode needs a mode such as 0660, not \"%s\"",
                                once__cli_shown(text).text);
    }
    return ONCE__CLI_OK;
}

static int check_name(const char *certificate)
{
    return strchr(certificate, '$') == NULL
               ? ONCE__CLI_OK
               : ONCE__GATE_USAGE("the name of a certificate must not contain $, which nginx reads "
                                  "as a variable");
}

/* An unverified backend could be anyone, and would get every caller's credentials. */
static int read_trusted(once__gate_plan_t *plan)
{
    /* Where Debian, Fedora and Alpine keep the trusted certificates. */
    static const char *const places[] = {"/etc/ssl/certs/ca-certificates.crt",
                                         "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem",
                                         NULL};
    int code;

    if (!plan->upstream.tls && !plan->auth.server.tls) {
        return plan->options->upstream_ca == NULL
                   ? ONCE__CLI_OK
                   : ONCE__GATE_USAGE("--upstream-ca is only for https:// in --upstream or --auth");
    }
    code = once__gate_find_trusted(plan->options->upstream_ca, places, plan->upstream_ca);
    return code == ONCE__CLI_OK ? check_name(plan->upstream_ca) : code;
}

static int read_tls(once__gate_plan_t *plan)
{
    int code;

    if ((plan->options->tls_cert == NULL) != (plan->options->tls_key == NULL)) {
        return ONCE__GATE_USAGE("--tls-cert and --tls-key must be given together");
    }
    if (plan->options->tls_cert == NULL) {
        return ONCE__CLI_OK;
    }
    code = find_file("the certificate", plan->options->tls_cert, plan->tls_cert);
    if (code == ONCE__CLI_OK) {
        code = find_file("the key", plan->options->tls_key, plan->tls_key);
    }
    if (code == ONCE__CLI_OK) {
        code = check_name(plan->tls_cert);
    }
    return code == ONCE__CLI_OK ? check_name(plan->tls_key) : code;
}

const char *once__gate_policy(const once__gate_plan_t *plan, const once__gate_route_t *route)
{
    const char *policy = "retry";

    for (size_t i = 0; i < plan->directive_count; i++) {
        const once__gate_words_t *words = &plan->directives[i];
        if (words->count == 2 && strcmp(words->list[0], "once_recover") == 0) {
            policy = words->list[1];
        }
    }
    for (size_t i = 0; route != NULL && i < route->setting_count; i++) {
        if (strcmp(route->settings[i].known->name, "recover") == 0) {
            policy = route->settings[i].value;
        }
    }
    return policy;
}

/* nginx may be run from elsewhere: a relative path becomes an absolute one, its odd characters encoded as in every URL. */
static int read_store(once__gate_plan_t *plan)
{
    const char *url = once__cli_store_option(plan->options->store);
    char folder[1024];
    size_t used;

    if (strchr(url, ':') == NULL) {
        return ONCE__GATE_USAGE("--store: \"%s\" is not a store URL; did you mean local:%s?",
                                once__cli_shown(url).text, once__cli_shown(url).text);
    }
    if (strlen(url) > ONCE__GATE_WORD_MAX) {
        return ONCE__GATE_USAGE("--store: the URL is too long");
    }
    if (strncmp(url, "local:", 6) != 0 || url[6] == '/' || url[6] == '\0') {
        snprintf(plan->store, sizeof(plan->store), "%s", url);
        (void)!once_local_path(plan->store, plan->folder, sizeof(plan->folder));
        return ONCE__CLI_OK;
    }
    if (getcwd(folder, sizeof(folder)) == NULL) {
        once__cli_say("cannot determine the current directory: %m");
        return ONCE__CLI_STORE;
    }
    used = (size_t)snprintf(plan->store, sizeof(plan->store), "local:");
    for (const char *at = folder; *at != '\0'; at++) {
        unsigned char byte = (unsigned char)*at;
        int plain = byte > 0x20 && byte < 0x7f && strchr("%?&#\"\\$", byte) == NULL;
        if (plain) {
            plan->store[used++] = *at;
        } else {
            used += once__percent_escape(plan->store + used, *at);
        }
    }
    url += strncmp(url + 6, "./", 2) == 0 ? 8 : 6;
    snprintf(plan->store + used, sizeof(plan->store) - used, "/%s", url);
    (void)!once_local_path(plan->store, plan->folder, sizeof(plan->folder));
    return ONCE__CLI_OK;
}

/* Policies that promise never to run twice need a store that remembers. nginx would refuse it, too, but by other names. */
static int check_memory(once__gate_plan_t *plan)
{
    const char *policy = "retry";

    if (strncmp(plan->store, "memory:", 7) != 0) {
        return ONCE__CLI_OK;
    }
    if (plan->route_count == 0) {
        policy = once__gate_policy(plan, NULL);
    }
    for (size_t i = 0; strcmp(policy, "retry") == 0 && i < plan->route_count; i++) {
        policy = once__gate_policy(plan, &plan->routes[i]);
    }
    if (strcmp(policy, "retry") == 0) {
        return ONCE__CLI_OK;
    }
    return ONCE__GATE_USAGE(
        "recover=%s needs a store that outlives the gate, which a store in memory does not: "
        "use --store local:./once-data",
        policy);
}

static int read_workers(once__gate_plan_t *plan)
{
    uint64_t workers = plan->options->workers.given ? plan->options->workers.value : 1;

    if (workers == 0 || workers > WORKERS_MAX) {
        return ONCE__GATE_USAGE("--workers must be between 1 and %d", WORKERS_MAX);
    }
    if (workers > 1 && strncmp(plan->store, "memory:", 7) == 0) {
        return ONCE__GATE_USAGE(
            "--workers must be 1 with a store in memory, which workers cannot share");
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

static int read_upstream(once__gate_plan_t *plan)
{
    return once__gate_read_upstream("upstream", plan->options->upstream, &plan->upstream);
}

static int read_module(once__gate_plan_t *plan)
{
    return find_module(plan->options->module, plan->module);
}

static int read_log_keys(once__gate_plan_t *plan)
{
    const char *how = plan->options->log_keys;

    return how == NULL || strcmp(how, "text") == 0 || strcmp(how, "hash") == 0 ||
                   strcmp(how, "off") == 0
               ? ONCE__CLI_OK
               : ONCE__GATE_USAGE("--log-keys is text, hash or off, not \"%s\"",
                                  once__cli_shown(how).text);
}

int once__gate_read_plan(once__gate_plan_t *plan)
{
    static int (*const steps[])(once__gate_plan_t *) = {
        read_addresses,       read_socket_mode,     read_routes,   once__gate_read_openapi,
        read_scope,           read_store,           check_memory,  read_workers,
        read_upstream,        once__gate_read_auth, read_trusted,  read_tls,
        once__gate_read_user, read_module,          read_log_keys,
    };
    int code = ONCE__CLI_OK;

    if (plan->options->upstream == NULL) {
        return ONCE__GATE_USAGE("missing --upstream: the backend, such as http://127.0.0.1:3000");
    }
    for (size_t i = 0; code == ONCE__CLI_OK && i < sizeof(steps) / sizeof(steps[0]); i++) {
        code = steps[i](plan);
    }
    if (code == ONCE__CLI_OK && plan->options->tls_cert != NULL &&
        look_for_nginx(plan->options->nginx, plan->nginx)) {
        plan->http2_directive = once__gate_version(plan->nginx) >= 1025001;
    }
    allow_connections(plan);
    return code;
}

void once__gate_free_plan(once__gate_plan_t *plan)
{
    for (size_t i = 0; i < plan->route_count; i++) {
        once__gate_words_free(&plan->routes[i].words);
    }
    for (size_t i = 0; i < plan->directive_count; i++) {
        once__gate_words_free(&plan->directives[i]);
    }
    free(plan->routes);
    free(plan->directives);
    once__openapi_free(&plan->api);
    free(plan);
}
