/*
 * once gate: the plan as a configuration of nginx.
 *
 * Defaults are written at the level http, what --set says at the level server, and what a route says in its location: as always in
 * nginx, the innermost wins.
 */
#include <ctype.h>
#include <stdarg.h>
#include <string.h>

#include "gate/internal.h"

/* Paths of the gate's own. Clients cannot reach the first. */
#define AUTH_PATH     "/once/authorize"
#define PROBLEMS_PATH "/once/problems"

/* In quotes only these two characters end or change a word. */
static void write_word(FILE *out, const char *word, size_t len)
{
    fputc('"', out);
    for (size_t i = 0; i < len; i++) {
        if (word[i] == '"' || word[i] == '\\') {
            fputc('\\', out);
        }
        fputc(word[i], out);
    }
    fputc('"', out);
}

/* Like fprintf, with three conversions: %s a text as it is, %u an unsigned, and %q a word in quotes. */
static void emit(FILE *out, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    for (const char *at = format; *at != '\0'; at++) {
        if (*at != '%') {
            fputc(*at, out);
            continue;
        }
        at++;
        if (*at == 'u') {
            fprintf(out, "%u", va_arg(values, unsigned));
        } else {
            const char *text = va_arg(values, const char *);
            if (*at == 'q') {
                write_word(out, text, strlen(text));
            } else {
                fputs(text, out);
            }
        }
    }
    va_end(values);
}

/* The items of a list with commas as a word each. header:NAME, as in a scope, is the variable with its value. */
static void write_list(FILE *out, const char *list)
{
    for (const char *at = list; *at != '\0'; at += *at == ',') {
        size_t len = strcspn(at, ",");
        char variable[128];
        fputs(len > 0 ? " " : "", out);
        if (len > 7 && len <= 100 && strncmp(at, "header:", 7) == 0) {
            snprintf(variable, sizeof(variable), "$http_%.*s", (int)len - 7, at + 7);
            for (char *c = variable; *c != '\0'; c++) {
                *c = (char)(*c == '-' ? '_' : tolower((unsigned char)*c));
            }
            write_word(out, variable, strlen(variable));
        } else if (len > 0) {
            write_word(out, at, len);
        }
        at += len;
    }
}

static void write_scope(FILE *out, const char *indent, const once__gate_scope_t *scope)
{
    emit(out, "%sonce_scope %s%s;\n", indent, scope->value, scope->optional ? " optional" : "");
}

/* nginx takes the environment away from its workers, and libpq looks there for what the URL leaves out, such as a password. */
static void write_environment(const once__gate_plan_t *plan, FILE *out)
{
    static const char names[] =
        "PGHOST PGHOSTADDR PGPORT PGDATABASE PGUSER PGPASSWORD PGPASSFILE PGSERVICE PGSERVICEFILE "
        "PGSSLMODE PGSSLCERT PGSSLKEY PGSSLROOTCERT PGSSLCRL PGCHANNELBINDING PGREQUIREPEER ";

    if (strncmp(plan->store, "postgres", 8) != 0) {
        return;
    }
    for (const char *at = names; *at != '\0'; at += strcspn(at, " ") + 1) {
        fprintf(out, "env %.*s;\n", (int)strcspn(at, " "), at);
    }
}

static void write_head(const once__gate_plan_t *plan, FILE *out)
{
    emit(out,
         "# Made by \"once gate\" from its command line. It runs without it, too:\n"
         "#     nginx -p DIRECTORY -c THIS_FILE\n"
         "# where DIRECTORY can be written to: the pid file and temporary files go there.\n"
         "\n"
         "daemon off;\n"
         "pid nginx.pid;\n"
         "lock_file nginx.lock;\n"
         "error_log stderr warn;\n"
         "worker_processes %u;\n",
         plan->workers);
    if (plan->user[0] != '\0') {
        emit(out, "user %q %q;\n", plan->user, plan->group);
    }
    emit(out, "load_module %q;\n", plan->module);
    write_environment(plan, out);
    emit(out, "\nevents {\n    worker_connections %u;\n}\n", plan->connections);
}

/* Upgrades other than WebSocket are not passed on: one to HTTP/2 would be a tunnel around the gate. */
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

/* Routes of a document of which some methods need a key and others do not. */
static void write_needy(const once__gate_plan_t *plan, FILE *out)
{
    for (size_t i = 0; i < plan->route_count; i++) {
        const char *at = plan->routes[i].needy;
        if (at == NULL) {
            continue;
        }
        emit(out, "    map $request_method $once_needy_%u {\n        default off;\n", (unsigned)i);
        for (; *at != '\0'; at += strcspn(at, ","), at += *at == ',') {
            fprintf(out, "        %.*s on;\n", (int)strcspn(at, ","), at);
        }
        fputs("    }\n", out);
    }
}

static void write_proxy(const once__gate_plan_t *plan, FILE *out)
{
    emit(out,
         "    # No keep-alive: a connection that the backend closes while a request is in flight\n"
         "    # leaves the outcome unknown.\n"
         "    upstream once_upstream {\n"
         "        server %q;\n"
         "    }\n"
         "    proxy_http_version 1.1;\n"
         "    proxy_set_header Host $once_host;\n"
         "    proxy_set_header Upgrade $once_upgrade;\n"
         "    proxy_set_header Connection $once_connection;\n"
         "    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n"
         "    proxy_set_header X-Forwarded-Host $once_host;\n"
         "    proxy_set_header X-Forwarded-Proto $scheme;\n"
         "    proxy_next_upstream error;     # of several addresses, and only before a byte is "
         "sent\n"
         "    proxy_connect_timeout 5s;\n"
         "    proxy_send_timeout 60s;\n"
         "    proxy_read_timeout 120s;       # after it, the outcome is unknown\n",
         plan->upstream.server);
    if (plan->auth.own) {
        emit(out, "    upstream once_auth {\n        server %q;\n    }\n",
             plan->auth.server.server);
    }
    if (!plan->upstream.tls && !plan->auth.server.tls) {
        return;
    }
    fputs("    proxy_ssl_server_name on;\n", out);
    if (plan->upstream.tls) {
        emit(out, "    proxy_ssl_name %q;\n", plan->upstream.host);
    }
    emit(out,
         "    proxy_ssl_trusted_certificate %q;\n"
         "    proxy_ssl_verify on;\n"
         "    proxy_ssl_verify_depth 5;\n",
         plan->upstream_ca);
}

/* The directives of --set that belong to the level http (they are a worker's, not a server's), or those that do not. */
static void write_directives(const once__gate_plan_t *plan, int of_http, const char *indent,
                             FILE *out)
{
    for (size_t i = 0; i < plan->directive_count; i++) {
        const once__gate_words_t *words = &plan->directives[i];
        if (of_http != (strcmp(words->list[0], "once_memory") == 0 ||
                        strcmp(words->list[0], "once_bodies") == 0 ||
                        strcmp(words->list[0], "once_stats") == 0)) {
            continue;
        }
        emit(out, "%s%s", indent, words->list[0]);
        for (size_t k = 1; k < words->count; k++) {
            emit(out, " %q", words->list[k]);
        }
        fputs(";\n", out);
    }
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

static const char *logged_key(const once__gate_plan_t *plan)
{
    const char *how = plan->options->log_keys;

    if (how == NULL || strcmp(how, "text") == 0) {
        return "key=\"$once_key\" ";
    }
    return strcmp(how, "hash") == 0 ? "id=$once_id " : "";
}

/* The path without the query, which may have credentials in it. What may be empty, and is no text, is mapped to null. */
static void write_json_format(const once__gate_plan_t *plan, FILE *out)
{
    const char *how = plan->options->log_keys;

    fputs("    map $once_epoch $once_log_epoch {\n"
          "        default $once_epoch;\n"
          "        \"\" null;\n"
          "    }\n"
          "    map $status $once_log_status {\n"
          "        default $status;\n"
          "        \"\" null;\n"
          "        000 null;\n"
          "        009 null;\n"
          "    }\n"
          "    log_format once escape=json '{\"time\":\"$once_time\",\"level\":\"info\",'\n"
          "                    '\"program\":\"gate\",\"message\":\"request\",'\n"
          "                    '\"client\":\"$remote_addr\",\"method\":\"$request_method\",'\n"
          "                    '\"path\":\"$uri\",\"status\":$once_log_status,'\n"
          "                    '\"bytes\":$body_bytes_sent,\"seconds\":$request_time,'\n"
          "                    '\"outcome\":\"$once_outcome\",",
          out);
    if (how == NULL || strcmp(how, "text") == 0) {
        fputs("\"idempotency_key\":\"$once_key\",", out);
    } else if (strcmp(how, "hash") == 0) {
        fputs("\"id\":\"$once_id\",", out);
    }
    fputs("\"epoch\":$once_log_epoch}';\n", out);
}

static void write_text_format(const once__gate_plan_t *plan, FILE *out)
{
    fputs(
        "    log_format once '$time_iso8601 $remote_addr \"$request\" $status $body_bytes_sent '\n"
        "                    '$request_time once=$once_outcome ",
        out);
    fputs(logged_key(plan), out);
    fputs("epoch=$once_epoch';\n", out);
}

static void write_defaults(const once__gate_plan_t *plan, FILE *out)
{
    fputs("    client_body_temp_path body;\n"
          "    proxy_temp_path proxy;\n"
          "    fastcgi_temp_path fastcgi;\n"
          "    uwsgi_temp_path uwsgi;\n"
          "    scgi_temp_path scgi;\n"
          "\n",
          out);
    if (plan->options->log_json) {
        write_json_format(plan, out);
    } else {
        write_text_format(plan, out);
    }
    fputs("    access_log /dev/stdout once;\n"
          "    server_tokens off;\n"
          "    client_max_body_size 1m;\n"
          "\n",
          out);
    write_maps(out);
    write_needy(plan, out);
    write_proxy(plan, out);
    emit(out, "\n    once_store %q;\n", plan->store);
    write_scope(out, "    ", &plan->scope);
    if (plan->options->profile != NULL) {
        emit(out, "    once_profile %q;\n", plan->options->profile);
    }
    if (!is_set(plan, "once_bodies")) {
        fputs("    once_bodies 1g;                # request bodies in files, per worker\n", out);
    }
    if (plan->auth.given) {
        fputs("    once_authorize " AUTH_PATH ";\n", out);
    }
    write_directives(plan, 1, "    ", out);
}

static void write_pass(const once__gate_plan_t *plan, FILE *out)
{
    emit(out, "            proxy_pass %s://once_upstream;\n        }\n",
         plan->upstream.tls ? "https" : "http");
}

static void write_route(const once__gate_plan_t *plan, const once__gate_route_t *route, FILE *out)
{
    if (route->pattern != NULL) {
        emit(out, "        # %s %s\n", route->off ? "not guarded:" : route->methods, route->path);
    }
    emit(out, "        location%s %q {\n",
         route->pattern != NULL ? " ~"
         : route->exact         ? " ="
                                : "",
         route->pattern != NULL ? route->pattern : route->path);
    if (route->off) {
        write_pass(plan, out);
        return;
    }
    fputs("            once on;\n            once_methods", out);
    write_list(out, route->methods);
    fputs(";\n", out);
    if (route->needy != NULL) {
        emit(out, "            once_require $once_needy_%u;\n", (unsigned)(route - plan->routes));
    }
    if (route->has_scope) {
        write_scope(out, "            ", &route->scope);
    }
    for (size_t i = 0; i < route->setting_count; i++) {
        emit(out, "            once_%s", route->settings[i].known->name);
        if (route->settings[i].known->flags & ONCE__GATE_LIST) {
            write_list(out, route->settings[i].value);
        } else {
            emit(out, " %q", route->settings[i].value);
        }
        fputs(";\n", out);
    }
    write_pass(plan, out);
}

/* Its own Host and name: the service may be one of many at its address. Clients cannot reach this location. */
static void write_auth(const once__gate_plan_t *plan, FILE *out)
{
    const once__gate_upstream_t *server = plan->auth.own ? &plan->auth.server : &plan->upstream;
    int usual = strcmp(strrchr(server->server, ':'), server->tls ? ":443" : ":80") == 0;
    char url[ONCE__GATE_AUTH_PATH + 64];

    if (!plan->auth.given) {
        return;
    }
    fputs("        location = " AUTH_PATH " {\n"
          "            internal;\n"
          "            proxy_read_timeout 10s;\n",
          out);
    if (plan->auth.own) {
        emit(out,
             "            proxy_set_header Host %q;\n"
             "            proxy_set_header Connection close;\n"
             "            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n"
             "            proxy_set_header X-Forwarded-Host $once_host;\n"
             "            proxy_set_header X-Forwarded-Proto $scheme;\n",
             usual ? server->host : server->server);
    }
    if (server->tls) {
        emit(out, "            proxy_ssl_name %q;\n", server->host);
    }
    snprintf(url, sizeof(url), "%s://%s%s", server->tls ? "https" : "http",
             plan->auth.own ? "once_auth" : "once_upstream", plan->auth.path);
    emit(out, "            proxy_pass %q;\n        }\n", url);
}

static void write_server(const once__gate_plan_t *plan, FILE *out)
{
    int has_tls = plan->tls_cert[0] != '\0';
    const char *options = !has_tls ? "" : plan->http2_directive ? " ssl" : " ssl http2";
    int has_root = 0;

    fputs("\n    server {\n", out);
    for (size_t i = 0; i < plan->listen_count; i++) {
        emit(out, "        listen %q%s;\n", plan->listen[i].text, options);
    }
    if (has_tls) {
        emit(out,
             "        ssl_certificate %q;\n"
             "        ssl_certificate_key %q;\n"
             "%s        ssl_protocols TLSv1.2 TLSv1.3;\n",
             plan->tls_cert, plan->tls_key, plan->http2_directive ? "        http2 on;\n" : "");
    }
    write_directives(plan, 0, "        ", out);
    for (size_t i = 0; i < plan->route_count; i++) {
        write_route(plan, &plan->routes[i], out);
        has_root |= !plan->routes[i].exact && plan->routes[i].pattern == NULL &&
                    strcmp(plan->routes[i].path, "/") == 0;
    }
    write_auth(plan, out);
    fputs("        location = " PROBLEMS_PATH " {\n            once_problems;\n        }\n", out);
    if (!has_root) {
        emit(out, "        location / {\n%s",
             plan->route_count == 0 ? "            once on;\n" : "");
        write_pass(plan, out);
    }
    fputs("    }\n", out);
}

static void write_status(const once__gate_plan_t *plan, FILE *out)
{
    if (plan->has_status) {
        emit(out,
             "\n    server {\n"
             "        listen %q;\n"
             "        access_log off;\n"
             "        default_type text/plain;\n"
             "        location = /metrics {\n"
             "            once_status;\n"
             "        }\n"
             "        location = /health {\n"
             "            return 200 \"ok\\n\";\n"
             "        }\n"
             "        location = /ready {\n"
             "            once_ready;\n"
             "        }\n"
             "        location / {\n"
             "            return 404 \"/metrics, /health, /ready\\n\";\n"
             "        }\n"
             "    }\n",
             plan->status.text);
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
