/*
 * One event at the table, as it was seen from outside: the record before and after it, and the facts that the contract speaks
 * of. contract.c judges it, observe.c writes it into the ledger.
 */
#ifndef SIMULATION_SIGHT_H
#define SIMULATION_SIGHT_H

#include "server.h"

typedef struct sight {
    world_t *world;
    sim_key_t *key;
    const once__op_t *op;
    const once__event_t *event;
    const sender_t *sender;
    mirror_t before, after;
    uint64_t now;       /* the store's: max(clock, last change) */
    once_state_t state; /* before; a record whose ttl is over counts as none */
    int changed;
    int mine; /* the event names the record's claim */
    int live; /* its lease is live */
    int hold; /* the stricter policy is hold */
} sight_t;

/* The record as it is now. */
mirror_t sight_look(const world_t *world, const sim_key_t *key);
uint64_t sight_hash(const uint8_t *data, size_t len); /* of a payload */
int sight_same(const mirror_t *a, const mirror_t *b);

/* Completed or failed, and its ttl is over. */
int sight_is_over(const mirror_t *mirror, uint64_t now);

/* Pending or unknown: it may have taken effect, or may still. */
int sight_is_open(once_state_t state);

/* The event `op` was applied, and left the record like that; the key's mirror still shows it as it was. */
sight_t sight_of(world_t *world, sim_key_t *key, const once__op_t *op, const sender_t *sender,
                 uint64_t clock, const mirror_t *after);

const char *sight_outcome(const sight_t *sight);

/* contract.c: violates the world when the event did what it must not, or was answered what is not so. */
void contract_check(const sight_t *sight);

/* contract.c: a record is gone although no event named it. */
void contract_check_removal(world_t *world, const sim_key_t *key, uint64_t clock);

#endif
