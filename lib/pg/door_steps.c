/*
 * Work in several steps, and locks by natural key.
 */
#include <stdlib.h>
#include <string.h>

#include <once/postgres.h>

#include "base/error.h"
#include "pg/door_statement.h"

int once_pg_checkpoint(PGconn *conn, const char *claim, const char *name, const char *state,
                       once_error_t *err)
{
    once__door_params_t params = {0};
    int code = once__door_demand_claim(claim, err);

    if (code == ONCE_OK && (name == NULL || name[0] == '\0')) {
        code = once__fail(err, ONCE_E_INVALID, "a checkpoint has a name");
    }
    if (code != ONCE_OK) {
        return code;
    }
    once__door_param_text(&params, claim);
    once__door_param_text(&params, name);
    once__door_param_text(&params, state);
    return once__door_statement(
        conn, "SELECT once.checkpoint(claim => $1, name => $2, state => $3::pg_catalog.jsonb)",
        &params, 1, NULL, err);
}

/* One allocation: the step, its name, its state. */
static once_pg_step_t *step_of(const PGresult *rows)
{
    size_t name = (size_t)PQgetlength(rows, 0, 0) + 1;
    size_t state = PQgetisnull(rows, 0, 1) ? 0 : (size_t)PQgetlength(rows, 0, 1) + 1;
    once_pg_step_t *step = malloc(sizeof(*step) + name + state);
    char *text;

    if (step == NULL) {
        return NULL;
    }
    text = (char *)(step + 1);
    memcpy(text, PQgetvalue(rows, 0, 0), name);
    memcpy(text + name, PQgetvalue(rows, 0, 1), state);
    step->name = text;
    step->state = state > 0 ? text + name : NULL;
    return step;
}

int once_pg_resume(PGconn *conn, const char *claim, once_pg_step_t **step, once_error_t *err)
{
    once__door_params_t params = {0};
    PGresult *rows;
    int code = once__door_demand_claim(claim, err);

    *step = NULL;
    if (code != ONCE_OK) {
        return code;
    }
    once__door_param_text(&params, claim);
    code = once__door_statement(conn,
                                "SELECT name, state::pg_catalog.text FROM once.resume(claim => $1)",
                                &params, 0, &rows, err);
    if (code != ONCE_OK) {
        return code;
    }
    if (PQntuples(rows) > 0 && (*step = step_of(rows)) == NULL) {
        code = once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    PQclear(rows);
    return code;
}

void once_pg_step_free(once_pg_step_t *step)
{
    free(step);
}

int once_pg_derive(PGconn *conn, const char *claim, const char *step, once_key_t *key,
                   once_error_t *err)
{
    once__door_params_t params = {0};
    PGresult *rows;
    int code = once__door_demand_claim(claim, err);

    if (code != ONCE_OK) {
        return code;
    }
    once__door_param_text(&params, claim);
    once__door_param_text(&params, step);
    code = once__door_statement(conn, "SELECT once.derive(claim => $1, step => $2)", &params, 1,
                                &rows, err);
    if (code == ONCE_OK) {
        key->len = (size_t)PQgetlength(rows, 0, 0);
        memcpy(key->text, PQgetvalue(rows, 0, 0), key->len + 1);
        PQclear(rows);
    }
    return code;
}

int once_pg_lock(PGconn *conn, const char *natural_key, once_error_t *err)
{
    once__door_params_t params = {0};
    int code = once__door_demand_transaction(conn, "a lock", err);

    if (code == ONCE_OK && natural_key == NULL) {
        code = once__fail(err, ONCE_E_INVALID, "a lock needs a natural key");
    }
    if (code != ONCE_OK) {
        return code;
    }
    once__door_param_text(&params, natural_key);
    return once__door_statement(conn, "SELECT once.lock($1)", &params, 1, NULL, err);
}
