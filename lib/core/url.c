#include "core/url.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"

/* Decodes in place. 0, or -1: bad escape or a NUL byte. */
static int decode(char *text)
{
    char *out = text;

    for (const char *in = text; *in != '\0'; in++) {
        uint8_t byte = (uint8_t)*in;
        if (*in == '%') {
            if (in[1] == '\0' || once__unhex(&byte, 1, in + 1, 2) != 0 || byte == 0) {
                return -1;
            }
            in += 2;
        }
        *out++ = (char)byte;
    }
    *out = '\0';
    return 0;
}

static int is_scheme(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        int ok = (text[i] >= 'a' && text[i] <= 'z') || (i > 0 && text[i] == '+') ||
                 (i > 0 && text[i] >= '0' && text[i] <= '9');
        if (!ok) {
            return 0;
        }
    }
    return len > 0;
}

static int add_param(once__url_t *url, char *text, once_error_t *err)
{
    char *equals = strchr(text, '=');
    once__url_param_t *param = &url->params[url->count];

    if (url->count == ONCE__URL_PARAMS_MAX) {
        return once__fail(err, ONCE_E_CONFIG, "store URL: more than %d parameters",
                          ONCE__URL_PARAMS_MAX);
    }
    if (equals == NULL || equals == text) {
        return once__fail(err, ONCE_E_CONFIG, "store URL: parameter %zu is not name=value",
                          url->count + 1);
    }
    *equals = '\0';
    if (decode(text) != 0 || decode(equals + 1) != 0) {
        return once__fail(err, ONCE_E_CONFIG, "store URL: bad %%-escape in parameter %zu",
                          url->count + 1);
    }
    for (size_t i = 0; i < url->count; i++) {
        if (strcmp(url->params[i].name, text) == 0) {
            return once__fail(err, ONCE_E_CONFIG, "store URL: %s is given twice", text);
        }
    }
    param->name = text;
    param->value = equals + 1;
    param->taken = 0;
    url->count++;
    return ONCE_OK;
}

static int split(once__url_t *url, once_error_t *err)
{
    char *colon = strchr(url->memory, ':');
    char *query;

    if (colon == NULL || !is_scheme(url->memory, (size_t)(colon - url->memory))) {
        return once__fail(err, ONCE_E_CONFIG,
                          "store URL: write scheme:path, for example memory: or memory:NAME");
    }
    *colon = '\0';
    url->scheme = url->memory;
    url->path = colon + 1;
    query = strchr(url->path, '?');
    if (query != NULL) {
        *query++ = '\0';
    }
    if (decode(url->path) != 0) {
        return once__fail(err, ONCE_E_CONFIG, "store URL: bad %%-escape in the path");
    }
    while (query != NULL && *query != '\0') {
        char *next = strchr(query, '&');
        int code;
        if (next != NULL) {
            *next++ = '\0';
        }
        code = add_param(url, query, err);
        if (code != ONCE_OK) {
            return code;
        }
        query = next;
    }
    return ONCE_OK;
}

int once__url_parse(once__url_t *url, const char *text, once_error_t *err)
{
    size_t len = strlen(text), raw = strcspn(text, "?");
    int code;

    memset(url, 0, sizeof(*url));
    url->memory = malloc(len + 1 + raw + 1);
    if (url->memory == NULL) {
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    memcpy(url->memory, text, len + 1);
    memcpy(url->memory + len + 1, text, raw);
    url->memory[len + 1 + raw] = '\0';
    url->raw = url->memory + len + 1;
    code = split(url, err);
    if (code != ONCE_OK) {
        once__url_free(url);
    }
    return code;
}

void once__url_free(once__url_t *url)
{
    free(url->memory);
    memset(url, 0, sizeof(*url));
}

const char *once__url_take(once__url_t *url, const char *name)
{
    for (size_t i = 0; i < url->count; i++) {
        if (strcmp(url->params[i].name, name) == 0) {
            url->params[i].taken = 1;
            return url->params[i].value;
        }
    }
    return NULL;
}

int once__url_check_taken(const once__url_t *url, once_error_t *err)
{
    for (size_t i = 0; i < url->count; i++) {
        if (!url->params[i].taken) {
            return once__fail(err, ONCE_E_CONFIG, "store URL: the %s store has no parameter \"%s\"",
                              url->scheme, url->params[i].name);
        }
    }
    return ONCE_OK;
}
