/*
 * Payments that are made exactly once: the payment and the record of it are one transaction. Runs behind `once gate`.
 *     DATABASE=postgres://shop@localhost/shop PORT=3000 payments
 */
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <once/postgres.h>

#include "http.h"

static const char charge[] =
    "INSERT INTO accounts AS a (id, spent) VALUES ($3, $4::numeric) ON CONFLICT (id) DO UPDATE SET "
    "spent = a.spent + $4::numeric WHERE a.spent + $4::numeric <= a.credit RETURNING xmax = 0";
static const char keep[] = "INSERT INTO payments (idempotency_key, order_id, account, amount) "
                           "VALUES (btrim($1, '\"'), $2, $3, $4::numeric) RETURNING id";

/* A statement of the business: 1 and its value, 0 when there is no row, -1 when it failed. */
static int sql(PGconn *db, const char *text, const char *const asked[], char value[32])
{
    static const Oid types[FIELDS] = {25, 25, 25, 25}; /* text; few statements use all of them */
    PGresult *result = PQexecParams(db, text, FIELDS, types, asked, NULL, NULL, 0);
    int rows = PQresultStatus(result) == PGRES_TUPLES_OK ? PQntuples(result) : -1;

    snprintf(value, 32, "%s", rows > 0 ? PQgetvalue(result, 0, 0) : "");
    PQclear(result);
    return rows;
}

/* The business. What it decides is recorded, whether money moved or not. 0: a statement failed. */
static int pay(PGconn *db, const char *const asked[], char body[HTTP_BODY])
{
    char id[32], first[32] = ""; /* the account's row was inserted just now, and by us (xmax = 0) */
    /* One at a time for this order: a second click may well come with a key of its own. */
    int rows = sql(db, "SELECT once.lock('order:' || $2)", asked, id);

    rows = rows > 0 ? sql(db, "SELECT id FROM payments WHERE order_id = $2", asked, id) : -1;
    if (rows > 0) {
        snprintf(body, HTTP_BODY, "{\"error\": \"this order is paid\", \"payment\": %s}", id);
        return 409;
    }
    rows = rows == 0 ? sql(db, charge, asked, first) : -1;
    if (rows == 0) { /* the guard of the UPSERT did not let it through */
        snprintf(body, HTTP_BODY, "{\"error\": \"over the limit of the account\"}");
        return 402;
    }
    rows = rows > 0 ? sql(db, keep, asked, id) : -1;
    snprintf(body, HTTP_BODY, "{\"payment\":%s,\"order\":\"%s\",\"amount\":\"%s\",\"first\":%s}",
             id, asked[ORDER], asked[AMOUNT], first[0] == 't' ? "true" : "false");
    return rows > 0 ? 201 : 0;
}

/* The status, or 0: rolled back; or unknown, because the reply to COMMIT was lost. */
static int transaction(PGconn *db, const char *claim, const char *const asked[], char *body)
{
    once_header_t header = {{"Content-Type", 12}, {"application/json", 16}};
    once_response_t response = {.size = sizeof(response), .headers = &header, .header_count = 1};
    once_pg_answer_t *stored = NULL;
    once_error_t err = {0};

    PQclear(PQexec(db, "BEGIN"));
    if (once_pg_renew(db, claim, 0, &err) == ONCE_OK && /* still ours? */
        (response.status = pay(db, asked, body)) != 0) {
        response.body = (once_slice_t){body, strlen(body)};
        if (once_pg_complete(db, claim, &response, &err) == ONCE_OK) {
            PGresult *result = PQexec(db, "COMMIT");
            response.status = PQresultStatus(result) == PGRES_COMMAND_OK ? response.status : 0;
            PQclear(result);
            return response.status;
        }
    }
    PQclear(PQexec(db, "ROLLBACK"));
    response.status = 0;
    if (err.code == ONCE_E_COMPLETED && once_pg_recorded(db, claim, &stored, &err) == ONCE_OK &&
        once_pg_response(stored, &response) == ONCE_OK) { /* we were here before */
        snprintf(body, HTTP_BODY, "%.*s", (int)response.body.len, (const char *)response.body.data);
    }
    once_pg_answer_free(stored);
    return response.status;
}

static int handle(const http_request_t *request, char body[HTTP_BODY])
{
    int status = 0;

    for (int i = 0; i < 2 && status == 0; i++) { /* a COMMIT whose reply was lost may be done */
        PGconn *db = PQconnectdb(getenv("DATABASE") != NULL ? getenv("DATABASE") : "");
        status = transaction(db, request->claim, request->asked, body);
        PQfinish(db);
    }
    return status != 0 ? status : 503; /* stale, or no database: the gate answers from the record */
}

int main(void)
{
    return http_serve("/payments", handle);
}
