/*
 * A batch: what travels together in one transaction, taken from the queue and put on a connection.
 */
#ifndef ONCE_STORE_POSTGRES_BATCH_H
#define ONCE_STORE_POSTGRES_BATCH_H

#include "store/postgres/flight.h"
#include "store/postgres/link.h"

typedef struct once__pg_batch {
    unsigned counts[ONCE__PG_SINGLE + 1]; /* operations by the statement that carries them */
    unsigned taken, limit;
    size_t bytes, bytes_limit;
    int full;
} once__pg_batch_t;

/*
 * Moves operations from the queue to `ops`: one per record, in order; or one that travels alone. `batch` says how many at most, and
 * how many bytes of payload unless the first one has more.
 */
void once__pg_batch_take(once__pg_batch_t *batch, once__oplist_t *queue, once__flight_t *flight,
                         once__oplist_t *ops);

/*
 * Puts the statements of the link's operations on its connection, with timeout_ms for each. `level`: the server's default is
 * not READ COMMITTED, which is what the statements are made for. 0, or -1: without its end, what was sent never happens.
 */
int once__pg_batch_put(const once__pg_batch_t *batch, once__pg_link_t *link,
                       once__pg_params_t *params, uint64_t timeout_ms, int level);

#endif
