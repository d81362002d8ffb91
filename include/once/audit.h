/*
 * once/audit.h - the audit trail: what people have decided about records, kept in the store that the records are in.
 *
 * A program that acts for a person names the person and the reason (once_audit_as). From then on every once_record_settle and
 * once_record_purge of the handle leaves two entries in the trail: the intent, before anything is changed, and the result. An
 * intent without a result means that the program ended between them: look at the record.
 *
 * An entry is never changed or removed. Each carries a hash of the one before it, so that a changed or missing entry is noticed
 * (once_audit_scan, `once audit verify`). A trail whose last entries are missing looks like a shorter one, and a user that may
 * write to the store can rewrite all of it: keep the hash of the last entry elsewhere.
 */
#ifndef ONCE_AUDIT_H
#define ONCE_AUDIT_H

#include <once/once.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ONCE_AUDIT_BY_MAX     128 /* bytes of a name */
#define ONCE_AUDIT_OBJECT_MAX 512 /* bytes of what an act is about */
#define ONCE_AUDIT_HASH_SIZE  32  /* bytes of an entry's hash */

/*
 * Names the person for whom this handle acts from now on, and the reason (at most ONCE_NOTE_MAX bytes, no personal data): both are
 * copied, and used by the calls made after this one. With an empty `by`, as in a new handle, nothing is recorded: for programs
 * that decide by themselves. ONCE_E_INVALID if there is a name without a reason, or if one is too long.
 */
ONCE_API ONCE_MUST_CHECK int once_audit_as(once_t *once, once_slice_t by, once_slice_t note);

typedef struct once_act {
    size_t size;      /* set by ONCE_ACT_INIT */
    const char *name; /* what is done, such as "dlq replay": 1 to 32 printable ASCII characters */
    once_slice_t object; /* to what; at most ONCE_AUDIT_OBJECT_MAX bytes */
    once_slice_t result; /* what became of it; empty: this is the intent */
    uint64_t of;         /* with a result: the number of the intent */
} once_act_t;

#define ONCE_ACT_INIT                                                                              \
    {                                                                                              \
        sizeof(once_act_t), 0, {0, 0}, {0, 0}, 0                                                   \
    }

/*
 * Adds an entry about something other than a record, for the person of once_audit_as (ONCE_E_INVALID without one). The entry is
 * durable when `cb` is called; once_answer_count is its number.
 */
ONCE_API ONCE_MUST_CHECK int once_audit_add(once_t *once, const once_act_t *act, once_cb cb,
                                            void *data);
ONCE_API ONCE_MUST_CHECK int once_audit_add_sync(once_t *once, const once_act_t *act,
                                                 once_answer_t **answer);

typedef enum once_audit_fault {
    ONCE_AUDIT_FINE = 0,
    ONCE_AUDIT_UNREADABLE = 1, /* it is not an entry */
    ONCE_AUDIT_CHANGED = 2,    /* its hash is not that of its content */
    ONCE_AUDIT_MISSING = 3,    /* entries before it are missing or out of place */
    ONCE_AUDIT_REPLACED = 4,   /* the entry before it is not the one that it was written after */
} once_audit_fault_t;

/* "fine", "unreadable", ... Static strings. */
ONCE_API const char *once_audit_fault_name(once_audit_fault_t fault);

typedef struct once_audit_entry {
    uint64_t number;     /* 1, 2, 3, ...; 0: unreadable */
    once_slice_t json;   /* an object; the whole line if it is unreadable */
    const uint8_t *hash; /* ONCE_AUDIT_HASH_SIZE bytes */
    once_audit_fault_t fault;
} once_audit_entry_t;

/* Receives each entry, which is valid until it returns. Any value but 0 ends the scan. */
typedef int (*once_audit_cb)(once_t *once, const once_audit_entry_t *entry, void *data);

/* Reads and checks the trail from its first entry to its last. `done` is called at the end. */
ONCE_API ONCE_MUST_CHECK int once_audit_scan(once_t *once, once_audit_cb each, once_cb done,
                                             void *data);
ONCE_API ONCE_MUST_CHECK int once_audit_scan_sync(once_t *once, once_audit_cb each, void *data,
                                                  once_answer_t **answer);

#ifdef __cplusplus
}
#endif
#endif
