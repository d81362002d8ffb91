/*
 * PostgreSQL's binary formats: parameters written, results read.
 */
#ifndef ONCE_STORE_POSTGRES_WIRE_H
#define ONCE_STORE_POSTGRES_WIRE_H

#include <libpq-fe.h>
#include <stddef.h>
#include <stdint.h>

/* Types by their numbers in pg_type, which never change. */
enum {
    ONCE__PG_BOOL = 16,
    ONCE__PG_BYTEA = 17,
    ONCE__PG_INT8 = 20,
    ONCE__PG_INT2 = 21,
    ONCE__PG_INT4 = 23,
    ONCE__PG_TEXT = 25,
    ONCE__PG_BOOLS = 1000,
    ONCE__PG_BYTEAS = 1001,
    ONCE__PG_INT2S = 1005,
    ONCE__PG_INT4S = 1007,
    ONCE__PG_INT8S = 1016,
};

#define ONCE__PG_PARAMS_MAX 12

/* A growing value. What did not fit into memory makes it failed; a failed one is never sent. */
typedef struct once__pg_value {
    uint8_t *data;
    size_t len, room;
    Oid type;
    int failed;
} once__pg_value_t;

/* The parameters of one statement; memory is kept for the next. All zero is empty. */
typedef struct once__pg_params {
    once__pg_value_t values[ONCE__PG_PARAMS_MAX];
    int count;
} once__pg_params_t;

void once__pg_params_reset(once__pg_params_t *params);
void once__pg_params_free(once__pg_params_t *params);

/* The next parameter: empty, or an array of `count` elements that is then filled with once__pg_element. */
once__pg_value_t *once__pg_param(once__pg_params_t *params, Oid type);
once__pg_value_t *once__pg_array(once__pg_params_t *params, Oid type, uint32_t count);

/* Plain bytes, and numbers in network order. */
void once__pg_put(once__pg_value_t *value, const void *data, size_t len);
void once__pg_put_int(once__pg_value_t *value, uint64_t number, size_t bytes);

/* An element of an array. */
void once__pg_element(once__pg_value_t *value, const void *data, size_t len);
void once__pg_element_int(once__pg_value_t *value, uint64_t number, size_t bytes);
void once__pg_element_null(once__pg_value_t *value);

/* Sends a statement with these parameters, results binary. 0 or -1. */
int once__pg_send(PGconn *conn, const char *statement, const once__pg_params_t *params);

/* The same in two steps: the statement with the types of these parameters, under a name, and then as often as one likes. */
int once__pg_prepare(PGconn *conn, const char *name, const char *statement,
                     const once__pg_params_t *params);
int once__pg_send_prepared(PGconn *conn, const char *name, const once__pg_params_t *params);

/* A number of 1, 2, 4 or 8 bytes; NULL is 0. */
int64_t once__pg_int(const PGresult *result, int row, int column);

/* Bytes; NULL is empty. Exactly `size` bytes into `out`: 0, or -1 when there are not so many. */
const uint8_t *once__pg_bytes(const PGresult *result, int row, int column, size_t *len);
int once__pg_copy(const PGresult *result, int row, int column, uint8_t *out, size_t size);

#endif
