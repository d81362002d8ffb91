#include "payout.h"

#include <stdio.h>
#include <string.h>

#include "ledger.h"

static db_end_t find_objection(db_t *db, const request_t *request, const payout_t *payout,
                               const char **name, const char **detail)
{
    static const char look[] =
        "SELECT a.currency = $3, coalesce(l.balance, 0) >= $4::numeric, "
        "       coalesce(a.transfer_limit < $4::numeric, false) FROM bank.accounts a "
        "LEFT JOIN LATERAL (SELECT balance FROM bank.ledger WHERE account = a.id "
        "                   ORDER BY number DESC LIMIT 1) AS l ON true "
        "WHERE a.id = $1 AND a.customer = $2 AND a.id NOT LIKE '@%'";
    const char *values[] = {payout->account, request->customer, payout->currency, payout->amount};
    PGresult *row;
    db_end_t end = db_run(db, look, 4, values, &row);

    *name = NULL;
    if (end != DB_OK) {
        return end;
    }
    if (PQntuples(row) == 0) {
        *name = "unknown-account", *detail = "account: you have no such account";
    } else if (PQgetvalue(row, 0, 0)[0] != 't') {
        *name = "other-currency", *detail = "the account is in another currency";
    } else if (PQgetvalue(row, 0, 2)[0] == 't') {
        *name = "over-limit", *detail = "the amount is above the limit of the account";
    } else if (PQgetvalue(row, 0, 1)[0] != 't') {
        *name = "insufficient-funds", *detail = "the account does not have that much";
    }
    PQclear(row);
    return DB_OK;
}

/*
 * The key has paid out before, and once no longer knows (its record expired or was purged). What was only reserved goes on from
 * there: the payout keeps its id, and the provider is asked with the same key. `*found` 0: there is none.
 */
static db_end_t find_earlier(db_t *db, const request_t *request, payout_t *payout, int *found,
                             answer_t *answer)
{
    static const char find[] =
        "SELECT " SHOWN ", (p.account, p.destination, p.amount, p.currency) = "
        "                  ($3, $4, $5::numeric, $6) "
        "FROM bank.payouts p JOIN bank.currencies c ON c.code = p.currency "
        "WHERE p.customer = $1 AND p.idempotency_key = $2";
    const char *values[] = {request->customer,   request->key->text, payout->account,
                            payout->destination, payout->amount,     payout->currency};
    PGresult *row;
    db_end_t end = db_run(db, find, 6, values, &row);

    if (end != DB_OK) {
        return end;
    }
    *found = PQntuples(row) > 0;
    if (*found && PQgetvalue(row, 0, 6)[0] != 't') {
        answer_problem(answer, 422, "key-reused", "this key was used for another payout");
    } else if (*found && strcmp(PQgetvalue(row, 0, 1), "reserved") == 0) {
        snprintf(payout->id, sizeof(payout->id), "%s", PQgetvalue(row, 0, 0));
    } else if (*found && strcmp(PQgetvalue(row, 0, 1), "paid") == 0) {
        payout_tell(row, 201, answer);
    } else if (*found) {
        payout_refused(answer);
    }
    PQclear(row);
    return DB_OK;
}

static db_end_t write_reservation(db_t *db, const request_t *request, payout_t *payout)
{
    static const char insert[] =
        "INSERT INTO bank.payouts (id, customer, idempotency_key, account, destination, amount, "
        "                          currency) VALUES ($1, $2, $3, $4, $5, $6, $7)";
    const char *values[] = {payout->id,      request->customer,   request->key->text,
                            payout->account, payout->destination, payout->amount,
                            payout->currency};
    char reserved[FIELDS_ID_SIZE], cause[64];
    db_end_t end = db_run(db, insert, 7, values, NULL);

    payout_own_account(reserved, "reserved", payout->currency);
    snprintf(cause, sizeof(cause), "%s:reserve", payout->id);
    if (end == DB_OK) {
        end = ledger_move(db, cause, payout->account, reserved, payout->amount);
    }
    return end;
}

db_end_t payout_reserve(db_t *db, const request_t *request, payout_t *payout, answer_t *answer)
{
    char reserved[FIELDS_ID_SIZE];
    const char *name = NULL, *detail = NULL;
    int found = 0;
    db_end_t end;

    payout_own_account(reserved, "reserved", payout->currency);
    end = ledger_lock(db, payout->account, reserved);
    if (end == DB_OK) {
        end = find_earlier(db, request, payout, &found, answer);
    }
    if (end == DB_OK && !found) {
        end = find_objection(db, request, payout, &name, &detail);
    }
    if (end != DB_OK || (found && answer->body != NULL)) {
        return end;
    }
    if (name != NULL) {
        answer_problem(answer, 422, name, detail);
        return DB_OK;
    }
    if (!found) {
        end = once_key_uuid7(payout->id) == ONCE_OK ? write_reservation(db, request, payout)
                                                    : DB_FAILED;
    }
    return end == DB_OK ? payout_checkpoint(db, payout, "reserved") : end;
}
