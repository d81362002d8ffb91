#include "store/postgres/batch.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "store/postgres/session.h"

/* ------------------------------------------------------------------------------------------------ in-flight table */

static int is_single(const once__op_t *op)
{
    return once__postgres_statement_of(op) == ONCE__POSTGRES_SINGLE;
}

/* Record ids are keyed hashes. */
static uint64_t hash_of(const uint8_t *id)
{
    return once__get64(id);
}

once__op_t *once__postgres_inflight(const once__hash_t *inflight, const uint8_t *id)
{
    once__hash_node_t *node = once__hash_first(inflight, hash_of(id));

    for (; node != NULL; node = once__hash_next(node)) {
        once__op_t *op = ONCE__CONTAINER(node, once__op_t, node);
        if (memcmp(op->id, id, ONCE_ID_SIZE) == 0) {
            return op;
        }
    }
    return NULL;
}

void once__postgres_landed(once__hash_t *inflight, once__op_t *op)
{
    if (!is_single(op)) {
        once__hash_remove(inflight, &op->node);
    }
}

/* --------------------------------------------------------------------------------------------------------- filling */

static int is_under_way(const once__postgres_connection_t *connection, unsigned i)
{
    const once__pg_batch_t *batch = &connection->batches[i].base;

    return connection->base.first == batch || connection->base.second == batch;
}

once__postgres_batch_t *once__postgres_batch_free(once__postgres_connection_t *connection)
{
    for (unsigned i = 0; i < 2; i++) {
        if (!is_under_way(connection, i)) {
            return &connection->batches[i];
        }
    }
    return NULL;
}

void once__postgres_batch_clear(once__postgres_batch_t *batch)
{
    assert(batch->ops.first == NULL);
    once__pg_batch_clear(&batch->base);
    memset(batch, 0, sizeof(*batch));
    once__oplist_init(&batch->ops);
}

/* What is known while a batch is filled. */
typedef struct filling {
    once__postgres_batch_t *batch;
    once__postgres_limit_t limit;
    once__hash_t *inflight;
    size_t bytes;
    int full; /* nothing more is to be tried */
} filling_t;

/* Returns 0 if the operation was taken, -1 if it has to wait. */
static int take(filling_t *filling, once__op_t *op)
{
    once__postgres_batch_t *batch = filling->batch;
    size_t bytes = op->event.kind == ONCE__CLAIM ? 0 : op->payload.len;

    if (batch->op_count == filling->limit.ops ||
        (batch->op_count > 0 && filling->bytes + bytes > filling->limit.bytes)) {
        filling->full = 1;
        return -1;
    }
    if (is_single(op)) {
        if (batch->op_count > 0) {
            return -1;
        }
        filling->full = 1;
    } else if (once__postgres_inflight(filling->inflight, op->id) != NULL ||
               once__hash_add(filling->inflight, &op->node, hash_of(op->id)) != 0) {
        return -1;
    }
    if (op->error != ONCE__POSTGRES_UNANSWERED) { /* not one that goes on */
        once__op_clear(op);
        op->error = ONCE__POSTGRES_UNANSWERED;
    }
    batch->op_count++;
    filling->bytes += bytes;
    batch->counts[once__postgres_statement_of(op)]++;
    return 0;
}

void once__postgres_batch_take(once__postgres_batch_t *batch, once__postgres_limit_t limit,
                               once__oplist_t *waiting, once__hash_t *inflight)
{
    filling_t filling = {.batch = batch, .limit = limit, .inflight = inflight};
    once__op_t *op = waiting->first, **end = waiting->last;
    once__oplist_t rest;

    assert(batch->ops.first == NULL && batch->op_count == 0);
    once__oplist_init(&rest);
    while (op != NULL && !filling.full) {
        once__op_t *next = op->next;
        once__oplist_add(take(&filling, op) == 0 ? &batch->ops : &rest, op);
        op = next;
    }
    if (op != NULL) { /* the others stay behind those that have to wait */
        *rest.last = op;
        rest.last = end;
    }
    once__oplist_init(waiting);
    once__oplist_move(waiting, &rest);
}

/* --------------------------------------------------------------------------------------------------------- sending */

void once__postgres_batch_add(once__postgres_batch_t *batch, once__postgres_statement_t statement)
{
    assert(batch->base.statement_count < ONCE__PG_STATEMENTS_MAX);
    batch->statements[batch->base.statement_count++] = statement;
}

int once__postgres_batch_put(once__postgres_batch_t *batch, once__postgres_connection_t *connection,
                             once__pg_params_t *params, uint64_t timeout_ms, int level)
{
    int code = once__postgres_session_begin(connection, batch, params, timeout_ms, level);

    if (code == 0 && batch->counts[ONCE__POSTGRES_SINGLE] > 0) {
        code = once__postgres_send_single(connection->base.conn, params, batch->ops.first,
                                          batch->packing);
        once__postgres_batch_add(batch, ONCE__POSTGRES_SINGLE);
    }
    for (once__postgres_statement_t which = ONCE__POSTGRES_CLAIM;
         code == 0 && which <= ONCE__POSTGRES_GET; which++) {
        if (batch->counts[which] > 0) {
            code = once__postgres_session_put(connection, batch, params, which);
        }
    }
    return code;
}
