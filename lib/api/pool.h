/*
 * Memory for jobs and claims. Freed blocks are kept for the next ones, because the general allocator takes longer for blocks of
 * this size than all other bookkeeping of a call. Used by one thread at a time, like the handle.
 */
#ifndef ONCE_API_POOL_H
#define ONCE_API_POOL_H

#include <stddef.h>

#define ONCE__POOL_CLASSES 8 /* of 256 bytes each */

typedef struct once__pool {
    struct once__pool_block *blocks[ONCE__POOL_CLASSES];
    unsigned counts[ONCE__POOL_CLASSES];
} once__pool_t;

/* `size` zeroed bytes, or NULL. */
void *once__pool_take(once__pool_t *pool, size_t size);
void once__pool_give(once__pool_t *pool, void *memory);
void once__pool_free(once__pool_t *pool);

#endif
