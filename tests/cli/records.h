/*
 * Records in a store that the commands under test can reach: memory:NAME lives as long as a handle on it is open.
 */
#ifndef TESTS_CLI_RECORDS_H
#define TESTS_CLI_RECORDS_H

#include <once/once.h>

#define SHORT_LEASE "lease=10ms"
#define LONG_LEASE  "lease=1h"

/* A handle on the store; nothing is renewed or reaped by itself. */
once_t *open_store(const char *url);

/* A claim on a new key; NULL is never returned. `policy` as for once_policy_parse. */
once_claim_t *claim(once_t *once, const char *scope, const char *key, const char *policy);
once_claim_t *claim_bytes(once_t *once, const char *scope, once_slice_t key, const char *policy);

/* Records in each state. The first two wait until their lease is over. */
void make_stuck(once_t *once, const char *scope, const char *key, const char *recover);
void make_unknown(once_t *once, const char *scope, const char *key, const char *recover);
void make_pending(once_t *once, const char *scope, const char *key);
void make_completed(once_t *once, const char *scope, const char *key, const char *body);
/* Fills `body` with letters that no other `number` has, so that nothing can be saved by what they have in common. */
void make_unlike(char *body, size_t size, unsigned number);
void make_failed(once_t *once, const char *scope, const char *key, const char *note);

typedef struct id {
    char hex[2 * ONCE_ID_SIZE + 1];
} record_id_t;

/* The id of a record in hex. */
record_id_t id_of(once_t *once, const char *scope, const char *key);

/* The state of the record; ONCE_STATE_NONE when there is none. */
once_state_t state_of(once_t *once, const char *scope, const char *key);

/* The record as it is now, in an answer that the caller frees. NULL: none. */
once_answer_t *read_record(once_t *once, const char *scope, const char *key);

/* Waits until the lease of the record is over. */
void wait_for_lease(once_t *once, const char *scope, const char *key);

once_slice_t slice(const char *text);

#endif
