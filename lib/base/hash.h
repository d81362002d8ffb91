/*
 * A hash table of items that the caller owns: each item has a node as a member, and the table links the nodes. Adding allocates
 * only when the array of buckets grows, and works without that, too: only once__hash_init() can run out of memory.
 *
 * The hash is the caller's: once__hash_data() for bytes (SipHash-2-4: with a random seed, keys from outside cannot be chosen to
 * collide), once__hash_number() for numbers that are not chosen by outsiders, or bytes of a keyed digest as they are.
 *
 *     for (node = once__hash_first(&table, hash); node != NULL; node = once__hash_next(node)) {
 *         item = ONCE__CONTAINER(node, item_t, node);
 *         if (... the same key ...)
 *     }
 */
#ifndef ONCE_BASE_HASH_H
#define ONCE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define ONCE__CONTAINER(pointer, type, member)                                                     \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

typedef struct once__hash_node {
    struct once__hash_node *next;
    uint64_t hash;
} once__hash_node_t;

typedef struct once__hash {
    once__hash_node_t **buckets;
    size_t mask; /* number of buckets - 1 */
    size_t count;
    size_t max;
} once__hash_t;

/* An empty table for at most `max` items. Returns 0, or -1 if memory is short. */
int once__hash_init(once__hash_t *table, size_t max);

/* Frees the buckets, not the items. All bytes zero is a table that may be freed, and holds nothing. */
void once__hash_free(once__hash_t *table);

/* Adds an item that is in no table. Returns 0, or -1 if there are `max` already. Equal hashes and equal keys are allowed. */
int once__hash_add(once__hash_t *table, once__hash_node_t *node, uint64_t hash);

/* Removes an item of this table. */
void once__hash_remove(once__hash_t *table, once__hash_node_t *node);

/* The items with this hash, the one added last first. NULL: no more. */
once__hash_node_t *once__hash_first(const once__hash_t *table, uint64_t hash);
once__hash_node_t *once__hash_next(const once__hash_node_t *node);

/* All items in no particular order: starts with NULL, ends with NULL. Between two steps only the last item may be removed or freed
 * after the next one was taken; nothing may be added. */
once__hash_node_t *once__hash_each(const once__hash_t *table, const once__hash_node_t *last);

typedef struct once__hash_seed {
    uint64_t k0, k1;
} once__hash_seed_t;

uint64_t once__hash_data(const once__hash_seed_t *seed, const void *data, size_t len);
uint64_t once__hash_number(uint64_t number);

#endif
