/*
 * PostgreSQL's binary formats: parameters of statements, arrays among them, and the values of results.
 */
#ifndef ONCE_PG_VALUES_H
#define ONCE_PG_VALUES_H

#include <libpq-fe.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Types by their numbers in pg_type, which never change. */
enum {
    ONCE__PG_BOOL = 16,
    ONCE__PG_BYTEA = 17,
    ONCE__PG_INT8 = 20,
    ONCE__PG_INT2 = 21,
    ONCE__PG_INT4 = 23,
    ONCE__PG_TEXT = 25,
    ONCE__PG_TID = 27,
    ONCE__PG_XID8S = 271,
    ONCE__PG_FLOAT8 = 701,
    ONCE__PG_BOOLS = 1000,
    ONCE__PG_BYTEAS = 1001,
    ONCE__PG_INT2S = 1005,
    ONCE__PG_INT4S = 1007,
    ONCE__PG_TEXTS = 1009,
    ONCE__PG_TIDS = 1010,
    ONCE__PG_INT8S = 1016,
    ONCE__PG_UUID = 2950,
    ONCE__PG_UUIDS = 2951,
    ONCE__PG_XID8 = 5069,
};

#define ONCE__PG_PARAMS_MAX 14

typedef struct once__pg_value {
    once__buf_t buf; /* one with an error is never sent */
    Oid type;
    uint32_t elements; /* of an array */
} once__pg_value_t;

/* The parameters of one statement; memory is kept for the next. All zero is empty. */
typedef struct once__pg_params {
    once__pg_value_t values[ONCE__PG_PARAMS_MAX];
    int count;
} once__pg_params_t;

void once__pg_params_reset(once__pg_params_t *params);
void once__pg_params_free(once__pg_params_t *params);

/* The next parameter: empty, or an array to be filled with once__pg_element… */
once__pg_value_t *once__pg_param(once__pg_params_t *params, Oid type);
once__pg_value_t *once__pg_array(once__pg_params_t *params, Oid type);

/* Plain bytes, and numbers in network order. */
void once__pg_put(once__pg_value_t *value, const void *data, size_t len);
/* The next parameter, with its value. */
void once__pg_param_int(once__pg_params_t *params, Oid type, uint64_t number, size_t bytes);
void once__pg_param_text(once__pg_params_t *params, const char *text);

/* An element of an array. */
void once__pg_element(once__pg_value_t *array, const void *data, size_t len);
void once__pg_element_int(once__pg_value_t *array, uint64_t number, size_t bytes);
void once__pg_element_null(once__pg_value_t *array);

/*
 * Puts a statement with these parameters into the pipeline; its results are binary, or text. Returns 0, or -1 if memory is short or
 * the connection does not take it.
 */
int once__pg_put_statement(PGconn *conn, const char *statement, const once__pg_params_t *params,
                           int binary);

/* The same in two steps: the statement with the types of these parameters, under a name; then any number of times. */
int once__pg_put_prepare(PGconn *conn, const char *name, const char *statement,
                         const once__pg_params_t *params);
int once__pg_put_prepared(PGconn *conn, const char *name, const once__pg_params_t *params);

/* A number of 1, 2, 4 or 8 bytes of a result; NULL is 0. */
int64_t once__pg_int(const PGresult *result, int row, int column);

/* Bytes of a result; NULL is empty. */
const uint8_t *once__pg_bytes(const PGresult *result, int row, int column, size_t *len);

/* Copies exactly `size` bytes. Returns 0, or -1 if the value has another length. */
int once__pg_copy(const PGresult *result, int row, int column, uint8_t *out, size_t size);

#endif
