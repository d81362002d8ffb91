/*
 * once gate: routes, scopes and directives, read from the command line.
 *
 * Everything becomes words, and config.c writes each word in quotes: whatever a value contains, it stays one word.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <once/policy.h>

#include "gate/gate.h"
#include "cli/nearest.h"
#include "cli/text.h"

#define LOWER  "abcdefghijklmnopqrstuvwxyz"
#define UPPER  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

/* What a route may set: the module's directives without "once_". */
static const char *const settings[] = {
    "once_docs",
    "once_early_lookup",
    "once_fingerprint",
    "once_key",
    "once_lease",
    "once_name",
    "once_on_store_error",
    "once_probe",
    "once_quota",
    "once_record",
    "once_recover",
    "once_release",
    "once_release_ttl",
    "once_replay_header",
    "once_replay_headers",
    "once_require",
    "once_retry_after",
    "once_store_body",
    "once_ttl",
    "once_unknown_max",
    "once_wait",
};

#define SETTING_COUNT (sizeof(settings) / sizeof(settings[0]))

const char *once__gate_directive_of(const char *name, size_t len)
{
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const char *rest = settings[i] + strlen("once_");
        if (strlen(rest) == len && strncmp(rest, name, len) == 0) {
            return settings[i];
        }
    }
    return NULL;
}

static int has_control(const char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f) {
            return 1;
        }
    }
    return 0;
}

void once__gate_words_free(once__gate_words_t *words)
{
    free(words->memory);
    memset(words, 0, sizeof(*words));
}

/* Takes one word from *in: up to a space, or in quotes of either kind, which \ cannot escape. NULL: none left; *wrong is set. */
static char *take_word(char **in, const char **wrong)
{
    char *word = *in + strspn(*in, " ");
    char *end;

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
    } else {
        end = word + strcspn(word, " ");
    }
    *in = *end == '\0' ? end : end + 1;
    *end = '\0';
    return word;
}

/* NULL, or what is wrong. */
static const char *split(const char *text, once__gate_words_t *words)
{
    const char *wrong = NULL;
    char *in, *word;

    memset(words, 0, sizeof(*words));
    if (has_control(text)) {
        return "it must not have control characters";
    }
    words->memory = in = strdup(text);
    if (in == NULL) {
        return "out of memory";
    }
    while ((word = take_word(&in, &wrong)) != NULL) {
        if (words->count == ONCE__GATE_WORDS_MAX) {
            return "it has too many words";
        }
        if (strlen(word) > ONCE__GATE_WORD_MAX) {
            return "a word in it is too long";
        }
        words->list[words->count++] = word;
    }
    return wrong;
}

/* ----------------------------------------------------------------------------------------------------------------- scope */

/* The value in a variable of nginx, whose names have letters, digits and underscores only. */
static int variable_of(once__gate_scope_t *scope, const char *prefix, const char *name, size_t len,
                       const char *allowed)
{
    if (len == 0 || len > 64 || strspn(name, allowed) < len) {
        return -1;
    }
    snprintf(scope->value, sizeof(scope->value), "$%s%.*s", prefix, (int)len, name);
    for (char *at = scope->value; *at != '\0'; at++) {
        if (*at == '-') {
            *at = '_';
        }
    }
    return 0;
}

static void lower(char *text)
{
    for (; *text != '\0'; text++) {
        if (*text >= 'A' && *text <= 'Z') {
            *text = (char)(*text - 'A' + 'a');
        }
    }
}

int once__gate_read_scope(const once__cli_command_t *command, const char *text,
                          once__gate_scope_t *scope)
{
    const char *comma = strchr(text, ',');
    size_t len = comma != NULL ? (size_t)(comma - text) : strlen(text);
    int code = -1;

    memset(scope, 0, sizeof(*scope));
    scope->optional = comma != NULL;
    if (strcmp(text, "none") == 0) {
        snprintf(scope->value, sizeof(scope->value), "none");
        snprintf(scope->told, sizeof(scope->told), "none: all clients share one key space");
        return ONCE__CLI_OK;
    }
    if (comma != NULL && strcmp(comma, ",optional") != 0) {
        code = -1;
    } else if (len > 7 && strncmp(text, "header:", 7) == 0) {
        code = variable_of(scope, "http_", text + 7, len - 7, LOWER UPPER DIGITS "-");
        lower(scope->value);
        snprintf(scope->told, sizeof(scope->told), "the header %.*s", (int)len - 7, text + 7);
    } else if (len > 7 && strncmp(text, "cookie:", 7) == 0) {
        code = variable_of(scope, "cookie_", text + 7, len - 7, LOWER UPPER DIGITS "_");
        snprintf(scope->told, sizeof(scope->told), "the cookie %.*s", (int)len - 7, text + 7);
    }
    if (code != 0 && len > 0 && strspn(text, LOWER UPPER DIGITS "-") == len) {
        return once__cli_usage(
            command, "a scope is header:NAME, cookie:NAME or none; did you mean header:%s?",
            once__cli_shown(text).text);
    }
    if (code != 0) {
        return once__cli_usage(command,
                               "a scope is header:NAME, cookie:NAME (\",optional\" may follow) or "
                               "none, not \"%s\"",
                               once__cli_shown(text).text);
    }
    return ONCE__CLI_OK;
}

/* ---------------------------------------------------------------------------------------------------------------- routes */

static int bad_route(const once__cli_command_t *command, const char *text, const char *why)
{
    return once__cli_usage(command, "--route \"%s\": %s", once__cli_shown(text).text, why);
}

static const char *check_methods(const char *methods)
{
    static const char *const known[] = {"POST", "PATCH", "PUT", "DELETE"};
    const char *at = methods;

    for (;;) {
        size_t len = strcspn(at, ",");
        int found = 0;
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
            found |= strlen(known[i]) == len && strncmp(known[i], at, len) == 0;
        }
        if (!found) {
            return "methods must be POST, PATCH, PUT or DELETE, separated by commas";
        }
        if (at[len] == '\0') {
            return NULL;
        }
        at += len + 1;
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

/* Policies are checked here, because the library says it better than a line number in a generated file does. */
static int check_policy(const once__cli_command_t *command, const char *text, const char *name,
                        const char *value)
{
    static const char *const parts[] = {"ttl",    "lease",   "recover",
                                        "record", "release", "release_ttl"};
    once_error_t err = {0};
    int code = ONCE__CLI_OK;

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (strcmp(name, parts[i]) == 0) {
            once_policy_t *policy = once_policy_new();
            if (policy != NULL && once_policy_set(policy, name, value, &err) != ONCE_OK) {
                code = bad_route(command, text, err.text);
            }
            once_policy_free(policy);
        }
    }
    return code;
}

static int unknown_setting(const once__cli_command_t *command, const char *text, const char *name)
{
    once__cli_nearest_t nearest;
    char why[400];
    int len = snprintf(why, sizeof(why), "unknown setting \"%s\"; ", once__cli_shown(name).text);

    once__cli_nearest_start(&nearest, name);
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const char *known = settings[i] + strlen("once_");
        once__cli_nearest_try(&nearest, known, strlen(known));
    }
    if (nearest.best != NULL) {
        snprintf(why + len, sizeof(why) - (size_t)len, "did you mean %.*s?", nearest.best_len,
                 nearest.best);
        return bad_route(command, text, why);
    }
    len += snprintf(why + len, sizeof(why) - (size_t)len, "known are scope");
    for (size_t i = 0; i < SETTING_COUNT && len < (int)sizeof(why); i++) {
        len +=
            snprintf(why + len, sizeof(why) - (size_t)len, ", %s", settings[i] + strlen("once_"));
    }
    return bad_route(command, text, why);
}

/* NAME=VALUE: the = becomes the end of the name, and the word stays in its place. */
static int check_setting(const once__cli_command_t *command, const char *text,
                         once__gate_route_t *route, char *word)
{
    char *equals = strchr(word, '=');

    if (equals == NULL || equals == word || equals[1] == '\0') {
        return bad_route(command, text, "the path must be followed by NAME=VALUE");
    }
    *equals = '\0';
    if (strcmp(word, "scope") == 0) {
        route->has_scope = 1;
        return once__gate_read_scope(command, equals + 1, &route->scope);
    }
    if (once__gate_directive_of(word, strlen(word)) == NULL) {
        return unknown_setting(command, text, word);
    }
    return check_policy(command, text, word, equals + 1);
}

int once__gate_read_route(const once__cli_command_t *command, const char *text,
                          once__gate_route_t *route)
{
    const char *wrong;
    int code = ONCE__CLI_OK;

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
        return bad_route(command, text, wrong);
    }
    for (size_t i = 2; code == ONCE__CLI_OK && i < route->words.count; i++) {
        code = check_setting(command, text, route, route->words.list[i]);
    }
    return code;
}

/* ------------------------------------------------------------------------------------------------------------ directives */

/* What has an option of its own is told at the start, and that must be what is in force. NULL: nothing is wrong. */
static const char *check_directive(const char *name)
{
    static const char *const owned[][2] = {
        {"once", "use --route"},
        {"once_authorize", "use --auth"},
        {"once_methods", "use --route, which has the methods"},
        {"once_scope", "use --scope, or scope= in a route"},
        {"once_store", "use --store"},
    };

    for (size_t i = 0; i < sizeof(owned) / sizeof(owned[0]); i++) {
        if (strcmp(name, owned[i][0]) == 0) {
            return owned[i][1];
        }
    }
    return NULL;
}

int once__gate_read_directive(const once__cli_command_t *command, const char *text,
                              once__gate_words_t *words)
{
    const char *wrong = split(text, words);

    if (wrong == NULL && words->count < 2) {
        wrong = "a directive needs a name and a value, such as 'once_wait 5s'";
    }
    if (wrong == NULL && strspn(words->list[0], LOWER DIGITS "_") != strlen(words->list[0])) {
        wrong = "the name of a directive may have only lower-case letters, digits and underscores";
    }
    if (wrong == NULL) {
        wrong = check_directive(words->list[0]);
    }
    if (wrong == NULL) {
        char *last = words->list[words->count - 1];
        size_t len = strlen(last);
        if (len > 1 && last[len - 1] == ';') {
            last[len - 1] = '\0'; /* copied from a configuration */
        }
        return ONCE__CLI_OK;
    }
    return once__cli_usage(command, "--set \"%s\": %s", once__cli_shown(text).text, wrong);
}
