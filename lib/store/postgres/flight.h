/*
 * The operations that are under way, by record id: at most one for each record.
 */
#ifndef ONCE_STORE_POSTGRES_FLIGHT_H
#define ONCE_STORE_POSTGRES_FLIGHT_H

#include "store/store.h"

#define ONCE__FLIGHT_SIZE 4096u /* more than twice what can be under way at once */

/* A hash table with linear probing. All zero is empty. */
typedef struct once__flight {
    once__op_t *places[ONCE__FLIGHT_SIZE];
} once__flight_t;

/* 0, or -1 when another one with this id is under way. */
int once__flight_start(once__flight_t *flight, once__op_t *op);
void once__flight_land(once__flight_t *flight, const once__op_t *op);
once__op_t *once__flight_find(const once__flight_t *flight, const uint8_t *id);

#endif
