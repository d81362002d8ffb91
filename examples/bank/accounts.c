/*
 * GET and PUT /accounts/{id}. Clients choose the ids: opening an account can be repeated. Changing one needs the version that the
 * change was made for (If-Match), so that a client cannot undo a change that it has not seen.
 *
 * The entity tag names the version of what PUT can change and the account's last ledger entry. A PUT is judged by the former: money
 * that came in meanwhile does not make another holder's name a conflict. If-None-Match is judged by both.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bank.h"
#include "fields.h"
#include "ledger.h"
#include "operation.h"

typedef struct account {
    char holder[FIELDS_TEXT_SIZE], currency[CURRENCY_SIZE];
    char limit[MONEY_SIZE]; /* "": none */
} account_t;

enum { ID, HOLDER, CURRENCY, LIMIT, BALANCE, TAG, VERSION, SAME }; /* columns */

#define SHOWN                                                                                      \
    "SELECT a.id, a.holder, a.currency, round(a.transfer_limit, c.digits), "                       \
    "       round(coalesce(l.balance, 0), c.digits), "                                             \
    "       '\"' || a.version || '-' || coalesce(l.number, 0) || '\"', a.version "
#define FROM                                                                                       \
    " FROM bank.accounts a JOIN bank.currencies c ON c.code = a.currency "                         \
    "LEFT JOIN LATERAL (SELECT balance, number FROM bank.ledger WHERE account = a.id "             \
    "                   ORDER BY number DESC LIMIT 1) AS l ON true "                               \
    "WHERE a.id = $1 AND a.customer = $2"

static void tell(const PGresult *row, int status, answer_t *answer)
{
    answer_json(answer, status, "application/json",
                json_pack("{s:s, s:s, s:s, s:s?, s:s}", "id", PQgetvalue(row, 0, ID), "holder",
                          PQgetvalue(row, 0, HOLDER), "currency", PQgetvalue(row, 0, CURRENCY),
                          "limit", PQgetisnull(row, 0, LIMIT) ? NULL : PQgetvalue(row, 0, LIMIT),
                          "balance", PQgetvalue(row, 0, BALANCE)));
    answer_header(answer, "ETag", PQgetvalue(row, 0, TAG));
}

static void unknown(answer_t *answer)
{
    answer_problem(answer, 404, "unknown-account", "you have no such account");
}

/* Is the tag among those of the header? They have no commas in them. */
static int matches(const char *header, const char *tag)
{
    size_t len = strlen(tag);

    if (strcmp(header, "*") == 0) {
        return 1;
    }
    for (const char *at = header; *at != '\0'; at += strcspn(at, ",")) {
        at += strspn(at, ", \t");
        if (strncmp(at, tag, len) == 0 && strchr(", \t", at[len]) != NULL) { /* or its end */
            return 1;
        }
    }
    return 0;
}

static db_end_t show(bank_t *bank, db_t *db, const request_t *request, void *data, int *unsure,
                     answer_t *answer)
{
    static const char find[] = SHOWN FROM;
    const char *values[] = {request_id(request), request->customer};
    PGresult *row;
    db_end_t end = db_run(db, find, 2, values, &row);

    if (end != DB_OK) {
        return end;
    }
    if (PQntuples(row) == 0) {
        unknown(answer);
    } else if (matches(request->if_none_match, PQgetvalue(row, 0, TAG))) {
        answer_bytes(answer, 304, NULL, "", 0);
        answer_header(answer, "ETag", PQgetvalue(row, 0, TAG));
    } else {
        tell(row, 200, answer);
    }
    PQclear(row);
    return DB_OK;
}

void accounts_get(bank_t *bank, const request_t *request, answer_t *answer)
{
    if (request->customer[0] == '\0') {
        answer_problem(answer, 401, "customer-missing", "the header Bank-Customer names nobody");
    } else if (!fields_is_id(request_id(request), 1)) {
        unknown(answer);
    } else {
        (void)operation_try(bank, request, show, NULL, answer);
    }
}

static int read_account(const request_t *request, account_t *account, answer_t *answer)
{
    json_t *fields = fields_read(request, answer);
    const json_t *limit = json_object_get(fields, "limit");
    int code = -1;

    account->limit[0] = '\0';
    if (fields != NULL && fields_text(fields, "holder", 1, account->holder, answer) == 0 &&
        fields_currency(fields, account->currency, answer) == 0 &&
        (limit == NULL || json_is_null(limit) ||
         fields_amount(fields, "limit", account->currency, account->limit, answer) == 0)) {
        code = 0;
    }
    json_decref(fields);
    return code;
}

/* The version that If-Match names: "VERSION-NUMBER", of which the number does not matter. 0: some other text. */
static int version_of(const char *if_match)
{
    int version = 0, end = 0;

    if (sscanf(if_match, "\"%9d-%*[0-9]\"%n", &version, &end) != 1 || if_match[end] != '\0' ||
        end == 0) {
        return 0;
    }
    return version;
}

/* An account of that name is there. Says so, changes it, or says why not. */
static db_end_t change(db_t *db, const request_t *request, const account_t *account,
                       const PGresult *old, answer_t *answer)
{
    static const char update[] =
        "UPDATE bank.accounts SET holder = $2, transfer_limit = nullif($3, '')::numeric, "
        "                         version = version + 1 WHERE id = $1";
    const char *values[] = {request_id(request), account->holder, account->limit};

    if (PQgetvalue(old, 0, SAME)[0] == 't') {
        tell(old, 200, answer); /* as it shall be, maybe because an earlier try did it */
    } else if (strcmp(PQgetvalue(old, 0, CURRENCY), account->currency) != 0) {
        answer_problem(answer, 422, "other-currency", "an account keeps its currency");
    } else if (strcmp(request->if_none_match, "*") == 0) {
        answer_problem(answer, 412, "exists", "there is such an account already");
    } else if (request->if_match[0] == '\0') {
        answer_problem(answer, 428, "if-match-missing",
                       "If-Match must name the version that this changes: its ETag");
    } else if (strcmp(request->if_match, "*") != 0 &&
               version_of(request->if_match) != atoi(PQgetvalue(old, 0, VERSION))) {
        answer_problem(answer, 412, "stale-version", "it has been changed since: read it again");
    } else {
        answer->status = 200;
        return db_run(db, update, 3, values, NULL);
    }
    return DB_OK;
}

/* There is none of that name, or it belongs to someone else. */
static db_end_t open_account(db_t *db, const request_t *request, const account_t *account,
                             answer_t *answer)
{
    static const char insert[] =
        "INSERT INTO bank.accounts (id, customer, holder, currency, transfer_limit) "
        "VALUES ($1, $2, $3, $4, nullif($5, '')::numeric) ON CONFLICT DO NOTHING RETURNING id";
    const char *values[] = {request_id(request), request->customer, account->holder,
                            account->currency, account->limit};
    PGresult *row;
    db_end_t end;

    if (request->if_match[0] != '\0') {
        answer_problem(answer, 412, "stale-version", "there is no such account");
        return DB_OK;
    }
    end = db_run(db, insert, 5, values, &row);
    if (end == DB_OK) {
        if (PQntuples(row) == 1) {
            answer->status = 201;
        } else {
            answer_problem(answer, 409, "id-taken", "this id belongs to another customer");
        }
        PQclear(row);
    }
    return end;
}

/* One at a time for the account's name, whether it is there or not: then nothing happens between looking and writing. */
static db_end_t put(bank_t *bank, db_t *db, const request_t *request, void *data, int *unsure,
                    answer_t *answer)
{
    static const char look[] =
        SHOWN ", a.holder = $3 AND a.currency = $4 AND "
              "  a.transfer_limit IS NOT DISTINCT FROM nullif($5, '')::numeric" FROM;
    const account_t *account = data;
    const char *id = request_id(request);
    const char *values[] = {id, request->customer, account->holder, account->currency,
                            account->limit};
    PGresult *row = NULL;
    db_end_t end = db_begin(db);

    answer_clear(answer);
    if (end == DB_OK) {
        end = ledger_lock(db, id, id);
    }
    if (end == DB_OK) {
        end = db_run(db, look, 5, values, &row);
    }
    if (end == DB_OK) {
        end = PQntuples(row) > 0 ? change(db, request, account, row, answer)
                                 : open_account(db, request, account, answer);
    }
    PQclear(row);
    if (end == DB_OK && answer->body == NULL) { /* written: as it is now */
        end = db_run(db, look, 5, values, &row);
        if (end == DB_OK) {
            tell(row, answer->status, answer);
            PQclear(row);
        }
    }
    return end == DB_OK ? db_commit(db, unsure) : end;
}

void accounts_put(bank_t *bank, const request_t *request, answer_t *answer)
{
    account_t account;

    if (request->customer[0] == '\0') {
        answer_problem(answer, 401, "customer-missing", "the header Bank-Customer names nobody");
    } else if (!fields_is_id(request_id(request), 0)) {
        answer_problem(
            answer, 422, "bad-account",
            "an account's id is 1 to 64 letters, digits, points, dashes and underscores");
    } else if (read_account(request, &account, answer) == 0) {
        (void)operation_try(bank, request, put, &account, answer);
    }
}
