/*
 * What the server remembers for a connection from one batch to the next: settings and prepared statements.
 *
 * Behind a pooler every transaction may meet another session of the server. Nothing may be left there, and nothing is found again:
 * each batch sets what it needs and sends its statements as text. Where the connection is the server's own, all of that is done
 * once. It is, when the process that greeted is the one that answers: poolers make numbers of their own for their clients.
 */
#ifndef ONCE_STORE_POSTGRES_SESSION_H
#define ONCE_STORE_POSTGRES_SESSION_H

#include "store/postgres/link.h"

/* Puts what comes before the statements of a batch on the link; `level` as in batch.h. 0 or -1. */
int once__pg_session_begin(once__pg_link_t *link, once__pg_params_t *params, uint64_t timeout_ms,
                           int level);

/* Puts the statement that carries `count` of the link's operations there. 0 or -1. */
int once__pg_session_put(once__pg_link_t *link, once__pg_params_t *params,
                         once__pg_statement_t which, uint32_t count);

/* After a batch's end: what is known now. */
void once__pg_session_learn(once__pg_link_t *link, once__pg_end_t end);

/* Did the batch fail because the session was not what it seemed? Then it was not ours, and nothing is expected of it again. */
int once__pg_session_mistaken(once__pg_link_t *link);

#endif
