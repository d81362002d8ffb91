/*
 * Reading what clients send: JSON members, each checked by itself. What is wrong becomes a problem that says which member it is.
 */
#ifndef EXAMPLES_BANK_FIELDS_H
#define EXAMPLES_BANK_FIELDS_H

#include "bank.h"
#include "money.h"

#define FIELDS_ID_SIZE   (BANK_ID_MAX + 1)
#define FIELDS_TEXT_SIZE (BANK_TEXT_MAX + 1)
#define CURRENCY_SIZE    4

/* The body as an object, the caller's to json_decref; NULL and an answer: it is not an object. */
json_t *fields_read(const request_t *request, answer_t *answer);

/* 1: it is an account's id. Those of the bank itself begin with @ and count only when `own`. */
int fields_is_id(const char *text, int own);

/* 1: 36 characters that make a UUID. */
int fields_is_uuid(const char *text);

/* Each: 0, or -1 and an answer. */
int fields_account(const json_t *fields, const char *name, char out[FIELDS_ID_SIZE],
                   answer_t *answer);
int fields_text(const json_t *fields, const char *name, int needed, char out[FIELDS_TEXT_SIZE],
                answer_t *answer);
int fields_currency(const json_t *fields, char out[CURRENCY_SIZE], answer_t *answer);
int fields_amount(const json_t *fields, const char *name, const char *currency,
                  char out[MONEY_SIZE], answer_t *answer);

#endif
