/*
 * What the commands `once pg ...` share: a connection, and the SQL that is installed.
 */
#ifndef ONCE_CLI_PG_H
#define ONCE_CLI_PG_H

#include <libpq-fe.h>

#include "cli/cli.h"

#define ONCE__CLI_PG_FILES_MAX 64

/* The SQL to apply: built in, or read from a directory that is laid out like sql/. */
typedef struct once__cli_pg_sql {
    struct {
        const char *name;
        const char *text;
    } files[ONCE__CLI_PG_FILES_MAX];
    size_t count;
    int newest;                               /* version */
    char *memory[2 * ONCE__CLI_PG_FILES_MAX]; /* of what was read; NULL where nothing was */
} once__cli_pg_sql_t;

/* `directory` NULL: built in. Returns ONCE__CLI_OK, or an exit code after an error message. */
int once__cli_pg_sql_load(once__cli_pg_sql_t *sql, const char *directory);
void once__cli_pg_sql_free(once__cli_pg_sql_t *sql);

/* The version that a file brings (0004.sql), or goes before (0004-before.sql); 0: it is none of these. */
int once__cli_pg_file_version(const char *name);
int once__cli_pg_before_version(const char *name);

/* The URL without the parameters that are once's own (ttl, store_timeout, ...); malloc'd. NULL when out of memory. */
char *once__cli_pg_libpq_url(const char *url);

/* Connects, without parameters that are not libpq's. Returns ONCE__CLI_OK, or an exit code after an error message. */
int once__cli_pg_connect(const char *url, PGconn **conn);

/* Says the first line of the server's or libpq's last complaint, with `what` before it. conn may be NULL. */
void once__cli_pg_complain(PGconn *conn, const char *what);

/*
 * Begins a transaction in which names are found in pg_catalog alone: the connection's search_path may lead to what other roles
 * have made. For the transaction, and not the session, which may be a pooler's. Returns 0, or -1 after an error message.
 */
int once__cli_pg_begin(PGconn *conn);

/* Runs statements; says what went wrong, with `what` before it. 0 or -1. */
int once__cli_pg_run(PGconn *conn, const char *what, const char *statements);

/* The first column of the first row, malloc'd; NULL if there is none, or after an error message. "" for NULL. */
char *once__cli_pg_ask(PGconn *conn, const char *query);

/* The installed version; 0: none, -1: unknown, after an error message. */
int once__cli_pg_version(PGconn *conn);

#endif
