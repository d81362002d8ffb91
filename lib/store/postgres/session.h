/*
 * What the server remembers for a connection from one batch to the next: settings and prepared statements.
 *
 * Behind a pooler every transaction may run in another session of the server. Nothing may be left there, and nothing is found
 * again: each batch sets what it needs and sends its statements as text. If the session belongs to the connection, all of that is
 * done once. It does if the process that the server named when connecting is the one that answers: poolers give their clients
 * numbers of their own.
 */
#ifndef ONCE_STORE_POSTGRES_SESSION_H
#define ONCE_STORE_POSTGRES_SESSION_H

#include "store/postgres/batch.h"

/* Puts what comes before the statements of a batch into the pipeline; `level` as in batch.h. Returns 0 or -1. */
int once__postgres_session_begin(once__postgres_connection_t *connection,
                                 once__postgres_batch_t *batch, once__pg_params_t *params,
                                 uint64_t timeout_ms, int level);

/* Puts the statement `which` of the batch there. Returns 0 or -1. */
int once__postgres_session_put(once__postgres_connection_t *connection,
                               once__postgres_batch_t *batch, once__pg_params_t *params,
                               once__postgres_statement_t which);

/* Learns from a batch that has ended. */
void once__postgres_session_learn(once__postgres_connection_t *connection,
                                  const once__postgres_batch_t *batch, once__pg_end_t end);

/*
 * Whether the batch failed because the session did not have what it relied on. Then the session was another one, and nothing is
 * left there or expected of it again.
 */
int once__postgres_session_mistaken(once__postgres_connection_t *connection,
                                    const once__postgres_batch_t *batch);

#endif
