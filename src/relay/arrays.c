#include "relay/arrays.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_AT 12 /* of the number of elements in a binary array */

static void append(once__array_t *array, const void *bytes, size_t len)
{
    size_t room = array->room == 0 ? 4096 : array->room;
    char *data;

    while (room < array->len + len + 1) {
        room *= 2;
    }
    if (room != array->room) {
        data = realloc(array->data, room);
        if (data == NULL) {
            array->failed = 1;
            return;
        }
        array->data = data;
        array->room = room;
    }
    memcpy(array->data + array->len, bytes, len);
    array->len += len;
    array->data[array->len] = '\0';
}

static void append_int4(once__array_t *array, uint32_t number)
{
    uint32_t big = htobe32(number);

    append(array, &big, sizeof(big));
}

void once__array_start(once__array_t *array, uint32_t oid)
{
    const uint32_t head[] = {1, 0, oid, 0, 1}; /* dimensions, nulls, type, elements, lower bound */

    array->len = 0;
    array->count = 0;
    array->failed = 0;
    for (size_t i = 0; i < sizeof(head) / sizeof(head[0]); i++) {
        append_int4(array, head[i]);
    }
}

void once__array_put(once__array_t *array, const void *bytes, uint32_t len)
{
    uint32_t count = htobe32(++array->count);

    append_int4(array, len);
    append(array, bytes, len);
    if (!array->failed) {
        memcpy(array->data + COUNT_AT, &count, sizeof(count));
    }
}

void once__array_put_int2(once__array_t *array, int16_t number)
{
    uint16_t big = htobe16((uint16_t)number);

    once__array_put(array, &big, sizeof(big));
}

void once__array_put_int8(once__array_t *array, int64_t number)
{
    uint64_t big = htobe64((uint64_t)number);

    once__array_put(array, &big, sizeof(big));
}

void once__array_text(once__array_t *array)
{
    array->len = 0;
    array->count = 0;
    array->failed = 0;
    append(array, "{", 1);
}

void once__array_text_number(once__array_t *array, int64_t number)
{
    char text[32];
    int len = snprintf(text, sizeof(text), "%s%" PRId64, array->count++ > 0 ? "," : "", number);

    append(array, text, (size_t)len);
}

void once__array_text_string(once__array_t *array, const char *text, size_t len)
{
    append(array, ",\"", array->count > 0 ? 2 : 0);
    append(array, "\"", array->count++ > 0 ? 0 : 1);
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"' || text[i] == '\\') {
            append(array, "\\", 1);
        }
        append(array, text + i, 1);
    }
    append(array, "\"", 1);
}

const char *once__array_text_end(once__array_t *array)
{
    append(array, "}", 1);
    return array->failed ? NULL : array->data;
}

void once__array_free(once__array_t *array)
{
    free(array->data);
    memset(array, 0, sizeof(*array));
}

int16_t once__get_int2(const char *bytes)
{
    uint16_t number;

    memcpy(&number, bytes, sizeof(number));
    return (int16_t)be16toh(number);
}

int64_t once__get_int8(const char *bytes)
{
    uint64_t number;

    memcpy(&number, bytes, sizeof(number));
    return (int64_t)be64toh(number);
}
