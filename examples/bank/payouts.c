/*
 * POST /payouts {account, destination, amount, currency}: money leaves the bank, by an outside provider. Three steps, each in a
 * transaction of its own with a checkpoint, so that the next attempt after a crash goes on where it stopped:
 *
 *     reserve   the amount goes to the account @reserved               checkpoint "reserved"
 *     pay       the provider is asked, with a key derived from ours    checkpoint "paid"
 *     settle    the amount goes from @reserved to @outside             the answer is recorded
 *
 * Between the second step and its checkpoint nobody here knows whether the provider paid. Asking again with the same derived key
 * is how to find out. What the provider refuses for good is given back to the account, and the refusal is the answer.
 */
#include <stdio.h>
#include <string.h>

#include "bank.h"
#include "door.h"
#include "operation.h"
#include "payout.h"
#include "stops.h"

void payout_tell(const PGresult *row, int status, answer_t *answer)
{
    char location[80];

    answer_json(answer, status, "application/json",
                json_pack("{s:s, s:s, s:s, s:s, s:s, s:s?}", "payout_id", PQgetvalue(row, 0, 0),
                          "status", PQgetvalue(row, 0, 1), "amount", PQgetvalue(row, 0, 2),
                          "currency", PQgetvalue(row, 0, 3), "created_at", PQgetvalue(row, 0, 4),
                          "provider_id", PQgetisnull(row, 0, 5) ? NULL : PQgetvalue(row, 0, 5)));
    snprintf(location, sizeof(location), "/payouts/%s", PQgetvalue(row, 0, 0));
    answer_header(answer, "Location", location);
}

void payout_refused(answer_t *answer)
{
    answer_problem(answer, 422, "payout-refused",
                   "the provider does not pay this out; the amount is back in the account");
}

void payout_own_account(char out[FIELDS_ID_SIZE], const char *purpose, const char *currency)
{
    snprintf(out, FIELDS_ID_SIZE, "@%s-%s", purpose, currency);
}

db_end_t payout_checkpoint(db_t *db, const payout_t *payout, const char *name)
{
    json_t *state = json_pack("{s:s, s:s}", "payout", payout->id, "provider", payout->provider_id);
    db_end_t end = door_checkpoint(db, payout->claim, name, state);

    json_decref(state);
    return end;
}

static int read_payout(const request_t *request, payout_t *payout, answer_t *answer)
{
    json_t *fields = fields_read(request, answer);
    int code = -1;

    if (fields != NULL && fields_account(fields, "account", payout->account, answer) == 0 &&
        fields_text(fields, "destination", 1, payout->destination, answer) == 0 &&
        fields_currency(fields, payout->currency, answer) == 0 &&
        fields_amount(fields, "amount", payout->currency, payout->amount, answer) == 0) {
        code = 0;
    }
    json_decref(fields);
    return code;
}

/* What an earlier try has got to; or the first step. */
static db_end_t resume_or_reserve(db_t *db, const request_t *request, payout_t *payout,
                                  answer_t *answer)
{
    json_t *state;
    const char *id, *provider_id;
    db_end_t end = door_resume(db, payout->claim, payout->step, &state);

    if (end == DB_OK && payout->step[0] != '\0') {
        id = json_string_value(json_object_get(state, "payout"));
        provider_id = json_string_value(json_object_get(state, "provider"));
        snprintf(payout->id, sizeof(payout->id), "%s", id != NULL ? id : "");
        snprintf(payout->provider_id, sizeof(payout->provider_id), "%s",
                 provider_id != NULL ? provider_id : "");
    } else if (end == DB_OK) {
        end = payout_reserve(db, request, payout, answer);
    }
    json_decref(state);
    return end;
}

/* The first transaction. A claim of the bank's own is committed here, with the reservation. */
static db_end_t begin(bank_t *bank, db_t *db, const request_t *request, void *data, int *unsure,
                      answer_t *answer)
{
    payout_t *payout = data;
    db_end_t end = db_begin(db);

    answer_clear(answer);
    if (end == DB_OK) {
        end = door_claim(bank, db, request, payout->claim, answer);
    }
    if (end != DB_OK || payout->claim[0] == '\0') {
        db_rollback(db);
        return end;
    }
    if (read_payout(request, payout, answer) == 0) {
        end = resume_or_reserve(db, request, payout, answer);
    }
    if (end == DB_OK && answer->body != NULL) { /* refused */
        end = door_complete(db, payout->claim, answer);
    }
    if (end == DB_ALREADY) {
        return door_recorded(db, payout->claim, answer);
    }
    stop_at("before-reserved", request->key->text, db_pid(db));
    return end == DB_OK ? db_commit(db, unsure) : end;
}

/* The provider must see the same key for the same payout, and another one for another customer's. */
static int provider_key(const request_t *request, once_key_t *key)
{
    char parent[BANK_CUSTOMER_MAX + ONCE_KEY_TEXT_SIZE + 2];
    int len = snprintf(parent, sizeof(parent), "%s\n%s", request->customer, request->key->text);
    once_slice_t from = {parent, (size_t)len}, step = {"pay", 3};

    return once_key_derive(from, step, key, NULL);
}

/* Before the provider is asked: is the claim still ours? The provider's patience must fit into what is left of the lease. */
static db_end_t renew(bank_t *bank, db_t *db, const request_t *request, void *data, int *unsure,
                      answer_t *answer)
{
    payout_t *payout = data;

    return door_renew(db, payout->claim);
}

static db_end_t remember_paid(bank_t *bank, db_t *db, const request_t *request, void *data,
                              int *unsure, answer_t *answer)
{
    return payout_checkpoint(db, data, "paid");
}

/* A claim of the bank's own: nothing else marks the record as unknown. */
static db_end_t doubt(bank_t *bank, db_t *db, const request_t *request, void *data, int *unsure,
                      answer_t *answer)
{
    payout_t *payout = data;

    return door_doubt(db, payout->claim);
}

static db_end_t pay(bank_t *bank, const request_t *request, payout_t *payout, answer_t *answer)
{
    once_key_t key;
    db_end_t end = operation_try(bank, request, renew, payout, answer);

    if (end == DB_OK && provider_key(request, &key) != ONCE_OK) {
        end = DB_FAILED;
    }
    if (end != DB_OK) {
        return end;
    }
    payout->end = provider_pay(bank, key.text, payout->destination, payout->amount,
                               payout->currency, payout->provider_id);
    stop_at("before-paid", request->key->text, 0);
    if (payout->end == PROVIDER_PAID) {
        end = operation_try(bank, request, remember_paid, payout, answer);
    } else if (payout->end == PROVIDER_UNKNOWN && request->claim[0] == '\0') {
        (void)operation_try(bank, request, doubt, payout, answer);
    }
    return payout->end == PROVIDER_UNKNOWN ? DB_BUSY : end;
}

/* From the first checkpoint on. What does not come to its end now goes on with the next request that has the key. */
static void go_on(bank_t *bank, const request_t *request, payout_t *payout, answer_t *answer)
{
    db_end_t end = DB_OK;

    stop_at("after-reserved", request->key->text, 0);
    if (strcmp(payout->step, "paid") != 0) {
        end = pay(bank, request, payout, answer);
    }
    if (end == DB_OK) {
        stop_at("after-paid", request->key->text, 0);
        end = operation_try(bank, request, payout_settle, payout, answer);
    }
    if (end == DB_OK) {
        stop_at("after-settled", request->key->text, 0);
    } else if (end != DB_STALE && end != DB_ALREADY) {
        answer_later(answer, 503, "unfinished",
                     "the payout is not finished yet; what is reserved stays so", "unknown", 1);
    }
}

void payouts_post(bank_t *bank, const request_t *request, answer_t *answer)
{
    payout_t payout = {.end = PROVIDER_PAID, .traceparent = request->traceparent};

    if (operation_check(request, answer) != 0) {
        return;
    }
    if (bank->provider == NULL) {
        answer_later(answer, 503, "no-provider", "the bank was started without a provider", "retry",
                     60);
        return;
    }
    if (operation_try(bank, request, begin, &payout, answer) == DB_OK && answer->body == NULL) {
        go_on(bank, request, &payout, answer);
    }
}

void payouts_get(bank_t *bank, const request_t *request, answer_t *answer)
{
    thing_t thing = {"SELECT " SHOWN
                     "FROM bank.payouts p JOIN bank.currencies c ON c.code = p.currency "
                     "WHERE p.id = $1::uuid AND p.customer = $2",
                     "unknown-payout", "you have made no such payout", payout_tell};

    operation_show(bank, request, &thing, answer);
}
