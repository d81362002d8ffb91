#include "store/postgres/wire.h"

#include <stdlib.h>
#include <string.h>

#define ROOM_MIN  1024u
#define ROOM_KEEP ((size_t)1 << 20) /* a rare giant must not stay for ever */

void once__pg_params_reset(once__pg_params_t *params)
{
    for (int i = 0; i < ONCE__PG_PARAMS_MAX; i++) {
        once__pg_value_t *value = &params->values[i];
        if (value->room > ROOM_KEEP) {
            free(value->data);
            value->data = NULL;
            value->room = 0;
        }
        value->len = 0;
        value->failed = 0;
    }
    params->count = 0;
}

void once__pg_params_free(once__pg_params_t *params)
{
    for (int i = 0; i < ONCE__PG_PARAMS_MAX; i++) {
        free(params->values[i].data);
    }
    memset(params, 0, sizeof(*params));
}

once__pg_value_t *once__pg_param(once__pg_params_t *params, Oid type)
{
    once__pg_value_t *value = &params->values[params->count++];

    value->type = type;
    return value;
}

static uint8_t *reserve(once__pg_value_t *value, size_t more)
{
    if (value->room - value->len < more) {
        size_t room = value->room < ROOM_MIN ? ROOM_MIN : value->room;
        uint8_t *data;
        while (room - value->len < more) {
            room *= 2;
        }
        data = realloc(value->data, room);
        if (data == NULL) {
            value->failed = 1;
            return NULL;
        }
        value->data = data;
        value->room = room;
    }
    value->len += more;
    return value->data + value->len - more;
}

void once__pg_put(once__pg_value_t *value, const void *data, size_t len)
{
    uint8_t *to = len > 0 ? reserve(value, len) : NULL;

    if (to != NULL) {
        memcpy(to, data, len);
    }
}

void once__pg_put_int(once__pg_value_t *value, uint64_t number, size_t bytes)
{
    uint8_t *to = reserve(value, bytes);

    for (size_t i = 0; to != NULL && i < bytes; i++) {
        to[i] = (uint8_t)(number >> 8 * (bytes - 1 - i));
    }
}

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
    default:
        return ONCE__PG_BYTEA;
    }
}

once__pg_value_t *once__pg_array(once__pg_params_t *params, Oid type, uint32_t count)
{
    once__pg_value_t *value = once__pg_param(params, type);

    once__pg_put_int(value, 1, 4); /* dimensions */
    once__pg_put_int(value, 1, 4); /* there may be NULLs */
    once__pg_put_int(value, element_of(type), 4);
    once__pg_put_int(value, count, 4);
    once__pg_put_int(value, 1, 4); /* the first index */
    return value;
}

void once__pg_element(once__pg_value_t *value, const void *data, size_t len)
{
    once__pg_put_int(value, len, 4);
    once__pg_put(value, data, len);
}

void once__pg_element_int(once__pg_value_t *value, uint64_t number, size_t bytes)
{
    once__pg_put_int(value, bytes, 4);
    once__pg_put_int(value, number, bytes);
}

void once__pg_element_null(once__pg_value_t *value)
{
    once__pg_put_int(value, UINT32_MAX, 4);
}

/* As libpq wants them. */
typedef struct arguments {
    Oid types[ONCE__PG_PARAMS_MAX];
    const char *values[ONCE__PG_PARAMS_MAX];
    int lengths[ONCE__PG_PARAMS_MAX], formats[ONCE__PG_PARAMS_MAX];
} arguments_t;

static int arrange(arguments_t *arguments, const once__pg_params_t *params)
{
    for (int i = 0; i < params->count; i++) {
        const once__pg_value_t *value = &params->values[i];
        if (value->failed || value->len > INT32_MAX) {
            return -1;
        }
        arguments->types[i] = value->type;
        arguments->values[i] = value->len > 0 ? (const char *)value->data : "";
        arguments->lengths[i] = (int)value->len;
        arguments->formats[i] = 1;
    }
    return 0;
}

int once__pg_send(PGconn *conn, const char *statement, const once__pg_params_t *params)
{
    arguments_t with;

    return arrange(&with, params) == 0 &&
                   PQsendQueryParams(conn, statement, params->count, with.types, with.values,
                                     with.lengths, with.formats, 1) == 1
               ? 0
               : -1;
}

int once__pg_prepare(PGconn *conn, const char *name, const char *statement,
                     const once__pg_params_t *params)
{
    arguments_t with;

    return arrange(&with, params) == 0 &&
                   PQsendPrepare(conn, name, statement, params->count, with.types) == 1
               ? 0
               : -1;
}

int once__pg_send_prepared(PGconn *conn, const char *name, const once__pg_params_t *params)
{
    arguments_t with;

    return arrange(&with, params) == 0 &&
                   PQsendQueryPrepared(conn, name, params->count, with.values, with.lengths,
                                       with.formats, 1) == 1
               ? 0
               : -1;
}

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
