#include "operation.h"

#include <time.h>

#include "door.h"
#include "fields.h"
#include "stops.h"

#define TRIES      10
#define PAUSE_MS   20  /* before the second try; twice as long before each further one */
#define PAUSE_MAX  500 /* ms */
#define CONNECT_MS 5000

typedef struct run {
    operation_work_t *work;
    void *data;
} run_t;

int operation_check(const request_t *request, answer_t *answer)
{
    if (request->customer[0] == '\0') {
        answer_problem(answer, 401, "customer-missing", "the header Bank-Customer names nobody");
    } else if (request->key->len == 0) {
        answer_problem(answer, 400, "key-invalid", request->key_error);
    } else {
        return 0;
    }
    return -1;
}

/* What is answered when it came to no end. `unsure`: a COMMIT may have happened. */
static void give_up(db_end_t end, int unsure, answer_t *answer)
{
    switch (end) {
    case DB_STALE: /* another process has the claim: the answer is in the record, or will be */
        answer_problem(answer, 409, "stale-claim", "another try of this request has taken over");
        break;
    case DB_ALREADY: /* and what it recorded could not be read */
        answer_problem(answer, 409, "already-completed", "this request was answered before");
        break;
    case DB_BUSY:
        answer_later(answer, 503, "busy", "an account is in use for too long",
                     unsure ? "unknown" : "retry", 1);
        break;
    case DB_FAILED:
        answer_later(answer, 503, "failed", "the bank has a problem of its own",
                     unsure ? "unknown" : "retry", 5);
        break;
    default:
        answer_later(answer, 503, "unavailable", "the bank's database does not answer",
                     unsure ? "unknown" : "retry", 1);
        break;
    }
}

static void pause_before(unsigned number)
{
    unsigned ms = number < 6 ? PAUSE_MS << (number - 1) : PAUSE_MAX;
    struct timespec span = {0, (long)(ms < PAUSE_MAX ? ms : PAUSE_MAX) * 1000000};

    nanosleep(&span, NULL);
}

db_end_t operation_try(bank_t *bank, const request_t *request, operation_try_t *attempt, void *data,
                       answer_t *answer)
{
    db_end_t end = DB_AGAIN;
    int unsure = 0;

    for (unsigned number = 0; end == DB_AGAIN && number < TRIES; number++) {
        int sent = 0;
        db_t *db;
        if (number > 0) {
            pause_before(number);
        }
        db = pool_take(bank->pool, CONNECT_MS);
        if (db == NULL) {
            continue;
        }
        end = attempt(bank, db, request, data, &sent, answer);
        unsure |= sent;
        if (end != DB_OK) {
            db_rollback(db);
        }
        pool_give(db);
    }
    if (end != DB_OK) {
        give_up(end, unsure, answer);
    }
    return end;
}

/* Once through: claim, work, answer, commit. */
static db_end_t run_once(bank_t *bank, db_t *db, const request_t *request, void *data, int *unsure,
                         answer_t *answer)
{
    run_t *run = data;
    char claim[BANK_CLAIM_MAX];
    db_end_t end;

    if (request->claim[0] != '\0') {
        stop_at("after-claim", request->key->text, db_pid(db));
    }
    end = db_begin(db);
    if (end == DB_OK) {
        end = door_claim(bank, db, request, claim, answer);
    }
    if (end != DB_OK) {
        return end;
    }
    if (claim[0] == '\0') { /* it is in the answer why */
        db_rollback(db);
        return DB_OK;
    }
    if (request->claim[0] == '\0') {
        stop_at("after-claim", request->key->text, db_pid(db));
    }
    end = run->work(db, request, claim, run->data, answer);
    if (end == DB_OK) {
        end = door_complete(db, claim, answer);
    }
    if (end != DB_OK) {
        return end == DB_ALREADY ? door_recorded(db, claim, answer) : end;
    }
    stop_at("before-commit", request->key->text, db_pid(db));
    end = db_commit(db, unsure);
    if (end == DB_OK) {
        stop_at("after-commit", request->key->text, db_pid(db));
    }
    return end;
}

void operation_run(bank_t *bank, const request_t *request, operation_work_t *work, void *data,
                   answer_t *answer)
{
    run_t run = {work, data};

    if (operation_check(request, answer) == 0) {
        (void)operation_try(bank, request, run_once, &run, answer);
    }
}

/* ------------------------------------------------------------------------------------------------------------ looking */

static void tell_unknown(const thing_t *thing, answer_t *answer)
{
    answer_problem(answer, 404, thing->problem, thing->detail);
}

static db_end_t show(bank_t *bank, db_t *db, const request_t *request, void *data, int *unsure,
                     answer_t *answer)
{
    const thing_t *thing = data;
    const char *values[] = {request_id(request), request->customer};
    PGresult *row;
    db_end_t end = db_run(db, thing->find, 2, values, &row);

    if (end != DB_OK) {
        return end;
    }
    if (PQntuples(row) == 0) {
        tell_unknown(thing, answer);
    } else {
        thing->tell(row, 200, answer);
    }
    PQclear(row);
    return DB_OK;
}

void operation_show(bank_t *bank, const request_t *request, thing_t *thing, answer_t *answer)
{
    if (fields_is_uuid(request_id(request))) {
        (void)operation_try(bank, request, show, thing, answer);
    } else {
        tell_unknown(thing, answer);
    }
}
