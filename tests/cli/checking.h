/*
 * Stores for once fsck: their segments and frames, and what it says of them.
 */
#ifndef TESTS_CLI_CHECKING_H
#define TESTS_CLI_CHECKING_H

#include "harness.h"

#include "local.h"
#include "store/local/frame.h"

#define MANY 120

typedef struct bytes {
    uint8_t *data; /* the caller's */
    size_t len;
} bytes_t;

bytes_t read_bytes(const char *path);
/* In place: the file stays the same one. */
void write_bytes(const char *path, const bytes_t *bytes);

/* The path of a segment; in one buffer. */
const char *segment(const place_t *place, uint64_t number);
uint64_t last_segment(const place_t *place);
/*
 * Where the n-th frame of a segment begins (from 0), or where the first place without one is: n = -1. The frame is valid until the
 * next call.
 */
uint64_t find_frame(const place_t *place, uint64_t number, int n, once__frame_t *frame);

void complete_many(once_t *once, const char *prefix, int count);
int count_completed(const place_t *place, const char *prefix, int count);
/* MANY completed records in several small segments, closed. */
void make_many(place_t *place);
/* For a companion: has the store open, with a record of its own, until it is stopped. `data` is the place. */
int hold(int ready, int until, void *data);

run_t fsck(const place_t *place);
/* fsck says 0 and tells of nothing that is wrong. */
void assert_in_order(const place_t *place);
json_t *fsck_json(const place_t *place, int expected);
/* fsck --repair tells this, and all is in order after that. */
void repair(const place_t *place, const char *told);

#endif
