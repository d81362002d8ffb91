/*
 * The outside provider that pays out: an HTTP service with idempotency keys of its own.
 */
#ifndef EXAMPLES_BANK_PROVIDER_H
#define EXAMPLES_BANK_PROVIDER_H

#include "bank.h"
#include "fields.h"

typedef enum provider_end {
    PROVIDER_PAID,
    PROVIDER_REFUSED, /* it did not pay, and will not under this key */
    PROVIDER_UNKNOWN, /* no answer, or one that does not tell: ask again with the same key */
} provider_end_t;

/* Once per process, before threads are made. */
int provider_init(void);

/* Asks for a payment. `id` is the provider's name for it (PROVIDER_PAID). */
provider_end_t provider_pay(const bank_t *bank, const char *key, const char *destination,
                            const char *amount, const char *currency, char id[FIELDS_TEXT_SIZE]);

#endif
