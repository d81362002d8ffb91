/*
 * Operations on their way: the queue, the batches that are made of it, the connections that carry them, and the answers.
 */
#ifndef ONCE_STORE_POSTGRES_TRAFFIC_H
#define ONCE_STORE_POSTGRES_TRAFFIC_H

#include "store/postgres/conninfo.h"
#include "store/postgres/flight.h"
#include "store/postgres/link.h"

#define ONCE__PG_LINKS_MAX 8

typedef struct once__traffic {
    once__loop_t *loop;
    once__conninfo_t conninfo;
    uint64_t timeout_ms;
    once__pg_owner_t owner;
    once__pg_link_t links[ONCE__PG_LINKS_MAX];
    unsigned link_count;
    once__oplist_t queue;
    once__oplist_t answers;
    unsigned batch_max; /* smaller after the server ran out of locks */
    unsigned alone;     /* so many more are sent one by one: one of them spoils its batch */
    unsigned telling;   /* callbacks are running */
    unsigned prompt;    /* so many of those that wait were submitted by them */
    int freed;          /* a batch has ended since the last pump */
    int impatient;      /* what waits has waited too long */
    once__timer_t patience;
    int refused; /* a connection could not be made */
    int met;     /* one was */
    int level;   /* the server's default isolation is not READ COMMITTED */
    once__flight_t flight;
    once__pg_params_t params;
    char trouble[ONCE__PG_TROUBLE_SIZE];
} once__traffic_t;

/* Takes the URL's parameters. ONCE_OK, or what is wrong; then nothing has to be freed. */
/* Takes and checks what is in the URL, and opens nothing. */
int once__traffic_check(const once__store_config_t *config, once_error_t *err);
int once__traffic_open(once__traffic_t *pg, const once__store_config_t *config, once_error_t *err);

/* Sends what can be sent now. */
void once__traffic_pump(once__traffic_t *pg);

/* Answers what is under way with ONCE_E_CLOSED, ends the connections, frees. */
void once__traffic_close(once__traffic_t *pg);

/* After fork: frees what is this process's. */
void once__traffic_abandon(once__traffic_t *pg);

#endif
