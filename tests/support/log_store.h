/*
 * A store without records, for tests of the log: an index, and two logs over a disk that counts, and fails when told to.
 */
#ifndef TESTS_SUPPORT_LOG_STORE_H
#define TESTS_SUPPORT_LOG_STORE_H

#include "store/local/log_inside.h"

#define SEGMENT ((uint64_t)64 << 10)
#define FOREVER (UINT64_MAX / 2)

typedef struct store {
    char path[64];
    int fd, segments_fd;
    once__index_t *index;
    once__disk_t disk;
    unsigned syncs, directory_syncs, allocations;
    unsigned fail_sync, fail_directory_sync, fail_allocate,
        fail_write; /* the n-th from now on, and all after it */
    int write_errno;
    size_t short_write; /* at most as many bytes; 0: all */
    uint64_t bytes;     /* written */
    int sealed_early;   /* a sync of a segment that had its seal already */
    once__log_t *logs[2];
} store_t;

extern const uint8_t store_id[ONCE_ID_SIZE]; /* of all that store_append appends */

/* For cmocka: `*state` is the store. */
int store_setup(void **state);
int store_teardown(void **state);

/* One more log over the same disk; the caller's. */
once__log_t *store_open_log(store_t *store, uint64_t segment_size);

/* A completed record with `len` bytes of response, kept until `expires`. */
int store_append(once__log_t *log, size_t len, uint64_t expires, uint32_t not_before,
                 once__place_t *place);
/* What is at the place has this many bytes. */
void store_check_read(once__log_t *log, once__place_t place, size_t len);

/* The descriptor of a segment's file, the caller's; -1: there is none. */
int store_open_segment(const store_t *store, uint32_t number);
/* Frames in it; `*sealed`: whether the last is a seal. */
unsigned store_frames(const store_t *store, uint32_t number, int *sealed);

/* Drops the oldest segment when it may go at `now`; nothing is carried. */
int store_drop(once__log_t *log, uint64_t now);

#endif
