/*
 * once/local.h - maintenance of a local store (`local:PATH`): check, repair, back up, convert.
 *
 * Normal operation needs none of this: whatever state a store was left in, the next program that opens it puts it in order. These
 * functions need no handle, and all of them block. `url` is the URL of the store as for once_open; of its options, `index` and
 * `filesystem` count.
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
 * Finds out whether there is a store, without creating one as once_open would. Returns ONCE_OK, ONCE_E_NOT_FOUND,
 * ONCE_E_UNSUPPORTED if the URL is not that of a local store, or why the store cannot be opened.
 */
ONCE_API ONCE_MUST_CHECK int once_local_exists(const char *url, once_error_t *err);

/*
 * Writes the directory of the store to `path`, at most `size` bytes including the terminator; touches no files. Returns ONCE_OK,
 * ONCE_E_UNSUPPORTED if the URL is not that of a local store, ONCE_E_TOO_BIG if the path does not fit, ONCE_E_CONFIG if the URL
 * cannot be read, ONCE_E_INVALID for NULL, or ONCE_E_NOMEM. On an error nothing is written.
 */
ONCE_API ONCE_MUST_CHECK int once_local_path(const char *url, char *path, size_t size);

/* ------------------------------------------------------------------------------------------------------------- check */

/* Something that is wrong, or good to know. */
typedef struct once_local_finding {
    /*
     * a static string: missing, header, unreadable (a segment), damage (a range, of unknown records), record (a damaged
     * one), manifest, index, torn, leftover
     */
    const char *kind;
    int harmless;     /* nothing that was acknowledged is affected */
    uint64_t segment; /* its number; 0: none */
    uint64_t offset;  /* in the file of the segment */
    uint64_t length;  /* bytes from there; 0: no range */
    const char *text; /* one line for people; valid until the callback returns */
} once_local_finding_t;

typedef struct once_local_fsck_options {
    size_t size; /* set by ONCE_LOCAL_FSCK_OPTIONS_INIT */
    int repair;  /* repair what is wrong; no other program may use the store meanwhile */
    void (*found)(const once_local_finding_t *finding, void *data); /* may be NULL */
    void (*progress)(uint64_t done, uint64_t total, void *data);    /* bytes; may be NULL */
    void *data;
} once_local_fsck_options_t;

#define ONCE_LOCAL_FSCK_OPTIONS_INIT                                                               \
    {                                                                                              \
        sizeof(once_local_fsck_options_t), 0, 0, 0, 0                                              \
    }

/* What became of the comparison of the index with the log. */
typedef enum once_local_index {
    ONCE_LOCAL_INDEX_OK = 0,
    ONCE_LOCAL_INDEX_DIFFERS = 1,
    ONCE_LOCAL_INDEX_NONE = 2, /* there is none: the next program that opens the store makes it */
    ONCE_LOCAL_INDEX_LEFT = 3, /* no program uses it: the next one compares it with the log */
} once_local_index_t;

typedef struct once_local_fsck_report {
    size_t size;       /* set by ONCE_LOCAL_FSCK_REPORT_INIT */
    uint64_t problems; /* findings that are not harmless */
    uint64_t left;     /* of these, those that are still there: all of them without repair */

    uint64_t segments, segment_bytes;
    uint64_t writing;                /* segments that programs are writing to */
    uint64_t frames;                 /* valid ones */
    uint64_t missing;                /* segments */
    uint64_t damaged, damaged_bytes; /* ranges and records that were durable and cannot be read */
    uint64_t torn;                   /* segments that end in something that never became durable */

    uint64_t pending, completed, failed, unknown; /* records */
    uint64_t expired; /* not yet removed; counted in none of the above */
    uint64_t newer;   /* of the above, those that only a newer version can read completely */

    once_local_index_t index;
    uint64_t index_bytes;                   /* of memory */
    uint64_t quarantined, quarantine_bytes; /* files */

    int lost_known; /* there was an index to tell what was lost: records whose newest state is gone, by that state */
    uint64_t lost_pending, lost_completed, lost_failed, lost_unknown;
} once_local_fsck_report_t;

#define ONCE_LOCAL_FSCK_REPORT_INIT                                                                \
    {                                                                                              \
        sizeof(once_local_fsck_report_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,          \
            ONCE_LOCAL_INDEX_OK, 0, 0, 0, 0, 0, 0, 0, 0                                            \
    }

/*
 * Checks every frame of the log and compares the index with it. Without `repair` nothing is changed, and other programs can go on
 * using the store; what they write meanwhile may or may not be checked. Returns ONCE_OK if the check could be made: report->left
 * says what is wrong. Otherwise ONCE_E_INVALID if a struct was not set up, ONCE_E_NOT_FOUND, ONCE_E_NEWER, ONCE_E_CONFLICT (repair
 * while other programs use the store; nothing was changed), or as once_open.
 *
 * Repair strikes missing segments off the manifest, covers damaged ranges and records in their segments (a copy goes to
 * quarantine/), rewrites a manifest that is missing or too old from the files, and makes a new index. What was lost is lost:
 * keys whose records were there count as never used, or are as they were before.
 */
ONCE_API ONCE_MUST_CHECK int once_local_fsck(const char *url, const once_local_fsck_options_t *how,
                                             once_local_fsck_report_t *report, once_error_t *err);

/* ------------------------------------------------------------------------------------------------------------ backup */

typedef struct once_local_backup_options {
    size_t size; /* set by ONCE_LOCAL_BACKUP_OPTIONS_INIT */
    void (*progress)(uint64_t done, uint64_t total, void *data); /* segments; may be NULL */
    void *data;
} once_local_backup_options_t;

#define ONCE_LOCAL_BACKUP_OPTIONS_INIT                                                             \
    {                                                                                              \
        sizeof(once_local_backup_options_t), 0, 0                                                  \
    }

typedef struct once_local_backup_report {
    size_t size; /* set by ONCE_LOCAL_BACKUP_REPORT_INIT */
    int secrets; /* 0: the store has none: they are in a file, which must be copied as well */
    uint64_t segments, bytes; /* of the copy */
    uint64_t damaged;         /* ranges in it that cannot be read, as in the store */
} once_local_backup_report_t;

#define ONCE_LOCAL_BACKUP_REPORT_INIT                                                              \
    {                                                                                              \
        sizeof(once_local_backup_report_t), 0, 0, 0, 0                                             \
    }

/*
 * Copies the store to the directory `destination`, which must be empty or not exist, while other programs use it. The copy has
 * everything that was acknowledged before the call, and is a store itself: `local:DESTINATION` opens it. It contains the secrets
 * and the stored responses: protect it like the store. On an error nothing is left behind. `options` and `report` may be NULL.
 */
ONCE_API ONCE_MUST_CHECK int once_local_backup(const char *url, const char *destination,
                                               const once_local_backup_options_t *options,
                                               once_local_backup_report_t *report,
                                               once_error_t *err);

/* ----------------------------------------------------------------------------------------------------------- convert */

typedef struct once_local_convert_options {
    size_t size;     /* set by ONCE_LOCAL_CONVERT_OPTIONS_INIT */
    int accept_loss; /* leave out what is damaged or missing: those keys count as never used */
    int reserved;    /* 0 */
    void (*progress)(uint64_t done, uint64_t total, void *data); /* bytes; may be NULL */
    void *data;
} once_local_convert_options_t;

#define ONCE_LOCAL_CONVERT_OPTIONS_INIT                                                            \
    {                                                                                              \
        sizeof(once_local_convert_options_t), 0, 0, 0, 0                                           \
    }

typedef struct once_local_convert_report {
    size_t size;        /* set by ONCE_LOCAL_CONVERT_REPORT_INIT */
    uint64_t converted; /* 1; 0: it had the format of this version already */
    uint64_t records;
    uint64_t left_out; /* damaged ranges, records and segments */
} once_local_convert_report_t;

#define ONCE_LOCAL_CONVERT_REPORT_INIT                                                             \
    {                                                                                              \
        sizeof(once_local_convert_report_t), 0, 0, 0                                               \
    }

/*
 * Gives a store that an earlier version made the format of this one. No other program may use it meanwhile (ONCE_E_CONFLICT). Needs
 * as much room as the log has. When it is interrupted at any point, call it again; until it is done, no program opens the store or
 * all see it as it was. ONCE_E_CORRUPT: the log is damaged, and nothing was changed. `options` and `report` may be NULL.
 */
ONCE_API ONCE_MUST_CHECK int once_local_convert(const char *url,
                                                const once_local_convert_options_t *options,
                                                once_local_convert_report_t *report,
                                                once_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
