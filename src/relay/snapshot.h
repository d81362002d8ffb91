/*
 * PostgreSQL's snapshots as text: "xmin:xmax:xid,xid,..." (the type pg_snapshot).
 */
#ifndef ONCE_RELAY_SNAPSHOT_H
#define ONCE_RELAY_SNAPSHOT_H

#include <stddef.h>
#include <stdint.h>

/* The first transaction id that had not begun; 0: the text is none. */
uint64_t once__relay_snapshot_xmax(const char *text);

/* The transactions that were under way, one after the other: begin with *at NULL. 0: there are no more. */
uint64_t once__relay_snapshot_next(const char *text, const char **at);

#endif
