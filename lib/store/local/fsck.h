/*
 * once/local.h: what its functions have in common.
 */
#ifndef ONCE_STORE_LOCAL_FSCK_H
#define ONCE_STORE_LOCAL_FSCK_H

#include <once/local.h>

#include "base/url.h"
#include "store/local/directory.h"
#include "store/local/manifest.h"

/* As once_local_fsck, with another disk under it. For tests. */
int once__local_fsck(const char *url, const once__disk_t *disk,
                     const once_local_fsck_options_t *how, once_local_fsck_report_t *report,
                     once_error_t *err);

/* Parses the URL of a local store. ONCE_E_UNSUPPORTED: of another store; ONCE_E_CONFIG; ONCE_E_NOMEM. Free with once__url_free. */
int once__local_url(once__url_t *url, const char *text, once_error_t *err);

/* The configuration that the URL's options give (index, filesystem); valid as long as the URL. */
once__directory_config_t once__local_config(const once__url_t *url, const once__disk_t *disk);

/* No segment is dropped until *lock is closed (once__segments_lock). Waits some seconds. 1, or 0: it cannot be had, *lock is -1. */
int once__local_keep_segments(const once__directory_t *directory, int *lock);

/*
 * Repairs the log: the caller is alone with the store. `numbers` are all segments in the directory; `manifest` has live_count 0 and
 * found 0 if it cannot be used. Files that are written anew keep their numbers; what was cut out goes to quarantine/. Removes
 * the index. ONCE_OK or why it failed, in which case everything is as before or nearer to right.
 */
int once__local_repair(once__directory_t *directory, const once__manifest_t *manifest,
                       const uint64_t *numbers, size_t count, once_error_t *err);

#endif
