/*
 * URLs of brokers: SCHEME://[USER[:PASSWORD]@]HOST[:PORT],...[/PATH][?NAME=VALUE&...] (base/url.h).
 */
#ifndef ONCE_BROKER_URL_H
#define ONCE_BROKER_URL_H

#include "base/url.h"

/* Returns 0, or -1 after writing what is wrong into `error`, without credentials. To be freed with once__url_free(). */
int once__broker_url_read(once__url_t *url, const char *text, char *error, size_t size);

/* The URL of a publisher to the same broker whose messages go to the topic or queue that they name. Allocated with malloc. */
char *once__broker_publish_url(const once__url_t *url);

#endif
