/*
 * once/local.h: what its functions have in common.
 */
#ifndef ONCE_STORE_LOCAL_FSCK_H
#define ONCE_STORE_LOCAL_FSCK_H

#include <once/local.h>

#include "base/url.h"

struct once__disk;

/* As once_local_fsck, with another disk under it. For tests. */
int once__local_fsck(const char *url, const struct once__disk *disk,
                     const once_local_fsck_options_t *how, once_local_fsck_report_t *report,
                     once_error_t *err);

/* Parses the URL of a local store. ONCE_E_UNSUPPORTED: of another store; ONCE_E_CONFIG; ONCE_E_NOMEM. Free with once__url_free. */
int once__local_url(once__url_t *url, const char *text, once_error_t *err);

#endif
