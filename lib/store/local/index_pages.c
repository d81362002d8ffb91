#include "store/local/index_pages.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define GROW      256u                    /* pages that the file grows by, at least */
#define BITS_PAGE (ONCE__INDEX_PAGE * 8u) /* pages that one page of the bitmap tells of */

static void lock(pthread_mutex_t *mutex)
{
    int code = pthread_mutex_lock(mutex);

    if (code == EOWNERDEAD) {
        code = pthread_mutex_consistent(mutex);
    }
    assert(code == 0);
}

static uint64_t bit(uint32_t page)
{
    return (uint64_t)1 << page % 64;
}

static int is_used(const once__index_header_t *map, uint32_t page)
{
    return (map->pages_used[page / 64] & bit(page)) != 0;
}

/* A run of free pages between `from` and `end`, or the shorter one that ends at `end`: where it begins. */
static uint32_t find_run(const once__index_header_t *map, uint32_t from, uint32_t end,
                         uint32_t count)
{
    uint32_t run = 0, page = from;

    while (page < end && run < count) {
        if (page % 64 == 0 && map->pages_used[page / 64] == UINT64_MAX && page + 64 <= end) {
            run = 0;
            page += 64;
            continue;
        }
        run = is_used(map, page) ? 0 : run + 1;
        page++;
    }
    return page - run;
}

/* Real room for pages up to `end`, and for the bits that tell of them. */
static int grow(once__index_t *index, uint32_t end)
{
    once__index_header_t *map = index->map;
    uint64_t old = atomic_load(&map->end);
    uint64_t bits = offsetof(once__index_header_t, pages_used);

    if (end > ONCE__INDEX_PAGES) {
        return -1;
    }
    for (uint32_t at = (uint32_t)(old / ONCE__INDEX_PAGE) / BITS_PAGE; at <= (end - 1) / BITS_PAGE;
         at++) {
        uint64_t from = bits + (uint64_t)at * ONCE__INDEX_PAGE;
        if (once__index_reserve(index->fd, from, from + ONCE__INDEX_PAGE) != 0) {
            return -1;
        }
    }
    if (once__index_reserve(index->fd, old, (uint64_t)end * ONCE__INDEX_PAGE) != 0) {
        return -1;
    }
    atomic_store(&map->end, (uint64_t)end * ONCE__INDEX_PAGE);
    return 0;
}

uint32_t once__pages_take(once__index_t *index, uint32_t count)
{
    once__index_header_t *map = index->map;
    uint32_t end, first, result = 0;

    lock(&map->grow_lock);
    end = (uint32_t)(atomic_load(&map->end) / ONCE__INDEX_PAGE);
    first = find_run(map, map->free_page, end, count);
    if (first + count <= end || grow(index, first + (count > GROW ? count : GROW)) == 0 ||
        grow(index, first + count) == 0) {
        for (uint32_t page = first; page < first + count; page++) {
            map->pages_used[page / 64] |= bit(page);
        }
        result = first;
        if (first == map->free_page) {
            map->free_page = first + count;
        }
    }
    (void)pthread_mutex_unlock(&map->grow_lock);
    if (result != 0) {
        memset((char *)map + (uint64_t)result * ONCE__INDEX_PAGE, 0,
               (size_t)count * ONCE__INDEX_PAGE);
    }
    return result;
}

int once__pages_hold(const once__index_header_t *map, uint64_t table)
{
    uint64_t at = (table >> 24) * 16;
    uint32_t first = (uint32_t)(at / ONCE__INDEX_PAGE);
    uint32_t count = (uint32_t)(once__table_size(table) * sizeof(once__slot_t) / ONCE__INDEX_PAGE);

    if (at < offsetof(once__index_header_t, pages_used)) {
        return 1;
    }
    for (uint32_t page = first; page < first + count; page++) {
        if (!is_used(map, page)) {
            return 0;
        }
    }
    return at >= sizeof(*map) && at % ONCE__INDEX_PAGE == 0 && count > 0;
}

void once__pages_give(once__index_t *index, uint32_t first, uint32_t count)
{
    once__index_header_t *map = index->map;

    lock(&map->grow_lock);
    for (uint32_t page = first; page < first + count; page++) {
        map->pages_used[page / 64] &= ~bit(page);
    }
    if (first < map->free_page) {
        map->free_page = first;
    }
    (void)pthread_mutex_unlock(&map->grow_lock);
}
