/*
 * once gate: the routes of --openapi.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "cli/file.h"
#include "cli/text.h"
#include "gate/internal.h"

#define ROUTE_BYTES 16384

/* The header that --set names, or the usual one. */
static const char *key_header(const once__gate_plan_t *plan)
{
    const char *header = "Idempotency-Key";

    for (size_t i = 0; i < plan->directive_count; i++) {
        const once__gate_words_t *words = &plan->directives[i];
        if (strcmp(words->list[0], "once_key") == 0 && strchr(words->list[1], '$') == NULL) {
            header = words->list[1];
        }
    }
    return header;
}

static void add_text(once__buf_t *memory, const char *text)
{
    once__buf_add(memory, text, strlen(text) + 1);
}

/* Takes one of the texts in a row that add_text made. */
static char *take_text(char **at)
{
    char *text = *at;

    *at += strlen(text) + 1;
    return text;
}

static int make_route(const char *label, const once__openapi_path_t *path,
                      once__gate_route_t *route)
{
    once__buf_t memory = ONCE__BUF(ROUTE_BYTES);
    int mixed = path->required != 0 && path->required != path->guarded;
    int code = ONCE__CLI_OK;
    char *at;

    add_text(&memory, once__openapi_methods(path->guarded).text);
    add_text(&memory, path->path);
    add_text(&memory, path->pattern);
    add_text(&memory, once__openapi_methods(path->required).text);
    add_text(&memory, path->required != 0 ? "require=on" : "require=off");
    for (size_t i = 0; i < ONCE__OPENAPI_SETTINGS; i++) {
        if (path->settings[i] != NULL) {
            add_text(&memory, path->settings[i]);
        }
    }
    add_text(&memory, "");
    at = once__buf_take(&memory);
    if (at == NULL) {
        once__cli_say("out of memory");
        return ONCE__CLI_STORE;
    }
    route->words.memory = at;
    route->methods = take_text(&at);
    route->path = take_text(&at);
    route->pattern = take_text(&at);
    route->needy = take_text(&at);
    route->off = path->guarded == 0;
    if (!mixed) {
        route->needy = NULL;
    } else {
        take_text(&at); /* instead of "require" */
    }
    while (code == ONCE__CLI_OK && *at != '\0' && !route->off) {
        code = once__gate_set_route(label, route, take_text(&at));
    }
    return code;
}

/* A route of the command line for that very path is what counts, to nginx, too. */
static int is_overruled(const once__gate_plan_t *plan, const char *path)
{
    for (size_t i = 0; i < plan->options->route.count; i++) {
        if (plan->routes[i].exact && strcmp(plan->routes[i].path, path) == 0) {
            return 1;
        }
    }
    return 0;
}

static int add_routes(once__gate_plan_t *plan, const char *file)
{
    size_t room = plan->route_count + plan->api.count + 1;
    once__gate_route_t *routes = realloc(plan->routes, room * sizeof(*routes));
    int code = ONCE__CLI_OK;

    if (routes == NULL) {
        once__cli_say("out of memory");
        return ONCE__CLI_STORE;
    }
    plan->routes = routes;
    for (size_t i = 0; code == ONCE__CLI_OK && i < plan->api.count; i++) {
        const once__openapi_path_t *path = &plan->api.paths[i];
        char label[300];
        snprintf(label, sizeof(label), "--openapi %s: %.200s", once__cli_shown(file).text,
                 path->path);
        if ((path->guarded != 0 || path->shadowed) && !is_overruled(plan, path->path)) {
            memset(&routes[plan->route_count], 0, sizeof(routes[0]));
            code = make_route(label, path, &routes[plan->route_count++]);
        }
    }
    return code;
}

int once__gate_read_openapi(once__gate_plan_t *plan)
{
    const char *file = plan->options->openapi;
    once__cli_bytes_t bytes;
    json_t *document;
    int wrong, code;

    if (file == NULL) {
        return ONCE__CLI_OK;
    }
    code = once__cli_read_file(file, ONCE__OPENAPI_BYTES, &bytes);
    if (code != ONCE__CLI_OK) {
        return code;
    }
    document = once__openapi_parse(bytes.data, bytes.len, plan->api.error, sizeof(plan->api.error));
    once__cli_bytes_free(&bytes);
    wrong = document == NULL || once__openapi_read(document, key_header(plan), &plan->api) != 0;
    json_decref(document);
    if (wrong) {
        return ONCE__GATE_USAGE("--openapi %s: %s", once__cli_shown(file).text, plan->api.error);
    }
    return add_routes(plan, file);
}

/* ------------------------------------------------------------------------------------------------------- for people */

static void tell_path(const once__gate_plan_t *plan, const once__openapi_path_t *path)
{
    if (is_overruled(plan, path->path)) {
        printf("  openapi  %s is left to --route\n", path->path);
        return;
    }
    if (path->guarded != 0) {
        printf("  guarded  %s %s, key ", once__openapi_methods(path->guarded).text, path->path);
        if (path->required == path->guarded || path->required == 0) {
            fputs(path->required != 0 ? "required" : "optional", stdout);
        } else {
            printf("required for %s", once__openapi_methods(path->required).text);
        }
        for (size_t i = 0; i < ONCE__OPENAPI_SETTINGS; i++) {
            if (path->settings[i] != NULL && strncmp(path->settings[i], "name=", 5) != 0) {
                printf(", %s", path->settings[i]);
            }
        }
        putchar('\n');
    }
    if (path->passing != 0) {
        printf("  passes   %s %s\n", once__openapi_methods(path->passing).text, path->path);
    }
}

void once__gate_tell_openapi(const once__gate_plan_t *plan)
{
    if (plan->options->openapi == NULL) {
        return;
    }
    for (size_t i = 0; i < plan->api.count; i++) {
        tell_path(plan, &plan->api.paths[i]);
    }
}
