/*
 * How much a store may hold: `max_records` and `max_bytes` of its URL. When a limit is reached, claims of new keys receive
 * ONCE_E_FULL; everything else goes on.
 */
#ifndef ONCE_STORE_LIMITS_H
#define ONCE_STORE_LIMITS_H

#include <stdint.h>

#include "base/url.h"

typedef struct once__limits {
    uint64_t max_records; /* 0: any number */
    uint64_t max_bytes;   /* 0: any size */
} once__limits_t;

/* Takes the limits from the URL; one that it does not have is unchanged. Returns ONCE_OK or ONCE_E_CONFIG. */
int once__limits_take(once__limits_t *limits, once__url_t *url, once_error_t *err);

#endif
