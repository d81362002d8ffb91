/*
 * once gate: the plan as a configuration of nginx.
 *
 * Defaults are written at the level http, what --set says at the level server, and what a route says in its location: the nearer
 * one wins, as always in nginx.
 */
#include <ctype.h>
#include <string.h>

#include "gate/gate.h"

/* Paths of the gate's own. Of the first, clients see nothing. */
#define AUTH_PATH     "/once/authorize"
#define PROBLEMS_PATH "/once/problems"

/* In quotes only these two end or change a word. */
static void write_word(FILE *out, const char *word, size_t len)
{
    fputs(" \"", out);
    for (size_t i = 0; i < len; i++) {
        if (word[i] == '"' || word[i] == '\\') {
            fputc('\\', out);
        }
        fputc(word[i], out);
    }
    fputc('"', out);
}

static void write_directive(FILE *out, const char *indent, const char *name, const char *value)
{
    fprintf(out, "%s%s", indent, name);
    write_word(out, value, strlen(value));
    fputs(";\n", out);
}

/* header:NAME, as in a scope, is the variable with its value. Anything else is a word. */
static void write_item(FILE *out, const char *item, size_t len)
{
    char variable[128];
    size_t used = strlen("$http_");

    if (len <= 7 || len > 100 || strncmp(item, "header:", 7) != 0) {
        write_word(out, item, len);
        return;
    }
    snprintf(variable, sizeof(variable), "$http_%.*s", (int)len - 7, item + 7);
    for (; variable[used] != '\0'; used++) {
        variable[used] =
            (char)(variable[used] == '-' ? '_' : tolower((unsigned char)variable[used]));
    }
    write_word(out, variable, used);
}

/* A list with commas as a word each. */
static void write_list(FILE *out, const char *list)
{
    for (const char *at = list;;) {
        size_t len = strcspn(at, ",");
        if (len > 0) {
            write_item(out, at, len);
        }
        if (at[len] == '\0') {
            return;
        }
        at += len + 1;
    }
}

static void write_scope(FILE *out, const char *indent, const once__gate_scope_t *scope)
{
    fprintf(out, "%sonce_scope %s%s;\n", indent, scope->value, scope->optional ? " optional" : "");
}

/* nginx takes the environment away from its workers, and libpq looks there for what the URL leaves out, such as a password. */
static void write_environment(const once__gate_plan_t *plan, FILE *out)
{
    static const char *const names[] = {
        "PGHOST",        "PGHOSTADDR", "PGPORT",           "PGDATABASE",
        "PGUSER",        "PGPASSWORD", "PGPASSFILE",       "PGSERVICE",
        "PGSERVICEFILE", "PGSSLMODE",  "PGSSLCERT",        "PGSSLKEY",
        "PGSSLROOTCERT", "PGSSLCRL",   "PGCHANNELBINDING", "PGREQUIREPEER"};

    if (strncmp(plan->store, "postgres", 8) != 0) {
        return;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        fprintf(out, "env %s;\n", names[i]);
    }
}

static void write_head(const once__gate_plan_t *plan, FILE *out)
{
    fputs("# Made by \"once gate\" from its command line. It runs without it, too:\n"
          "#     nginx -p DIRECTORY -c THIS_FILE\n"
          "# where DIRECTORY is one to write to: the pid file and temporary files are there.\n"
          "\n"
          "daemon off;\n"
          "pid nginx.pid;\n"
          "lock_file nginx.lock;\n"
          "error_log stderr warn;\n",
          out);
    fprintf(out, "worker_processes %u;\n", plan->workers);
    if (plan->user[0] != '\0') {
        fputs("user", out);
        write_word(out, plan->user, strlen(plan->user));
        write_word(out, plan->group, strlen(plan->group));
        fputs(";\n", out);
    }
    write_directive(out, "", "load_module", plan->module);
    write_environment(plan, out);
    fprintf(out, "\nevents {\n    worker_connections %u;\n}\n", plan->connections);
}

/* Only what is asked for is passed on: an upgrade to HTTP/2 would be a tunnel around the gate. */
static void write_maps(FILE *out)
{
    fputs("    map $http_host $once_host {\n"
          "        default $http_host;\n"
          "        \"\" $host;\n"
          "    }\n"
          "    map $http_upgrade $once_upgrade {\n"
          "        default \"\";\n"
          "        websocket websocket;\n"
          "    }\n"
          "    map $once_upgrade $once_connection {\n"
          "        default close;\n"
          "        websocket upgrade;\n"
          "    }\n"
          "\n",
          out);
}

static void write_proxy(const once__gate_plan_t *plan, FILE *out)
{
    fputs(
        "    # No connections are kept: one that the backend closes while a request is on its way\n"
        "    # leaves an outcome that nobody knows.\n"
        "    upstream once_upstream {\n"
        "        server",
        out);
    write_word(out, plan->upstream.server, strlen(plan->upstream.server));
    fputs(";\n"
          "    }\n"
          "    proxy_http_version 1.1;\n"
          "    proxy_set_header Host $once_host;\n"
          "    proxy_set_header Upgrade $once_upgrade;\n"
          "    proxy_set_header Connection $once_connection;\n"
          "    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n"
          "    proxy_set_header X-Forwarded-Host $once_host;\n"
          "    proxy_set_header X-Forwarded-Proto $scheme;\n"
          "    proxy_next_upstream error;     # of several addresses, and only before a byte was "
          "sent\n"
          "    proxy_connect_timeout 5s;\n"
          "    proxy_send_timeout 60s;\n"
          "    proxy_read_timeout 120s;       # when it is over, the outcome is unknown\n",
          out);
    if (plan->auth.own) {
        fputs("    upstream once_auth {\n        server", out);
        write_word(out, plan->auth.server.server, strlen(plan->auth.server.server));
        fputs(";\n    }\n", out);
    }
    if (!plan->upstream.tls && !plan->auth.server.tls) {
        return;
    }
    fputs("    proxy_ssl_server_name on;\n", out);
    if (plan->upstream.tls) {
        write_directive(out, "    ", "proxy_ssl_name", plan->upstream.host);
    }
    write_directive(out, "    ", "proxy_ssl_trusted_certificate", plan->upstream_ca);
    fputs("    proxy_ssl_verify on;\n"
          "    proxy_ssl_verify_depth 5;\n",
          out);
}

static void write_words(const once__gate_words_t *words, FILE *out)
{
    fprintf(out, "%s", words->list[0]);
    for (size_t i = 1; i < words->count; i++) {
        write_word(out, words->list[i], strlen(words->list[i]));
    }
    fputs(";\n", out);
}

/* Of a worker, not of a server: it may stand in http alone. */
static int is_of_http(const once__gate_words_t *words)
{
    return strcmp(words->list[0], "once_memory") == 0 || strcmp(words->list[0], "once_bodies") == 0;
}

static int is_set(const once__gate_plan_t *plan, const char *name)
{
    for (size_t i = 0; i < plan->directive_count; i++) {
        if (strcmp(plan->directives[i].list[0], name) == 0) {
            return 1;
        }
    }
    return 0;
}

static void write_defaults(const once__gate_plan_t *plan, FILE *out)
{
    fputs(
        "    client_body_temp_path body;\n"
        "    proxy_temp_path proxy;\n"
        "    fastcgi_temp_path fastcgi;\n"
        "    uwsgi_temp_path uwsgi;\n"
        "    scgi_temp_path scgi;\n"
        "\n"
        "    log_format once '$time_iso8601 $remote_addr \"$request\" $status $body_bytes_sent '\n"
        "                    '$request_time once=$once_outcome key=\"$once_key\" "
        "epoch=$once_epoch';\n"
        "    access_log /dev/stdout once;\n"
        "    server_tokens off;\n"
        "    client_max_body_size 1m;\n"
        "\n",
        out);
    write_maps(out);
    write_proxy(plan, out);
    fputs("\n", out);
    write_directive(out, "    ", "once_store", plan->store);
    write_scope(out, "    ", &plan->scope);
    if (!is_set(plan, "once_bodies")) {
        fputs("    once_bodies 1g;                # of requests, in files, for each worker\n", out);
    }
    if (plan->auth.given) {
        fputs("    once_authorize " AUTH_PATH ";\n", out);
    }
    for (size_t i = 0; i < plan->directive_count; i++) {
        if (is_of_http(&plan->directives[i])) {
            fputs("    ", out);
            write_words(&plan->directives[i], out);
        }
    }
}

/* Directives of several words. Of the others a comma may be part. */
static int takes_list(const char *name)
{
    static const char *const lists[] = {"fingerprint",    "key", "probe", "record", "release",
                                        "replay_headers", "wait"};

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        if (strcmp(name, lists[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

static void write_setting(FILE *out, const char *name, const char *value)
{
    const char *directive = once__gate_directive_of(name, strlen(name));

    if (directive == NULL) {
        return; /* the scope, which has been written */
    }
    fprintf(out, "            %s", directive);
    if (takes_list(name)) {
        write_list(out, value);
    } else {
        write_word(out, value, strlen(value));
    }
    fputs(";\n", out);
}

static void write_pass(const once__gate_plan_t *plan, FILE *out)
{
    fprintf(out, "            proxy_pass %s://once_upstream;\n        }\n",
            plan->upstream.tls ? "https" : "http");
}

static void write_route(const once__gate_plan_t *plan, const once__gate_route_t *route, FILE *out)
{
    fprintf(out, "        location%s", route->exact ? " =" : "");
    write_word(out, route->path, strlen(route->path));
    fputs(" {\n            once on;\n            once_methods", out);
    write_list(out, route->methods);
    fputs(";\n", out);
    if (route->has_scope) {
        write_scope(out, "            ", &route->scope);
    }
    for (size_t i = 2; i < route->words.count; i++) {
        const char *name = route->words.list[i];
        write_setting(out, name, name + strlen(name) + 1);
    }
    write_pass(plan, out);
}

static int has_usual_port(const once__gate_upstream_t *server)
{
    return strcmp(strrchr(server->server, ':'), server->tls ? ":443" : ":80") == 0;
}

/* Its own Host and name: the service may be one of many at its address. No client gets here. */
static void write_auth(const once__gate_plan_t *plan, FILE *out)
{
    const once__gate_upstream_t *server = plan->auth.own ? &plan->auth.server : &plan->upstream;
    char url[ONCE__GATE_AUTH_PATH + 64];

    if (!plan->auth.given) {
        return;
    }
    fputs("        location = " AUTH_PATH " {\n"
          "            internal;\n"
          "            proxy_read_timeout 10s;\n",
          out);
    if (plan->auth.own) {
        write_directive(out, "            ", "proxy_set_header Host",
                        has_usual_port(server) ? server->host : server->server);
        fputs("            proxy_set_header Connection close;\n"
              "            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n"
              "            proxy_set_header X-Forwarded-Host $once_host;\n"
              "            proxy_set_header X-Forwarded-Proto $scheme;\n",
              out);
    }
    if (server->tls) {
        write_directive(out, "            ", "proxy_ssl_name", server->host);
    }
    snprintf(url, sizeof(url), "%s://%s%s", server->tls ? "https" : "http",
             plan->auth.own ? "once_auth" : "once_upstream", plan->auth.path);
    write_directive(out, "            ", "proxy_pass", url);
    fputs("        }\n", out);
}

static int has_root(const once__gate_plan_t *plan)
{
    for (size_t i = 0; i < plan->route_count; i++) {
        if (!plan->routes[i].exact && strcmp(plan->routes[i].path, "/") == 0) {
            return 1;
        }
    }
    return 0;
}

static void write_listen(FILE *out, const once__gate_address_t *address, const char *options)
{
    fputs("        listen", out);
    write_word(out, address->text, strlen(address->text));
    fprintf(out, "%s;\n", options);
}

static void write_server(const once__gate_plan_t *plan, FILE *out)
{
    const char *options = plan->http2_directive ? " ssl" : " ssl http2";

    if (plan->tls_cert[0] == '\0') {
        options = "";
    }
    fputs("\n    server {\n", out);
    for (size_t i = 0; i < plan->listen_count; i++) {
        write_listen(out, &plan->listen[i], options);
    }
    if (plan->tls_cert[0] != '\0') {
        write_directive(out, "        ", "ssl_certificate", plan->tls_cert);
        write_directive(out, "        ", "ssl_certificate_key", plan->tls_key);
        fprintf(out, "%s        ssl_protocols TLSv1.2 TLSv1.3;\n",
                plan->http2_directive ? "        http2 on;\n" : "");
    }
    for (size_t i = 0; i < plan->directive_count; i++) {
        const once__gate_words_t *words = &plan->directives[i];
        if (!is_of_http(words)) {
            fputs("        ", out);
            write_words(words, out);
        }
    }
    for (size_t i = 0; i < plan->route_count; i++) {
        write_route(plan, &plan->routes[i], out);
    }
    write_auth(plan, out);
    fputs("        location = " PROBLEMS_PATH " {\n            once_problems;\n        }\n", out);
    if (!has_root(plan)) {
        fprintf(out, "        location / {\n%s",
                plan->route_count == 0 ? "            once on;\n" : "");
        write_pass(plan, out);
    }
    fputs("    }\n", out);
}

static void write_status(const once__gate_plan_t *plan, FILE *out)
{
    if (plan->has_status) {
        fputs("\n    server {\n", out);
        write_listen(out, &plan->status, "");
        fputs("        access_log off;\n"
              "        default_type text/plain;\n"
              "        location = /metrics {\n"
              "            once_status;\n"
              "        }\n"
              "        location = /health {\n"
              "            return 200 \"ok\\n\";\n"
              "        }\n"
              "        location / {\n"
              "            return 404 \"/metrics, /health\\n\";\n"
              "        }\n"
              "    }\n",
              out);
    }
}

void once__gate_write_config(const once__gate_plan_t *plan, FILE *out)
{
    write_head(plan, out);
    fputs("\nhttp {\n", out);
    write_defaults(plan, out);
    write_server(plan, out);
    write_status(plan, out);
    fputs("}\n", out);
}
