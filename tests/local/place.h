/*
 * Directories for stores under test, and handles over them with a disk of the test's own.
 */
#ifndef TESTS_LOCAL_PLACE_H
#define TESTS_LOCAL_PLACE_H

#include "files.h"

#include "store/local/log.h"
#include "store/local/directory.h"

/* An empty directory, in memory where that can be: nothing here needs a real disk. The store is made below it. */
void place_make(char path[PLACE_SIZE]);
/* Copies a directory with all files. `to` must not exist. */
void place_copy(const char *from, const char *to);
/* How many files of segments/ end so; their names can be told by opening them. */
unsigned place_count(const char *store, const char *folder, const char *suffix);

/* Opens the store at `path`; `query` as in a URL or NULL; `disk` NULL: the real one. ONCE_OK or why not. */
int place_try(const char *path, const char *query, const once__disk_t *disk, once_t **handle,
              once_error_t *err);
/* The same, and it must work. */
once_t *place_open(const char *path, const char *query, const once__disk_t *disk);

/* The index of a store that is open: for its clock and its counters. */
typedef struct peek {
    once__directory_t directory;
    once__index_t *index;
} peek_t;

void peek_open(peek_t *peek, const char *path);
void peek_close(peek_t *peek);
/* Sets the store's clock. */
void peek_set_now(const peek_t *peek, uint64_t now);
/* Segments in this state. */
unsigned peek_count(const peek_t *peek, once__segment_state_t state);
/* Frames that are damaged, by a look at each segment's mark. */
unsigned peek_damaged(const peek_t *peek);
/* Segments that were dropped so far, by the manifest. */
unsigned peek_dropped(const peek_t *peek);

/* Removes the index that killed processes left: as if the machine had stopped. */
void place_forget_index(const char *path);

/* Calls `each` for every frame of a segment of a store, also for the one that seals. Returns how many. */
typedef void (*place_frame_cb)(void *data, uint64_t offset, const once__frame_t *frame);
size_t place_frames(const char *path, uint64_t number, place_frame_cb each, void *data);
/* Changes a bit of a segment's file. */
void place_flip(const char *path, uint64_t number, uint64_t bit);
/* The name of its file. */
void place_segment(char out[PLACE_SIZE], const char *path, uint64_t number);

/* ---- asking, blocking ---- */

typedef struct told {
    int error;
    once_outcome_t outcome;
    once_claim_t *claim; /* with run; the caller's */
    once_state_t state;  /* of the record; NONE when there was none */
    uint32_t epoch;
    uint8_t claim_id[ONCE_CLAIM_ID_SIZE];
    int status;
    uint64_t lease_ms;
    int reapable; /* a reaper may take it away */
    size_t body_len;
    uint32_t body_sum; /* CRC-32C of the stored response's body */
    char token[ONCE_TOKEN_SIZE];
} told_t;

void told_from(told_t *told, once_answer_t *answer);

/* `policy` as once_policy_parse takes it, or NULL. */
told_t ask(once_t *once, const char *key, const char *policy);
told_t complete(once_claim_t *claim, int status, const void *body, size_t len);
/* Both; the response has `len` bytes (at most 100,000) that nothing can compress. */
void do_with_body(once_t *once, const char *key, int status, size_t len);
told_t get(once_t *once, const char *key);
int reap(once_t *once, uint64_t *count);

/* Begins without waiting. */
int ask_later(once_t *once, const char *key, const char *policy, once_cb cb, void *data);

#endif
