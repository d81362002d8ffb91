/*
 * Which message it is: the key of its record.
 */
#ifndef ONCE_CONSUME_IDENTITY_H
#define ONCE_CONSUME_IDENTITY_H

#include <once/key.h>

#include "broker/subscribe.h"

#define ONCE__IDENTITY_PARTS_MAX 8

typedef struct once__identity {
    char *memory;
    const char *header;                          /* header:NAME; NULL: the pointers */
    const char *parts[ONCE__IDENTITY_PARTS_MAX]; /* JSON pointers */
    size_t part_count;
    int is_default;
} once__identity_t;

/* Like once_key_t, but with the length where the text begins: most are short, and many are looked at. */
typedef struct once__id {
    size_t len;
    char text[ONCE_KEY_TEXT_SIZE];
} once__id_t;

/* `header:NAME`, `json:/POINTER[+/POINTER...]`, or NULL: the default. 0, or -1 after writing into `error` what is wrong. */
int once__identity_read(once__identity_t *identity, const char *text, char *error, size_t size);
void once__identity_free(once__identity_t *identity);

/* 0, or -1 after writing into `why` a sentence without anything of the message in it. */
int once__identity_of(const once__identity_t *identity, once__delivery_t *delivery, once__id_t *key,
                      char *why, size_t size);

#endif
