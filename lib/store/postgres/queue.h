/*
 * The queue of a handle's operations, the connections, and which batch goes over which of them when.
 *
 * An operation is in one place at a time: it waits, it is in a batch that is under way, or it has an answer that has not been
 * given yet. What must hold between calls (assert_queue_state):
 *
 *   I-1  Only batches that are under way and not late have operations.
 *   I-2  The in-flight table has exactly the operations of these batches, without those that have a batch to themselves; so no
 *        two operations on one record are under way at once, as far as this handle knows.
 *   I-3  A batch has at most 128 operations, and one that has a batch to itself is alone in it.
 */
#ifndef ONCE_STORE_POSTGRES_QUEUE_H
#define ONCE_STORE_POSTGRES_QUEUE_H

#include "store/postgres/batch.h"
#include "store/postgres/url.h"

typedef struct once__postgres_queue {
    once__loop_t *loop;
    once__pg_conninfo_t conninfo;
    uint64_t timeout_ms;
    once__pg_owner_t owner;
    once__postgres_connection_t connections[ONCE__POSTGRES_CONNECTIONS_MAX];
    unsigned connection_count;
    once__oplist_t waiting;
    once__oplist_t answers;
    once__hash_t inflight; /* operations by record id */
    unsigned batch_max;    /* less after the server ran out of locks */
    unsigned alone;        /* how many are to be sent one by one: one of them spoils its batch */
    unsigned answering;    /* callbacks are running */
    unsigned prompt;       /* how many of those that wait were submitted by callbacks */
    int freed;             /* a batch has ended since the last pump */
    int impatient;         /* what waits has waited too long */
    once__timer_t patience;
    int refused; /* a connection could not be made */
    int met;     /* one was */
    int level;   /* the server's default isolation is not READ COMMITTED */
    once__pg_params_t params;
    once__postgres_packing_t packing;
    char trouble[ONCE__PG_TROUBLE_SIZE];
    char server[60]; /* "PostgreSQL 15.6", of the last one that was met */
} once__postgres_queue_t;

/* Takes the URL's parameters. Returns ONCE_OK, ONCE_E_CONFIG or ONCE_E_NOMEM; after an error nothing has to be freed. */
int once__postgres_queue_open(once__postgres_queue_t *queue, const once__store_config_t *config,
                              once_error_t *err);

/* Sends what can be sent now. */
void once__postgres_queue_pump(once__postgres_queue_t *queue);

/* Answers everything with ONCE_E_CLOSED, closes the connections, frees. */
void once__postgres_queue_close(once__postgres_queue_t *queue);

/* After fork: frees what is this process's. */
void once__postgres_queue_abandon(once__postgres_queue_t *queue);

#endif
