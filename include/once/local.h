/*
 * once/local.h - looking after a local store (`local:PATH`): check, repair, copy.
 *
 * None of this needs a handle, and none of it is needed in normal operation: a store that was left in any way is put in order by
 * the next program that opens it. Every function blocks. `url` is that of the store, as for once_open; its options are ignored.
 */
#ifndef ONCE_LOCAL_H
#define ONCE_LOCAL_H

#include <stddef.h>
#include <stdint.h>

#include <once/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Is there a store? Changes nothing, where once_open would make one. ONCE_OK; ONCE_E_NOT_FOUND; ONCE_E_UNSUPPORTED: not the URL of
 * a local store; or why it cannot be opened.
 */
ONCE_API ONCE_MUST_CHECK int once_local_exists(const char *url, once_error_t *err);

/* ------------------------------------------------------------------------------------------------------------- check */

/* Something that is not as it should be, or is worth knowing. */
typedef struct once_local_finding {
    const char *
        kind; /* missing, header, damage, unreadable, watermark, order, index, summary, torn, leftover: a static string */
    int harmless;     /* nothing that was acknowledged is concerned */
    uint32_t segment; /* 0: none */
    uint64_t offset;  /* in the segment's file */
    uint64_t length;  /* bytes from there; 0: no range */
    const char *text; /* for people: one line; until the call returns */
} once_local_finding_t;

typedef struct once_local_fsck_options {
    size_t size; /* sizeof(once_local_fsck_options_t): set by ONCE_LOCAL_FSCK_OPTIONS_INIT */
    int repair;  /* put right what is not; nobody else may use the store meanwhile */
    void (*found)(const once_local_finding_t *finding, void *data); /* may be NULL */
    void (*progress)(uint64_t done, uint64_t total, void *data);    /* bytes; may be NULL */
    void *data;
} once_local_fsck_options_t;

#define ONCE_LOCAL_FSCK_OPTIONS_INIT                                                               \
    {                                                                                              \
        sizeof(once_local_fsck_options_t), 0, 0, 0, 0                                              \
    }

/* Whether the index was compared with the log. */
typedef enum once_local_index {
    ONCE_LOCAL_INDEX_OK = 0,
    ONCE_LOCAL_INDEX_DIFFERS = 1,
    ONCE_LOCAL_INDEX_NONE =
        2, /* none that can be used: the next program that opens the store makes it anew */
    ONCE_LOCAL_INDEX_LEFT = 3, /* left by an earlier boot: not compared */
} once_local_index_t;

typedef struct once_local_fsck_report {
    size_t size;       /* sizeof(once_local_fsck_report_t): set by ONCE_LOCAL_FSCK_REPORT_INIT */
    uint64_t problems; /* findings that are not harmless */
    uint64_t left;     /* those of them that are still there: all without repair */

    uint64_t segments, segment_bytes;
    uint64_t writing;                /* segments that a program is writing to */
    uint64_t frames;                 /* valid ones */
    uint64_t missing;                /* segments */
    uint64_t damaged, damaged_bytes; /* ranges that were durable and cannot be read */
    uint64_t torn;                   /* segments that end in something that never became durable */

    uint64_t pending, completed, failed, unknown; /* records */
    uint64_t expired; /* not yet removed; counted in none of the above */
    uint64_t newer;   /* those of the above that only a newer version can read whole */

    once_local_index_t index;
    uint64_t index_bytes;
    uint64_t spares, spare_bytes;
    uint64_t quarantined, quarantine_bytes; /* files */

    int lost_known; /* there was an index to tell what was lost: records whose newest state is gone, by that state */
    uint64_t lost_pending, lost_completed, lost_failed, lost_unknown;
} once_local_fsck_report_t;

#define ONCE_LOCAL_FSCK_REPORT_INIT                                                                \
    {                                                                                              \
        sizeof(once_local_fsck_report_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,          \
            ONCE_LOCAL_INDEX_OK, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                                      \
    }

/*
 * Reads the whole log, checks every frame, and compares the index with it. Without `repair` nothing is changed, and other programs
 * may go on using the store; what they write meanwhile is looked at or not. ONCE_OK: see report->left. Otherwise it could not be
 * checked: ONCE_E_NOT_FOUND, ONCE_E_NEWER, ONCE_E_CONFLICT (repair: other programs use it; nothing was changed), or as once_open.
 *
 * Repair replaces each missing segment by an empty one, takes damaged ranges out of their segments (a copy goes to quarantine/),
 * and makes the index anew. What was lost is lost: keys whose records were there count as never used, or are as they were before.
 */
ONCE_API ONCE_MUST_CHECK int once_local_fsck(const char *url, const once_local_fsck_options_t *how,
                                             once_local_fsck_report_t *report, once_error_t *err);

/* ------------------------------------------------------------------------------------------------------------ backup */

typedef struct once_local_backup_options {
    size_t size; /* sizeof(once_local_backup_options_t): set by ONCE_LOCAL_BACKUP_OPTIONS_INIT */
    void (*progress)(uint64_t done, uint64_t total, void *data); /* segments; may be NULL */
    void *data;
} once_local_backup_options_t;

#define ONCE_LOCAL_BACKUP_OPTIONS_INIT                                                             \
    {                                                                                              \
        sizeof(once_local_backup_options_t), 0, 0                                                  \
    }

typedef struct once_local_backup_report {
    size_t size; /* sizeof(once_local_backup_report_t): set by ONCE_LOCAL_BACKUP_REPORT_INIT */
    int secrets; /* 0: the store has none of its own; they are in a file that must be copied, too */
    uint64_t segments, bytes; /* of the copy */
    uint64_t damaged;         /* ranges in it that cannot be read, as in the store */
} once_local_backup_report_t;

#define ONCE_LOCAL_BACKUP_REPORT_INIT                                                              \
    {                                                                                              \
        sizeof(once_local_backup_report_t), 0, 0, 0, 0                                             \
    }

/*
 * Copies the store to the directory `destination`, which must not exist or be empty, while other programs use it. Everything that
 * was acknowledged before the call is in the copy. The copy is a store: `local:DESTINATION` opens it. It holds the secrets and
 * the stored responses, and must be kept like the store itself. On an error nothing is left behind. `options` and `report` may be
 * NULL.
 */
ONCE_API ONCE_MUST_CHECK int once_local_backup(const char *url, const char *destination,
                                               const once_local_backup_options_t *options,
                                               once_local_backup_report_t *report,
                                               once_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
