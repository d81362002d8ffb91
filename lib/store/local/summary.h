/*
 * The summary of a finished segment: what the index needs to know of it, so that a rebuild need not read the segment
 * (docs/format.md, "Summaries"). Disposable: one that is missing, torn, of another segment or older than
 * its segment is as good as none.
 */
#ifndef ONCE_STORE_LOCAL_SUMMARY_H
#define ONCE_STORE_LOCAL_SUMMARY_H

#include "store/local/index.h"

#define ONCE__SUMMARY_HEADER 64
#define ONCE__SUMMARY_ENTRY  16

typedef struct once__summary {
    uint8_t *bytes; /* as in the file */
    size_t size, room;
    uint32_t count;
    uint64_t end;         /* of the segment's frames */
    uint64_t frames;      /* in it */
    uint64_t last_expiry; /* of any of them */
    uint64_t latest;      /* time that any of them knows of */
} once__summary_t;

/* The newest frame of one record in the segment. */
typedef struct once__summary_entry {
    uint64_t key; /* the part of its id that the index has */
    uint16_t shard;
    uint64_t offset;
    uint8_t state; /* ONCE_STATE_NONE: removed */
} once__summary_entry_t;

void once__summary_entry(const once__summary_t *summary, uint32_t i, once__summary_entry_t *entry);

/*
 * Makes the summary of a segment that is all in memory. ONCE_OK; ONCE_E_CORRUPT: something in it is damaged (or two of its records
 * can only be told apart by all of their ids), so it gets none; ONCE_E_NOMEM.
 */
int once__summary_build(once__summary_t *summary, uint32_t number, const uint8_t *data,
                        uint64_t size);

/*
 * Reads the summary of a segment. ONCE_OK; ONCE_E_NOT_FOUND; ONCE_E_CORRUPT: it is not sound; ONCE_E_CONFLICT: it is, but the
 * segment is another one or has more frames; ONCE_E_IO; ONCE_E_NOMEM.
 */
int once__summary_read(once__summary_t *summary, int segments_fd, uint32_t number);

void once__summary_free(once__summary_t *summary);

/* Are the bytes a summary that makes sense? Trusts nothing. 1 or 0. For summary_read, and for tests. */
int once__summary_parse(once__summary_t *summary, uint32_t number);

/* Writes the summary of a sealed segment, if there is none. Costs a reading of it. Errors as build; ONCE_E_IO, ONCE_E_FULL. */
int once__summary_make(int segments_fd, uint32_t number);

/*
 * The first sealed segment from `*from` on that has none; 0: there is none. `*from`, 0 at first, moves on behind what was looked at
 * and will not change: a segment that cannot have a summary is tried once.
 */
uint32_t once__summaries_next(int segments_fd, const once__index_t *index, uint32_t *from);
int once__summaries_wanted(int segments_fd, const once__index_t *index, uint32_t from); /* 1 or 0 */

/* Those of all sealed segments that have none, until `*stop`. */
void once__summaries_make(int segments_fd, const once__index_t *index, uint32_t *from,
                          const _Atomic int *stop);

void once__summary_remove(int segments_fd, uint32_t number);

#endif
