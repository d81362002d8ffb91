#include "sql.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <once/once.h>

#define TEXT_SIZE 8192

static char *next_text(void)
{
    static char texts[64][TEXT_SIZE];
    static unsigned n;

    return texts[n++ % 64];
}

PGconn *sql_connect(const char *user)
{
    static const char *const keywords[] = {"dbname", "user", NULL};
    const char *values[] = {getenv("ONCE_PG_URL"), user, NULL};
    PGconn *conn;

    assert_non_null(values[0]);
    conn = PQconnectdbParams(keywords, values, 1);
    assert_int_equal(PQstatus(conn), CONNECTION_OK);
    /* A test that failed in the middle of a transaction must not let the next one wait for ever. */
    sql_run(conn, "SET statement_timeout = '30s'; SET idle_in_transaction_session_timeout = '60s'");
    return conn;
}

void sql_open_store(PGconn *conn)
{
    once_t *once = NULL;
    once_error_t err;

    assert_int_equal(once_open(getenv("ONCE_PG_GATEWAY_URL"), NULL, &once, &err), ONCE_OK);
    for (int i = 0; i < 200 && strcmp(sql_one(conn, "SELECT count(*) FROM once.secrets"), "1") != 0;
         i++) {
        assert_true(once_wait(once, 50) >= 0);
    }
    assert_int_equal(once_close(once, 1000), ONCE_OK);
}

__attribute__((format(printf, 2, 0))) static PGresult *execute(PGconn *conn, const char *format,
                                                               va_list args)
{
    char text[TEXT_SIZE];
    int len = vsnprintf(text, sizeof(text), format, args);

    assert_true(len >= 0 && (size_t)len < sizeof(text));
    return PQexec(conn, text);
}

static const char *value_of(PGconn *conn, PGresult *result)
{
    char *text = next_text();

    if (PQresultStatus(result) != PGRES_TUPLES_OK && PQresultStatus(result) != PGRES_COMMAND_OK) {
        print_error("%s", PQerrorMessage(conn));
        fail();
    }
    snprintf(text, TEXT_SIZE, "%s", PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : "(none)");
    PQclear(result);
    return text;
}

void sql_run(PGconn *conn, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)value_of(conn, execute(conn, format, args));
    va_end(args);
}

const char *sql_one(PGconn *conn, const char *format, ...)
{
    const char *text;
    va_list args;

    va_start(args, format);
    text = value_of(conn, execute(conn, format, args));
    va_end(args);
    return text;
}

const char *sql_state(PGconn *conn, const char *format, ...)
{
    char *text = next_text();
    const char *state;
    PGresult *result;
    va_list args;

    va_start(args, format);
    result = execute(conn, format, args);
    va_end(args);
    state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    snprintf(text, TEXT_SIZE, "%s", state != NULL ? state : "00000");
    if (strncmp(text, "ON", 2) == 0) {
        const char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);
        assert_true(hint != NULL && hint[0] != '\0');
    }
    PQclear(result);
    return text;
}

void sql_start(PGconn *conn, const char *text)
{
    assert_int_equal(PQsendQuery(conn, text), 1);
}

int sql_waits(PGconn *conn, int ms)
{
    struct pollfd p = {.fd = PQsocket(conn), .events = POLLIN};

    return poll(&p, 1, ms) == 0;
}

const char *sql_end(PGconn *conn)
{
    PGresult *result = PQgetResult(conn);
    const char *text = value_of(conn, result);

    while ((result = PQgetResult(conn)) != NULL) {
        PQclear(result);
    }
    return text;
}
