/*
 * once/experimental.h - functions whose form is not settled. They are installed and tested, but they may change or go in any
 * release, also in one that keeps every promise of the other headers: the ABI check leaves them out, and their symbols carry the
 * version ONCE_EXPERIMENTAL. A program that uses them is built for one release.
 */
#ifndef ONCE_EXPERIMENTAL_H
#define ONCE_EXPERIMENTAL_H

#include <stddef.h>
#include <stdint.h>

#include <once/audit.h>
#include <once/once.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ONCE_DIGEST_SIZE 32 /* bytes */

/*
 * Digests `count` whole bodies (ONCE_BODY_MODE_EXACT), ahead of the call that needs them or on another thread. Hashing many
 * together costs less than one by one. Needs no handle; any thread may call it.
 */
ONCE_API void once_digest(const once_slice_t *bodies, size_t count,
                          uint8_t (*digests)[ONCE_DIGEST_SIZE]);

/*
 * The digest of what was added to a streamed body so far, in its mode: JSON that differs in form only has the same. The body can
 * be added to afterwards. ONCE_OK or ONCE_E_NOMEM.
 */
ONCE_API ONCE_MUST_CHECK int once_body_digest(const once_body_t *body,
                                              uint8_t digest[ONCE_DIGEST_SIZE]);

/*
 * As once_begin, for a body whose digest is known: `digest` is ONCE_DIGEST_SIZE bytes made by once_digest and is copied.
 * ONCE_E_INVALID if it is NULL, or if the ask has a body or bytes besides.
 */
ONCE_API ONCE_MUST_CHECK int once_begin_digested(once_t *once, const once_ask_t *ask,
                                                 const uint8_t *digest, once_cb cb, void *data);

/*
 * Finds out which of `count` operations were completed before, in one call that claims nothing, changes nothing, never waits and
 * calls no callback. found[i] becomes 1 if the record is completed with the fingerprint of asks[i], so that once_begin would
 * answer replay. It becomes 0 if it is not, or if that is not known without waiting: use once_begin then. digests[i] is the
 * digest of the i-th body, or NULL if asks[i] has the body itself; `digests` may be NULL. The asks lie one after the other, all of
 * asks[0].size bytes; their policies and claim ids do not matter.
 *
 * A local store finds what is durable and in memory; the other stores find nothing. Any thread may call it at any time between
 * once_open and once_shutdown (or once_close), also for a handle that belongs to another thread.
 *
 * Returns ONCE_OK; ONCE_E_INVALID, ONCE_E_KEY or ONCE_E_TOO_BIG for any of the asks as once_begin does; ONCE_E_NOMEM,
 * ONCE_E_CLOSED, ONCE_E_FORKED.
 */
ONCE_API ONCE_MUST_CHECK int once_recall(once_t *once, const once_ask_t *asks,
                                         const uint8_t *const *digests, size_t count,
                                         unsigned char *found);

#define ONCE_CURSOR_SIZE 40 /* bytes */

/* A scan in steps: which records, how far a step may go, and where the next one begins. */
typedef struct once_page {
    const once_filter_t *filter; /* its limit does not count; NULL: all records */
    uint64_t looks;              /* a step looks at this many records at most, 1 to 1000 */
    uint8_t cursor
        [ONCE_CURSOR_SIZE]; /* all zero: the beginning. Any bytes are safe: a client may have kept them */
    int end;                /* set by a step: nothing is left */
    uint64_t looked;        /* set by a step: at about how many records it looked */
} once_page_t;

/*
 * One step of once_record_scan, for views that must not take longer in a large store: looks at `page->looks` records at most (a
 * redis:// store may look at a few more, and a step that has found many ends earlier) from `page->cursor` on. `each` receives
 * those that pass the filter. Before `done` is called the page gets the cursor of the next step; it must stay valid until then,
 * and is not touched after an error. Steps with one filter, one after the other until `end`, receive what one scan does;
 * once_answer_damaged need not count what is left out by its state. Cursors are for stores of the same URL; one of a redis:// store
 * is for the same handle, and is ONCE_E_NOT_FOUND if others were used meanwhile: begin again.
 */
ONCE_API ONCE_MUST_CHECK int once_record_page(once_t *once, once_page_t *page, once_scan_cb each,
                                              once_cb done, void *data);
ONCE_API ONCE_MUST_CHECK int once_record_page_sync(once_t *once, once_page_t *page,
                                                   once_scan_cb each, void *data,
                                                   once_answer_t **answer);

/*
 * Names the server that has the records, and its version: "PostgreSQL 15.6", "Redis 7.0.15". The text is empty for stores without
 * a server, and before it was met. It is written to `text` and cut to `size` bytes including the terminator. Returns its length.
 */
ONCE_API size_t once_store_server(once_t *once, char *text, size_t size);

/*
 * One step of once_audit_scan, backwards: for views of a long trail. `each` receives some entries (about a hundred at most) that
 * stand before `page->cursor`, or the last ones if it is all zero; oldest first. `filter` and `looks` do not matter. Before `done`
 * is called the page gets the cursor of the next step, and `looked`, how many were shown; it must stay valid until then, and is
 * not touched after an error. Entries are checked against those beside them that this step and the one before have read: if all
 * steps are made, the same faults are found as by once_audit_scan. If `each` ends the step, the cursor stays where it was.
 */
ONCE_API ONCE_MUST_CHECK int once_audit_page(once_t *once, once_page_t *page, once_audit_cb each,
                                             once_cb done, void *data);
ONCE_API ONCE_MUST_CHECK int once_audit_page_sync(once_t *once, once_page_t *page,
                                                  once_audit_cb each, void *data,
                                                  once_answer_t **answer);

#ifdef __cplusplus
}
#endif
#endif
