/*
 * A request at a backend: what every backend does with one, and transactions.
 */
#ifndef SIMULATION_JOB_H
#define SIMULATION_JOB_H

#include "backend.h"

/* In a moment; at any time within four leases; heads or tails. */
uint64_t job_soon(world_t *world);
uint64_t job_whenever(world_t *world);
int job_coin(world_t *world);

/* A response that no other is equal to. */
response_t job_response(job_t *job, int status, once_verdict_t said);

/* Events: the gateway hears `says`; or it hears that the connection broke. Once. */
void job_respond(void *job);
void job_break(void *job);

/* The request can take no effect any more. */
void job_close(job_t *job);

/* transaction.c: the effect and once.complete() in one transaction, after `ms`; `responds`: then the answer. */
void transaction_start(job_t *job, uint64_t ms, int responds);

#endif
