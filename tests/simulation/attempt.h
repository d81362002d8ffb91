/*
 * One request in a gateway: what attempt.c and ending.c share.
 */
#ifndef SIMULATION_ATTEMPT_H
#define SIMULATION_ATTEMPT_H

#include "gateway.h"

typedef enum ending { COMPLETES, RELEASES, DOUBTS } ending_t;

typedef struct attempt {
    world_t *world;
    gateway_t *gateway;
    process_t *process;
    request_t *request;
    sim_key_t *key;
    uint64_t asked_clock;
    int asking;   /* counted in process->asking */
    int waiting;  /* for the backend */
    int answered; /* the client */
    int resent;
    once_claim_t *claim;
    grant_t *grant;
    const struct script_course *course; /* NULL: no script */
    const once_policy_t *policy;        /* asked with; then, of it and the record's, the stricter */
    ending_t ending;
    response_t response;
    int has_response;
} attempt_t;

/* A place where the process may die, or stand still until its leases have run out. 0: it died. */
int attempt_survives(attempt_t *attempt);

/* From here on it will not forward any more. */
void attempt_stop_asking(attempt_t *attempt);

/* Answers the client, unless that has happened, and is over. */
void attempt_answer(attempt_t *attempt, answer_kind_t kind, const response_t *response);

/* With the recorded response that the library told, or that there is none. */
void attempt_answer_from_record(attempt_t *attempt, const once_answer_t *told);

/* Gives the claim to the library, which tells the store; then the client is answered. */
void attempt_end(attempt_t *attempt, ending_t ending, int reason);

#endif
