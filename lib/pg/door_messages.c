/*
 * Events that are emitted and messages that are accepted, in the caller's transaction.
 */
#include <string.h>

#include <once/postgres.h>

#include "base/error.h"
#include "core/sized.h"
#include "pg/door_statement.h"

static int read_event(once_pg_event_t *event, const once_pg_event_t *given, once_error_t *err)
{
    if (once__sized_read(event, sizeof(*event), ONCE__PG_EVENT_V1, given) != ONCE_OK) {
        return once__fail(err, ONCE_E_INVALID, "the event was not set up with ONCE_PG_EVENT_INIT");
    }
    if (event->topic == NULL || event->type == NULL) {
        return once__fail(err, ONCE_E_INVALID, "an event has a topic and a type");
    }
    return event->claim != NULL ? once__door_demand_claim(event->claim, err) : ONCE_OK;
}

int once_pg_emit(PGconn *conn, const once_pg_event_t *given, char id[ONCE_UUID_SIZE],
                 once_error_t *err)
{
    once__door_params_t params = {0};
    once_pg_event_t event = {0};
    PGresult *rows;
    int code = read_event(&event, given, err);

    if (code != ONCE_OK) {
        return code;
    }
    once__door_param_text(&params, event.topic);
    once__door_param_text(&params, event.key);
    once__door_param_text(&params, event.type);
    once__door_param_bytes(&params, event.payload);
    once__door_param_text(&params, event.headers);
    once__door_param_text(&params, event.claim);
    code =
        once__door_statement(conn,
                             "SELECT once.emit(topic => $1, key => $2, type => $3, payload => $4, "
                             "headers => coalesce($5::pg_catalog.jsonb, '{}'), claim => $6)"
                             "::pg_catalog.text",
                             &params, 1, &rows, err);
    if (code != ONCE_OK) {
        return code;
    }
    if (id != NULL) {
        strncpy(id, PQgetvalue(rows, 0, 0), ONCE_UUID_SIZE - 1);
        id[ONCE_UUID_SIZE - 1] = '\0';
    }
    PQclear(rows);
    return ONCE_OK;
}

int once_pg_accept(PGconn *conn, const char *subscriber, const char *message_id, int *is_new,
                   once_error_t *err)
{
    once__door_params_t params = {0};
    PGresult *rows;
    int code = once__door_demand_transaction(conn, "accepting a message", err);

    if (code == ONCE_OK && (subscriber == NULL || message_id == NULL)) {
        code = once__fail(err, ONCE_E_INVALID, "a message has a subscriber and an id");
    }
    if (code != ONCE_OK) {
        return code;
    }
    once__door_param_text(&params, subscriber);
    once__door_param_text(&params, message_id);
    code = once__door_statement(conn, "SELECT once.accept(subscriber => $1, message_id => $2)",
                                &params, 1, &rows, err);
    if (code == ONCE_OK) {
        *is_new = PQgetvalue(rows, 0, 0)[0] != 0;
        PQclear(rows);
    }
    return code;
}
