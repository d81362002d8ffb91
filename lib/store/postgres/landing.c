#include "store/postgres/landing.h"

#include <string.h>

#include "store/postgres/session.h"

static void answer(once__traffic_t *pg, once__op_t *op, int error)
{
    op->error = error;
    once__oplist_add(&pg->answers, op);
    once__loop_wake(pg->loop);
}

void once__traffic_answer_all(once__traffic_t *pg, once__oplist_t *list, int error)
{
    once__op_t *op = list->first;

    once__oplist_init(list);
    while (op != NULL) {
        once__op_t *next = op->next;
        once__flight_land(&pg->flight, op);
        answer(pg, op, error);
        op = next;
    }
}

/* The class of an SQLSTATE says what kind of trouble it is. */
static int is_class(const char *sqlstate, const char *class)
{
    return strncmp(sqlstate, class, 2) == 0;
}

/* The schema is missing, or this user may not use it. */
static int is_not_installed(const char *sqlstate)
{
    return is_class(sqlstate, "42") || strcmp(sqlstate, "3F000") == 0;
}

/* The server does not like what it was asked, and will not like it next time. */
static int is_refusal(const char *sqlstate)
{
    return is_class(sqlstate, "22") || is_class(sqlstate, "23") || is_class(sqlstate, "54");
}

/* What an operation is told whose transaction was rolled back. Events are repeated: they must not be lost. */
static int error_of(const once__pg_link_t *link, const once__op_t *op)
{
    if (strcmp(link->trip.sqlstate, "53100") == 0) {
        return ONCE_E_FULL;
    }
    if (is_not_installed(link->trip.sqlstate) && op->kind != ONCE__OP_EVENT) {
        return ONCE_E_CONFIG;
    }
    return is_refusal(link->trip.sqlstate) ? ONCE_E_INVALID : ONCE_E_UNAVAILABLE;
}

static once__op_t *find_flying(void *data, const uint8_t *id)
{
    once__op_t *op = once__flight_find(data, id);

    return op != NULL && op->error == ONCE__PG_UNANSWERED ? op : NULL; /* the first answer counts */
}

void once__traffic_committed(once__traffic_t *pg, once__pg_link_t *link)
{
    once__op_t *op;

    if (link->trip.sent.first == NULL) {
        return; /* it was late: they were answered, and may be under way once more */
    }
    for (unsigned i = 0; i < link->trip.result_count; i++) {
        switch (link->trip.statements[i]) {
        case ONCE__PG_LEVEL:
        case ONCE__PG_TIMEOUT:
        case ONCE__PG_SETTINGS:
        case ONCE__PG_PREPARE:
            break;
        case ONCE__PG_SINGLE:
            if (once__pg_read_single(link->trip.results[i], link->trip.sent.first)) {
                once__oplist_move(&pg->queue, &link->trip.sent); /* there is more of it to do */
                return;
            }
            break;
        case ONCE__PG_CLAIM:
            if (once__pg_read_granted(link->trip.results[i], &link->trip.sent)) {
                break;
            }
            once__pg_read_batch(link->trip.results[i], find_flying, &pg->flight);
            break;
        default:
            once__pg_read_batch(link->trip.results[i], find_flying, &pg->flight);
            break;
        }
    }
    op = link->trip.sent.first;
    once__oplist_init(&link->trip.sent);
    while (op != NULL) {
        once__op_t *next = op->next;
        once__flight_land(&pg->flight, op);
        if (op->error == ONCE__PG_UNANSWERED) {
            once__pg_answer_absent(op);
        }
        answer(pg, op, op->error);
        op = next;
    }
}

unsigned once__traffic_waiting(const once__traffic_t *pg, unsigned enough)
{
    unsigned count = 0;

    for (const once__op_t *op = pg->queue.first; op != NULL && count < enough; op = op->next) {
        count++;
    }
    return count;
}

static void send_again(once__traffic_t *pg, once__pg_link_t *link)
{
    for (once__op_t *op = link->trip.sent.first; op != NULL; op = op->next) {
        once__flight_land(&pg->flight, op);
    }
    once__oplist_move(&pg->queue, &link->trip.sent);
}

void once__traffic_aborted(once__traffic_t *pg, once__pg_link_t *link)
{
    once__op_t *op = link->trip.sent.first;

    if (once__pg_session_mistaken(link)) {
        send_again(pg, link);
        return;
    }
    if (is_refusal(link->trip.sqlstate) && op != NULL && op->next != NULL) {
        send_again(pg, link); /* each alone: those that are innocent get through */
        pg->alone = once__traffic_waiting(pg, UINT32_MAX);
        return;
    }
    /* A once_monitor may see less, which is enough for a list. */
    if (op != NULL && op->kind == ONCE__OP_SCAN && !op->bare &&
        strcmp(link->trip.sqlstate, "42501") == 0) {
        op->bare = 1;
        send_again(pg, link);
        return;
    }
    /* Out of shared memory: fewer locks at a time. */
    if (strcmp(link->trip.sqlstate, "53200") == 0 && pg->batch_max > 8) {
        pg->batch_max /= 2;
    }
    once__oplist_init(&link->trip.sent);
    while (op != NULL) {
        once__op_t *next = op->next;
        once__flight_land(&pg->flight, op);
        answer(pg, op, error_of(link, op));
        op = next;
    }
    /* A server that takes no writes any more: look for the one that does. */
    if (strcmp(link->trip.sqlstate, "25006") == 0 || strncmp(link->trip.sqlstate, "57P", 3) == 0 ||
        is_class(link->trip.sqlstate, "08")) {
        once__pg_link_drop(link);
    }
}
