/*
 * The load: connections that are kept, each with one request under way, sent as soon as the one before is answered.
 */
#ifndef TESTS_BENCH_GATEWAY_CLIENT_H
#define TESTS_BENCH_GATEWAY_CLIENT_H

#include <stdint.h>

#include "times.h"

typedef struct client client_t;

/* What to send. The n-th request has the key number first + n % keys. */
typedef struct order {
    double seconds;    /* nothing is sent after this; 0: no such limit */
    uint64_t requests; /* nor after this many; 0: no such limit */
    uint64_t first;
    uint64_t keys;           /* 0: no key twice */
    times_t *times;          /* NULL, or gets the times of all answers */
    void (*tick)(void *ctx); /* NULL, or called between events, and each millisecond without any */
    void *ctx;
} order_t;

typedef struct outcome {
    uint64_t sent, replayed;
    uint64_t wrong; /* answers other than 201 */
    double seconds;
} outcome_t;

client_t *client_open(unsigned port, unsigned connections);
void client_close(client_t *client);

/* Sends, and waits until everything is answered. Ends the process when nothing comes for 20 seconds. */
outcome_t client_run(client_t *client, const order_t *order);

#endif
