/*
 * Options of a handle, parsed.
 */
#ifndef ONCE_API_OPTIONS_H
#define ONCE_API_OPTIONS_H

#include "core/policy.h"
#include "core/response.h"
#include "base/url.h"

#define ONCE__PATH_SIZE 1024

struct once_options {
    once_policy_t policy;
    uint64_t store_timeout_ms;
    uint64_t reap_ms;       /* 0: off */
    uint64_t compress_from; /* UINT64_MAX: off */
    int insist;
    int renew;
    int thread;
    char secrets_file[ONCE__PATH_SIZE]; /* empty: in the store */
    char encrypt_file[ONCE__PATH_SIZE]; /* empty: off */
    int encrypt_require;                /* what is not encrypted is not read */
    once__seal_keys_t seal;             /* read by once_open */
    once_log_cb log;                    /* NULL: no messages */
    void *log_data;
    once_log_level_t log_level;
};

void once__options_init(once_options_t *options);

/* Takes the options of a URL. */
int once__options_from_url(once_options_t *options, once__url_t *url, once_error_t *err);

#endif
