#include "pg/values.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

#define ROOM_KEEP ((size_t)1 << 20) /* a rare giant must not stay forever */
#define COUNT_AT  12                /* where a binary array has the number of its elements */

void once__pg_params_reset(once__pg_params_t *params)
{
    for (int i = 0; i < params->count; i++) {
        once__buf_reset(&params->values[i].buf, ROOM_KEEP);
    }
    params->count = 0;
}

void once__pg_params_free(once__pg_params_t *params)
{
    for (int i = 0; i < ONCE__PG_PARAMS_MAX; i++) {
        once__buf_free(&params->values[i].buf);
    }
    params->count = 0;
}

once__pg_value_t *once__pg_param(once__pg_params_t *params, Oid type)
{
    once__pg_value_t *value = &params->values[params->count];

    assert(params->count < ONCE__PG_PARAMS_MAX);
    params->count++;
    value->type = type;
    value->buf.max = INT_MAX;
    return value;
}

void once__pg_put(once__pg_value_t *value, const void *data, size_t len)
{
    (void)once__buf_add(&value->buf, data, len);
}

static void set_int(uint8_t *to, uint64_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        to[i] = (uint8_t)(number >> 8 * (bytes - 1 - i));
    }
}

static void put_int(once__pg_value_t *value, uint64_t number, size_t bytes)
{
    char *to = once__buf_reserve(&value->buf, bytes);

    if (to != NULL) {
        set_int((uint8_t *)to, number, bytes);
        once__buf_added(&value->buf, bytes);
    }
}

void once__pg_param_int(once__pg_params_t *params, Oid type, uint64_t number, size_t bytes)
{
    put_int(once__pg_param(params, type), number, bytes);
}

void once__pg_param_text(once__pg_params_t *params, const char *text)
{
    once__pg_put(once__pg_param(params, ONCE__PG_TEXT), text, strlen(text));
}

/* ---------------------------------------------------------------------------------------------------------- arrays */

static uint32_t element_of(Oid type)
{
    switch (type) {
    case ONCE__PG_BOOLS:
        return ONCE__PG_BOOL;
    case ONCE__PG_INT2S:
        return ONCE__PG_INT2;
    case ONCE__PG_INT4S:
        return ONCE__PG_INT4;
    case ONCE__PG_INT8S:
        return ONCE__PG_INT8;
    case ONCE__PG_TEXTS:
        return ONCE__PG_TEXT;
    case ONCE__PG_TIDS:
        return ONCE__PG_TID;
    case ONCE__PG_UUIDS:
        return ONCE__PG_UUID;
    case ONCE__PG_XID8S:
        return ONCE__PG_XID8;
    default:
        return ONCE__PG_BYTEA;
    }
}

once__pg_value_t *once__pg_array(once__pg_params_t *params, Oid type)
{
    once__pg_value_t *value = once__pg_param(params, type);

    value->elements = 0;
    put_int(value, 1, 4); /* dimensions */
    put_int(value, 1, 4); /* there may be NULLs */
    put_int(value, element_of(type), 4);
    put_int(value, 0, 4); /* elements */
    put_int(value, 1, 4); /* the first index */
    return value;
}

/* Adds an element of `len` bytes and returns where they go; NULL if memory is short or the value too large. */
static uint8_t *add_element(once__pg_value_t *array, size_t len)
{
    char *to = once__buf_reserve(&array->buf, len + 4);

    if (to == NULL) {
        return NULL;
    }
    once__buf_added(&array->buf, len + 4);
    set_int((uint8_t *)to, len, 4);
    set_int((uint8_t *)array->buf.data + COUNT_AT, ++array->elements, 4);
    return (uint8_t *)to + 4;
}

void once__pg_element(once__pg_value_t *array, const void *data, size_t len)
{
    uint8_t *to = add_element(array, len);

    if (to != NULL && len > 0) {
        memcpy(to, data, len);
    }
}

void once__pg_element_int(once__pg_value_t *array, uint64_t number, size_t bytes)
{
    uint8_t *to = add_element(array, bytes);

    if (to != NULL) {
        set_int(to, number, bytes);
    }
}

void once__pg_element_null(once__pg_value_t *array)
{
    uint8_t *to = add_element(array, 0);

    if (to != NULL) {
        set_int(to - 4, UINT32_MAX, 4);
    }
}

/* ------------------------------------------------------------------------------------------------------ statements */

/* As libpq wants them. */
typedef struct arguments {
    Oid types[ONCE__PG_PARAMS_MAX];
    const char *values[ONCE__PG_PARAMS_MAX];
    int lengths[ONCE__PG_PARAMS_MAX], formats[ONCE__PG_PARAMS_MAX];
} arguments_t;

static int arrange(arguments_t *arguments, const once__pg_params_t *params)
{
    for (int i = 0; i < params->count; i++) {
        const once__buf_t *buf = &params->values[i].buf;
        if (buf->error != ONCE_OK) {
            return -1;
        }
        arguments->types[i] = params->values[i].type;
        arguments->values[i] = buf->len > 0 ? buf->data : "";
        arguments->lengths[i] = (int)buf->len;
        arguments->formats[i] = 1;
    }
    return 0;
}

int once__pg_put_statement(PGconn *conn, const char *statement, const once__pg_params_t *params,
                           int binary)
{
    arguments_t with;

    return arrange(&with, params) == 0 &&
                   PQsendQueryParams(conn, statement, params->count, with.types, with.values,
                                     with.lengths, with.formats, binary) == 1
               ? 0
               : -1;
}

int once__pg_put_prepare(PGconn *conn, const char *name, const char *statement,
                         const once__pg_params_t *params)
{
    arguments_t with;

    return arrange(&with, params) == 0 &&
                   PQsendPrepare(conn, name, statement, params->count, with.types) == 1
               ? 0
               : -1;
}

int once__pg_put_prepared(PGconn *conn, const char *name, const once__pg_params_t *params)
{
    arguments_t with;

    return arrange(&with, params) == 0 &&
                   PQsendQueryPrepared(conn, name, params->count, with.values, with.lengths,
                                       with.formats, 1) == 1
               ? 0
               : -1;
}

/* --------------------------------------------------------------------------------------------------------- results */

int64_t once__pg_int(const PGresult *result, int row, int column)
{
    const uint8_t *data = (const uint8_t *)PQgetvalue(result, row, column);
    int len = PQgetlength(result, row, column);
    uint64_t number = len > 0 && (data[0] & 0x80) ? UINT64_MAX : 0;

    for (int i = 0; i < len; i++) {
        number = number << 8 | data[i];
    }
    return (int64_t)number;
}

const uint8_t *once__pg_bytes(const PGresult *result, int row, int column, size_t *len)
{
    *len = (size_t)PQgetlength(result, row, column);
    return (const uint8_t *)PQgetvalue(result, row, column);
}

int once__pg_copy(const PGresult *result, int row, int column, uint8_t *out, size_t size)
{
    size_t len;
    const uint8_t *data = once__pg_bytes(result, row, column, &len);

    if (len != size) {
        return -1;
    }
    memcpy(out, data, size);
    return 0;
}
