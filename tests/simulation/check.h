/*
 * What clients, gateways and backends can notice, and what must be so in the end.
 */
#ifndef SIMULATION_CHECK_H
#define SIMULATION_CHECK_H

#include "client.h"
#include "ledger.h"

/* A gateway is answered run: by a claim that was granted, for the first time. NULL: it must not have been. */
grant_t *check_run(world_t *world, sim_key_t *key, const char *token);

/* It forwards: once, and while less than half the lease has passed. */
void check_forward(world_t *world, sim_key_t *key, grant_t *grant, int variant);

/* A backend takes effect: as often as the policy promises. */
void check_effect(world_t *world, sim_key_t *key, grant_t *grant, int variant,
                  const response_t *response);

/* A client is answered: with what the record of its own request holds, and with nothing that is not so. */
void check_answer(const request_t *request, answer_kind_t kind, const response_t *response);

/* The faults are over, all clients are served, nothing is under way. */
void check_end(world_t *world);

/* All retentions are over and the gateways have reaped: what is left must be held. */
void check_reaped(world_t *world);

#endif
