/*
 * The records of notifications: whether one is to be sent now, was sent before, or may have been sent. Scope is the channel, the
 * key is made of type, event id and user.
 */
#ifndef EXAMPLES_NOTIFY_RECORDS_H
#define EXAMPLES_NOTIFY_RECORDS_H

#include <once/once.h>

#include "channel.h"
#include "event.h"
#include "transport.h"
#include "users.h"

typedef struct records {
    once_t *once;
    once_policy_t *policies[CHANNELS];
} records_t;

/* `mail` is retry or hold: what becomes of a mail when it is unknown whether it was sent. 0, or -1 after saying what is wrong. */
int records_open(records_t *records, const char *store, const char *ttl, const char *lease,
                 const char *mail);
/* Waits for what was sent to be recorded, at most `timeout_ms`. */
void records_close(records_t *records, int timeout_ms);

typedef enum verdict {
    VERDICT_SEND,      /* the claim is yours */
    VERDICT_DUPLICATE, /* it was sent before */
    VERDICT_BUSY,      /* it is being sent, or its sender died meanwhile: ask again */
    VERDICT_HELD,      /* it may have been sent, and is not sent again */
    VERDICT_MISMATCH,  /* this event id was used with another payload */
    VERDICT_NO_STORE,
} verdict_t;

/* "type:id:user" where these have only letters, digits and . _ ~ - ; else a hash of them. */
int records_key(const event_t *event, const user_t *user, once_key_t *key);

/* `after_ms`, if busy: when to ask again. */
verdict_t records_ask(records_t *records, channel_t channel, const once_key_t *key,
                      const event_t *event, once_claim_t **claim, uint64_t *after_ms);

/*
 * Ends the claim as its fate says. 0: the record says so now. -1: it does not; the claim was lost to another process, or the store
 * does not answer (then the library goes on trying). `after_ms`, after doubt: when to ask again.
 */
int records_end(records_t *records, once_claim_t *claim, fate_t fate, int status,
                uint64_t *after_ms);

#endif
