#include "store/postgres/batch.h"

#include "store/postgres/session.h"

static int is_single(const once__op_t *op)
{
    return once__pg_statement_of(op) == ONCE__PG_SINGLE;
}

/* 0: taken. -1: it has to wait; whether for this batch's end only or for one more batch, says `full`. */
static int take(once__pg_batch_t *batch, once__flight_t *flight, once__op_t *op)
{
    size_t bytes = op->event.kind == ONCE__CLAIM ? 0 : op->payload.len;

    if (batch->taken == batch->limit ||
        (batch->taken > 0 && batch->bytes + bytes > batch->bytes_limit)) {
        batch->full = 1;
        return -1;
    }
    if (is_single(op)) {
        if (batch->taken > 0) {
            return -1;
        }
        batch->full = 1;
    } else if (once__flight_start(flight, op) != 0) {
        return -1;
    }
    if (op->error != ONCE__PG_UNANSWERED) { /* not one that goes on */
        once__op_clear(op);
        op->error = ONCE__PG_UNANSWERED;
    }
    batch->taken++;
    batch->bytes += bytes;
    batch->counts[once__pg_statement_of(op)]++;
    return 0;
}

void once__pg_batch_take(once__pg_batch_t *batch, once__oplist_t *queue, once__flight_t *flight,
                         once__oplist_t *ops)
{
    once__op_t *op = queue->first, **end = queue->last;
    once__oplist_t rest;

    once__oplist_init(&rest);
    while (op != NULL && !batch->full) {
        once__op_t *next = op->next;
        once__oplist_add(take(batch, flight, op) == 0 ? ops : &rest, op);
        op = next;
    }
    if (op != NULL) {
        *rest.last = op;
        rest.last = end;
    }
    once__oplist_init(queue);
    once__oplist_move(queue, &rest);
}

int once__pg_batch_put(const once__pg_batch_t *batch, once__pg_link_t *link,
                       once__pg_params_t *params, uint64_t timeout_ms, int level)
{
    int code = once__pg_session_begin(link, params, timeout_ms, level);

    if (code == 0 && batch->counts[ONCE__PG_SINGLE] > 0) {
        code = once__pg_send_single(link->conn, params, link->trip.sent.first);
        once__pg_link_add(link, ONCE__PG_SINGLE);
    }
    for (once__pg_statement_t which = ONCE__PG_CLAIM; code == 0 && which <= ONCE__PG_GET; which++) {
        if (batch->counts[which] > 0) {
            code = once__pg_session_put(link, params, which, batch->counts[which]);
        }
    }
    return code;
}
