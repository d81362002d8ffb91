/*
 * once gate: what says whether a caller may have a stored answer (--auth).
 */
#include <stdio.h>
#include <string.h>

#include "gate/gate.h"
#include "cli/text.h"

static int bad_auth(const once__cli_command_t *command, const char *why)
{
    return once__cli_usage(
        command,
        "--auth: %s; expected http://HOST[:PORT]/PATH, https://HOST[:PORT]/PATH, "
        "or /PATH of the backend",
        why);
}

/* As a word in proxy_pass: a $ would be a variable there, and a space ends no word in quotes but a request line. */
static const char *check_path(const char *path)
{
    for (const char *at = path; *at != '\0'; at++) {
        if (*at <= ' ' || *at >= 0x7f || strchr("$#\"\\{};", *at) != NULL) {
            return "its path has characters that must be encoded with %";
        }
    }
    return strlen(path) < ONCE__GATE_AUTH_PATH ? NULL : "its path is too long";
}

int once__gate_read_auth(const once__cli_command_t *command, const once__gate_options_t *gate,
                         once__gate_plan_t *plan)
{
    once__gate_auth_t *auth = &plan->auth;
    const char *text = gate->auth;
    const char *host, *path, *wrong;
    char url[512];

    if (text == NULL) {
        return ONCE__CLI_OK;
    }
    host = strstr(text, "://");
    path = text[0] == '/' ? text : host != NULL ? host + 3 + strcspn(host + 3, "/?#") : "";
    if (path[0] != '/') {
        return bad_auth(command, text[0] == '\0' ? "it is empty" : "it has no path");
    }
    wrong = check_path(path);
    if (wrong == NULL && (size_t)(path - text) >= sizeof(url)) {
        wrong = "it is too long";
    }
    if (wrong == NULL && strncmp(text, "http://unix:", 12) == 0) {
        wrong = "a unix socket cannot have a path after it";
    }
    if (wrong != NULL) {
        return bad_auth(command, wrong);
    }
    snprintf(auth->path, sizeof(auth->path), "%s", path);
    auth->given = 1;
    auth->own = path != text;
    if (!auth->own) {
        return ONCE__CLI_OK;
    }
    snprintf(url, sizeof(url), "%.*s", (int)(path - text), text);
    return once__gate_read_upstream(command, "auth", url, &auth->server);
}
