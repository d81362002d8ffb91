/*
 * Looking without asking: once_recall. It does not enter the handle, which may belong to another thread: of the handle it reads
 * only the secrets, which have a lock of their own for that, and what never changes.
 */
#include <string.h>

#include "api/begin.h"
#include "core/identity.h"

#define TOGETHER 128 /* looks at a time: each time the store makes sure of its files */

/* A claim of nobody. Of its fingerprints only those that count are set: zeroing the others would take longer than the rest. */
static void start_look(once__look_t *look, unsigned fingerprints)
{
    once__event_t *event = &look->event;

    event->kind = ONCE__CLAIM;
    memset(&event->claim, 0, sizeof(event->claim));
    event->force = 0;
    event->recover = 0;
    event->fingerprint_count = (uint8_t)fingerprints;
    event->lease_ms = event->ttl_ms = 0;
    look->found = 0;
}

static int identify(const once_t *once, const once_ask_t *asks, size_t count, once__look_t *looks)
{
    once__identified_t many[TOGETHER];
    unsigned fingerprints;

    for (size_t i = 0; i < count; i++) {
        const once_ask_t *ask = &asks[i];
        int code = once__ask_digest(ask, &many[i].request.body);
        if (code != ONCE_OK) {
            return code;
        }
        many[i].request.scope = ask->scope;
        many[i].request.method = ask->method;
        many[i].request.target = ask->target;
        many[i].key = ask->key;
        many[i].id = looks[i].id;
        many[i].fingerprints = looks[i].event.fingerprints;
    }
    fingerprints = once__identify_many(&once->secrets, many, count);
    for (size_t i = 0; i < count; i++) {
        start_look(&looks[i], fingerprints);
    }
    return ONCE_OK;
}

static int identify_locked(once_t *once, const once_ask_t *asks, size_t count, once__look_t *looks,
                           int *ready)
{
    int code = ONCE_OK;

    (void)pthread_rwlock_rdlock(&once->secrets_lock);
    *ready = once->secrets_ready; /* the first once_begin brings them */
    if (*ready) {
        code = identify(once, asks, count, looks);
    }
    (void)pthread_rwlock_unlock(&once->secrets_lock);
    return code;
}

static int recall_some(once_t *once, const once_ask_t *asks, size_t count, unsigned char *found)
{
    once__look_t looks[TOGETHER];
    int ready, code;

    code = identify_locked(once, asks, count, looks, &ready);
    if (code != ONCE_OK || !ready) {
        return code;
    }
    once->store->vt->recall(once->store, looks, count);
    for (size_t i = 0; i < count; i++) {
        found[i] = (unsigned char)looks[i].found;
    }
    return ONCE_OK;
}

int once_recall(once_t *once, const once_ask_t *asks, size_t count, unsigned char *found)
{
    int code = ONCE_OK;

    if (once->generation != once__generation()) {
        return ONCE_E_FORKED;
    }
    if (asks == NULL || found == NULL) {
        return ONCE_E_INVALID;
    }
    for (size_t i = 0; code == ONCE_OK && i < count; i++) {
        found[i] = 0;
        code = once__ask_check(once, &asks[i]);
    }
    if (once->store->vt->recall == NULL) {
        return code;
    }
    for (size_t i = 0; code == ONCE_OK && i < count; i += TOGETHER) {
        code = recall_some(once, asks + i, count - i < TOGETHER ? count - i : TOGETHER, found + i);
    }
    return code;
}
