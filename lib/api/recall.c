/*
 * once_recall: finding completed records without claiming. It does not enter the handle, which may belong to another thread: it
 * reads only the secrets, which have a lock of their own for that, and what never changes.
 */
#include <string.h>

#include <once/experimental.h>

#include "api/begin.h"
#include "core/identity.h"
#include "core/sized.h"

#define TOGETHER 128 /* lookups at a time; the store checks its files once for all of them */

/* An event without a claim id. Only the fingerprints in use are set: zeroing the others would take longer than the rest. */
static void start_lookup(once__lookup_t *lookup, unsigned fingerprints)
{
    once__event_t *event = &lookup->event;

    event->kind = ONCE__CLAIM;
    memset(&event->claim, 0, sizeof(event->claim));
    event->force = 0;
    event->recover = 0;
    event->fingerprint_count = (uint8_t)fingerprints;
    event->lease_ms = event->ttl_ms = 0;
    lookup->found = 0;
}

/* A run of asks as the caller gave them: one struct of the caller's size after the other, and perhaps their digests. */
typedef struct asks {
    const char *first;
    size_t stride;
    const uint8_t *const *digests; /* NULL: none */
    size_t count;
} asks_t;

static int ask_at(const asks_t *asks, size_t i, once_ask_t *ask, const uint8_t **digest)
{
    const void *given = asks->first + i * asks->stride;

    *digest = asks->digests != NULL ? asks->digests[i] : NULL;
    return once__sized(given) == asks->stride ? once__ask_read(ask, given, *digest)
                                              : ONCE_E_INVALID;
}

static int identify(const once_t *once, const asks_t *asks, once__lookup_t *lookups)
{
    once__identified_t many[TOGETHER];
    unsigned fingerprints;

    for (size_t i = 0; i < asks->count; i++) {
        const uint8_t *digest;
        once_ask_t ask;
        int code = ask_at(asks, i, &ask, &digest);
        if (code == ONCE_OK) {
            code = once__ask_digest(&ask, digest, &many[i].request.body);
        }
        if (code != ONCE_OK) {
            return code;
        }
        many[i].request.scope = ask.scope;
        many[i].request.method = ask.method;
        many[i].request.target = ask.target;
        many[i].key = ask.key;
        many[i].id = lookups[i].id;
        many[i].fingerprints = lookups[i].event.fingerprints;
    }
    fingerprints = once__identify_many(&once->secrets, many, asks->count);
    for (size_t i = 0; i < asks->count; i++) {
        start_lookup(&lookups[i], fingerprints);
    }
    return ONCE_OK;
}

static int identify_locked(once_t *once, const asks_t *asks, once__lookup_t *lookups, int *ready)
{
    int code = ONCE_OK;

    (void)pthread_rwlock_rdlock(&once->secrets_lock);
    *ready = once->secrets_ready; /* the first once_begin brings them */
    if (*ready) {
        code = identify(once, asks, lookups);
    }
    (void)pthread_rwlock_unlock(&once->secrets_lock);
    return code;
}

static int recall_some(once_t *once, const asks_t *asks, unsigned char *found)
{
    once__lookup_t lookups[TOGETHER];
    int ready, code;

    code = identify_locked(once, asks, lookups, &ready);
    if (code != ONCE_OK || !ready) {
        return code;
    }
    once->store->vt->recall(once->store, lookups, asks->count);
    for (size_t i = 0; i < asks->count; i++) {
        found[i] = (unsigned char)lookups[i].found;
    }
    return ONCE_OK;
}

/* Checks all of them before any is looked up. */
static int check(const asks_t *asks)
{
    int code = ONCE_OK;

    for (size_t i = 0; code == ONCE_OK && i < asks->count; i++) {
        const uint8_t *digest;
        once_ask_t ask;
        code = ask_at(asks, i, &ask, &digest);
    }
    return code;
}

int once_recall(once_t *once, const once_ask_t *asks, const uint8_t *const *digests, size_t count,
                unsigned char *found)
{
    asks_t all = {(const char *)asks, count > 0 ? once__sized(asks) : 0, digests, count};
    int code;

    if (once->generation != once__generation()) {
        return ONCE_E_FORKED;
    }
    if (asks == NULL || found == NULL) {
        return ONCE_E_INVALID;
    }
    memset(found, 0, count);
    code = check(&all);
    if (code == ONCE_OK && once->closing) {
        code = ONCE_E_CLOSED;
    }
    if (once->store->vt->recall == NULL) {
        return code;
    }
    for (size_t i = 0; code == ONCE_OK && i < count; i += TOGETHER) {
        asks_t some = {all.first + i * all.stride, all.stride, digests != NULL ? digests + i : NULL,
                       count - i < TOGETHER ? count - i : TOGETHER};
        code = recall_some(once, &some, found + i);
    }
    return code;
}
