/*
 * The settings in a redis URL: servers, credentials, time limits.
 *
 *     redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]            one server
 *     rediss://...                                              the same over TLS
 *     redis+sentinel://[USER:PASSWORD@]HOST[:PORT],.../NAME[/DATABASE]
 *     redis+cluster://[USER:PASSWORD@]HOST[:PORT],...
 */
#ifndef ONCE_STORE_REDIS_SETTINGS_H
#define ONCE_STORE_REDIS_SETTINGS_H

#include <stdint.h>

#include "base/url.h"

#define ONCE__REDIS_HOSTS_MAX  ONCE__URL_HOSTS_MAX
#define ONCE__REDIS_HOST_SIZE  (ONCE__URL_HOST_MAX + 1)
#define ONCE__REDIS_PREFIX_MAX 100

typedef enum once__redis_mode {
    ONCE__REDIS_SINGLE,
    ONCE__REDIS_SENTINEL,
    ONCE__REDIS_CLUSTER,
} once__redis_mode_t;

typedef struct once__redis_host {
    char name[ONCE__REDIS_HOST_SIZE];
    uint16_t port;
} once__redis_host_t;

typedef struct once__redis_settings {
    once__redis_mode_t mode;
    int tls;
    once__redis_host_t hosts[ONCE__REDIS_HOSTS_MAX];
    unsigned host_count;
    char *user, *password; /* NULL: none */
    char *sentinel_user, *sentinel_password;
    char *service; /* what the sentinels call the master */
    unsigned database;
    char *prefix;
    char *ca, *ca_dir, *cert, *key, *tls_name; /* NULL: not given */
    unsigned wait;                             /* how many replicas must have a change; 0: none */
    uint64_t wait_ms, connect_ms, reply_ms;
    int accept_eviction;
    int no_dictionary;
} once__redis_settings_t;

/* Returns ONCE_OK, ONCE_E_CONFIG, with what is wrong in `err` but never a password, or ONCE_E_NOMEM. */
int once__redis_settings_read(once__redis_settings_t *settings, once__url_t *url,
                              uint64_t timeout_ms, once_error_t *err);
void once__redis_settings_free(once__redis_settings_t *settings);

#endif
