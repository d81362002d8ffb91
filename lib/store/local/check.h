/*
 * A check of the whole store: the log is read, and the index is compared with it. Changes nothing.
 */
#ifndef ONCE_STORE_LOCAL_CHECK_H
#define ONCE_STORE_LOCAL_CHECK_H

#include <once/local.h>

#include "store/local/directory.h"
#include "store/local/extent.h"
#include "store/local/image.h"
#include "store/local/newest.h"

typedef struct once__checked {
    uint32_t number;
    int gap;            /* the one before it is missing */
    int ended;          /* its writer is gone */
    int sealed;         /* nobody will add to it: all of it was read */
    int broken;         /* must be written anew */
    int misled;         /* its summary is wrong, and would be believed */
    uint64_t created;   /* 0: not known */
    uint64_t next;      /* read up to here */
    uint64_t last;      /* the last frame; 0: none */
    uint64_t watermark; /* of that */
} once__checked_t;

typedef struct once__check {
    once__directory_t *directory;
    const once_local_fsck_options_t *how;
    once_local_fsck_report_t *report;
    once_error_t *err;
    once__checked_t *segments; /* in order */
    size_t count;
    once__newest_t newest;
    uint64_t now;   /* the store's clock, or nearly */
    uint32_t first; /* what is before it has been dropped */
    uint64_t done, total;
} once__check_t;

/* Reads every segment; called again, what was added since. ONCE_OK, or why it could not be read (the text is set). */
int once__check_log(once__check_t *check);

/* Compares the summary of a segment, if it has one that would be believed, with all of the segment. */
void once__check_summary(const once__check_t *check, once__checked_t *segment,
                         const once__image_t *image);

/* The segment's entry; NULL: it was not read. */
once__checked_t *once__check_segment(const once__check_t *check, uint32_t number);

/* Compares the index with what was read, if there is one to compare. Takes the shared lock unless `alone`. Errors as above. */
int once__check_index(once__check_t *check, int alone);

/* Tells of segments that must exist and do not, before the first one that was read and behind the last. */
void once__check_ends(once__check_t *check, const once__extent_t *extent);

/* Puts right what was found. The caller has the store to himself; the index is gone then. Errors as above. */
int once__check_repair(once__check_t *check);

/* Tells of something. `text` is for people. */
void once__check_found(const once__check_t *check, const once_local_finding_t *finding,
                       const char *format, ...) ONCE_PRINTF(3, 4);

void once__check_free(once__check_t *check);

#endif
