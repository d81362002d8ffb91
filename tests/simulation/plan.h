/*
 * What one schedule is made of: how many of everything, which times, and how often what goes wrong. Drawn from the seed
 * before anything runs. Every kind of fault is left out of about half of the schedules: many faults hide behind others, and a
 * schedule that has only two kinds of trouble gets deeper into both.
 */
#ifndef SIMULATION_PLAN_H
#define SIMULATION_PLAN_H

#include "random.h"

enum { PLAN_KEYS_MAX = 4, PLAN_GATEWAYS_MAX = 3, PLAN_CLIENTS_MAX = 4 };

typedef struct plan {
    unsigned keys, gateways, clients;
    int calm;      /* nothing goes wrong; backends may be slow all the same */
    int operator_; /* an operator settles what is unknown */
    int short_ttl;
    int mixed; /* half of the gateways ask with policy hold, whatever the key's is */
    unsigned recover[PLAN_KEYS_MAX]; /* once_recover_t */
    unsigned rotations;

    /* milliseconds */
    uint64_t lease, ttl, horizon;
    uint64_t store_timeout;    /* of the handle: after which a callback runs */
    uint64_t reply_timeout;    /* of the network: after which a reply counts as lost */
    uint64_t upstream_timeout; /* of the gateway */
    uint64_t client_timeout;
    uint64_t reap;     /* 0: off */
    uint64_t late_max; /* how much later than its time-out a request can arrive */

    /* per thousand, of each store request */
    unsigned lose_request, lose_reply, late, duplicate, full;
    /* per thousand, of each step of a request in a gateway */
    unsigned crash, stall, forget, no_connection, slow_connection;
    /* per thousand, of each tick (a quarter of a lease) */
    unsigned outage, pause, kill, jump, shutdown;
    /* per thousand, of each request of a client */
    unsigned other_body, twins, impatient;
    /* per thousand, of each settled record that is then purged */
    unsigned purge;
    /* per thousand, of each job of a backend: not plainly done at once */
    unsigned trouble;
    /* per thousand, of a machine with a local store: of each tick, of each sync, of each sync again */
    unsigned power, power_at_sync, disk_error;
} plan_t;

void plan_draw(plan_t *plan, prng_t *prng);

/* The same for processes of one machine with a local store: no network, but a disk. */
void plan_draw_local(plan_t *plan, prng_t *prng);

#endif
