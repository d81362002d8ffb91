/*
 * The statements that the store sends, and what it makes of their results. Everything here is about operations and bytes:
 * connections are link.h's business.
 */
#ifndef ONCE_STORE_POSTGRES_STATEMENTS_H
#define ONCE_STORE_POSTGRES_STATEMENTS_H

#include "store/oplist.h"
#include "store/postgres/wire.h"

typedef enum once__pg_statement {
    ONCE__PG_TIMEOUT, /* of the statements after it, until the transaction ends */
    ONCE__PG_CLAIM,
    ONCE__PG_APPLY, /* every other event */
    ONCE__PG_GET,
    ONCE__PG_SINGLE,   /* an operation that travels alone */
    ONCE__PG_LEVEL,    /* of isolation; two statements */
    ONCE__PG_SETTINGS, /* of the session, for good */
    ONCE__PG_PREPARE,  /* the statement after it */
} once__pg_statement_t;

/* The error of an operation that was sent and has no answer yet. Positive: no code of once. */
#define ONCE__PG_UNANSWERED 1

#define ONCE__PG_FINGERPRINT_SIZE 37 /* as a row has it: secret, mode, HMAC */

/* A time that the server can calculate with. */
uint64_t once__pg_clamp(uint64_t ms);

/* Which statement carries the operation. */
once__pg_statement_t once__pg_statement_of(const once__op_t *op);

typedef struct once__pg_text {
    const char *statement;
    const char *name; /* where it is prepared */
} once__pg_text_t;

/* The statement `which`, and its parameters: the `count` operations of `list` that it carries; the others are passed over. */
const once__pg_text_t *once__pg_fill(once__pg_params_t *params, once__pg_statement_t which,
                                     const once__oplist_t *list, uint32_t count);

/* Each sends a statement. 0 or -1. */
int once__pg_send_timeout(PGconn *conn, once__pg_params_t *params, uint64_t timeout_ms);
int once__pg_send_settings(PGconn *conn, once__pg_params_t *params, uint64_t timeout_ms);
int once__pg_send_level(PGconn *conn, once__pg_params_t *params);
int once__pg_send_single(PGconn *conn, once__pg_params_t *params, const once__op_t *op);

/* ------------------------------------------------------------------------------------------------ results: answers.c */

/* The operation with this id that is under way, or NULL. */
typedef once__op_t *(*once__pg_find)(void *data, const uint8_t *id);

/* Does the answer to the timeout say that the transaction is READ COMMITTED? */
int once__pg_is_read_committed(const PGresult *result);

/* Which of the server's processes answered it? */
int once__pg_backend(const PGresult *result);

/* Does the result say one thing for every claim of the batch: granted, with a new record, or refused? Then they are answered. */
int once__pg_read_granted(const PGresult *result, once__oplist_t *list);

/* Answers the operations that a batch's result names. */
void once__pg_read_batch(const PGresult *result, once__pg_find find, void *data);

/* What no row named: no such record (get), or somebody has it locked. */
void once__pg_answer_absent(once__op_t *op);

/* Answers an operation that travelled alone. 1: it goes on and must be sent again. */
int once__pg_read_single(const PGresult *result, once__op_t *op);

#endif
