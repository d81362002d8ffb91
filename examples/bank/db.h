/*
 * PostgreSQL: a bounded pool of connections, statements that are prepared once per connection, and what an error means.
 */
#ifndef EXAMPLES_BANK_DB_H
#define EXAMPLES_BANK_DB_H

#include <stddef.h>

#include <libpq-fe.h>

typedef struct pool pool_t;
typedef struct db db_t; /* one connection, used by one thread at a time */

typedef enum db_end {
    DB_OK = 0,
    DB_AGAIN, /* the connection is gone, or the server ended the transaction to let another one go on: begin it again */
    DB_BUSY,  /* waited for another transaction for too long */
    DB_STALE, /* the claim is no longer ours (ON001) */
    DB_ALREADY, /* this claim is completed already (ON002) */
    DB_FAILED,  /* anything else: reported on standard error */
} db_end_t;

/*
 * At most `size` connections, made when they are needed. `idle_ms`: a transaction that is idle for longer is ended by
 * the server, so that a process that hangs does not keep others from an account.
 */
pool_t *pool_new(const char *conninfo, size_t size, unsigned idle_ms);
void pool_free(pool_t *pool);

/* A connection that works, or NULL when there is none in time. It goes back with pool_give, whatever state it is in. */
db_t *pool_take(pool_t *pool, unsigned timeout_ms);
void pool_give(db_t *db);

/* Why the last pool_take had no connection; "" when all were in use. */
const char *pool_trouble(pool_t *pool);

/*
 * Runs one statement; values are texts, NULL is null. `sql` must be a constant: it is prepared once, and known by its address.
 * `result` may be NULL; it is set only with DB_OK, and the caller's to PQclear.
 */
db_end_t db_run(db_t *db, const char *sql, size_t count, const char *const *values,
                PGresult **result);
db_end_t db_run0(db_t *db, const char *sql);

/* What became of a statement that was run on db_conn by other means: for a SQLSTATE, or a connection that is gone. */
db_end_t db_judge(db_t *db, const char *sqlstate, const char *message);

PGconn *db_conn(db_t *db);
int db_pid(db_t *db); /* of the process that serves it */

/*
 * BEGIN and COMMIT. A COMMIT that was not answered is DB_AGAIN with `*sent` set: it may have happened. db_rollback is for every
 * other end, and never fails.
 */
db_end_t db_begin(db_t *db);
db_end_t db_commit(db_t *db, int *sent);
void db_rollback(db_t *db);

#endif
