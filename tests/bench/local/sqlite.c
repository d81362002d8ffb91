/*
 * SQLite: an ordinary (rowid) table, WAL, synchronous=FULL, prepared statements, a transaction for each batch.
 */
#include "contest.h"

#include <stddef.h>

#ifdef WITH_SQLITE

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <sqlite3.h>

#include "load.h"

typedef struct lite {
    contestant_t base;
    sqlite3 *db;
    sqlite3_stmt *begin, *commit, *claim, *complete;
    uint64_t next;
} lite_t;

static void check(const lite_t *lite, int ok)
{
    if (!ok) {
        contest_die("sqlite", lite->db != NULL ? sqlite3_errmsg(lite->db) : "cannot be opened");
    }
}

static sqlite3_stmt *prepare(const lite_t *lite, const char *text)
{
    sqlite3_stmt *statement = NULL;

    check(lite, sqlite3_prepare_v3(lite->db, text, -1, SQLITE_PREPARE_PERSISTENT, &statement,
                                   NULL) == SQLITE_OK);
    return statement;
}

static contestant_t *lite_open(const contestant_t *kind, const char *directory)
{
    lite_t *lite = calloc(1, sizeof(*lite));
    char path[600];

    if (lite == NULL) {
        contest_die("sqlite", "out of memory");
    }
    lite->base = *kind;
    (void)mkdir(directory, 0700);
    (void)snprintf(path, sizeof(path), "%s/records.db", directory);
    check(lite, sqlite3_open(path, &lite->db) == SQLITE_OK);
    check(lite, sqlite3_exec(lite->db,
                             "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
                             "PRAGMA cache_size=-65536;"
                             "CREATE TABLE record (id BLOB PRIMARY KEY NOT NULL, state INTEGER,"
                             " head BLOB, status INTEGER, response BLOB);",
                             NULL, NULL, NULL) == SQLITE_OK);
    lite->begin = prepare(lite, "BEGIN IMMEDIATE");
    lite->commit = prepare(lite, "COMMIT");
    lite->claim = prepare(lite, "INSERT OR IGNORE INTO record (id, state, head) VALUES (?, 1, ?)");
    lite->complete = prepare(lite, "UPDATE record SET state = 2, head = ?, status = 201,"
                                   " response = ? WHERE id = ? AND state = 1");
    return &lite->base;
}

static void step(const lite_t *lite, sqlite3_stmt *statement)
{
    check(lite, sqlite3_step(statement) == SQLITE_DONE);
    (void)sqlite3_reset(statement);
}

static void claim(const lite_t *lite, uint64_t n)
{
    static const uint8_t head[CONTEST_HEAD_SIZE] = {1};
    uint8_t id[CONTEST_ID_SIZE];

    contest_id(id, n);
    (void)sqlite3_bind_blob(lite->claim, 1, id, sizeof(id), SQLITE_STATIC);
    (void)sqlite3_bind_blob(lite->claim, 2, head, sizeof(head), SQLITE_STATIC);
    step(lite, lite->claim);
    check(lite, sqlite3_changes(lite->db) == 1);
}

static void complete(const lite_t *lite, uint64_t n)
{
    static const uint8_t head[CONTEST_HEAD_SIZE] = {2};
    uint8_t id[CONTEST_ID_SIZE];
    once_slice_t body = load_body(LOAD_SIMILAR, n);

    contest_id(id, n);
    (void)sqlite3_bind_blob(lite->complete, 1, head, sizeof(head), SQLITE_STATIC);
    (void)sqlite3_bind_blob(lite->complete, 2, body.data, (int)body.len, SQLITE_STATIC);
    (void)sqlite3_bind_blob(lite->complete, 3, id, sizeof(id), SQLITE_STATIC);
    step(lite, lite->complete);
    check(lite, sqlite3_changes(lite->db) == 1);
}

static void lite_run(contestant_t *self, uint64_t pairs, unsigned batch)
{
    lite_t *lite = (lite_t *)self;

    for (uint64_t done = 0; done < pairs; done += batch, lite->next += batch) {
        step(lite, lite->begin);
        for (unsigned i = 0; i < batch; i++) {
            claim(lite, lite->next + i);
        }
        step(lite, lite->commit);
        step(lite, lite->begin);
        for (unsigned i = 0; i < batch; i++) {
            complete(lite, lite->next + i);
        }
        step(lite, lite->commit);
    }
}

static void lite_close(contestant_t *self)
{
    lite_t *lite = (lite_t *)self;

    (void)sqlite3_finalize(lite->begin);
    (void)sqlite3_finalize(lite->commit);
    (void)sqlite3_finalize(lite->claim);
    (void)sqlite3_finalize(lite->complete);
    (void)sqlite3_close(lite->db);
    free(lite);
}

const contestant_t contest_sqlite = {"SQLite, WAL, FULL", lite_open, lite_run, lite_close};

#else

const contestant_t contest_sqlite = {NULL, NULL, NULL, NULL};

#endif
