#include "payout.h"

#include <stdio.h>
#include <string.h>

#include "door.h"
#include "ledger.h"
#include "stops.h"

static db_end_t write_end(db_t *db, const payout_t *payout, answer_t *answer)
{
    static const char update[] =
        "WITH p AS (UPDATE bank.payouts SET status = $2, provider_id = nullif($3, '') "
        "           WHERE id = $1 AND status = 'reserved' RETURNING *) "
        "SELECT " SHOWN "FROM p JOIN bank.currencies c ON c.code = p.currency";
    int paid = payout->end == PROVIDER_PAID;
    const char *values[] = {payout->id, paid ? "paid" : "returned", payout->provider_id};
    PGresult *row;
    db_end_t end = db_run(db, update, 3, values, &row);

    if (end != DB_OK) {
        return end;
    }
    if (PQntuples(row) == 0) {
        fprintf(stderr, "bank: payout %s was ended before\n", payout->id);
        end = DB_FAILED;
    } else if (paid) {
        payout_tell(row, 201, answer);
    } else {
        payout_refused(answer);
    }
    PQclear(row);
    return end;
}

static db_end_t emit(db_t *db, const payout_t *payout)
{
    int paid = payout->end == PROVIDER_PAID;

    once_pg_event_t event = ONCE_PG_EVENT_INIT;

    event.claim = payout->claim;
    event.topic = "bank.payouts";
    event.key = payout->account;
    event.type = paid ? "payout.paid" : "payout.returned";
    return door_emit(db, &event, payout->traceparent,
                     json_pack("{s:s, s:s, s:s, s:s}", "payout_id", payout->id, "account",
                               payout->account, "amount", payout->amount, "currency",
                               payout->currency));
}

db_end_t payout_settle(bank_t *bank, db_t *db, const request_t *request, void *data, int *unsure,
                       answer_t *answer)
{
    payout_t *payout = data;
    char reserved[FIELDS_ID_SIZE], to[FIELDS_ID_SIZE], cause[64];
    int paid = payout->end == PROVIDER_PAID;
    json_t *state = NULL;
    db_end_t end = db_begin(db);

    payout_own_account(reserved, "reserved", payout->currency);
    payout_own_account(to, "outside", payout->currency);
    snprintf(cause, sizeof(cause), "%s:%s", payout->id, paid ? "settle" : "return");
    if (!paid) {
        memcpy(to, payout->account, sizeof(to));
    }
    if (end == DB_OK) { /* did an earlier try of this very transaction commit after all? */
        end = door_resume(db, payout->claim, payout->step, &state);
        json_decref(state);
    }
    if (end == DB_OK) {
        end = ledger_lock(db, reserved, to);
    }
    if (end == DB_OK) {
        end = write_end(db, payout, answer);
    }
    if (end == DB_OK) {
        end = ledger_move(db, cause, reserved, to, payout->amount);
    }
    if (end == DB_OK) {
        end = emit(db, payout);
    }
    if (end == DB_OK) {
        end = door_complete(db, payout->claim, answer);
    }
    if (end == DB_ALREADY) {
        return door_recorded(db, payout->claim, answer);
    }
    stop_at("before-settled", request->key->text, db_pid(db));
    return end == DB_OK ? db_commit(db, unsure) : end;
}
