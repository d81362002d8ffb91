/*
 * What the results of a batch say about its operations.
 */
#ifndef ONCE_STORE_POSTGRES_ANSWERS_H
#define ONCE_STORE_POSTGRES_ANSWERS_H

#include "store/postgres/batch.h"

/* Does the answer to the timeout say that the transaction is READ COMMITTED? */
int once__postgres_is_read_committed(const PGresult *result);

/* Which of the server's processes answered it; 0: unknown. */
int once__postgres_backend(const PGresult *result);

/* The batch is committed: sets the answers of its operations. Those that stay unanswered are to be sent again. */
void once__postgres_answers_read(once__postgres_batch_t *batch, const once__hash_t *inflight);

#endif
