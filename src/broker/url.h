/*
 * URLs of brokers: SCHEME://[USER[:PASSWORD]@]HOST[:PORT],...[/PATH][?NAME=VALUE&...] (base/url.h).
 */
#ifndef ONCE_BROKER_URL_H
#define ONCE_BROKER_URL_H

#include "base/url.h"

/* Returns 0, or -1 after writing into `error` what is wrong, without showing a credential. Free it with once__url_free(). */
int once__broker_url_read(once__url_t *url, const char *text, char *error, size_t size);

#endif
