/*
 * One record of a local store, read and written: what deciding (decide.c), carrying and sweeping (carry.c) and looking at all of
 * them (scan.c) have in common.
 */
#ifndef ONCE_STORE_LOCAL_DECIDE_INSIDE_H
#define ONCE_STORE_LOCAL_DECIDE_INSIDE_H

#include "store/local/decide.h"

/* The newest state of a record, and where the index has it. */
typedef struct once__current {
    int found;
    uint64_t cursor;
    once__entry_t entry;
    /* As the log has it, and what it says: both point into the log's buffer, valid until the next read. */
    once__frame_t frame;
    once__record_t record;
} once__current_t;

/* Somebody may be at work on it. */
static inline int once__is_held(uint8_t state)
{
    return state == ONCE_STATE_PENDING || state == ONCE_STATE_UNKNOWN;
}

/* Decodes what a frame holds. A lease of another boot is over. */
int once__records_decode(const once__records_t *records, once__place_t place,
                         const once__frame_t *frame, once__record_t *record);

/* Reads the record of an entry, durable or not. ONCE_OK; ONCE_E_NOT_FOUND: it is gone; or why it cannot be read. */
int once__records_read(once__records_t *records, const once__entry_t *entry,
                       once__record_t *record);

/* The shard is locked. ONCE_OK also when there is none; ONCE_E_CORRUPT and the like: it cannot be known. */
int once__records_load(const once__records_t *records, const uint8_t *id, once__current_t *current);

/* The segment that the next frame must not be before. */
uint32_t once__records_not_before(const once__records_t *records, const uint8_t *id,
                                  const once__current_t *current);

/* Appends the frame of `next` (NULL: removed) and points the index to it. */
int once__records_publish(const once__records_t *records, const uint8_t *id,
                          const once__current_t *current, const once__record_t *next);

#endif
