/*
 * The store's own side: the real table with the real rules, behind one door. Whatever reaches the table comes through here,
 * so that every single change can be compared with what the contract allows (observe.c).
 */
#ifndef SIMULATION_SERVER_H
#define SIMULATION_SERVER_H

#include "ledger.h"

typedef struct sender {
    process_t *process; /* NULL: a backend's own transaction */
    int late; /* the answer is not waited for any more: too late, or delivered for the second time */
} sender_t;

void server_open(world_t *world);
void server_close(world_t *world);

/* Applies the operation now. What the answer points to is the caller's (server_drop). */
void server_apply(world_t *world, once__op_t *op, const sender_t *sender);

/* Frees what an answer points to. */
void server_drop(once__op_t *op);

/* Sets the store's clock back or forth. */
void server_jump(world_t *world, int64_t ms);

/* observe.c: compares what the table did with what the contract allows, and writes it into the ledger. */
void observe(world_t *world, const once__op_t *op, const sender_t *sender, uint64_t clock);

/* observe.c: the same of one event, which left the record so; and of a record that a reaper took away. */
void observe_decided(world_t *world, sim_key_t *key, const once__op_t *op, const sender_t *sender,
                     uint64_t clock, const mirror_t *after);
void observe_reaped(world_t *world, sim_key_t *key, uint64_t clock);

#endif
