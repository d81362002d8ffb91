#include "pointer.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_MAX 128

int pointer_valid(const char *pointer)
{
    if (pointer[0] != '/') {
        return 0;
    }
    for (const char *c = strchr(pointer, '~'); c != NULL; c = strchr(c + 1, '~')) {
        if (c[1] != '0' && c[1] != '1') {
            return 0;
        }
    }
    return 1;
}

/* The next token, unescaped; returns what follows it, NULL when it is too long to be the name of anything here. */
static const char *next_token(const char *rest, char token[TOKEN_MAX])
{
    size_t len = 0;

    while (*rest != '\0' && *rest != '/') {
        char c = *rest++;

        if (c == '~') {
            c = *rest++ == '1' ? '/' : '~';
        }
        if (len == TOKEN_MAX - 1) {
            return NULL;
        }
        token[len++] = c;
    }
    token[len] = '\0';
    return rest;
}

static json_t *element(json_t *array, const char *token)
{
    size_t len = strlen(token);

    if (len == 0 || len > 6 || (token[0] == '0' && len > 1)) {
        return NULL;
    }
    for (const char *c = token; *c != '\0'; c++) {
        if (!isdigit((unsigned char)*c)) {
            return NULL;
        }
    }
    return json_array_get(array, (size_t)atoi(token));
}

json_t *pointer_find(json_t *document, const char *pointer)
{
    char token[TOKEN_MAX];

    while (document != NULL && *pointer == '/') {
        pointer = next_token(pointer + 1, token);
        if (pointer == NULL) {
            return NULL;
        }
        document =
            json_is_array(document) ? element(document, token) : json_object_get(document, token);
    }
    return document;
}
