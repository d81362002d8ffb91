#include "cli/values.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cli/text.h"

#define DURATION_MAX (30ull * 86400 * 1000)

static int check_text(const once__cli_call_t *call, const char *option, const char *text)
{
    if (text == NULL) {
        return ONCE__CLI_OK;
    }
    if (text[0] == '\0') {
        return once__cli_usage(call->command, "--%s must not be empty", option);
    }
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++) {
        if (*at < 0x20 || *at == 0x7f) {
            return once__cli_usage(call->command, "--%s must not have control characters", option);
        }
    }
    return ONCE__CLI_OK;
}

static int check_list(const once__cli_call_t *call, const char *option,
                      const once__cli_list_t *list)
{
    int code = ONCE__CLI_OK;

    for (size_t i = 0; code == ONCE__CLI_OK && i < list->count; i++) {
        code = check_text(call, option, list->items[i]);
    }
    return code;
}

static int check_number(const once__cli_call_t *call, const once__cli_option_t *option,
                        const once__cli_number_t *number)
{
    if (option->kind == ONCE__CLI_NUMBER && number->value > UINT32_MAX) {
        return once__cli_usage(call->command, "--%s is too large", option->name);
    }
    if (option->kind == ONCE__CLI_DURATION && number->value > DURATION_MAX) {
        return once__cli_usage(call->command, "--%s must be at most 30d", option->name);
    }
    return ONCE__CLI_OK;
}

int once__cli_check_values(const once__cli_call_t *call)
{
    int code = ONCE__CLI_OK;

    for (const once__cli_option_t *o = call->command->options;
         code == ONCE__CLI_OK && o != NULL && o->name != NULL; o++) {
        const void *field = (const char *)call->settings + o->offset;
        if (o->kind == ONCE__CLI_TEXT) {
            code = check_text(call, o->name, *(const char *const *)field);
        } else if (o->kind == ONCE__CLI_LIST) {
            code = check_list(call, o->name, field);
        } else if (o->kind != ONCE__CLI_FLAG) {
            code = check_number(call, o, field);
        }
    }
    return code;
}

int once__cli_check_file(const once__cli_call_t *call, const char *option, const char *path)
{
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (path != NULL && fd < 0) {
        return once__cli_usage(call->command, "--%s: cannot read %s: %s", option,
                               once__cli_shown(path).text, strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    return ONCE__CLI_OK;
}
