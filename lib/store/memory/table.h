/*
 * The memory store's records: every operation of store.h, applied at once to a table in memory.
 *
 * This is the reference: other stores are compared with it, and the simulation puts its unreliable network in front of it.
 * No threads, no clock, no waiting: the caller brings the time and the lock.
 */
#ifndef ONCE_STORE_MEMORY_TABLE_H
#define ONCE_STORE_MEMORY_TABLE_H

#include "store/store.h"

typedef struct once__table once__table_t;

/*
 * `rules` are once__rules everywhere but in tests. Both limits count, for records with their keys and payloads. NULL when out of
 * memory.
 */
once__table_t *once__table_new(const once__rules_t *rules, const once__limits_t *limits);
void once__table_free(once__table_t *table);

/* Answers the operation at the time `clock`. Does not call done. */
void once__table_apply(once__table_t *table, once__op_t *op, uint64_t clock);

/* How many records there are, how much they take, and the limits of both. */
void once__table_usage(const once__table_t *table, once_usage_t *usage);

/* The record, or NULL; valid until the next apply. For tests. */
const once__record_t *once__table_peek(const once__table_t *table, const uint8_t id[ONCE_ID_SIZE]);

#endif
