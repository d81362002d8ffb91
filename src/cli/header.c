#include "cli/header.h"

#include <string.h>

#include "cli/text.h"

/* The characters of a header name, as RFC 9110 has them. */
static int is_name(const char *text, size_t len)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "!#$%&'*+-.^_`|~";

    return len > 0 && strspn(text, allowed) >= len;
}

/* Visible bytes, spaces and tabs: a line end here would become a header that nobody wrote. */
static int is_value(const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;
        if ((byte < 0x20 && byte != '\t') || byte == 0x7f) {
            return 0;
        }
    }
    return 1;
}

int once__cli_header_read(const once__cli_command_t *command, const char *text,
                          once_header_t *header)
{
    const char *colon = strchr(text, ':');
    const char *value;

    if (colon == NULL || !is_name(text, (size_t)(colon - text)) || !is_value(colon + 1)) {
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
