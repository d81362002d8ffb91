/*
 * The statements that the store sends (statements.c), and how their results become answers (answers.c). Everything here is about
 * operations and bytes; connections are queue.c's business.
 */
#ifndef ONCE_STORE_POSTGRES_STATEMENTS_H
#define ONCE_STORE_POSTGRES_STATEMENTS_H

#include "pg/values.h"
#include "store/oplist.h"
#include "store/postgres/packing.h"

typedef enum once__postgres_statement {
    ONCE__POSTGRES_TIMEOUT, /* of the statements after it, until the transaction ends */
    ONCE__POSTGRES_CLAIM,
    ONCE__POSTGRES_APPLY, /* every other event */
    ONCE__POSTGRES_GET,
    ONCE__POSTGRES_SINGLE,   /* an operation that has a batch to itself */
    ONCE__POSTGRES_LEVEL,    /* of isolation; two statements */
    ONCE__POSTGRES_SETTINGS, /* of the session, for good */
    ONCE__POSTGRES_PREPARE,  /* the statement after it */
} once__postgres_statement_t;

/* The error of an operation that was sent and has no answer yet. It is positive, unlike any once_code_t. */
#define ONCE__POSTGRES_UNANSWERED 1

/*
 * The cursor of a reaping: the next page (8 bytes), and of which table (0: records, 1: messages). Of a scrubbing: how many steps
 * have got nowhere, whether it has begun, after which id it goes on (16 bytes), and what the pass has met (8 bytes).
 */
#define ONCE__POSTGRES_CURSOR_TABLE 8
#define ONCE__POSTGRES_CURSOR_TRIES 9
#define ONCE__POSTGRES_CURSOR_BEGUN 10
#define ONCE__POSTGRES_CURSOR_AFTER 16
#define ONCE__POSTGRES_CURSOR_STILL 32

#define ONCE__POSTGRES_FINGERPRINT_SIZE 37 /* as a row has it: secret, mode, HMAC */

/* `ms`, or the longest time that the server can calculate with. */
uint64_t once__postgres_clamp(uint64_t ms);

/* Which statement carries the operation. */
once__postgres_statement_t once__postgres_statement_of(const once__op_t *op);

typedef struct once__postgres_text {
    const char *statement;
    const char *name; /* under which it is prepared */
} once__postgres_text_t;

/* The text of `which`, and its parameters: the operations of `list` that it carries; the others are skipped. */
const once__postgres_text_t *once__postgres_fill(once__pg_params_t *params,
                                                 once__postgres_statement_t which,
                                                 const once__oplist_t *list,
                                                 once__postgres_packing_t *packing);

/* Each puts a statement into the pipeline (two for the level). Returns 0, or -1 as once__pg_put_statement. */
int once__postgres_send_timeout(PGconn *conn, once__pg_params_t *params, uint64_t timeout_ms);
int once__postgres_send_settings(PGconn *conn, once__pg_params_t *params, uint64_t timeout_ms);
int once__postgres_send_level(PGconn *conn, once__pg_params_t *params);
int once__postgres_send_single(PGconn *conn, once__pg_params_t *params, const once__op_t *op,
                               const once__postgres_packing_t *packing);

#endif
