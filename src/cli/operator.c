#include "cli/operator.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "cli/store.h"

int once__cli_operator_check(const once__cli_command_t *command,
                             const once__cli_operator_t *operator)
{
    if (operator->note == NULL || operator->note[0] == '\0') {
        return once__cli_usage(command, "missing --note TEXT: why? It is kept in the audit trail "
                                        "(once audit list)");
    }
    if (strlen(operator->note) > ONCE_NOTE_MAX) {
        return once__cli_usage(command, "--note is longer than %d bytes", ONCE_NOTE_MAX);
    }
    if (operator->as !=
        NULL &&(operator->as[0] == '\0' || strlen(operator->as) > ONCE_AUDIT_BY_MAX)) {
        return once__cli_usage(command, "--as needs a name of 1 to %d bytes", ONCE_AUDIT_BY_MAX);
    }
    return ONCE__CLI_OK;
}

/* The real user: the effective one is the store's, if the program was started with sudo. */
static const char *user(void)
{
    const char *before = getenv("SUDO_USER");
    const struct passwd *entry = getpwuid(getuid());

    if (getuid() == 0 && before != NULL && before[0] != '\0') {
        return before;
    }
    return entry != NULL ? entry->pw_name : "unknown";
}

once__cli_name_t once__cli_operator_name(const once__cli_operator_t *operator)
{
    once__cli_name_t name;
    char host[65] = "";

    if (operator->as != NULL) {
        snprintf(name.text, sizeof(name.text), "%s", operator->as);
        return name;
    }
    if (gethostname(host, sizeof(host) - 1) != 0 || host[0] == '\0') {
        snprintf(host, sizeof(host), "localhost");
    }
    snprintf(name.text, sizeof(name.text), "%.60s@%s", user(), host);
    return name;
}

int once__cli_operator_act(once_t *once, const once__cli_operator_t *operator)
{
    once__cli_name_t name = once__cli_operator_name(operator);
    int error = once_audit_as(once, once__slice_of(name.text), once__slice_of(operator->note));

    return error == ONCE_OK ? ONCE__CLI_OK : once__cli_store_failed("use the audit trail", error);
}

uint64_t once__cli_operator_add(once_t *once, const char *act, const char *object, uint64_t of,
                                const char *result)
{
    once_act_t entry = ONCE_ACT_INIT;
    once_answer_t *answer = NULL;
    uint64_t number = 0;
    int error;

    entry.name = act;
    entry.object = once__slice_of(object);
    entry.result = once__slice_of(result);
    entry.of = of;
    error = once_audit_add_sync(once, &entry, &answer);
    if (error != ONCE_OK) {
        (void)once__cli_store_failed("add to the audit trail", error);
    } else {
        number = once_answer_count(answer);
    }
    once_answer_free(answer);
    return number;
}

void once__cli_operator_covered(once_t *once)
{
    static const once_slice_t none = {"", 0};

    (void)!once_audit_as(once, none, none); /* cannot fail: both are short */
}
