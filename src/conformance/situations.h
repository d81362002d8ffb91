/*
 * Records in every situation that the table knows: state and how it came about, policy, lease, and what an earlier epoch left.
 */
#ifndef ONCE_CONFORMANCE_SITUATIONS_H
#define ONCE_CONFORMANCE_SITUATIONS_H

#include "conformance/suite.h"

typedef enum once__made {
    ONCE__PENDING,
    ONCE__DOUBTED, /* unknown because the holder said so */
    ONCE__LAPSED,  /* unknown because its lease ran out and an asker wanted hold */
    ONCE__REVOKED, /* unknown because it was released after an earlier epoch had lapsed */
    ONCE__COMPLETED,
    ONCE__FAILED,
    ONCE__MADE_COUNT
} once__made_t;

typedef struct once__situation {
    once__made_t made;
    once_recover_t policy;
    int live;         /* its lease */
    int tainted;      /* an earlier epoch lapsed */
    unsigned variant; /* what the test is going to do */
    char key[24];
    uint8_t claim_id[ONCE_CLAIM_ID_SIZE];
    char token[ONCE_TOKEN_SIZE];
} once__situation_t;

/* Makes `variants` records of each situation; gives how many there are. The array belongs to the test. */
unsigned once__situations_make(once__test_t *t, once__peer_t *peer, unsigned variants,
                               once__situation_t **all);

once_state_t once__situation_state(const once__situation_t *situation);
int once__situation_is_decided(const once__situation_t *situation); /* completed or failed */

/* "pending, hold, lease live": for messages. Valid until the next call in this thread. */
const char *once__situation_text(const once__situation_t *situation);

/* An ask for its key; `policy` holds the text of the policy. */
once__asked_t once__situation_ask(const once__situation_t *situation, const char *lease,
                                  once_recover_t recover, char policy[64]);

#endif
