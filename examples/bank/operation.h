/*
 * An operation that takes effect once: claim, effect and answer in one transaction.
 */
#ifndef EXAMPLES_BANK_OPERATION_H
#define EXAMPLES_BANK_OPERATION_H

#include "bank.h"

/*
 * What the operation does, inside the transaction. The answer is recorded as final, whatever it is: a refusal writes nothing. May
 * be called again, for a transaction that could not be finished.
 */
typedef db_end_t operation_work_t(db_t *db, const request_t *request, const char *claim, void *data,
                                  answer_t *answer);

/* Runs it and answers: with what it did, with what it did before, or with why it did not. */
void operation_run(bank_t *bank, const request_t *request, operation_work_t *work, void *data,
                   answer_t *answer);

/* -1 and an answer: the request lacks a customer or a key. */
int operation_check(const request_t *request, answer_t *answer);

/* One try of something that may end in DB_AGAIN; `*unsure` is set when a COMMIT was not answered. */
typedef db_end_t operation_try_t(bank_t *bank, db_t *db, const request_t *request, void *data,
                                 int *unsure, answer_t *answer);

/* Tries until it does not end in DB_AGAIN any more, or too often. Anything but DB_OK has an answer for that. */
db_end_t operation_try(bank_t *bank, const request_t *request, operation_try_t *attempt, void *data,
                       answer_t *answer);

/* A thing of the customer's own, by the id in the path, which is a UUID. */
typedef struct thing {
    const char *find;    /* the query: $1 the id, $2 the customer */
    const char *problem; /* when there is none: its type, and a sentence */
    const char *detail;
    void (*tell)(const PGresult *row, int status, answer_t *answer);
} thing_t;

void operation_show(bank_t *bank, const request_t *request, thing_t *thing, answer_t *answer);

#endif
