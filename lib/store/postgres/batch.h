/*
 * A batch: the operations that go to the server in one transaction. It is filled from the queue, sent over a connection, and
 * when it has ended its operations are answered, or go back to the queue.
 */
#ifndef ONCE_STORE_POSTGRES_BATCH_H
#define ONCE_STORE_POSTGRES_BATCH_H

#include "base/hash.h"
#include "pg/connection.h"
#include "store/postgres/statements.h"

typedef struct once__postgres_batch {
    once__pg_batch_t base;
    once__postgres_packing_t *packing; /* the handle's */
    once__oplist_t ops;                /* those without an answer; empty when the batch is late */
    unsigned op_count;                 /* how many there were */
    unsigned counts[ONCE__POSTGRES_SINGLE + 1]; /* by the statement that carries them */
    once__postgres_statement_t statements[ONCE__PG_STATEMENTS_MAX];
    int relies_on_session; /* it uses what the session remembers */
} once__postgres_batch_t;

typedef enum once__postgres_session_kind {
    ONCE__POSTGRES_SESSION_NEW,
    ONCE__POSTGRES_SESSION_ANY,  /* of a pooler: another one for each transaction */
    ONCE__POSTGRES_SESSION_OURS, /* remembers what is left there */
} once__postgres_session_kind_t;

/* What is known of the server's session (session.h). */
typedef struct once__postgres_session {
    once__postgres_session_kind_t kind;
    unsigned prepared; /* statements, as bits */
    /* its statement timeout; then it is READ COMMITTED, too. 0: not set by us */
    uint64_t timeout_ms;
    uint64_t asked_ms; /* of the batch under way */
} once__postgres_session_t;

typedef struct once__postgres_connection {
    once__pg_connection_t base;
    once__postgres_session_t session;
    once__postgres_batch_t batches[2];
} once__postgres_connection_t;

/* How much a batch may take. */
typedef struct once__postgres_limit {
    unsigned ops;
    size_t bytes; /* of payloads, unless the first operation has more */
} once__postgres_limit_t;

/* The batch of the connection that is not under way; NULL: both are. */
once__postgres_batch_t *once__postgres_batch_free(once__postgres_connection_t *connection);

/*
 * Moves operations from the list `waiting` to an empty batch, in order: one per record, none of a record in `inflight`; or one
 * that has a batch to itself. All but that are put into `inflight`.
 */
void once__postgres_batch_take(once__postgres_batch_t *batch, once__postgres_limit_t limit,
                               once__oplist_t *waiting, once__hash_t *inflight);

/*
 * Puts the statements of the batch into the connection's pipeline, with timeout_ms for each. `level`: the server's default is not
 * READ COMMITTED, which the statements need. Returns 0, or -1: nothing of it will be applied if the connection is dropped.
 */
int once__postgres_batch_put(once__postgres_batch_t *batch, once__postgres_connection_t *connection,
                             once__pg_params_t *params, uint64_t timeout_ms, int level);

/* Notes which statement was put into the pipeline. */
void once__postgres_batch_add(once__postgres_batch_t *batch, once__postgres_statement_t statement);

/* Frees its results. It has no operations. */
void once__postgres_batch_clear(once__postgres_batch_t *batch);

/* The operation with this id that is in flight; NULL: none is. */
once__op_t *once__postgres_inflight(const once__hash_t *inflight, const uint8_t *id);

/* Removes an operation of a batch from the table. */
void once__postgres_landed(once__hash_t *inflight, once__op_t *op);

#endif
