/*
 * A connection to PostgreSQL that never blocks: one statement at a time, connected again when it is lost.
 *
 * A statement that is not answered in time is reported as lost, but its connection is kept, and draining, until the answer
 * comes or the connection ends: the server may be committing it still, as long as a synchronous standby takes, and would have
 * one connection less for everybody each time. A connection that stays alive without an answer is given up after 10 minutes,
 * then 20, 40, ...
 */
#ifndef ONCE_RELAY_LINK_H
#define ONCE_RELAY_LINK_H

#include <libpq-fe.h>
#include <poll.h>
#include <stdint.h>

#include "pg/tls.h"

typedef enum once__link_state {
    ONCE__LINK_DOWN,
    ONCE__LINK_CONNECTING,
    ONCE__LINK_GREETING, /* its first statement is under way */
    ONCE__LINK_DRAINING, /* waits for the end of a statement that was reported as lost */
    ONCE__LINK_IDLE,
    ONCE__LINK_BUSY,
} once__link_state_t;

/* Takes the result over. NULL: the connection was lost, and nobody knows whether the statement took effect. */
typedef void once__link_cb(void *data, PGresult *result);

typedef struct once__link {
    const char *url;
    const char *greeting; /* the first statement of every connection; NULL: none */
    PGconn *conn;
    once__link_state_t state;
    PostgresPollingStatusType polling;
    int is_pooled;     /* the other side takes no options */
    uint64_t retry_ms; /* when to connect again */
    uint64_t backoff_ms;
    uint64_t deadline_ms;    /* of what is under way */
    uint64_t patience_ms;    /* how long a statement may take */
    uint64_t drain_ms;       /* how long it drains at most */
    unsigned long connected; /* how often */
    once__link_cb *answer;
    void *data;
    PGresult *result;   /* the last one of the statement under way */
    char trouble[600];  /* why it is down */
    once__pq_tls_t tls; /* what is added to the URL */
} once__link_t;

void once__link_init(once__link_t *link, const char *url, const char *greeting,
                     uint64_t patience_ms);
void once__link_close(once__link_t *link);

/* Does what can be done now, calls back. Returns when it wants to be called again at the latest. */
uint64_t once__link_turn(once__link_t *link, uint64_t now_ms);

/* What to poll for; fd -1: nothing. */
struct pollfd once__link_poll(const once__link_t *link);

/* Sends a statement over an idle link. `types` and `formats` may be NULL (all text). 0 or -1: lost; there is no callback. */
int once__link_send(once__link_t *link, uint64_t now_ms, const char *statement, int count,
                    const Oid *types, const char *const *values, const int *lengths,
                    const int *formats, int binary_result, once__link_cb *answer, void *data);

#endif
