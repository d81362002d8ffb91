/*
 * The transactional door: once's record in the bank's own transactions.
 */
#ifndef EXAMPLES_BANK_DOOR_H
#define EXAMPLES_BANK_DOOR_H

#include <once/postgres.h>

#include "bank.h"

/*
 * The claim that this request runs under, in the open transaction: the one that the gate forwarded, or one that the bank asks for
 * itself. An empty `claim` with DB_OK: it must not run, and `answer` says why (a replay, in most cases).
 */
db_end_t door_claim(bank_t *bank, db_t *db, const request_t *request, char claim[BANK_CLAIM_MAX],
                    answer_t *answer);

/*
 * For a transaction that was refused with DB_ALREADY: rolls it back, and answers with what this claim recorded. The reply to its
 * COMMIT was lost, or the request came twice.
 */
db_end_t door_recorded(db_t *db, const char *claim, answer_t *answer);

/* Records the answer. Fails in a transaction that must not commit: the claim is stale, or completed already. */
db_end_t door_complete(db_t *db, const char *claim, const answer_t *answer);

/* An event, published if and only if the transaction commits. Takes the reference to `payload`. */
db_end_t door_emit(db_t *db, once_pg_event_t *event, const char *traceparent, json_t *payload);

/* One at a time for a natural key, until the transaction ends. */
db_end_t door_lock(db_t *db, const char *natural_key);

/* Multi-step work: where it got to (`name` is "" at the beginning), and with what. `state` is the caller's to json_decref. */
db_end_t door_resume(db_t *db, const char *claim, char name[32], json_t **state);
db_end_t door_checkpoint(db_t *db, const char *claim, const char *name, const json_t *state);

/* In progress; and: unknown, so do not try again before the lease is over. */
db_end_t door_renew(db_t *db, const char *claim);
db_end_t door_doubt(db_t *db, const char *claim);

#endif
