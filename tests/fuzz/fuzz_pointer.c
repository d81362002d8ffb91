/*
 * A JSON pointer that is followed while a document streams (nginx/ngx_http_once_seek.c): the first line is the pointer, the rest
 * the document. Where its bytes are cut makes no difference, and what jansson reads, it reads alike.
 */
#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ngx_http_once_seek.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static ngx_http_once_seek_e seek_in_pieces(ngx_http_once_seek_t *seek,
                                           const ngx_http_once_path_t *path, const uint8_t *data,
                                           size_t len, size_t piece)
{
    ngx_http_once_seek_init(seek, path);
    for (size_t at = 0; at < len; at += piece) {
        ngx_http_once_seek_add(seek, data + at, len - at < piece ? len - at : piece);
    }
    return ngx_http_once_seek_end(seek);
}

static int is_deep(json_t *value, int levels)
{
    const char *name;
    json_t *child;
    size_t i;

    if (levels == 0) {
        return json_is_object(value) || json_is_array(value);
    }
    json_object_foreach(value, name, child)
    {
        if (is_deep(child, levels - 1)) {
            return 1;
        }
    }
    json_array_foreach(value, i, child)
    {
        if (is_deep(child, levels - 1)) {
            return 1;
        }
    }
    return 0;
}

static const json_t *follow(const json_t *value, const ngx_http_once_path_t *path)
{
    for (unsigned i = 0; i < path->n && value != NULL; i++) {
        const ngx_http_once_name_t *name = &path->name[i];
        if (json_is_array(value)) {
            value = name->index == UINT64_MAX ? NULL : json_array_get(value, (size_t)name->index);
            continue;
        }
        char *copy = strndup((const char *)name->data, name->len);
        assert(copy != NULL);
        value = strlen(copy) == name->len ? json_object_get(value, copy) : NULL;
        free(copy);
    }
    return value;
}

/* What jansson has there, if it can be a key. */
static int expect_value(const json_t *found, char text[NGX_HTTP_ONCE_SEEK_VALUE], size_t *len)
{
    if (json_is_string(found)) {
        *len = json_string_length(found);
        *len = *len < NGX_HTTP_ONCE_SEEK_VALUE ? *len : NGX_HTTP_ONCE_SEEK_VALUE;
        memcpy(text, json_string_value(found), *len);
        return 1;
    }
    *len = json_is_integer(found)
               ? (size_t)snprintf(text, NGX_HTTP_ONCE_SEEK_VALUE, "%" JSON_INTEGER_FORMAT,
                                  json_integer_value(found))
               : 0;
    return json_is_integer(found);
}

static void check(const ngx_http_once_path_t *path, const uint8_t *data, size_t len,
                  const ngx_http_once_seek_t *seek, ngx_http_once_seek_e result)
{
    json_t *root = json_loadb((const char *)data, len,
                              JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    char text[NGX_HTTP_ONCE_SEEK_VALUE];
    size_t expected;

    /* it also rejects numbers that are too big and what is not UTF-8, and takes a zero byte for the end */
    if (root == NULL || memchr(data, 0, len) != NULL) {
        json_decref(root);
        return;
    }
    if (is_deep(root, NGX_HTTP_ONCE_SEEK_LEVELS)) {
        assert(result == NGX_HTTP_ONCE_SEEK_BAD);
    } else if (expect_value(follow(root, path), text, &expected)) {
        assert(result == NGX_HTTP_ONCE_SEEK_FOUND);
        /* -0 is 0 to jansson, and -0 here */
        assert(json_is_integer(follow(root, path)) ||
               (seek->len == expected && memcmp(seek->value, text, expected) == 0));
    } else {
        assert(result == NGX_HTTP_ONCE_SEEK_NONE);
    }
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t pieces[] = {1, 3, 17};
    const uint8_t *line = size == 0 ? NULL : memchr(data, '\n', size);
    ngx_http_once_seek_t whole, cut;
    ngx_http_once_path_t path;

    if (line == NULL) {
        return 0;
    }
    size_t len = (size_t)(line - data);
    unsigned char *pointer = malloc(len + 1);
    assert(pointer != NULL);
    memcpy(pointer, data, len);
    if (ngx_http_once_seek_parse(&path, pointer, len) == NULL) {
        const uint8_t *document = line + 1;
        size_t left = size - len - 1;
        ngx_http_once_seek_e result = seek_in_pieces(&whole, &path, document, left, left + 1);
        for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
            assert(seek_in_pieces(&cut, &path, document, left, pieces[i]) == result);
            assert(cut.len == whole.len && memcmp(cut.value, whole.value, whole.len) == 0);
        }
        check(&path, document, left, &whole, result);
    }
    free(pointer);
    return 0;
}
