/*
 * A link of the relay to its database: a connection (pg/connection.h) that is made again whenever it is lost, and takes one
 * statement at a time, each a transaction of its own.
 */
#ifndef ONCE_RELAY_LINK_H
#define ONCE_RELAY_LINK_H

#include "pg/connection.h"
#include "pg/conninfo.h"
#include "pg/values.h"

/*
 * Takes the result over: rows, or an error. NULL: whether the statement took effect is unknown; the connection is lost, or it does
 * not answer and is kept for nothing else until it does.
 */
typedef void once__relay_link_cb(void *data, PGresult *result);

typedef struct once__relay_link {
    once__pg_connection_t base;
    once__pg_owner_t owner;
    once__pg_conninfo_t conninfo;
    once__pg_batch_t batch; /* of one statement */
    const char *url;
    const char *greeting;    /* the first statement of every connection; NULL: none */
    int is_greeting;         /* it is under way */
    int is_pooled;           /* the other side takes no options */
    uint64_t patience_ms;    /* how long a statement may take */
    unsigned long connected; /* how often */
    once__relay_link_cb *answer;
    void *data;
    char trouble[ONCE__PG_TROUBLE_SIZE]; /* why it is down */
} once__relay_link_t;

/* Returns 0, or -1 if memory is short; then it need not be closed. */
int once__relay_link_open(once__relay_link_t *link, once__loop_t *loop, const char *url,
                          const char *greeting, uint64_t patience_ms);

/* Closes and frees; one that is all zero, too. */
void once__relay_link_close(once__relay_link_t *link);

/* Connects if it is down and the pause is over. Returns when that will be: UINT64_MAX if it is not down. */
uint64_t once__relay_link_turn(once__relay_link_t *link);

/* Does it take a statement? */
int once__relay_link_is_idle(const once__relay_link_t *link);

/* Is it connected, and does not keep a statement that is late? */
int once__relay_link_is_up(const once__relay_link_t *link);

/*
 * Sends a statement over an idle link; its results are binary, or text. Returns 0, or -1 if it was not sent: there is no callback
 * then. The callback comes from the loop.
 */
int once__relay_link_send(once__relay_link_t *link, const char *statement,
                          const once__pg_params_t *params, int binary, once__relay_link_cb *answer,
                          void *data);

#endif
