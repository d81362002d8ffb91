#include "store/postgres/session.h"

#include "pg/sqlstate.h"
#include "store/postgres/answers.h"

static unsigned bit(once__postgres_statement_t which)
{
    return 1u << which;
}

int once__postgres_session_begin(once__postgres_connection_t *connection,
                                 once__postgres_batch_t *batch, once__pg_params_t *params,
                                 uint64_t timeout_ms, int level)
{
    once__postgres_session_t *session = &connection->session;
    PGconn *conn = connection->base.conn;
    int ours = session->kind == ONCE__POSTGRES_SESSION_OURS;
    int code = 0;

    if (ours && session->timeout_ms == timeout_ms) {
        return 0;
    }
    if (level) {
        code = once__postgres_send_level(conn, params);
        once__postgres_batch_add(batch, ONCE__POSTGRES_LEVEL);
        once__postgres_batch_add(batch, ONCE__POSTGRES_LEVEL);
    }
    /* For the session and not for this batch alone: or each batch after a long one would have to set its own. */
    if (code == 0 && ours) {
        session->asked_ms = timeout_ms;
        code = once__postgres_send_settings(conn, params, timeout_ms);
        once__postgres_batch_add(batch, ONCE__POSTGRES_SETTINGS);
    } else if (code == 0) {
        code = once__postgres_send_timeout(conn, params, timeout_ms);
        once__postgres_batch_add(batch, ONCE__POSTGRES_TIMEOUT);
    }
    return code;
}

int once__postgres_session_put(once__postgres_connection_t *connection,
                               once__postgres_batch_t *batch, once__pg_params_t *params,
                               once__postgres_statement_t which)
{
    const once__postgres_text_t *text =
        once__postgres_fill(params, which, &batch->ops, batch->packing);
    PGconn *conn = connection->base.conn;
    int code = 0;

    if (connection->session.kind != ONCE__POSTGRES_SESSION_OURS) {
        once__postgres_batch_add(batch, which);
        return once__pg_put_statement(conn, text->statement, params, 1);
    }
    if (!(connection->session.prepared & bit(which))) {
        code = once__pg_put_prepare(conn, text->name, text->statement, params);
        once__postgres_batch_add(batch, ONCE__POSTGRES_PREPARE);
    }
    once__postgres_batch_add(batch, which);
    batch->relies_on_session = 1;
    return code == 0 ? once__pg_put_prepared(conn, text->name, params) : code;
}

static int is_own_process(const once__postgres_connection_t *connection, const PGresult *result)
{
    int process = once__postgres_backend(result);

    return process > 0 && process == PQbackendPID(connection->base.conn);
}

void once__postgres_session_learn(once__postgres_connection_t *connection,
                                  const once__postgres_batch_t *batch, once__pg_end_t end)
{
    once__postgres_session_t *session = &connection->session;

    for (unsigned i = 0; i < batch->base.result_count && end != ONCE__PG_LOST; i++) {
        switch (batch->statements[i]) {
        case ONCE__POSTGRES_TIMEOUT:
            if (session->kind == ONCE__POSTGRES_SESSION_NEW) {
                session->kind = is_own_process(connection, batch->base.results[i])
                                    ? ONCE__POSTGRES_SESSION_OURS
                                    : ONCE__POSTGRES_SESSION_ANY;
            }
            break;
        case ONCE__POSTGRES_SETTINGS: /* rolled back with the batch; what is prepared stays */
            session->timeout_ms = end == ONCE__PG_COMMITTED ? session->asked_ms : 0;
            break;
        case ONCE__POSTGRES_PREPARE:
            session->prepared |= bit(batch->statements[i + 1]);
            break;
        default:
            break;
        }
    }
}

int once__postgres_session_mistaken(once__postgres_connection_t *connection,
                                    const once__postgres_batch_t *batch)
{
    if (!batch->relies_on_session ||
        once__pg_fault(batch->base.sqlstate) != ONCE__PG_FAULT_SESSION) {
        return 0;
    }
    connection->session.kind = ONCE__POSTGRES_SESSION_ANY;
    return 1;
}
