/* The identity of a message: the key of its record. */
#ifndef ONCE_CONSUME_IDENTITY_H
#define ONCE_CONSUME_IDENTITY_H

#include <once/key.h>

#include "broker/subscribe.h"

#define ONCE__CONSUME_IDENTITY_PARTS_MAX 8

typedef struct once__consume_identity {
    char *memory;
    const char *header; /* of header:NAME; NULL: the pointers are used */
    const char *parts[ONCE__CONSUME_IDENTITY_PARTS_MAX]; /* JSON pointers */
    size_t part_count;
    int is_default;
} once__consume_identity_t;

/* Like once_key_t, but with the length in front of the text: most are short, and many are read. */
typedef struct once__consume_id {
    size_t len;
    char text[ONCE_KEY_TEXT_SIZE];
} once__consume_id_t;

/*
 * Reads `header:NAME`, `json:/POINTER[+/POINTER...]`, or NULL for the default. Returns 0, or -1 after writing what is wrong
 * into `error`.
 */
int once__consume_identity_read(once__consume_identity_t *identity, const char *text, char *error,
                                size_t size);
void once__consume_identity_free(once__consume_identity_t *identity);

/* Returns 0, or -1 after writing a sentence into `why` that quotes nothing of the message. */
int once__consume_identity_of(const once__consume_identity_t *identity,
                              once__broker_delivery_t *delivery, once__consume_id_t *key, char *why,
                              size_t size);

/* The idempotency key of the request that caused the message, as a relay adds it (ce_idempotencykey); no data if there is none. */
once_slice_t once__consume_identity_cause(once__broker_delivery_t *delivery);

#endif
