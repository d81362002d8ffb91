/*
 * Public structs that can grow. Each begins with `size`, which the caller's compiler sets (ONCE_..._INIT); members are only ever
 * added at the end. So a program built against an older or newer header works with this library: what both sides know is copied,
 * the rest counts as zero. The structs end without padding, which a new member could slip into without a change of `size`.
 */
#ifndef ONCE_CORE_SIZED_H
#define ONCE_CORE_SIZED_H

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include <once/error.h>

/* The size that the struct had in its first version, by the last member of then. Never changes. */
#define ONCE__SIZE_V1(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))

#define ONCE__ASK_V1                   ONCE__SIZE_V1(once_ask_t, subject)
#define ONCE__RESPONSE_V1              ONCE__SIZE_V1(once_response_t, retain_ms)
#define ONCE__ATTEMPT_V1               ONCE__SIZE_V1(once_attempt_t, holder)
#define ONCE__SETTLE_V1                ONCE__SIZE_V1(once_settle_t, force)
#define ONCE__FILTER_V1                ONCE__SIZE_V1(once_filter_t, subject_hash)
#define ONCE__USAGE_V1                 ONCE__SIZE_V1(once_usage_t, messages_behind_ms)
#define ONCE__KEY_PARTS_V1             ONCE__SIZE_V1(once_key_parts_t, bucket_ms)
#define ONCE__LOCAL_FSCK_OPTIONS_V1    ONCE__SIZE_V1(once_local_fsck_options_t, data)
#define ONCE__LOCAL_FSCK_REPORT_V1     ONCE__SIZE_V1(once_local_fsck_report_t, lost_unknown)
#define ONCE__LOCAL_BACKUP_OPTIONS_V1  ONCE__SIZE_V1(once_local_backup_options_t, data)
#define ONCE__LOCAL_BACKUP_REPORT_V1   ONCE__SIZE_V1(once_local_backup_report_t, damaged)
#define ONCE__LOCAL_CONVERT_OPTIONS_V1 ONCE__SIZE_V1(once_local_convert_options_t, data)
#define ONCE__LOCAL_CONVERT_REPORT_V1  ONCE__SIZE_V1(once_local_convert_report_t, left_out)
#define ONCE__ACT_V1                   ONCE__SIZE_V1(once_act_t, of)
#define ONCE__PG_EVENT_V1              ONCE__SIZE_V1(once_pg_event_t, claim)

/* What the caller says its struct measures; 0 for NULL. `size` is the first member of all of them. */
static inline size_t once__sized(const void *theirs)
{
    size_t size = 0;

    if (theirs != NULL) {
        memcpy(&size, theirs, sizeof(size));
    }
    return size;
}

/* Copies the caller's struct to ours, whose `size` becomes its own. ONCE_E_INVALID: it is NULL, or smaller than version 1. */
static inline int once__sized_read(void *ours, size_t our_size, size_t v1, const void *theirs)
{
    size_t size = once__sized(theirs);

    assert(v1 <= our_size);
    if (size < v1) {
        return ONCE_E_INVALID;
    }
    if (size < our_size) {
        memset((char *)ours + size, 0, our_size - size);
    }
    memcpy(ours, theirs, size < our_size ? size : our_size);
    memcpy(ours, &our_size, sizeof(our_size));
    return ONCE_OK;
}

/* Fills the caller's struct from ours, up to its `size`, which stays. ONCE_E_INVALID as above: nothing is written then. */
static inline int once__sized_write(void *theirs, size_t v1, const void *ours, size_t our_size)
{
    size_t size = once__sized(theirs);

    assert(v1 <= our_size);
    if (size < v1) {
        return ONCE_E_INVALID;
    }
    if (size > our_size) {
        memset((char *)theirs + our_size, 0, size - our_size);
    }
    memcpy((char *)theirs + sizeof(size), (const char *)ours + sizeof(size),
           (size < our_size ? size : our_size) - sizeof(size));
    return ONCE_OK;
}

#endif
