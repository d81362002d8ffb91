/*
 * What fsck, repair, backup and convert have in common.
 */
#ifndef ONCE_STORE_LOCAL_FSCK_H
#define ONCE_STORE_LOCAL_FSCK_H

#include <once/local.h>

#include "base/url.h"
#include "store/local/directory.h"

/* As once_local_fsck, with another disk under it. For tests. */
int once__local_fsck(const char *url, const once__disk_t *disk,
                     const once_local_fsck_options_t *how, once_local_fsck_report_t *report,
                     once_error_t *err);

/*
 * Parses the URL of a local store. `config` has its path and options (index, filesystem), and is valid as long as the URL. ONCE_OK:
 * free it with once__url_free; ONCE_E_UNSUPPORTED: of another store; ONCE_E_CONFIG; ONCE_E_NOMEM.
 */
int once__local_url(once__url_t *url, once__directory_config_t *config, const char *text,
                    once_error_t *err);

/* For how long fsck and backup wait until nothing is dropped (once__segments_lock). */
#define ONCE__KEEP_MS 5000

/*
 * Writes the image of a segment up to `end`, and behind that the frame that seals, to a file that is made or replaced. Synced; its
 * name is not. Bytes, or -1 and errno.
 */
int64_t once__local_write_segment(const once__disk_t *disk, int directory_fd, const char *name,
                                  const once__image_t *image, uint64_t end);

/* A directory of files, and the files. */
void once__local_remove_tree(int directory_fd, const char *name);

/*
 * Repairs the log: the caller is alone with the store. `numbers` are all segments in the directory; `manifest` has found 0 if it
 * cannot be used. Files that are written anew keep their numbers; what was cut out goes to quarantine/. Removes the index. ONCE_OK
 * or why it failed, in which case everything is as before or nearer to right.
 */
int once__local_repair(once__directory_t *directory, const once__manifest_t *manifest,
                       const uint64_t *numbers, size_t count, once_error_t *err);

#endif
