/*
 * The pages of the index file that tables are made of: taken and given back in runs, found again by a bitmap in the index itself.
 *
 * A process that is killed in between leaves bits set for pages that nobody uses: they are lost until the index is made anew,
 * and nothing else is wrong.
 */
#ifndef ONCE_STORE_LOCAL_INDEX_PAGES_H
#define ONCE_STORE_LOCAL_INDEX_PAGES_H

#include "store/local/index_file.h"

/* The first of `count` pages in a row, zeroed, with real room behind them. 0: there is no room. */
uint32_t once__pages_take(once__index_t *index, uint32_t count);

/* Are the pages of this table taken? The shards' first tables have none. */
int once__pages_hold(const once__index_header_t *map, uint64_t table);

void once__pages_give(once__index_t *index, uint32_t first, uint32_t count);

#endif
