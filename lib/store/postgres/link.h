/*
 * One connection to the server, the batch that is under way on it, and perhaps one that was sent behind it: the server goes on
 * with that at once, without waiting until this side has noticed the end of the first.
 *
 * A batch is one transaction: statements over arrays, sent together in libpq's pipeline mode and ended by a sync, so that it
 * costs one round trip and one commit. Nothing counts before the sync was answered: only then is it committed.
 *
 *   DOWN -> CONNECTING -> IDLE <-> BUSY -> DRAINING -> IDLE
 *
 * A batch that is not answered in time is reported as lost, but its connection is kept: the server may still be committing it,
 * which takes as long as a synchronous standby takes. Closing the connection would not end that; it would only let a new
 * connection be opened beside the server's process that still waits, again and again until the server has no connection left
 * for anybody. So the link is draining: results are read and discarded. It is idle again when they have come, and down when
 * the server or TCP ends the connection. A server that does neither and keeps the connection alive is given up after 10
 * minutes, one link of the owner at a time, and each time the next one waits twice as long. Nothing is ever cancelled: that
 * would make a commit visible that no standby has.
 */
#ifndef ONCE_STORE_POSTGRES_LINK_H
#define ONCE_STORE_POSTGRES_LINK_H

#include "pg/tls.h"
#include "store/postgres/statements.h"

#define ONCE__PG_STATEMENTS_MAX 10
#define ONCE__PG_TROUBLE_SIZE   500
#define ONCE__PG_DRAIN_MS       600000u /* how long the first link drains at most */

typedef enum once__pg_link_state {
    ONCE__PG_DOWN,
    ONCE__PG_CONNECTING,
    ONCE__PG_IDLE,
    ONCE__PG_BUSY,
    ONCE__PG_DRAINING, /* what it waits for was reported as lost */
} once__pg_link_state_t;

/* How a batch ended. */
typedef enum once__pg_end {
    ONCE__PG_COMMITTED,
    ONCE__PG_ABORTED, /* certainly nothing was applied */
    ONCE__PG_LOST,    /* nobody knows */
} once__pg_end_t;

typedef enum once__pg_session_kind {
    ONCE__PG_SESSION_NEW,
    ONCE__PG_SESSION_ANY,  /* of a pooler: another one for each transaction */
    ONCE__PG_SESSION_OURS, /* remembers what we leave there */
} once__pg_session_kind_t;

/* What is known of the server's session (session.h). */
typedef struct once__pg_session {
    once__pg_session_kind_t kind;
    unsigned prepared;   /* statements, as bits */
    uint64_t timeout_ms; /* its statement timeout; then it is READ COMMITTED, too. 0: not ours */
    uint64_t asked_ms;   /* of the batch under way */
} once__pg_session_t;

/* A batch that was sent. */
typedef struct once__pg_trip {
    once__oplist_t sent;
    unsigned op_count;
    once__pg_statement_t statements[ONCE__PG_STATEMENTS_MAX];
    PGresult *results[ONCE__PG_STATEMENTS_MAX];
    unsigned statement_count, result_count;
    int trusting; /* it uses what the session remembers */
    int error;    /* a statement failed */
    int fatal;    /* and the server ended the session */
    char sqlstate[6];
    uint64_t began, due; /* when it was sent, and when it is given up */
} once__pg_trip_t;

typedef struct once__pg_link once__pg_link_t;

/* What the owner is told; from the loop, never from inside a call. */
typedef struct once__pg_owner {
    void (*connected)(void *data, once__pg_link_t *link);
    void (*failed)(void *data, once__pg_link_t *link); /* could not connect */
    void (*ended)(void *data, once__pg_link_t *link, once__pg_end_t end);
    void (*late)(void *data, once__pg_link_t *link); /* takes the operations of both batches */
    void *data;
    char *
        trouble; /* ONCE__PG_TROUBLE_SIZE bytes: the server's or libpq's last complaint; empty when all is well */
    const once__pq_tls_t *tls; /* what was added to the URL */
    uint64_t drain_ms;         /* how long the next link drains at most */
} once__pg_owner_t;

struct once__pg_link {
    once__source_t source;
    once__timer_t timer;
    once__loop_t *loop;
    once__pg_owner_t *owner;
    PGconn *conn;
    once__pg_link_state_t state;
    uint32_t events;
    uint64_t connect_ms; /* how long connecting may take */
    uint64_t retry_at;   /* down: not before */
    unsigned failures;   /* in a row */
    int broken;          /* sending failed */
    uint64_t drain_from;
    once__pg_session_t session;

    once__pg_trip_t trip;   /* the one whose results come next, or the one that is being filled */
    once__pg_trip_t behind; /* nothing was sent: empty */
};

/* Reserves a timer. 0 or -1. */
int once__pg_link_init(once__pg_link_t *link, once__loop_t *loop, once__pg_owner_t *owner,
                       uint64_t connect_ms);
void once__pg_link_free(once__pg_link_t *link);

/* After fork: frees what is this process's; the connection is the parent's and does not notice. */
void once__pg_link_abandon(once__pg_link_t *link);

/* Starts connecting, with PQconnectStartParams' arrays. */
void once__pg_link_connect(once__pg_link_t *link, const char *const *keywords,
                           const char *const *values);

/* Says which statement was put into the pipeline. */
void once__pg_link_add(once__pg_link_t *link, once__pg_statement_t statement);

/* Ends the batch and sends it. Within timeout_ms the owner is called: `ended`, or `late`. */
void once__pg_link_flush(once__pg_link_t *link, uint64_t timeout_ms);

/*
 * May another batch be sent behind the one under way? Not behind one that changes the session, because that may fail, nor behind
 * one that has taken longer than patience_ms: it may stand still.
 */
int once__pg_link_takes_another(const once__pg_link_t *link, uint64_t patience_ms);

/* While the other one is filled and sent, `trip` is that. The second call ends it. */
void once__pg_link_swap(once__pg_link_t *link);

/* Gives the connection up; what is under way on it is lost. */
void once__pg_link_drop(once__pg_link_t *link);

/* Forgets the batch: after its end was told. */
void once__pg_link_clear(once__pg_link_t *link);

#endif
