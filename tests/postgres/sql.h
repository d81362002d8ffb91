/*
 * SQL in tests: short ways to ask and to compare.
 */
#ifndef TESTS_POSTGRES_SQL_H
#define TESTS_POSTGRES_SQL_H

#include "support/testing.h"

#include <libpq-fe.h>

/* A connection to the test's server, as this user (NULL: the owner). */
PGconn *sql_connect(const char *user);

/* Opens the store once with the library: the first one creates the secrets. */
void sql_open_store(PGconn *conn);

/* Runs statements that must succeed. */
void sql_run(PGconn *conn, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The only value of the only row; lives for the next 63 calls. "" for NULL; "(none)" when there is no row. */
const char *sql_one(PGconn *conn, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The SQLSTATE that a statement fails with; "00000" if it does not. Every error of once has a hint. */
const char *sql_state(PGconn *conn, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Starts a statement; whether it is still waiting after `ms`; ends it and gives its value. */
void sql_start(PGconn *conn, const char *text);
int sql_waits(PGconn *conn, int ms);
const char *sql_end(PGconn *conn);

#endif
