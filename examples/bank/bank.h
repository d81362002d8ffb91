/*
 * What the parts of the bank share: a request as it came, and how the service was started.
 */
#ifndef EXAMPLES_BANK_BANK_H
#define EXAMPLES_BANK_BANK_H

#include <stddef.h>
#include <stdint.h>

#include <once/once.h>

#include "answer.h"
#include "db.h"

#define BANK_CUSTOMER_MAX 128
#define BANK_CLAIM_MAX    128
#define BANK_ID_MAX       64
#define BANK_TEXT_MAX     140 /* bytes of a holder's name, a reference, a destination */

typedef struct bank {
    pool_t *pool;
    int direct; /* no gate is in front: claims are the bank's own, and none is taken from a request */
    const char *provider;  /* URL of the payout provider; NULL: there is none */
    once_policy_t *policy; /* of the bank's own claims */
    unsigned provider_timeout_ms;
} bank_t;

/* Texts are terminated and live as long as the request. */
typedef struct request {
    const char *method;
    const char *path;     /* decoded, without the query */
    const char *target;   /* as it was sent */
    const char *customer; /* verified by the service in front of the bank; "" if there is none */
    const char *claim; /* Once-Claim; "" when there is none, or when the bank must not trust it */
    const uint8_t *claim_id; /* for a claim of its own: the same in every try of this request */
    const char *traceparent; /* of the trace that the request belongs to; "" when there is none */
    const char *if_match, *if_none_match; /* "" when there is none */
    const once_key_t *key;                /* its length is 0 when there is none */
    const char *key_error;                /* why there is none */
    const char *body;
    size_t body_len;
} request_t;

typedef void bank_handler_t(bank_t *bank, const request_t *request, answer_t *answer);

bank_handler_t accounts_get, accounts_put, transfers_get, transfers_post, payouts_get, payouts_post;

/* The part of the path behind its second slash: the id in /accounts/ID. */
const char *request_id(const request_t *request);

#endif
