/*
 * The pages of the index that tables and write buffers are made of: taken and given back in runs. A bit for each says whether
 * it is in use.
 *
 * A process that is killed in between leaves bits set for pages that nothing uses. They are lost until the index is made anew.
 */
#include <assert.h>
#include <string.h>

#include "store/local/index_internal.h"

#define WAIT_MS   20u                     /* some callers hold the lock of a shard */
#define GROW      256u                    /* pages that the file grows by, if there is room */
#define BITS_PAGE (ONCE__INDEX_PAGE * 8u) /* pages that one page of bits is about */

static uint64_t bit(uint32_t page)
{
    return (uint64_t)1 << page % 64;
}

static int is_used(const once__index_header_t *map, uint32_t page)
{
    return (atomic_load_explicit(&map->page_bits[page / 64], memory_order_relaxed) & bit(page)) !=
           0;
}

static void mark(once__index_header_t *map, uint32_t first, uint32_t count, int used)
{
    for (uint32_t page = first; page < first + count; page++) {
        uint64_t bits = atomic_load_explicit(&map->page_bits[page / 64], memory_order_relaxed);
        bits = used ? bits | bit(page) : bits & ~bit(page);
        atomic_store_explicit(&map->page_bits[page / 64], bits, memory_order_relaxed);
    }
}

/* Where a run of `count` free pages between `from` and `end` begins, or the shorter run that ends at `end`. */
static uint32_t find_run(const once__index_header_t *map, uint32_t from, uint32_t end,
                         uint32_t count)
{
    uint32_t run = 0, page = from;

    while (page < end && run < count) {
        if (page % 64 == 0 && page + 64 <= end &&
            atomic_load_explicit(&map->page_bits[page / 64], memory_order_relaxed) == UINT64_MAX) {
            run = 0;
            page += 64;
            continue;
        }
        run = is_used(map, page) ? 0 : run + 1;
        page++;
    }
    return page - run;
}

/* Memory for pages up to `end`, and for their bits. 0 or -1. */
static int grow(once__index_t *index, uint32_t end)
{
    once__index_header_t *map = index->map;
    uint64_t old = atomic_load(&map->end), fresh = (uint64_t)end * ONCE__INDEX_PAGE;
    uint64_t bits = offsetof(once__index_header_t, page_bits);
    uint64_t first = old / ONCE__INDEX_PAGE / BITS_PAGE;

    if (fresh > map->view ||
        once__index_allocate(index, bits + first * ONCE__INDEX_PAGE,
                             bits + ((end - 1) / BITS_PAGE + 1) * ONCE__INDEX_PAGE) != 0 ||
        once__index_allocate(index, old, fresh) != 0) {
        return -1;
    }
    atomic_store(&map->end, fresh);
    return 0;
}

/* Free pages are zero: they were never used, or zeroed when they were given back. Some have no memory until they are taken. */
uint32_t once__index_take_pages(once__index_t *index, uint32_t count)
{
    once__index_header_t *map = index->map;
    uint32_t end, first, result = 0;

    if (count == 0 || count > ONCE__INDEX_PAGES / 2 ||
        once__index_lock_mutex(&map->page_lock, WAIT_MS, NULL) != ONCE_OK) {
        return 0;
    }
    end = (uint32_t)(atomic_load(&map->end) / ONCE__INDEX_PAGE);
    first = find_run(map, map->free_page, end, count);
    if ((first + count <= end || grow(index, first + (count > GROW ? count : GROW)) == 0 ||
         grow(index, first + count) == 0) &&
        once__index_allocate(index, (uint64_t)first * ONCE__INDEX_PAGE,
                             (uint64_t)(first + count) * ONCE__INDEX_PAGE) == 0) {
        mark(map, first, count, 1);
        result = first;
        if (first == map->free_page) {
            map->free_page = first + count;
        }
    }
    (void)pthread_mutex_unlock(&map->page_lock);
    return result;
}

/* If the lock cannot be had, the pages are lost until the index is made anew. */
static void give(once__index_t *index, uint32_t first, uint32_t count)
{
    once__index_header_t *map = index->map;

    assert(is_used(map, first) && is_used(map, first + count - 1));
    if (once__index_lock_mutex(&map->page_lock, WAIT_MS, NULL) != ONCE_OK) {
        return;
    }
    if (first < map->free_page) {
        map->free_page = first;
    }
    mark(map, first, count, 0);
    (void)pthread_mutex_unlock(&map->page_lock);
}

void once__index_give_pages(once__index_t *index, uint32_t first, uint32_t count)
{
    memset(once__index_page(index, first), 0, (size_t)count * ONCE__INDEX_PAGE);
    give(index, first, count);
}

void once__pages_release(once__index_t *index, uint32_t first, uint32_t count)
{
    if (once__index_release(index, (uint64_t)first * ONCE__INDEX_PAGE,
                            (uint64_t)(first + count) * ONCE__INDEX_PAGE) == 0) {
        give(index, first, count);
    } else {
        once__index_give_pages(index, first, count);
    }
}

uint32_t once__pages_count(const once__index_header_t *map)
{
    uint64_t end = atomic_load(&map->end) / ONCE__INDEX_PAGE;
    uint32_t count = 0;

    for (uint64_t i = 0; i < (end + 63) / 64; i++) {
        count += (uint32_t)__builtin_popcountll(
            atomic_load_explicit(&map->page_bits[i], memory_order_relaxed));
    }
    return count;
}

void *once__index_page(const once__index_t *index, uint32_t page)
{
    assert((uint64_t)page * ONCE__INDEX_PAGE >= sizeof(once__index_header_t) &&
           (uint64_t)page * ONCE__INDEX_PAGE < index->view);
    return (char *)index->map + (uint64_t)page * ONCE__INDEX_PAGE;
}
