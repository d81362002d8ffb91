/*
 * POST /transfers {from, to, amount, currency, reference}: money moves from one account to another, once.
 */
#include <stdio.h>
#include <string.h>

#include "bank.h"
#include "door.h"
#include "fields.h"
#include "ledger.h"
#include "operation.h"

typedef struct transfer {
    char from[FIELDS_ID_SIZE], to[FIELDS_ID_SIZE];
    char amount[MONEY_SIZE], currency[CURRENCY_SIZE];
    char reference[FIELDS_TEXT_SIZE];
} transfer_t;

/* Columns of a transfer as an answer shows them. */
#define SHOWN                                                                                      \
    "t.id, round(t.amount, c.digits), t.currency, "                                                \
    "to_char(t.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"

static int read_transfer(const request_t *request, transfer_t *transfer, answer_t *answer)
{
    json_t *fields = fields_read(request, answer);
    int code = -1;

    if (fields != NULL && fields_account(fields, "from", transfer->from, answer) == 0 &&
        fields_account(fields, "to", transfer->to, answer) == 0 &&
        fields_currency(fields, transfer->currency, answer) == 0 &&
        fields_amount(fields, "amount", transfer->currency, transfer->amount, answer) == 0 &&
        fields_text(fields, "reference", 0, transfer->reference, answer) == 0) {
        code = 0;
    }
    json_decref(fields);
    if (code == 0 && strcmp(transfer->from, transfer->to) == 0) {
        answer_problem(answer, 422, "same-account", "money cannot go where it is");
        code = -1;
    }
    return code;
}

static void tell(const PGresult *row, int status, answer_t *answer)
{
    char location[80];

    answer_json(answer, status, "application/json",
                json_pack("{s:s, s:s, s:s, s:s, s:s}", "transaction_id", PQgetvalue(row, 0, 0),
                          "status", "completed", "amount", PQgetvalue(row, 0, 1), "currency",
                          PQgetvalue(row, 0, 2), "created_at", PQgetvalue(row, 0, 3)));
    snprintf(location, sizeof(location), "/transfers/%s", PQgetvalue(row, 0, 0));
    answer_header(answer, "Location", location);
}

/* What forbids it; NULL: nothing does. Both accounts are locked, so what is read here stays true. */
static db_end_t find_objection(db_t *db, const request_t *request, const transfer_t *t,
                               const char **objection)
{
    static const char look[] =
        "SELECT coalesce(bool_or(a.id = $1 AND a.customer = $5), false), "
        "       coalesce(bool_or(a.id = $2 AND (a.id NOT LIKE '@%' OR $5 = '@bank')), false), "
        "       bool_and(a.currency = $4), "
        "       coalesce(bool_or(a.id = $1 AND a.transfer_limit < $3::numeric), false), "
        "       bool_or(a.id = $1 AND (coalesce(l.balance, 0) >= $3::numeric OR a.id LIKE '@%')) "
        "FROM bank.accounts a "
        "LEFT JOIN LATERAL (SELECT balance FROM bank.ledger WHERE account = a.id "
        "                   ORDER BY number DESC LIMIT 1) AS l ON true "
        "WHERE a.id IN ($1, $2)";
    const char *values[] = {t->from, t->to, t->amount, t->currency, request->customer};
    PGresult *row;
    db_end_t end = db_run(db, look, 5, values, &row);

    *objection = NULL;
    if (end != DB_OK) {
        return end;
    }
    if (PQgetvalue(row, 0, 0)[0] != 't') {
        *objection = "unknown-account: from: you have no such account";
    } else if (PQgetvalue(row, 0, 1)[0] != 't') {
        *objection = "unknown-account: to: there is no such account";
    } else if (PQgetvalue(row, 0, 2)[0] != 't') {
        *objection = "other-currency: both accounts must be in the transfer's currency";
    } else if (PQgetvalue(row, 0, 3)[0] == 't') {
        *objection = "over-limit: the amount is above the limit for one transfer";
    } else if (PQgetvalue(row, 0, 4)[0] != 't') {
        *objection = "insufficient-funds: the account does not have that much";
    }
    PQclear(row);
    return DB_OK;
}

/* "name: detail" as a problem. */
static void refuse(const char *objection, answer_t *answer)
{
    char name[32];
    size_t len = strcspn(objection, ":");

    snprintf(name, sizeof(name), "%.*s", (int)len, objection);
    answer_problem(answer, 422, name, objection + len + 2);
}

/*
 * The key has moved money before, and once no longer knows (its record expired or was purged): the answer of then, if the request
 * is the same.
 */
static db_end_t find_earlier(db_t *db, const request_t *request, const transfer_t *t, int *found,
                             answer_t *answer)
{
    static const char find[] =
        "SELECT " SHOWN ", (t.from_account, t.to_account, t.amount, t.currency, t.reference) = "
        "                  ($3, $4, $5::numeric, $6, $7) "
        "FROM bank.transfers t JOIN bank.currencies c ON c.code = t.currency "
        "WHERE t.customer = $1 AND t.idempotency_key = $2";
    const char *values[] = {request->customer, request->key->text, t->from,     t->to,
                            t->amount,         t->currency,        t->reference};
    PGresult *row;
    db_end_t end = db_run(db, find, 7, values, &row);

    if (end != DB_OK) {
        return end;
    }
    *found = PQntuples(row) > 0;
    if (*found && PQgetvalue(row, 0, 4)[0] == 't') {
        tell(row, 201, answer);
    } else if (*found) {
        answer_problem(answer, 422, "key-reused", "this key was used for another transfer");
    }
    PQclear(row);
    return DB_OK;
}

/* Writes the transfer, and says in the same statement whether it was there before. */
static db_end_t insert(db_t *db, const request_t *request, const transfer_t *t, PGresult **row)
{
    static const char write[] =
        "WITH t AS ("
        "    INSERT INTO bank.transfers (id, customer, idempotency_key, from_account, to_account, "
        "                                amount, currency, reference) "
        "    VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING RETURNING *) "
        "SELECT " SHOWN " FROM t JOIN bank.currencies c ON c.code = t.currency";
    char id[ONCE_UUID_SIZE];
    const char *values[] = {id,    request->customer, request->key->text, t->from,
                            t->to, t->amount,         t->currency,        t->reference};

    return once_key_uuid7(id) == ONCE_OK ? db_run(db, write, 8, values, row) : DB_FAILED;
}

static db_end_t move(db_t *db, const request_t *request, const char *claim, const transfer_t *t,
                     const PGresult *row)
{
    const char *id = PQgetvalue(row, 0, 0);
    db_end_t end = ledger_move(db, id, t->from, t->to, t->amount);
    once_pg_event_t event = ONCE_PG_EVENT_INIT;

    if (end != DB_OK) {
        return end;
    }
    event.claim = claim;
    event.topic = "bank.transfers";
    event.key = t->from;
    event.type = "transfer.completed";
    return door_emit(db, &event, request->traceparent,
                     json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "transaction_id", id, "from",
                               t->from, "to", t->to, "amount", t->amount, "currency", t->currency,
                               "reference", t->reference));
}

static db_end_t refuse_or_tell(db_t *db, const request_t *request, const transfer_t *t,
                               const char *objection, answer_t *answer)
{
    int found;
    db_end_t end = find_earlier(db, request, t, &found, answer);

    if (end == DB_OK && !found) {
        refuse(objection, answer);
    }
    return end;
}

static db_end_t work(db_t *db, const request_t *request, const char *claim, void *data,
                     answer_t *answer)
{
    const char *objection = NULL;
    PGresult *row = NULL;
    transfer_t t;
    int found;
    db_end_t end;

    if (read_transfer(request, &t, answer) != 0) {
        return DB_OK;
    }
    end = ledger_lock(db, t.from, t.to);
    if (end == DB_OK) {
        end = find_objection(db, request, &t, &objection);
    }
    if (end != DB_OK) {
        return end;
    }
    if (objection != NULL) {
        return refuse_or_tell(db, request, &t, objection, answer);
    }
    end = insert(db, request, &t, &row);
    if (end == DB_OK && PQntuples(row) == 0) {
        end = find_earlier(db, request, &t, &found, answer);
    } else if (end == DB_OK) {
        tell(row, 201, answer);
        end = move(db, request, claim, &t, row);
    }
    PQclear(row);
    return end;
}

void transfers_post(bank_t *bank, const request_t *request, answer_t *answer)
{
    operation_run(bank, request, work, NULL, answer);
}

void transfers_get(bank_t *bank, const request_t *request, answer_t *answer)
{
    thing_t thing = {"SELECT " SHOWN
                     " FROM bank.transfers t JOIN bank.currencies c ON c.code = t.currency "
                     "WHERE t.id = $1::uuid AND t.customer = $2",
                     "unknown-transfer", "you have made no such transfer", tell};

    operation_show(bank, request, &thing, answer);
}
