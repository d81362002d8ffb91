/*
 * Which message it is: the key of its record.
 */
#ifndef ONCE_CONSUME_IDENTITY_H
#define ONCE_CONSUME_IDENTITY_H

#include <once/key.h>

#include "broker/subscribe.h"

#define ONCE__CONSUME_IDENTITY_PARTS_MAX 8

typedef struct once__consume_identity {
    char *memory;
    const char *header;                                  /* header:NAME; NULL: the pointers */
    const char *parts[ONCE__CONSUME_IDENTITY_PARTS_MAX]; /* JSON pointers */
    size_t part_count;
    int is_default;
} once__consume_identity_t;

/* Like once_key_t, but with the length where the text begins: most are short, and many are looked at. */
typedef struct once__consume_id {
    size_t len;
    char text[ONCE_KEY_TEXT_SIZE];
} once__consume_id_t;

/* `header:NAME`, `json:/POINTER[+/POINTER...]`, or NULL: the default. 0, or -1 after writing into `error` what is wrong. */
int once__consume_identity_read(once__consume_identity_t *identity, const char *text, char *error,
                                size_t size);
void once__consume_identity_free(once__consume_identity_t *identity);

/* 0, or -1 after writing into `why` a sentence without anything of the message in it. */
int once__consume_identity_of(const once__consume_identity_t *identity,
                              once__broker_delivery_t *delivery, once__consume_id_t *key, char *why,
                              size_t size);

#endif
