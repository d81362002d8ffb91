#include "pg/door_statement.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <once/once.h>

#include "base/error.h"
#include "core/token.h"
#include "pg/sqlstate.h"
#include "pg/values.h"

static void add(once__door_params_t *params, Oid type, const void *value, size_t len, int format)
{
    int n = params->count++;

    params->too_big = params->too_big || len > INT_MAX;
    params->types[n] = type;
    params->values[n] = value;
    params->lengths[n] = (int)len;
    params->formats[n] = format;
}

void once__door_param_text(once__door_params_t *params, const char *text)
{
    add(params, ONCE__PG_TEXT, text, text != NULL ? strlen(text) : 0, 1);
}

/* An empty value is not null. */
static const void *never_null(once_slice_t slice)
{
    return slice.data != NULL ? slice.data : "";
}

void once__door_param_slice(once__door_params_t *params, once_slice_t text)
{
    add(params, ONCE__PG_TEXT, never_null(text), text.len, 1);
}

void once__door_param_bytes(once__door_params_t *params, once_slice_t bytes)
{
    add(params, ONCE__PG_BYTEA, never_null(bytes), bytes.len, 1);
}

void once__door_param_number(once__door_params_t *params, long long number)
{
    char *text = params->numbers[params->count];
    int len = snprintf(text, sizeof(params->numbers[0]), "%lld", number);

    add(params, ONCE__PG_INT8, text, (size_t)len, 0);
}

void once__door_param_seconds(once__door_params_t *params, uint64_t ms)
{
    char *text = params->numbers[params->count];
    int len = snprintf(text, sizeof(params->numbers[0]), "%" PRIu64 ".%03u", ms / 1000,
                       (unsigned)(ms % 1000));

    add(params, ONCE__PG_FLOAT8, ms > 0 ? text : NULL, (size_t)len, 0);
}

void once__door_param_uuid(once__door_params_t *params, const uint8_t *uuid)
{
    add(params, ONCE__PG_UUID, uuid, ONCE_CLAIM_ID_SIZE, 1);
}

/* once's own errors; PostgreSQL's are sqlstate.h's. */
static const struct {
    const char *state;
    int code;
} own_errors[] = {
    {"ON001", ONCE_E_STALE},   {"ON002", ONCE_E_COMPLETED}, {"ON003", ONCE_E_NEWER},
    {"ON004", ONCE_E_INVALID}, {"ON005", ONCE_E_SECRET},    {"ON006", ONCE_E_CONFLICT},
};

static int code_of(const char *state)
{
    for (size_t i = 0; i < sizeof(own_errors) / sizeof(own_errors[0]); i++) {
        if (strcmp(state, own_errors[i].state) == 0) {
            return own_errors[i].code;
        }
    }
    switch (once__pg_fault(state)) {
    case ONCE__PG_FAULT_VALUE:
        return ONCE_E_INVALID;
    case ONCE__PG_FAULT_SETUP:
    case ONCE__PG_FAULT_RIGHTS:
        return ONCE_E_CONFIG;
    case ONCE__PG_FAULT_CONFLICT:
        return ONCE_E_CONFLICT;
    case ONCE__PG_FAULT_FULL:
        return ONCE_E_FULL;
    case ONCE__PG_FAULT_GONE:
        return ONCE_E_UNAVAILABLE;
    default:
        return ONCE_E_SQL;
    }
}

/* Quotes the primary message only, because details contain values; for class 22 not even that, because it does, too. */
static int fail_by(PGconn *conn, const PGresult *result, once_error_t *err)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *words = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

    if (state != NULL && strncmp(state, "22", 2) == 0) {
        return once__fail(err, code_of(state), "%s: the server refused an argument", state);
    }
    if (state != NULL && words != NULL) {
        return once__fail(err, code_of(state), "%s: %.200s", state, words);
    }
    if (PQstatus(conn) == CONNECTION_BAD) {
        return once__fail(err, ONCE_E_UNAVAILABLE, "the connection to the server is gone");
    }
    return once__fail(
        err, ONCE_E_SQL,
        "the connection could not take the statement: it is in use, or out of memory");
}

int once__door_statement(PGconn *conn, const char *text, const once__door_params_t *params,
                         int rows, PGresult **result, once_error_t *err)
{
    PGresult *got;
    int code = ONCE_OK;

    if (params->too_big) {
        return once__fail(err, ONCE_E_TOO_BIG, "an argument is over 2 GiB");
    }
    got = PQexecParams(conn, text, params->count, params->types, params->values, params->lengths,
                       params->formats, 1);
    if (PQresultStatus(got) != PGRES_TUPLES_OK) {
        code = fail_by(conn, got, err);
    } else if (PQntuples(got) < rows) {
        code = once__fail(err, ONCE_E_NOT_FOUND, "%s", once_error_text(ONCE_E_NOT_FOUND));
    } else {
        (void)once__fail(err, ONCE_OK, "%s", "");
    }
    if (code != ONCE_OK || result == NULL) {
        PQclear(got);
    } else {
        *result = got;
    }
    return code;
}

int once__door_demand_claim(const char *claim, once_error_t *err)
{
    uint8_t id[ONCE_ID_SIZE];
    once__claim_ref_t ref;

    if (claim == NULL || once__token_read(claim, id, &ref) != 0) {
        return once__fail(err, ONCE_E_INVALID, "this is not a claim");
    }
    return ONCE_OK;
}

int once__door_demand_transaction(PGconn *conn, const char *what, once_error_t *err)
{
    if (PQtransactionStatus(conn) == PQTRANS_IDLE) {
        return once__fail(err, ONCE_E_INVALID, "%s is for a transaction, and none is open", what);
    }
    return ONCE_OK;
}
