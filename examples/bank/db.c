#include "db.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STATEMENTS_MAX 64
#define LOCK_MS        3000
#define STATEMENT_MS   10000

struct db {
    PGconn *conn; /* NULL: not connected */
    pool_t *pool;
    db_t *next; /* in the pool's list */
    const char *prepared[STATEMENTS_MAX];
    size_t prepared_count;
};

struct pool {
    char *conninfo;
    char options[160];
    pthread_mutex_t lock;
    pthread_cond_t given;
    db_t *idle;
    size_t size;
    db_t *all;
    char trouble[256];
};

pool_t *pool_new(const char *conninfo, size_t size, unsigned idle_ms)
{
    pool_t *pool = calloc(1, sizeof(*pool));
    db_t *all = calloc(size, sizeof(*all));

    if (pool == NULL || all == NULL || (pool->conninfo = strdup(conninfo)) == NULL) {
        fputs("bank: out of memory\n", stderr);
        abort();
    }
    snprintf(pool->options, sizeof(pool->options),
             "-c lock_timeout=%d -c statement_timeout=%d -c idle_in_transaction_session_timeout=%u",
             LOCK_MS, STATEMENT_MS, idle_ms);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->given, NULL);
    pool->size = size;
    pool->all = all;
    for (size_t i = 0; i < size; i++) {
        all[i].pool = pool;
        all[i].next = pool->idle;
        pool->idle = &all[i];
    }
    return pool;
}

void pool_free(pool_t *pool)
{
    for (size_t i = 0; i < pool->size; i++) {
        PQfinish(pool->all[i].conn);
    }
    pthread_cond_destroy(&pool->given);
    pthread_mutex_destroy(&pool->lock);
    free(pool->all);
    free(pool->conninfo);
    free(pool);
}

const char *pool_trouble(pool_t *pool)
{
    return pool->trouble;
}

static void disconnect(db_t *db)
{
    PQfinish(db->conn);
    db->conn = NULL;
    db->prepared_count = 0;
}

/* Notices are for people who type SQL. */
static void ignore_notice(void *data, const PGresult *result)
{
}

static int connect_to(db_t *db)
{
    const char *const names[] = {"dbname", "application_name", "connect_timeout", "options", NULL};
    const char *const values[] = {db->pool->conninfo, "bank", "5", db->pool->options, NULL};

    if (db->conn != NULL && PQstatus(db->conn) == CONNECTION_OK) {
        return 0;
    }
    disconnect(db);
    db->conn = PQconnectdbParams(names, values, 1); /* dbname may be a whole URL */
    if (PQstatus(db->conn) == CONNECTION_OK) {
        PQsetNoticeReceiver(db->conn, ignore_notice, NULL);
        return 0;
    }
    pthread_mutex_lock(&db->pool->lock);
    snprintf(db->pool->trouble, sizeof(db->pool->trouble), "%.*s",
             (int)strcspn(PQerrorMessage(db->conn), "\n"), PQerrorMessage(db->conn));
    pthread_mutex_unlock(&db->pool->lock);
    disconnect(db);
    return -1;
}

db_t *pool_take(pool_t *pool, unsigned timeout_ms)
{
    struct timespec end;
    db_t *db;
    int code = 0;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += timeout_ms / 1000;
    end.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    pthread_mutex_lock(&pool->lock);
    pool->trouble[0] = '\0';
    while (pool->idle == NULL && code != ETIMEDOUT) {
        code = pthread_cond_timedwait(&pool->given, &pool->lock, &end);
    }
    db = pool->idle;
    if (db != NULL) {
        pool->idle = db->next;
    }
    pthread_mutex_unlock(&pool->lock);
    if (db != NULL && connect_to(db) != 0) {
        pool_give(db);
        return NULL;
    }
    return db;
}

void pool_give(db_t *db)
{
    pool_t *pool = db->pool;

    if (db->conn != NULL && PQtransactionStatus(db->conn) != PQTRANS_IDLE) {
        disconnect(db); /* the server rolls back what was open */
    }
    pthread_mutex_lock(&pool->lock);
    db->next = pool->idle;
    pool->idle = db;
    pthread_cond_signal(&pool->given);
    pthread_mutex_unlock(&pool->lock);
}

PGconn *db_conn(db_t *db)
{
    return db->conn;
}

int db_pid(db_t *db)
{
    return PQbackendPID(db->conn);
}

db_end_t db_judge(db_t *db, const char *sqlstate, const char *message)
{
    static const struct {
        const char *state;
        db_end_t end;
    } meanings[] = {
        {"ON001", DB_STALE}, {"ON002", DB_ALREADY}, {"40001", DB_AGAIN}, {"40P01", DB_AGAIN},
        {"25P03", DB_AGAIN}, {"57P01", DB_AGAIN},   {"57P02", DB_AGAIN}, {"57P03", DB_AGAIN},
        {"55P03", DB_BUSY},  {"57014", DB_BUSY},
    };

    for (size_t i = 0; sqlstate != NULL && i < sizeof(meanings) / sizeof(meanings[0]); i++) {
        if (strcmp(sqlstate, meanings[i].state) == 0) {
            return meanings[i].end;
        }
    }
    if (PQstatus(db->conn) != CONNECTION_OK || sqlstate == NULL || sqlstate[0] == '\0' ||
        strncmp(sqlstate, "08", 2) == 0) {
        return DB_AGAIN;
    }
    fprintf(stderr, "bank: PostgreSQL says %s: %.*s\n", sqlstate, (int)strcspn(message, "\n"),
            message);
    return DB_FAILED;
}

static db_end_t judge(db_t *db, PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    const char *message;
    db_end_t end;

    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) {
        return DB_OK;
    }
    message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY); /* without values of rows */
    end =
        db_judge(db, PQresultErrorField(result, PG_DIAG_SQLSTATE), message != NULL ? message : "");
    PQclear(result);
    return end;
}

/* The number of a statement that is prepared on this connection; STATEMENTS_MAX: there is no room for more. */
static size_t statement(db_t *db, const char *sql, db_end_t *end)
{
    char name[16];
    size_t i = 0;
    PGresult *result;

    while (i < db->prepared_count && db->prepared[i] != sql) {
        i++;
    }
    *end = DB_OK;
    if (i == db->prepared_count && i < STATEMENTS_MAX) {
        snprintf(name, sizeof(name), "s%zu", i);
        result = PQprepare(db->conn, name, sql, 0, NULL);
        *end = judge(db, result);
        if (*end == DB_OK) {
            PQclear(result);
            db->prepared[db->prepared_count++] = sql;
        }
    }
    return i;
}

db_end_t db_run(db_t *db, const char *sql, size_t count, const char *const *values,
                PGresult **result)
{
    char name[16];
    PGresult *got;
    db_end_t end;
    size_t number = statement(db, sql, &end);

    if (end != DB_OK) {
        return end;
    }
    if (number < STATEMENTS_MAX) {
        snprintf(name, sizeof(name), "s%zu", number);
        got = PQexecPrepared(db->conn, name, (int)count, values, NULL, NULL, 0);
    } else {
        got = PQexecParams(db->conn, sql, (int)count, NULL, values, NULL, NULL, 0);
    }
    end = judge(db, got);
    if (end == DB_OK && result != NULL) {
        *result = got;
    } else if (end == DB_OK) {
        PQclear(got);
    }
    return end;
}

db_end_t db_run0(db_t *db, const char *sql)
{
    return db_run(db, sql, 0, NULL, NULL);
}

static db_end_t plain(db_t *db, const char *sql, const char *expected)
{
    PGresult *result = PQexec(db->conn, sql);
    db_end_t end = judge(db, result);

    if (end != DB_OK) {
        return end;
    }
    if (strcmp(PQcmdStatus(result), expected) != 0) {
        end = DB_FAILED; /* COMMIT of a transaction that had failed says ROLLBACK */
    }
    PQclear(result);
    return end;
}

db_end_t db_begin(db_t *db)
{
    return plain(db, "BEGIN", "BEGIN");
}

db_end_t db_commit(db_t *db, int *sent)
{
    db_end_t end = plain(db, "COMMIT", "COMMIT");

    if (sent != NULL) {
        *sent = end != DB_OK && PQstatus(db->conn) != CONNECTION_OK;
    }
    return end;
}

void db_rollback(db_t *db)
{
    if (db->conn != NULL && PQtransactionStatus(db->conn) != PQTRANS_IDLE) {
        PQclear(PQexec(db->conn, "ROLLBACK"));
    }
}
