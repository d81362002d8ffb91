#include "api/pool.h"

#include <stdlib.h>
#include <string.h>

#define STEP 256
#define KEEP 512 /* blocks of a class */

/* In front of what the caller has. */
typedef union head {
    size_t class;
    max_align_t aligned;
} head_t;

struct once__pool_block {
    head_t head;
    struct once__pool_block *next;
};

void *once__pool_take(once__pool_t *pool, size_t size)
{
    size_t class = (size - 1) / STEP;
    struct once__pool_block *block;

    if (class < ONCE__POOL_CLASSES && pool->blocks[class] != NULL) {
        block = pool->blocks[class];
        pool->blocks[class] = block->next;
        pool->counts[class]--;
    } else {
        block = malloc(sizeof(head_t) + (class + 1) * STEP);
        if (block == NULL) {
            return NULL;
        }
        block->head.class = class;
    }
    return memset((char *)block + sizeof(head_t), 0, size);
}

void once__pool_give(once__pool_t *pool, void *memory)
{
    struct once__pool_block *block = (void *)((char *)memory - sizeof(head_t));
    size_t class = block->head.class;

    if (class < ONCE__POOL_CLASSES && pool->counts[class] < KEEP) {
        block->next = pool->blocks[class];
        pool->blocks[class] = block;
        pool->counts[class]++;
    } else {
        free(block);
    }
}

void once__pool_free(once__pool_t *pool)
{
    for (size_t class = 0; class < ONCE__POOL_CLASSES; class ++) {
        while (pool->blocks[class] != NULL) {
            struct once__pool_block *block = pool->blocks[class];
            pool->blocks[class] = block->next;
            free(block);
        }
    }
}
