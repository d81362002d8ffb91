/*
 * Sets of HTTP statuses, and the lists in which a policy names them.
 */
#ifndef ONCE_CORE_STATUSES_H
#define ONCE_CORE_STATUSES_H

#include <stdint.h>

#include <once/error.h>

#define ONCE__STATUS_MIN 100
#define ONCE__STATUS_MAX 999

/* What a record can answer with. An interim status, or one that HTTP does not have, makes a client take the body for headers. */
#define ONCE__ANSWER_MIN 200
#define ONCE__ANSWER_MAX 599

/* Bit 0 is ONCE__STATUS_MIN. */
typedef struct once__statuses {
    uint64_t bits[(ONCE__STATUS_MAX - ONCE__STATUS_MIN) / 64 + 1];
} once__statuses_t;

/* A status outside ONCE__STATUS_MIN to ONCE__STATUS_MAX is in no set. */
int once__statuses_has(const once__statuses_t *set, int status);

/* Puts the statuses from `first` to `last` in (add 1) or takes them out (0). */
void once__statuses_change(once__statuses_t *set, int first, int last, int add);

typedef enum once__list {
    ONCE__RECORD_LIST, /* `all` is an item; `4xx` does not put 408 in: so a 408 in the set was meant */
    ONCE__RELEASE_LIST, /* `none` is the empty list */
} once__list_t;

/* Reads a list as once/policy.h describes it. ONCE_E_CONFIG names the item that is wrong; the set is unchanged then. */
int once__statuses_parse(once__statuses_t *set, const char *text, once__list_t list,
                         once_error_t *err);

#endif
