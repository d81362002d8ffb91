/*
 * once/postgres.h - once in your own PostgreSQL transaction: the effect and its record commit together, or not at all.
 *
 * The idea in five lines, behind the gateway (`Once-Claim` came with the request):
 *     BEGIN
 *     the statements of the business
 *     once_pg_complete(conn, claim, &response, &err)
 *     COMMIT, and answer with the response
 *     anything that fails: ROLLBACK, and nothing happened
 * Without the gateway: call once_pg_claim first, in the same transaction. If the outcome is `run`, go on; otherwise answer
 * according to the outcome.
 *
 * Each function runs one statement on the caller's connection, in the transaction that is open there, and waits for the server.
 * They call the SQL functions of the schema `once` (docs/postgres.md), which other languages call directly. No handle is needed,
 * and nothing is kept between calls. As always with libpq, only one thread at a time may use a connection. libpq's header is not
 * needed to include this one: a PGconn is a struct pg_conn.
 *
 * Errors. After any error from the server the transaction can only be rolled back. `err` holds the SQLSTATE and the server's
 * message, never a value. The important ones; the others are in once/error.h:
 *     ONCE_E_STALE        ON001: the claim was taken over, released or settled. Roll back; the gateway answers from the record
 *     ONCE_E_COMPLETED    ON002: this claim is already completed: the transaction was repeated after a lost COMMIT reply, or the
 *                         request came twice. Roll back, and answer with once_pg_recorded
 *     ONCE_E_CONFLICT     40001, 40P01, 55P03: a conflict with another transaction. Roll back, and repeat the transaction
 *     ONCE_E_UNAVAILABLE  the connection is lost. What was not committed has not happened
 *     ONCE_E_SQL          any other error from the server, including a transaction that failed earlier
 *     ONCE_E_CONFIG       the schema is not installed, or the user is not a member of the role `once_application`
 *     ONCE_E_INVALID      an argument is wrong: nothing was sent, or the server refused it (ON004, class 22)
 *
 * If the reply to a COMMIT is lost, the transaction may or may not have been committed. Repeat it as a whole with the same claim:
 * if it was committed, once_pg_complete returns ONCE_E_COMPLETED, and nothing happens twice.
 */
#ifndef ONCE_POSTGRES_H
#define ONCE_POSTGRES_H

#include <stddef.h>
#include <stdint.h>

#include <once/error.h>
#include <once/key.h>
#include <once/once.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pg_conn; /* PGconn of libpq */

/* ----------------------------------------------------------------------------------------------------- asking to run */

/* The result of once_pg_claim and once_pg_recorded. Independent of the connection. */
typedef struct once_pg_answer once_pg_answer_t;

enum once_pg_flags {
    /* do not wait for another transaction that has the key: the outcome is busy */
    ONCE_PG_NOWAIT = 1,
};

/*
 * Asks whether to run the operation. The claim is part of the transaction: others see it when the transaction commits, and never if
 * it rolls back. If another transaction has the key, waits for it and returns its outcome. Outside of a transaction the claim is
 * committed at once, as work in several transactions needs it.
 *   scope, key, method, target   text in the connection's encoding
 *   bytes                        the whole body; a streamed body (`body`) is ONCE_E_UNSUPPORTED
 *   policy                       its ttl, lease and recover; NULL: 24 h, 30 s, transactional
 * Returns ONCE_OK (free the answer), ONCE_E_KEY, ONCE_E_INVALID, ONCE_E_NOMEM, or ONCE_E_SECRET (ON005: the store has never been
 * opened, so it has no secrets yet).
 */
ONCE_API ONCE_MUST_CHECK int once_pg_claim(struct pg_conn *conn, const once_ask_t *ask,
                                           unsigned flags, once_pg_answer_t **answer,
                                           once_error_t *err);

/*
 * Returns ONCE_OUTCOME_RUN, ONCE_OUTCOME_REPLAY, ONCE_OUTCOME_BUSY, ONCE_OUTCOME_MISMATCH or ONCE_OUTCOME_UNKNOWN;
 * ONCE_OUTCOME_LOST only if a claim id is reused.
 */
ONCE_API once_outcome_t once_pg_outcome(const once_pg_answer_t *answer);
/* With ONCE_OUTCOME_RUN: the claim as text, for the functions below. Otherwise "". Valid as long as the answer. */
ONCE_API const char *once_pg_token(const once_pg_answer_t *answer);
ONCE_API uint32_t once_pg_epoch(const once_pg_answer_t *answer);
/* With ONCE_OUTCOME_BUSY: in how many milliseconds to ask again. Otherwise 0. */
ONCE_API uint64_t once_pg_retry_after_ms(const once_pg_answer_t *answer);

/*
 * With ONCE_OUTCOME_REPLAY: the recorded response, which points into the answer and is valid as long. Returns ONCE_OK,
 * ONCE_E_NOT_FOUND with other outcomes, or ONCE_E_SEALED if a gateway compressed or encrypted the response: then `status` is set,
 * and headers and body are empty.
 */
ONCE_API ONCE_MUST_CHECK int once_pg_response(const once_pg_answer_t *answer,
                                              once_response_t *response);

ONCE_API void once_pg_answer_free(once_pg_answer_t *answer); /* NULL is fine */

/*
 * The response that this claim recorded, as a replay. Call it after ONCE_E_COMPLETED, once the failed transaction is rolled back.
 * ONCE_E_NOT_FOUND: this claim has not recorded a response, or the record has expired.
 */
ONCE_API ONCE_MUST_CHECK int once_pg_recorded(struct pg_conn *conn, const char *claim,
                                              once_pg_answer_t **answer, once_error_t *err);

/* ------------------------------------------------------------------------------------------------ the end of a claim */

/*
 * Records the response. By design it succeeds at most once per claim. Header names must be HTTP tokens, and values text in the
 * connection's encoding without control characters (ONCE_E_HEADER, or ON004). `retain_ms` as in once_claim_complete;
 * `body_omitted` is ONCE_E_UNSUPPORTED. ONCE_E_TOO_BIG: over the limits of once/once.h.
 */
ONCE_API ONCE_MUST_CHECK int once_pg_complete(struct pg_conn *conn, const char *claim,
                                              const once_response_t *response, once_error_t *err);

/*
 * The operation may be run again: the key can be claimed. `status` (or 0) and `note` are for people. The call may be repeated.
 * early: it ended before any effect, so the key stays bound for two leases instead of the ttl (once_claim_release_early in
 * once/once.h).
 */
ONCE_API ONCE_MUST_CHECK int once_pg_release(struct pg_conn *conn, const char *claim, int status,
                                             once_slice_t note, once_error_t *err);
ONCE_API ONCE_MUST_CHECK int once_pg_release_early(struct pg_conn *conn, const char *claim,
                                                   int status, once_slice_t note,
                                                   once_error_t *err);

/* It is not known whether the operation took effect. `lease_ms` 0: the claim's lease. The call may be repeated. */
ONCE_API ONCE_MUST_CHECK int once_pg_doubt(struct pg_conn *conn, const char *claim,
                                           uint64_t lease_ms, once_error_t *err);

/*
 * Extends the lease of a claim that is still being worked on. ONCE_E_STALE: the caller no longer holds it. `lease_ms` 0: the
 * claim's lease. Not needed behind the gateway, which renews. Do not call it in a transaction that stays open: others see the
 * longer lease only after the commit.
 */
ONCE_API ONCE_MUST_CHECK int once_pg_renew(struct pg_conn *conn, const char *claim,
                                           uint64_t lease_ms, once_error_t *err);

/* ---------------------------------------------------------------------------------------------- work in several steps */

/*
 * Records how far the work has got, in the same transaction as the step. `state` is JSON text with what is needed to go on, or
 * NULL. A later checkpoint replaces an earlier one.
 */
ONCE_API ONCE_MUST_CHECK int once_pg_checkpoint(struct pg_conn *conn, const char *claim,
                                                const char *name, const char *state,
                                                once_error_t *err);

typedef struct once_pg_step {
    const char *name;
    const char *state; /* JSON text, or NULL */
} once_pg_step_t;

/*
 * The last checkpoint of this record, made under any of its claims. `*step` is NULL if there is none: start from the beginning.
 * Fails if the claim is no longer held; otherwise the claim cannot be taken over until the transaction ends. Free the step.
 */
ONCE_API ONCE_MUST_CHECK int once_pg_resume(struct pg_conn *conn, const char *claim,
                                            once_pg_step_t **step, once_error_t *err);

ONCE_API void once_pg_step_free(once_pg_step_t *step); /* NULL is fine */

/*
 * Locks a natural key (an account, an order) until the transaction ends. ONCE_E_INVALID outside of a transaction, where it would
 * lock nothing. To avoid deadlocks, always lock several keys in the same order.
 */
ONCE_API ONCE_MUST_CHECK int once_pg_lock(struct pg_conn *conn, const char *natural_key,
                                          once_error_t *err);

/*
 * Derives an idempotency key for a step that a third party performs: the same for every attempt, and different for every record
 * and step, including a later record of the same key. It reveals nothing about its inputs. ONCE_E_STALE if the claim was
 * taken over.
 */
ONCE_API ONCE_MUST_CHECK int once_pg_derive(struct pg_conn *conn, const char *claim,
                                            const char *step, once_key_t *key, once_error_t *err);

/* ---------------------------------------------------------------------------------------------------------- messages */

typedef struct once_pg_event {
    size_t size;          /* sizeof(once_pg_event_t): set by ONCE_PG_EVENT_INIT */
    const char *topic;    /* where it goes */
    const char *key;      /* order is kept among events of one key; may be NULL */
    const char *type;     /* what happened */
    once_slice_t payload; /* bytes */
    const char *headers;  /* a JSON object, or NULL */
    const char *claim;    /* of the operation that it belongs to, or NULL; a stale one fails */
} once_pg_event_t;

#define ONCE_PG_EVENT_INIT                                                                         \
    {                                                                                              \
        sizeof(once_pg_event_t), 0, 0, 0, {0, 0}, 0, 0                                             \
    }

/* Writes an event that is published if and only if the transaction commits. `id` (or NULL) receives the id that consumers see. */
ONCE_API ONCE_MUST_CHECK int once_pg_emit(struct pg_conn *conn, const once_pg_event_t *event,
                                          char id[ONCE_UUID_SIZE], once_error_t *err);

/*
 * Finds out whether a message is new to the subscriber. `*is_new` is 1: handle it in this transaction; 0: it was handled already.
 * Waits for another transaction that is handling it. ONCE_E_INVALID outside of a transaction, where the message would count as
 * handled at once.
 */
ONCE_API ONCE_MUST_CHECK int once_pg_accept(struct pg_conn *conn, const char *subscriber,
                                            const char *message_id, int *is_new, once_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
