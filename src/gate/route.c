/*
 * once gate: routes, scopes and directives, read from the command line.
 *
 * Everything becomes words, and config.c writes each word in quotes: whatever a value contains, it stays one word.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <once/policy.h>

#include "cli/cli.h"
#include "cli/text.h"
#include "gate/internal.h"

#define LOWER  "abcdefghijklmnopqrstuvwxyz"
#define UPPER  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

/* The directives that a route can set, without "once_"; beside them it can set the scope. */
static const once__gate_setting_t settings[] = {
    {"describe", 0},
    {"docs", 0},
    {"early_lookup", 0},
    {"echo_key", 0},
    {"error", ONCE__GATE_LIST},
    {"error_body", 0},
    {"error_header", ONCE__GATE_LIST},
    {"expires_header", 0},
    {"fingerprint", ONCE__GATE_LIST},
    {"key", ONCE__GATE_LIST},
    {"key_format", 0},
    {"lease", ONCE__GATE_POLICY},
    {"mcp", ONCE__GATE_LIST},
    {"name", 0},
    {"on_store_error", 0},
    {"probe", ONCE__GATE_LIST},
    {"profile", 0},
    {"quota", 0},
    {"record", ONCE__GATE_LIST | ONCE__GATE_POLICY},
    {"recover", ONCE__GATE_POLICY},
    {"redact", ONCE__GATE_LIST},
    {"release", ONCE__GATE_LIST | ONCE__GATE_POLICY},
    {"release_ttl", ONCE__GATE_POLICY},
    {"replay_header", 0},
    {"replay_headers", ONCE__GATE_LIST},
    {"require", 0},
    {"retry_after", 0},
    {"scope_path", 0},
    {"store_body", 0},
    {"store_no_store", 0},
    {"subject", ONCE__GATE_LIST},
    {"ttl", ONCE__GATE_POLICY},
    {"unknown_max", 0},
    {"wait", ONCE__GATE_LIST},
};

#define SETTING_COUNT (sizeof(settings) / sizeof(settings[0]))

/* ---------------------------------------------------------------------------------------------------------------- words */

void once__gate_words_free(once__gate_words_t *words)
{
    free(words->memory);
    memset(words, 0, sizeof(*words));
}

/* Takes one word from *in: up to a space, or in quotes of either kind, which \ cannot escape. NULL: none left; *wrong is set. */
static char *take_word(char **in, const char **wrong)
{
    char *word = *in + strspn(*in, " ");
    char *end = word + strcspn(word, " ");

    if (*word == '\0') {
        return NULL;
    }
    if (*word == '"' || *word == '\'') {
        end = strchr(word + 1, *word);
        if (end == NULL || (end[1] != '\0' && end[1] != ' ')) {
            *wrong = "a quote is not closed, or text follows it";
            return NULL;
        }
        word++;
    }
    *in = *end == '\0' ? end : end + 1;
    *end = '\0';
    return word;
}

/* Returns NULL, or what is wrong. */
static const char *split(const char *text, once__gate_words_t *words)
{
    const char *wrong = NULL;
    char *in, *word;

    memset(words, 0, sizeof(*words));
    for (const char *at = text; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f) {
            return "it must not have control characters";
        }
    }
    words->memory = in = strdup(text);
    if (in == NULL) {
        return "out of memory";
    }
    while ((word = take_word(&in, &wrong)) != NULL) {
        if (words->count == ONCE__GATE_WORDS_MAX || strlen(word) > ONCE__GATE_WORD_MAX) {
            return words->count == ONCE__GATE_WORDS_MAX ? "it has too many words"
                                                        : "a word in it is too long";
        }
        words->list[words->count++] = word;
    }
    return wrong;
}

/* ---------------------------------------------------------------------------------------------------------------- scope */

/* The value in a variable of nginx, whose name has letters, digits and underscores only. */
static int read_variable(once__gate_scope_t *scope, const char *kind, const char *name, size_t len)
{
    int is_header = strcmp(kind, "header") == 0;

    if (len == 0 || len > 64 ||
        strspn(name, is_header ? LOWER UPPER DIGITS "-" : LOWER UPPER DIGITS "_") < len) {
        return -1;
    }
    snprintf(scope->shown, sizeof(scope->shown), "the %s %.*s", kind, (int)len, name);
    snprintf(scope->value, sizeof(scope->value), "$%s_%.*s", is_header ? "http" : kind, (int)len,
             name);
    for (char *at = scope->value; is_header && *at != '\0'; at++) {
        *at = (char)(*at == '-' ? '_' : tolower((unsigned char)*at));
    }
    return 0;
}

int once__gate_read_scope(const char *text, once__gate_scope_t *scope)
{
    size_t len = strcspn(text, ",");
    int code = -1;

    memset(scope, 0, sizeof(*scope));
    scope->optional = strcmp(text + len, ",optional") == 0;
    if (strcmp(text, "none") == 0) {
        snprintf(scope->value, sizeof(scope->value), "none");
        snprintf(scope->shown, sizeof(scope->shown), "none: all clients share one key space");
        return ONCE__CLI_OK;
    }
    if (scope->optional || text[len] == '\0') {
        if (strncmp(text, "header:", 7) == 0) {
            code = read_variable(scope, "header", text + 7, len - 7);
        } else if (strncmp(text, "cookie:", 7) == 0) {
            code = read_variable(scope, "cookie", text + 7, len - 7);
        }
    }
    if (code == 0) {
        return ONCE__CLI_OK;
    }
    if (len > 0 && strspn(text, LOWER UPPER DIGITS "-") == len) {
        return ONCE__GATE_USAGE(
            "a scope is header:NAME, cookie:NAME or none; did you mean header:%s?",
            once__cli_shown(text).text);
    }
    return ONCE__GATE_USAGE(
        "a scope is header:NAME, cookie:NAME (\",optional\" may follow) or none, not \"%s\"",
        once__cli_shown(text).text);
}

/* --------------------------------------------------------------------------------------------------------------- routes */

static int bad_route(const char *label, const char *why)
{
    return ONCE__GATE_USAGE("%s: %s", label, why);
}

static const char *check_methods(const char *methods)
{
    for (const char *at = methods;; at++) {
        size_t len = strcspn(at, ",");
        char one[8] = "";
        if (len > 0 && len < sizeof(one)) {
            memcpy(one, at, len);
        }
        if (strcmp(one, "POST") != 0 && strcmp(one, "PATCH") != 0 && strcmp(one, "PUT") != 0 &&
            strcmp(one, "DELETE") != 0) {
            return "methods must be POST, PATCH, PUT or DELETE, separated by commas";
        }
        at += len;
        if (*at == '\0') {
            return NULL;
        }
    }
}

static const char *check_path(once__gate_route_t *route, char *path)
{
    size_t len = strlen(path);

    if (path[0] != '/') {
        return "its path must begin with /: METHODS PATH [NAME=VALUE]...";
    }
    if (strpbrk(path, "?#%") != NULL) {
        return "its path must not have ?, # or %: it is compared decoded and without the query";
    }
    route->exact = path[len - 1] == '$';
    if (route->exact) {
        path[len - 1] = '\0';
    }
    if (strchr(path, '$') != NULL) {
        return "$ is allowed only at the end of the path";
    }
    route->path = path;
    return NULL;
}

/* The library explains what is wrong with a policy better than a line number in a generated file would. */
static int check_policy(const char *label, const char *name, const char *value)
{
    once_policy_t *policy = once_policy_new();
    once_error_t err = {0};
    int code = ONCE__CLI_OK;

    if (policy != NULL && once_policy_set(policy, name, value, &err) != ONCE_OK) {
        code = bad_route(label, err.text);
    }
    once_policy_free(policy);
    return code;
}

static int unknown_setting(const char *label, const char *name)
{
    once__cli_nearest_t nearest;
    char why[600];
    int len = snprintf(why, sizeof(why), "unknown setting \"%s\"; ", once__cli_shown(name).text);

    once__cli_nearest_start(&nearest, name);
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        once__cli_nearest_try(&nearest, settings[i].name, strlen(settings[i].name));
    }
    if (nearest.best != NULL) {
        snprintf(why + len, sizeof(why) - (size_t)len, "did you mean %.*s?", nearest.best_len,
                 nearest.best);
        return bad_route(label, why);
    }
    len += snprintf(why + len, sizeof(why) - (size_t)len, "known are scope");
    for (size_t i = 0; i < SETTING_COUNT && len < (int)sizeof(why); i++) {
        len += snprintf(why + len, sizeof(why) - (size_t)len, ", %s", settings[i].name);
    }
    return bad_route(label, why);
}

/* The = becomes the end of the name. */
int once__gate_set_route(const char *label, once__gate_route_t *route, char *word)
{
    char *equals = strchr(word, '=');

    if (equals == NULL || equals == word || equals[1] == '\0') {
        return bad_route(label, "the path must be followed by NAME=VALUE");
    }
    *equals = '\0';
    if (strcmp(word, "scope") == 0) {
        route->has_scope = 1;
        return once__gate_read_scope(equals + 1, &route->scope);
    }
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        if (strcmp(word, settings[i].name) == 0) {
            route->settings[route->setting_count].known = &settings[i];
            route->settings[route->setting_count++].value = equals + 1;
            return settings[i].flags & ONCE__GATE_POLICY ? check_policy(label, word, equals + 1)
                                                         : ONCE__CLI_OK;
        }
    }
    return unknown_setting(label, word);
}

int once__gate_read_route(const char *text, once__gate_route_t *route)
{
    const char *wrong;
    char label[100];
    int code = ONCE__CLI_OK;

    snprintf(label, sizeof(label), "--route \"%s\"", once__cli_shown(text).text);
    memset(route, 0, sizeof(*route));
    wrong = split(text, &route->words);
    if (wrong == NULL && route->words.count < 2) {
        wrong = "a route is METHODS PATH [NAME=VALUE]..., such as 'POST /payments ttl=48h'";
    }
    if (wrong == NULL) {
        route->methods = route->words.list[0];
        wrong = check_methods(route->methods);
    }
    if (wrong == NULL) {
        wrong = check_path(route, route->words.list[1]);
    }
    if (wrong != NULL) {
        return bad_route(label, wrong);
    }
    for (size_t i = 2; code == ONCE__CLI_OK && i < route->words.count; i++) {
        code = once__gate_set_route(label, route, route->words.list[i]);
    }
    return code;
}

/* ----------------------------------------------------------------------------------------------------------- directives */

/* What has an option of its own is shown at the start, and must be what is in force. Returns NULL if nothing is wrong. */
static const char *check_directive(const char *name)
{
    static const char *const owned[][2] = {
        {"once", "use --route"},
        {"once_authorize", "use --auth"},
        {"once_methods", "use --route, which has the methods"},
        {"once_profile", "use --profile, or profile= in a route"},
        {"once_scope", "use --scope, or scope= in a route"},
        {"once_store", "use --store"},
    };

    for (size_t i = 0; i < sizeof(owned) / sizeof(owned[0]); i++) {
        if (strcmp(name, owned[i][0]) == 0) {
            return owned[i][1];
        }
    }
    return name[strspn(name, LOWER DIGITS "_")] == '\0'
               ? NULL
               : "the name of a directive may have only lower-case letters, digits and underscores";
}

int once__gate_read_directive(const char *text, once__gate_words_t *words)
{
    const char *wrong = split(text, words);
    char *last;

    if (wrong == NULL) {
        wrong = words->count < 2 ? "a directive needs a name and a value, such as 'once_wait 5s'"
                                 : check_directive(words->list[0]);
    }
    if (wrong != NULL) {
        return ONCE__GATE_USAGE("--set \"%s\": %s", once__cli_shown(text).text, wrong);
    }
    last = words->list[words->count - 1];
    if (strlen(last) > 1 && last[strlen(last) - 1] == ';') {
        last[strlen(last) - 1] = '\0'; /* copied from a configuration */
    }
    return ONCE__CLI_OK;
}
