/*
 * once/local.h: what its functions have in common.
 */
#ifndef ONCE_STORE_LOCAL_FSCK_H
#define ONCE_STORE_LOCAL_FSCK_H

#include <once/local.h>

#include "core/url.h"

/* Parses the URL of a local store. ONCE_E_UNSUPPORTED: of another store; ONCE_E_CONFIG; ONCE_E_NOMEM. Free with once__url_free. */
int once__local_url(once__url_t *url, const char *text, once_error_t *err);

#endif
