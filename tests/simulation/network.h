/*
 * A process's connection to the store: a once__store_t that loses, delays, doubles and reorders.
 *
 * A submitted operation becomes a message with a copy of everything asked. On its way it may be lost, arrive so late that the
 * process has long been told ONCE_E_NOREPLY, arrive a second time later, or meet an outage; its reply may be lost, too. Each
 * message takes its own time, so messages overtake each other. The process is always told something: the reply, or
 * ONCE_E_NOREPLY after the time-out, or ONCE_E_UNAVAILABLE when it could not connect.
 */
#ifndef SIMULATION_NETWORK_H
#define SIMULATION_NETWORK_H

#include "process.h"

typedef struct link link_t;

link_t *link_new(process_t *process, once__loop_t *loop);
once__store_t *link_store(link_t *link);

/* From now on nothing is sent and no reply is heard. What is on its way arrives all the same. */
void link_cut(link_t *link);

/* The schedule is over: frees what replies on their way hold. */
void link_free(link_t *link);

#endif
