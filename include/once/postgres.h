/*
 * once/postgres.h - once in your own PostgreSQL transaction: the effect and its record commit together, or not at all.
 *
 * The idea in five lines, behind the gateway (`Once-Claim` came with the request):
 *     BEGIN
 *     the statements of the business
 *     once_pg_complete(conn, claim, &response, &err)
 *     COMMIT, and answer with the response
 *     anything that fails: ROLLBACK, and nothing happened
 * Without the gateway: once_pg_claim first, in the same transaction; go on with `run`, answer with what it tells otherwise.
 *
 * Each function is one statement on the caller's own connection, in the transaction that is open there; each waits for the
 * server.
 * They call the SQL functions of the schema `once` (docs/postgres.md), which every other language calls by itself. No handle is
 * needed, nothing is kept between calls, and a connection is used by one thread at a time, as always. libpq's header is not
 * needed to include this one: a PGconn is a struct pg_conn.
 *
 * Errors. After any error of the server the transaction can only be rolled back. `err` holds the SQLSTATE and the server's
 * words,
 * never a value. The ones to know, besides those of once/error.h that speak for themselves:
 *     ONCE_E_STALE        ON001: the claim was taken over, released or settled. Roll back; the gateway answers from the record
 *     ONCE_E_COMPLETED    ON002: this very claim is completed. The transaction was repeated after a lost COMMIT reply, or the
 *                         request came twice. Roll back, and answer with once_pg_recorded
 *     ONCE_E_CONFLICT     40001, 40P01, 55P03: a conflict with another transaction. Roll back, and repeat the transaction
 *     ONCE_E_UNAVAILABLE  the connection is gone. What was not committed is not done
 *     ONCE_E_SQL          anything else that the server refused, also a transaction that had failed before
 *     ONCE_E_CONFIG       the schema is not installed, or the user is no `once_application`
 *     ONCE_E_INVALID      an argument is wrong: nothing was sent, or ON004, or a value that the server refuses (class 22)
 *
 * A COMMIT whose reply is lost may have been done or not. Repeat the whole transaction with the same claim: when it had been
 * done, once_pg_complete says ONCE_E_COMPLETED, and nothing is done twice.
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

/* What once_pg_claim and once_pg_recorded tell. Independent of the connection. */
typedef struct once_pg_answer once_pg_answer_t;

enum once_pg_flags {
    ONCE_PG_NOWAIT =
        1, /* another transaction has the key: be told `busy` instead of waiting for it */
};

/*
 * Asks whether to run. The claim belongs to the transaction: it exists for others when that commits, and never did when it does
 * not. Waits for another transaction that has the key, and is then told its outcome. Outside of a transaction the claim is
 * committed at once, which is what work in several transactions wants.
 *   scope, key, method, target   text in the connection's encoding
 *   bytes                        the whole body; a streamed one (`body`) is ONCE_E_UNSUPPORTED
 *   policy                       its ttl, lease and recover; NULL: 24 h, 30 s, transactional
 * ONCE_OK: free the answer. ONCE_E_KEY, ONCE_E_INVALID, ONCE_E_NOMEM; ONCE_E_SECRET (ON005: nothing has opened this store yet).
 */
ONCE_API ONCE_MUST_CHECK int once_pg_claim(struct pg_conn *conn, const once_ask_t *ask,
                                           unsigned flags, once_pg_answer_t **answer,
                                           once_error_t *err);

/*
 * ONCE_OUTCOME_RUN, ONCE_OUTCOME_REPLAY, ONCE_OUTCOME_BUSY, ONCE_OUTCOME_MISMATCH, ONCE_OUTCOME_UNKNOWN; ONCE_OUTCOME_LOST
 * only when a claim id is used again.
 */
ONCE_API once_outcome_t once_pg_outcome(const once_pg_answer_t *answer);
/* With ONCE_OUTCOME_RUN: the claim as text, for the functions below. Else "". Lives with the answer. */
ONCE_API const char *once_pg_token(const once_pg_answer_t *answer);
ONCE_API uint32_t once_pg_epoch(const once_pg_answer_t *answer);
/* Busy: when asking again makes sense, in milliseconds. Else 0. */
ONCE_API uint64_t once_pg_retry_after_ms(const once_pg_answer_t *answer);

/*
 * With ONCE_OUTCOME_REPLAY: the recorded response; it points into the answer and lives as long. ONCE_E_NOT_FOUND at other
 * outcomes;
 * ONCE_E_SEALED for one that a gateway compressed or encrypted: status is set, headers and body are empty.
 */
ONCE_API ONCE_MUST_CHECK int once_pg_response(const once_pg_answer_t *answer,
                                              once_response_t *response);

ONCE_API void once_pg_answer_free(once_pg_answer_t *answer); /* NULL is fine */

/*
 * The response that this claim recorded, as a replay: for those who were told ONCE_E_COMPLETED. ONCE_E_NOT_FOUND: this claim
 * has
 * recorded none, or it is forgotten. Not in the transaction that failed: roll it back first.
 */
ONCE_API ONCE_MUST_CHECK int once_pg_recorded(struct pg_conn *conn, const char *claim,
                                              once_pg_answer_t **answer, once_error_t *err);

/* ------------------------------------------------------------------------------------------------ the end of a claim */

/*
 * Records the response. Succeeds at most once for a claim, on purpose. Header names must be tokens of HTTP, values text in
 * the connection's encoding without control characters (ONCE_E_HEADER, or ON004). `retain_ms` as in once_claim_complete;
 * `body_omitted` is ONCE_E_UNSUPPORTED. ONCE_E_TOO_BIG: over the limits of once/once.h.
 */
ONCE_API ONCE_MUST_CHECK int once_pg_complete(struct pg_conn *conn, const char *claim,
                                              const once_response_t *response, once_error_t *err);

/*
 * It may be repeated: the key can be claimed again. `status` (or 0) and `note` are for people. May be repeated. early: it ended
 * before any effect; the key is bound for two leases only and not for the ttl (once_claim_release_early in once/once.h).
 */
ONCE_API ONCE_MUST_CHECK int once_pg_release(struct pg_conn *conn, const char *claim, int status,
                                             once_slice_t note, once_error_t *err);
ONCE_API ONCE_MUST_CHECK int once_pg_release_early(struct pg_conn *conn, const char *claim,
                                                   int status, once_slice_t note,
                                                   once_error_t *err);

/* Nobody knows. `lease_ms` 0: the claim's. May be repeated. */
ONCE_API ONCE_MUST_CHECK int once_pg_doubt(struct pg_conn *conn, const char *claim,
                                           uint64_t lease_ms, once_error_t *err);

/*
 * Still at it; tells a worker that is no longer the holder (ONCE_E_STALE). `lease_ms` 0: the claim's. Behind the gateway the
 * gateway renews. Not in a transaction that stays open: others see the longer lease only when it commits.
 */
ONCE_API ONCE_MUST_CHECK int once_pg_renew(struct pg_conn *conn, const char *claim,
                                           uint64_t lease_ms, once_error_t *err);

/* ---------------------------------------------------------------------------------------------- work in several steps */

/*
 * Where the work got to, in the transaction of the step itself. `state` is JSON text with what is needed to go on, or NULL. The
 * last one counts.
 */
ONCE_API ONCE_MUST_CHECK int once_pg_checkpoint(struct pg_conn *conn, const char *claim,
                                                const char *name, const char *state,
                                                once_error_t *err);

typedef struct once_pg_step {
    const char *name;
    const char *state; /* JSON text, or NULL */
} once_pg_step_t;

/*
 * The last checkpoint of this record, by whichever of its claims; `*step` is NULL: begin at the beginning. Fails for a claim
 * that
 * does not hold, and keeps one that does from being taken over until the transaction ends. Free the step.
 */
ONCE_API ONCE_MUST_CHECK int once_pg_resume(struct pg_conn *conn, const char *claim,
                                            once_pg_step_t **step, once_error_t *err);

ONCE_API void once_pg_step_free(once_pg_step_t *step); /* NULL is fine */

/*
 * One at a time for a natural key (an account, an order), until the transaction ends. ONCE_E_INVALID outside of a transaction,
 * where it would lock nothing. Several keys: always take them in the same order.
 */
ONCE_API ONCE_MUST_CHECK int once_pg_lock(struct pg_conn *conn, const char *natural_key,
                                          once_error_t *err);

/*
 * A key for a step that a third party does: the same for every attempt, another one for every record and step, and for a
 * later life
 * of the same key. It reveals nothing. ONCE_E_STALE for a claim that was overtaken.
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
    const char *claim;    /* whose operation it belongs to, or NULL; with a stale claim it fails */
} once_pg_event_t;

#define ONCE_PG_EVENT_INIT                                                                         \
    {                                                                                              \
        sizeof(once_pg_event_t), 0, 0, 0, {0, 0}, 0, 0                                             \
    }

/* Writes an event that is published if and only if the transaction commits. `id` (may be NULL) is what consumers see. */
ONCE_API ONCE_MUST_CHECK int once_pg_emit(struct pg_conn *conn, const once_pg_event_t *event,
                                          char id[ONCE_UUID_SIZE], once_error_t *err);

/*
 * Is this message new to the subscriber? `*is_new` 1: handle it in this transaction; 0: it was handled. Waits for another
 * transaction that is handling it. ONCE_E_INVALID outside of a transaction: there it would count as handled at once.
 */
ONCE_API ONCE_MUST_CHECK int once_pg_accept(struct pg_conn *conn, const char *subscriber,
                                            const char *message_id, int *is_new, once_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
