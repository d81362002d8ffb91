/*
 * A gateway: a process after another under one name. It takes requests (attempt.c), crashes, stands still, is stopped in good
 * order, and is started again.
 */
#ifndef SIMULATION_GATEWAY_H
#define SIMULATION_GATEWAY_H

#include "client.h"

typedef struct gateway {
    world_t *world;
    unsigned number, starts;
    process_t *process; /* the present one; NULL: none runs */
    unsigned attempts;  /* requests under way */
    int draining;       /* stops in good order: takes no requests */
    int shut;           /* the handle has said that it is done */
    int wrote;          /* something was written since */
} gateway_t;

void gateways_start(world_t *world);

/* A request arrives. 0: there is no gateway. */
int gateway_takes(gateway_t *gateway, request_t *request);

void gateway_crash(gateway_t *gateway);
void gateway_shutdown(gateway_t *gateway);

/* A request is done: the last one lets a gateway go that is to stop. */
void gateway_attempt_over(gateway_t *gateway);

/* attempt.c: what a gateway does with one request. */
void attempt_start(gateway_t *gateway, request_t *request);

#endif
