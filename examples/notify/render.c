#include "render.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pointer.h"

/* The name after "{{", and what follows its "}}". NULL when it has no end, or is too long. */
static const char *read_name(const char *open, char name[RENDER_NAME_MAX])
{
    const char *close = strstr(open, "}}");
    size_t len = close != NULL ? (size_t)(close - open) : RENDER_NAME_MAX;

    if (len >= RENDER_NAME_MAX) {
        return NULL;
    }
    memcpy(name, open, len);
    name[len] = '\0';
    return close + 2;
}

int render_check(const char *text, char *why, size_t size)
{
    char name[RENDER_NAME_MAX];

    while ((text = strstr(text, "{{")) != NULL) {
        text = read_name(text + 2, name);
        if (text == NULL) {
            snprintf(why, size, "{{ without }}");
            return -1;
        }
        if (!pointer_valid(name) && strcmp(name, "user.name") != 0 &&
            strcmp(name, "user.id") != 0 && strcmp(name, "event.id") != 0) {
            snprintf(why, size,
                     "{{%.80s}} is neither a JSON pointer nor user.name, user.id, event.id", name);
            return -1;
        }
    }
    return 0;
}

/* Control characters would be new lines of a mail's head, or worse. */
static void put_value(FILE *out, const char *value)
{
    for (; *value != '\0'; value++) {
        unsigned char c = (unsigned char)*value;

        putc(c < 0x20 || c == 0x7f ? ' ' : c, out);
    }
}

static int put_json(FILE *out, const json_t *value)
{
    char *text;

    if (json_is_string(value)) {
        put_value(out, json_string_value(value));
        return 0;
    }
    if (!json_is_number(value) && !json_is_boolean(value)) {
        return -1;
    }
    text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    if (text != NULL) {
        fputs(text, out);
        free(text);
    }
    return 0;
}

static int put_named(FILE *out, const char *name, const render_t *values)
{
    if (name[0] == '/') {
        return put_json(out, pointer_find(values->payload, name));
    }
    put_value(out, strcmp(name, "user.name") == 0 ? values->user->name
                   : strcmp(name, "user.id") == 0 ? values->user->id
                                                  : values->event_id);
    return 0;
}

char *render_text(const char *text, render_t *values)
{
    char *result = NULL;
    size_t size;
    FILE *out = open_memstream(&result, &size);
    const char *open;
    int missing = out == NULL;

    while (!missing && (open = strstr(text, "{{")) != NULL) {
        fwrite(text, 1, (size_t)(open - text), out);
        text = read_name(open + 2, values->missing);
        missing = put_named(out, values->missing, values) != 0;
    }
    if (out != NULL) {
        fputs(text, out);
        fclose(out);
    }
    if (missing) {
        free(result);
        return NULL;
    }
    return result;
}
