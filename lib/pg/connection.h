/*
 * One connection to a PostgreSQL server that never blocks, and the batches that are under way on it.
 *
 * A batch is one transaction: statements that are sent together in libpq's pipeline mode and ended by a sync, so that it costs
 * one round trip and one commit. Nothing counts before the sync is answered: only then is it committed. A second batch may be
 * sent behind the first; the server starts it as soon as the first has ended, without a round trip in between.
 *
 *   DOWN -> CONNECTING -> IDLE <-> BUSY -> DRAINING -> IDLE      and back to DOWN from each when the connection is lost
 *
 * A batch that is not answered in time is reported as late, but its connection is kept: the server may still be committing it,
 * which takes as long as a synchronous standby takes. Closing the connection would not end that. It would only allow a new
 * connection beside the server's process that still waits, again and again, until the server has no connection left.
 * So the connection drains: results are read, and it is idle again when they have come, or down when the server or TCP ends it.
 * If the server does neither and keeps it alive, it is given up after 10 minutes, one connection of the owner at a time, and
 * each time the next one waits twice as long. Nothing is ever cancelled: that would make a commit visible that no standby has.
 *
 * What must hold between calls (assert_connection_state):
 *   I-1  DOWN has no libpq connection; IDLE, BUSY and DRAINING have one.
 *   I-2  Batches are under way exactly while it is BUSY or DRAINING; there is a second one only behind a first.
 *   I-3  The timer runs exactly while it is CONNECTING, BUSY or DRAINING.
 *   I-4  The batches under way are late exactly while it is DRAINING.
 *   I-5  A batch has no more results than statements.
 */
#ifndef ONCE_PG_CONNECTION_H
#define ONCE_PG_CONNECTION_H

#include <libpq-fe.h>

#include "loop/loop.h"
#include "pg/tls.h"

#define ONCE__PG_STATEMENTS_MAX 10
#define ONCE__PG_TROUBLE_SIZE   600
#define ONCE__PG_DRAIN_MS       600000u /* how long the first connection drains at most */

typedef enum once__pg_state {
    ONCE__PG_DOWN,
    ONCE__PG_CONNECTING,
    ONCE__PG_DRAINING,
    ONCE__PG_IDLE,
    ONCE__PG_BUSY,
} once__pg_state_t;

/* How a batch ended. */
typedef enum once__pg_end {
    ONCE__PG_COMMITTED,
    ONCE__PG_ABORTED, /* nothing was applied */
    ONCE__PG_LOST,    /* unknown */
} once__pg_end_t;

/* A batch. The caller owns it, and embeds it where more is to be known. All zero is an empty one. */
typedef struct once__pg_batch {
    /* of the statements that succeeded, in their order */
    PGresult *results[ONCE__PG_STATEMENTS_MAX];
    unsigned statement_count, result_count;
    PGresult *failure; /* of the first statement that failed; NULL: none did */
    char sqlstate[6];  /* of that */
    int is_late;
    uint64_t began, due; /* when it was sent; when it is late */
} once__pg_batch_t;

typedef struct once__pg_connection once__pg_connection_t;

/* The user of one or several connections. Its functions are called from the loop, never from inside one of its own calls. */
typedef struct once__pg_owner {
    void (*connected)(void *data, once__pg_connection_t *connection);
    void (*failed)(void *data, once__pg_connection_t *connection); /* could not connect */
    /* Returns the batch to the owner. If it was late, the connection may be running other statements by now. */
    void (*ended)(void *data, once__pg_connection_t *connection, once__pg_batch_t *batch,
                  once__pg_end_t end);
    /* It is not known whether the batch was committed, perhaps for a long time. It will end, but should not be waited for. */
    void (*late)(void *data, once__pg_connection_t *connection, once__pg_batch_t *batch);
    void *data;
    char *trouble; /* ONCE__PG_TROUBLE_SIZE bytes: the last complaint; empty when all is well */
    const once__pg_tls_t *tls; /* what was added to the parameters */
    /* how long the next connection drains at most; begins with ONCE__PG_DRAIN_MS */
    uint64_t drain_ms;
    int reports_loss; /* a lost connection is trouble by itself */
} once__pg_owner_t;

struct once__pg_connection {
    once__source_t source;
    once__timer_t timer;
    once__loop_t *loop;
    once__pg_owner_t *owner;
    PGconn *conn;
    once__pg_state_t state;
    uint32_t watched;    /* epoll's events */
    uint64_t connect_ms; /* how long connecting may take */
    uint64_t retry_at;   /* down: not before */
    uint64_t drain_from;
    unsigned failures; /* in a row */
    int is_broken;     /* it could not send, or the server ended the session */
    once__pg_batch_t *first, *second;
};

/* Reserves a timer. Returns 0, or -1 if memory is short. */
int once__pg_connection_init(once__pg_connection_t *connection, once__loop_t *loop,
                             once__pg_owner_t *owner, uint64_t connect_ms);

/* Closes it. Batches under way do not end any more; the caller clears them. */
void once__pg_connection_free(once__pg_connection_t *connection);

/* The same after fork: the connection is the parent's, and the server does not notice. */
void once__pg_connection_abandon(once__pg_connection_t *connection);

/* Starts connecting, with PQconnectStartParams' arrays. */
void once__pg_connection_open(once__pg_connection_t *connection, const char *const *keywords,
                              const char *const *values);

/*
 * Ends the batch whose statements were put on `conn` (values.h) and counted in it, and sends it. The connection is idle, or busy
 * with one batch. Within timeout_ms the owner is called: `ended` or `late`.
 */
void once__pg_connection_send(once__pg_connection_t *connection, once__pg_batch_t *batch,
                              uint64_t timeout_ms);

/* Gives the connection up. Statements in flight are lost; the owner's callback runs at once. */
void once__pg_connection_drop(once__pg_connection_t *connection);

/* Frees the results of a batch that is not under way, and empties it. */
void once__pg_batch_clear(once__pg_batch_t *batch);

#endif
