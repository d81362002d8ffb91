#include "cli/header.h"

#include <string.h>

#include "base/text.h"
#include "cli/text.h"

int once__cli_header_read(const once__cli_command_t *command, const char *text,
                          once_header_t *header)
{
    const char *colon = strchr(text, ':');
    const char *value;

    if (colon == NULL || !once__is_token(text, (size_t)(colon - text)) ||
        !once__is_field_value(colon + 1, strlen(colon + 1))) {
        return once__cli_usage(command,
                               "--header needs 'Name: value' without control characters, "
                               "not \"%s\"",
                               once__cli_shown(text).text);
    }
    value = colon + 1 + strspn(colon + 1, " \t");
    header->name.data = text;
    header->name.len = (size_t)(colon - text);
    header->value.data = value;
    header->value.len = strlen(value);
    while (header->value.len > 0 && strchr(" \t", value[header->value.len - 1]) != NULL) {
        header->value.len--;
    }
    return ONCE__CLI_OK;
}
