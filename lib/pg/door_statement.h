/*
 * One statement on a connection that is somebody else's: its parameters, its result, and what its error means.
 *
 * In a statement every name is qualified (OPERATOR(pg_catalog.*), pg_catalog.jsonb; keywords such as bigint are) and every literal
 * has its type: other roles may have functions of the same name, which fit better, in the schemas of the connection's search_path.
 */
#ifndef ONCE_DOOR_STATEMENT_H
#define ONCE_DOOR_STATEMENT_H

#include <libpq-fe.h>

#include <once/error.h>
#include <once/key.h>

#define ONCE__PARAMS_MAX 10

/* Parameters borrow what they point to. */
typedef struct once__params {
    int count;
    Oid types[ONCE__PARAMS_MAX];
    const char *values[ONCE__PARAMS_MAX];
    int lengths[ONCE__PARAMS_MAX];
    int formats[ONCE__PARAMS_MAX];
    char numbers[ONCE__PARAMS_MAX][32]; /* those that are made here */
    int too_big;                        /* one was longer than a parameter can be */
} once__params_t;

void once__param_text(once__params_t *params, const char *text); /* NULL: null */
void once__param_slice(once__params_t *params, once_slice_t text);
void once__param_bytes(once__params_t *params, once_slice_t bytes);
void once__param_number(once__params_t *params, long long number);
void once__param_seconds(once__params_t *params, uint64_t ms);      /* of make_interval; 0: null */
void once__param_uuid(once__params_t *params, const uint8_t *uuid); /* NULL: null */

/*
 * Runs it and waits. ONCE_OK: `*result` is the caller's to clear, values are binary (text is text, and terminated); it has at
 * least `rows` rows. `result` NULL: nobody wants it.
 */
int once__statement(PGconn *conn, const char *text, const once__params_t *params, int rows,
                    PGresult **result, once_error_t *err);

/* ONCE_E_INVALID unless it looks like a claim: what is not one is not sent. */
int once__demand_claim(const char *claim, once_error_t *err);
int once__demand_transaction(PGconn *conn, const char *what, once_error_t *err);

#endif
