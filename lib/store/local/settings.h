/*
 * What the URL of a local store says beside its path.
 */
#ifndef ONCE_STORE_LOCAL_SETTINGS_H
#define ONCE_STORE_LOCAL_SETTINGS_H

#include "store/limits.h"

typedef struct once__local_settings {
    uint64_t segment_size; /* of a full-grown segment */
    int relaxed_claims;
    const char
        *index_directory; /* a tmpfs for the index, in the memory of the URL; NULL: the usual one */
    int any_filesystem;   /* also one that was not tried */
    once__limits_t limits;
} once__local_settings_t;

/* Takes what is ours. ONCE_OK, or ONCE_E_CONFIG says what is wrong. */
int once__local_settings_take(once__local_settings_t *settings, once__url_t *url,
                              once_error_t *err);

#endif
