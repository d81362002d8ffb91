/*
 * Clients: each works on one operation at a time and repeats it, with the same key, to whichever gateway, until it has an
 * answer that counts. Some are impatient and hang up, some send twice at once (a double click), some use a key again for
 * something else, and some come back later to see whether the answer is still the same.
 */
#ifndef SIMULATION_CLIENT_H
#define SIMULATION_CLIENT_H

#include "ledger.h"

typedef struct client client_t;
typedef struct request request_t;

/* What a gateway answers. */
typedef enum answer_kind {
    ANSWER_RECORDED, /* the operation ran now; its response is recorded */
    ANSWER_REPLAYED, /* the recorded response */
    ANSWER_PASSED,   /* the operation's response, not recorded: the key can be used again */
    ANSWER_DOUBT,    /* 504: unknown */
    ANSWER_BUSY,     /* 409: in flight, or just moved on */
    ANSWER_UNKNOWN,  /* 409: unknown, and the policy says not to try again */
    ANSWER_MISMATCH, /* 422 */
    ANSWER_ERROR,    /* 503: the store does not answer */
} answer_kind_t;

struct request {
    client_t *client;
    world_t *world;
    sim_key_t *key;
    int variant;
    uint64_t asked_at;
    int over; /* answered, or the client has hung up */
};

void clients_start(world_t *world);

/* For scripts: asks for the first key, once. */
void client_ask_once(world_t *world, unsigned gateway, int variant);

/* The faults are over: every key is asked for until it has an end. */
void clients_calm_down(world_t *world);

/* Does every client have its answer? */
int clients_done(const world_t *world);

/* The gateway's answer sets out for the client. `response` is NULL where the kind has none. */
void request_answer(request_t *request, answer_kind_t kind, const response_t *response);

#endif
