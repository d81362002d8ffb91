/*
 * One statement on a connection of the caller's: parameters, result, and the meaning of its error.
 *
 * In a statement every name is qualified (OPERATOR(pg_catalog.*), pg_catalog.jsonb; keywords such as bigint need not be) and every
 * literal has its type: in the schemas of the connection's search_path other roles may have functions of the same name that fit
 * better.
 */
#ifndef ONCE_PG_DOOR_STATEMENT_H
#define ONCE_PG_DOOR_STATEMENT_H

#include <libpq-fe.h>

#include <once/error.h>
#include <once/key.h>

#define ONCE__DOOR_PARAMS_MAX 10

/* Parameters borrow what they point to. */
typedef struct once__door_params {
    int count;
    Oid types[ONCE__DOOR_PARAMS_MAX];
    const char *values[ONCE__DOOR_PARAMS_MAX];
    int lengths[ONCE__DOOR_PARAMS_MAX];
    int formats[ONCE__DOOR_PARAMS_MAX];
    char numbers[ONCE__DOOR_PARAMS_MAX][32]; /* texts of numbers */
    int too_big;                             /* one is longer than a parameter can be */
} once__door_params_t;

void once__door_param_text(once__door_params_t *params, const char *text); /* NULL: null */
void once__door_param_slice(once__door_params_t *params, once_slice_t text);
void once__door_param_bytes(once__door_params_t *params, once_slice_t bytes);
void once__door_param_number(once__door_params_t *params, long long number);
void once__door_param_seconds(once__door_params_t *params,
                              uint64_t ms); /* of make_interval; 0: null */
void once__door_param_uuid(once__door_params_t *params, const uint8_t *uuid); /* NULL: null */

/*
 * Runs the statement and waits. Returns ONCE_OK with a `*result` of at least `rows` rows that the caller clears, values binary
 * (text is text, and terminated); or the code of the error. `result` may be NULL.
 */
int once__door_statement(PGconn *conn, const char *text, const once__door_params_t *params,
                         int rows, PGresult **result, once_error_t *err);

/* Return ONCE_OK, or ONCE_E_INVALID if it is not a claim, or if no transaction is open. */
int once__door_demand_claim(const char *claim, once_error_t *err);
int once__door_demand_transaction(PGconn *conn, const char *what, once_error_t *err);

#endif
