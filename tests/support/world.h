/*
 * A world under the test's control: its clocks stand still until they are moved, and its store does to each operation what
 * the test's plan says. The handle over it is the real one, and so is the table.
 */
#ifndef TESTS_SUPPORT_WORLD_H
#define TESTS_SUPPORT_WORLD_H

#include "api/handle.h"
#include "store/memory/table.h"

typedef enum world_fault {
    WORLD_OK,
    WORLD_LOSE_REQUEST, /* not applied, ONCE_E_NOREPLY */
    WORLD_LOSE_REPLY,   /* applied, ONCE_E_NOREPLY */
    WORLD_AWAY,         /* not applied, ONCE_E_UNAVAILABLE */
    WORLD_FULL,         /* not applied, ONCE_E_FULL */
    WORLD_NOMEM,        /* not applied, ONCE_E_NOMEM */
    WORLD_FAULT_COUNT
} world_fault_t;

typedef struct world world_t;
struct world {
    uint64_t monotonic_ms, wall_ms;
    uint64_t random;
    once__table_t *table;
    unsigned ops;                                                /* answered so far */
    world_fault_t (*plan)(world_t *world, const once__op_t *op); /* NULL: everything is fine */
    void *plan_data;
    int hang; /* operations are applied, but not answered before it is 0 again */
};

void world_init(world_t *world);
void world_free(world_t *world);

/* A handle; `options` as in a URL's query ("ttl=1h&renew=off") or NULL. Fails the test when it cannot be opened. */
once_t *world_open(world_t *world, const char *options);

/* Dispatches until nothing is due at the present time. */
void world_run(world_t *world, once_t *once);

/* Lets time pass, firing timers when they are due. */
void world_pass(world_t *world, once_t *once, uint64_t ms);

/* An ask for a key; the answer of the callback below goes to `seen`. */
typedef struct seen {
    unsigned calls;
    int error;
    once_outcome_t outcome;
    once_state_t state; /* of the answer's record */
    int status;
    uint32_t epoch;
    once_claim_t *claim; /* taken */
    char body[64];       /* of the stored response */
} seen_t;

void seen_cb(once_t *once, once_answer_t *answer, void *data); /* takes the claim */
int world_ask(once_t *once, const char *key, const char *policy, const uint8_t *claim_id,
              seen_t *seen);

/* A response with this status and body. */
once_response_t world_response(int status, const char *body);

/* The record of (empty scope, key), or NULL. */
const once__record_t *world_record(world_t *world, once_t *once, const char *key);

#endif
