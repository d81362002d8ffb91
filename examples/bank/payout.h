/*
 * What the steps of a payout share. payouts.c has their order.
 */
#ifndef EXAMPLES_BANK_PAYOUT_H
#define EXAMPLES_BANK_PAYOUT_H

#include "bank.h"
#include "fields.h"
#include "provider.h"

typedef struct payout {
    const char *traceparent;    /* of the request */
    char claim[BANK_CLAIM_MAX]; /* "": it must not run, and the answer says why */
    char step[32];              /* the last checkpoint */
    char id[ONCE_UUID_SIZE];
    char account[FIELDS_ID_SIZE], destination[FIELDS_TEXT_SIZE];
    char amount[MONEY_SIZE], currency[CURRENCY_SIZE];
    char provider_id[FIELDS_TEXT_SIZE];
    provider_end_t end;
} payout_t;

/* Columns of a payout `p` in a currency `c`, as an answer shows them. */
#define SHOWN                                                                                      \
    "p.id, p.status, round(p.amount, c.digits), p.currency, "                                      \
    "to_char(p.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'), "              \
    "p.provider_id "

void payout_tell(const PGresult *row, int status, answer_t *answer);
void payout_refused(answer_t *answer);

/* The bank's own account for a purpose: @reserved-EUR. */
void payout_own_account(char out[FIELDS_ID_SIZE], const char *purpose, const char *currency);

/* In the transaction of the step: it is done, and with what. */
db_end_t payout_checkpoint(db_t *db, const payout_t *payout, const char *name);

/*
 * The first step, in the open transaction: reserves the amount, with its checkpoint. A body in `answer`: it is refused, or an
 * earlier payout of this key has ended; that is to be recorded.
 */
db_end_t payout_reserve(db_t *db, const request_t *request, payout_t *payout, answer_t *answer);

/* The last step, as one try: the amount goes to where the provider's answer sends it, and the answer is recorded. */
db_end_t payout_settle(bank_t *bank, db_t *db, const request_t *request, void *data, int *unsure,
                       answer_t *answer);

#endif
