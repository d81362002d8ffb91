#include "store/postgres/session.h"

#include <string.h>

static unsigned bit(once__pg_statement_t which)
{
    return 1u << which;
}

int once__pg_session_begin(once__pg_link_t *link, once__pg_params_t *params, uint64_t timeout_ms,
                           int level)
{
    int ours = link->session.kind == ONCE__PG_SESSION_OURS;
    int code = 0;

    if (ours && link->session.timeout_ms == timeout_ms) {
        return 0;
    }
    if (level) {
        code = once__pg_send_level(link->conn, params);
        once__pg_link_add(link, ONCE__PG_LEVEL);
        once__pg_link_add(link, ONCE__PG_LEVEL);
    }
    /* For good, and not for this batch alone: or all that follow a long one would have to say theirs. */
    if (code == 0 && ours) {
        link->session.asked_ms = timeout_ms;
        code = once__pg_send_settings(link->conn, params, timeout_ms);
        once__pg_link_add(link, ONCE__PG_SETTINGS);
    } else if (code == 0) {
        code = once__pg_send_timeout(link->conn, params, timeout_ms);
        once__pg_link_add(link, ONCE__PG_TIMEOUT);
    }
    return code;
}

int once__pg_session_put(once__pg_link_t *link, once__pg_params_t *params,
                         once__pg_statement_t which, uint32_t count)
{
    const once__pg_text_t *text = once__pg_fill(params, which, &link->trip.sent, count);
    int code = 0;

    if (link->session.kind != ONCE__PG_SESSION_OURS) {
        once__pg_link_add(link, which);
        return once__pg_send(link->conn, text->statement, params);
    }
    if (!(link->session.prepared & bit(which))) {
        code = once__pg_prepare(link->conn, text->name, text->statement, params);
        once__pg_link_add(link, ONCE__PG_PREPARE);
    }
    once__pg_link_add(link, which);
    link->trip.trusting = 1;
    return code == 0 ? once__pg_send_prepared(link->conn, text->name, params) : code;
}

static int is_greeter(const once__pg_link_t *link, const PGresult *result)
{
    int process = once__pg_backend(result);

    return process > 0 && process == PQbackendPID(link->conn);
}

void once__pg_session_learn(once__pg_link_t *link, once__pg_end_t end)
{
    for (unsigned i = 0; i < link->trip.result_count; i++) {
        switch (link->trip.statements[i]) {
        case ONCE__PG_TIMEOUT:
            if (link->session.kind == ONCE__PG_SESSION_NEW) {
                link->session.kind = is_greeter(link, link->trip.results[i]) ? ONCE__PG_SESSION_OURS
                                                                             : ONCE__PG_SESSION_ANY;
            }
            break;
        case ONCE__PG_SETTINGS: /* rolled back with what fails; what is prepared stays */
            link->session.timeout_ms = end == ONCE__PG_COMMITTED ? link->session.asked_ms : 0;
            break;
        case ONCE__PG_PREPARE:
            link->session.prepared |= bit(link->trip.statements[i + 1]);
            break;
        default:
            break;
        }
    }
}

int once__pg_session_mistaken(once__pg_link_t *link)
{
    /* No such statement; there is one already; its result has changed. */
    static const char *const states[] = {"26000", "42P05", "0A000"};

    if (!link->trip.trusting) {
        return 0;
    }
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        if (strcmp(link->trip.sqlstate, states[i]) == 0) {
            link->session.kind = ONCE__PG_SESSION_ANY;
            return 1;
        }
    }
    return 0;
}
