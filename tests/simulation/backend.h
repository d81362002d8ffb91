/*
 * The backends behind the gateways.
 *
 * A plain backend takes effect and answers, in every order and with every loss: before or after the gateway has given up, with
 * a response or without one, with a status that tells the truth or one that a proxy in between made up. It keeps to what the
 * contract assumes of it: statuses that release are sent before any effect, and a request reaches it once at most.
 *
 * A transactional backend completes the record in the transaction of its effect, through the claim that the gateway passed on:
 * it commits when the table says done, and rolls back on everything else. It may get the request twice, repeat a transaction
 * whose commit reply was lost, and be slower than any lease.
 */
#ifndef SIMULATION_BACKEND_H
#define SIMULATION_BACKEND_H

#include "ledger.h"

/* One request on its way to a backend and back. */
typedef struct job {
    world_t *world;
    sim_key_t *key;
    int variant;
    const struct script_course *course; /* NULL: chance decides */
    grant_t *grant;                     /* NULL: forwarded without a claim (a broken gateway) */
    char token[ONCE_TOKEN_SIZE];
    void (*answered)(void *data, const response_t *response); /* NULL: the connection broke */
    void *data;
    int has_answered;
    response_t response; /* of the operation itself */
    /* what is answered: a proxy in between, or a crash after the commit, may say something else */
    response_t says;
} job_t;

/* The first byte is sent. */
void backend_deliver(job_t *job);

#endif
