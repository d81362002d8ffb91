/*
 * A copy of a store that is in use. Why everything that was acknowledged before the beginning is in it:
 *
 *  - What is acknowledged is durable, so it stands before the synced mark of its segment. Each segment that there is at the
 *    beginning is copied up to its mark, which is read before the file. What is behind it may be half written; it is left out.
 *  - No segment is dropped meanwhile (once__segments_lock).
 *  - The secrets come after the segments: those that made the fingerprints in the copy are among them.
 *  - The format comes last, when the names of everything else are synced: a directory without one is not a store.
 *
 * Every segment of the copy is sealed. The index is not copied: it is made anew.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "core/audit.h"
#include "core/secrets.h"
#include "core/sized.h"
#include "store/local/fsck.h"
#include "store/secret_file.h"

typedef struct copy {
    const char *path; /* of the copy */
    int made;         /* the directory did not exist before */
    once__directory_t from, to;
    once__image_t image;
    const once_local_backup_options_t *options;
    once_local_backup_report_t report;
    once_error_t *err;
} copy_t;

static int fail(const copy_t *copy, const char *what)
{
    return once__local_errno(copy->err, what, copy->path);
}

/* --------------------------------------------------------------------------------------------------------- destination */

void once__local_remove_tree(int directory_fd, const char *name)
{
    DIR *stream = once__disk_list(directory_fd, name);
    const struct dirent *entry;

    while (stream != NULL && (entry = readdir(stream)) != NULL) {
        (void)unlinkat(dirfd(stream), entry->d_name, 0);
    }
    if (stream != NULL) {
        (void)closedir(stream);
    }
    (void)unlinkat(directory_fd, name, AT_REMOVEDIR);
}

/* As a store that is new: the same is asked of owner and mode. */
static int open_destination(copy_t *copy)
{
    once__directory_config_t config = {.path = copy->path, .any_filesystem = 1};
    once__log_config_t *log = &copy->to.log;
    struct stat st;
    int code, made = stat(copy->path, &st) != 0;

    code = once__directory_start(&copy->to, &config, ONCE__START_MAKE, copy->err);
    copy->made = made && copy->to.fd >= 0;
    if (code != ONCE_OK) {
        return code;
    }
    memcpy(log->store_id, copy->from.log.store_id, ONCE__STORE_ID_SIZE);
    if (mkdirat(copy->to.fd, "segments", 0700) != 0) {
        return errno != EEXIST ? fail(copy, "cannot write to")
                               : once__local_fail(copy->err, ONCE_E_CONFIG, "", copy->path,
                                                  " is not empty; name another place");
    }
    log->segments_fd = openat(copy->to.fd, "segments", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return log->segments_fd < 0 ? fail(copy, "cannot write to") : ONCE_OK;
}

static void close_destination(copy_t *copy, int ok)
{
    if (!ok && copy->to.log.segments_fd >= 0) {
        static const char *const names[] = {"format", "format.new", "secrets", "audit", "erasing"};
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
            (void)unlinkat(copy->to.fd, names[i], 0);
        }
        once__local_remove_tree(copy->to.fd, "segments");
    }
    once__directory_abandon(&copy->to);
    if (!ok && copy->made) {
        (void)rmdir(copy->path);
    }
}

/* ----------------------------------------------------------------------------------------------------------- segments */

int64_t once__local_write_segment(const once__disk_t *disk, int directory_fd, const char *name,
                                  const once__image_t *image, uint64_t end)
{
    once__frame_t frame = {.kind = ONCE__FRAME_SEALED, .watermark = end};
    uint8_t seal[ONCE__SEAL_ROOM];
    uint64_t len = once__frame_write(seal, image->header.word, end, &frame);
    int fd =
        openat(directory_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int ok = fd >= 0 && once__disk_write(disk, fd, image->data, end, 0) == 0 &&
             once__disk_write(disk, fd, seal, len, end) == 0 && disk->sync(disk->data, fd) == 0;

    once__close(fd);
    return ok ? (int64_t)(end + len) : -1;
}

/* `mark`: up to here it was durable; UINT64_MAX: it is sealed. */
static int copy_segment(copy_t *copy, uint64_t number, uint64_t mark)
{
    once__image_t *image = &copy->image;
    char name[ONCE__SEGMENT_NAME];
    once__walk_t walk;
    uint64_t end;
    int64_t written;
    int code = once__image_read(image, &copy->from.log, number);

    if (code != ONCE_OK) {
        return once__fail(copy->err, code == ONCE_E_NOT_FOUND ? ONCE_E_CORRUPT : code,
                          "segment %016llx cannot be read (%s); see once fsck, or stop everything "
                          "and copy the directory as it is",
                          (unsigned long long)number,
                          code == ONCE_E_NOT_FOUND ? "it is missing" : once_error_text(code));
    }
    image->end = mark < image->end ? mark : image->end;
    end = once__segment_start(image->header.dictionary_len);
    once__walk_begin(&walk, image, mark);
    while (once__walk_next(&walk)) {
        int damaged = walk.kind == ONCE__WALK_LOST || walk.kind == ONCE__WALK_DAMAGED;
        copy->report.damaged += damaged;
        end = damaged || walk.kind == ONCE__WALK_FRAME ? walk.end : end;
    }
    once__segment_name(name, number);
    written =
        once__local_write_segment(&once__real_disk, copy->to.log.segments_fd, name, image, end);
    if (written < 0) {
        return fail(copy, "cannot write to");
    }
    copy->report.segments++;
    copy->report.bytes += (uint64_t)written;
    return ONCE_OK;
}

static int copy_segments(copy_t *copy)
{
    once__manifest_t manifest = {0};
    int code = once__manifest_read(&manifest, &copy->from.log);

    for (size_t i = 0; i < manifest.live_count && code == ONCE_OK; i++) {
        /* The mark is read before the file: what is before it does not change any more. */
        code = copy_segment(copy, manifest.live[i],
                            once__index_durable(copy->from.log.index, manifest.live[i]));
        if (copy->options->progress != NULL) {
            copy->options->progress(i + 1, manifest.live_count, copy->options->data);
        }
    }
    if (code == ONCE_OK && once__manifest_write(&copy->to.log, manifest.live, manifest.live_count,
                                                manifest.next) != ONCE_OK) {
        code = fail(copy, "cannot write to");
    }
    once__manifest_free(&manifest);
    return code;
}

/* ---------------------------------------------------------------------------------------------------------- the rest */

static int copy_secrets(copy_t *copy)
{
    char text[ONCE__SECRETS_TEXT_SIZE], path[4096];
    int code = once__secret_file_read(copy->from.secrets_path, text, sizeof(text), copy->err);

    copy->report.secrets = code == ONCE_OK;
    if (code == ONCE_OK) {
        (void)snprintf(path, sizeof(path), "%s/secrets", copy->path);
        code = once__secret_file_create(path, text, copy->err);
    }
    OPENSSL_cleanse(text, sizeof(text));
    return code == ONCE_E_NOT_FOUND ? ONCE_OK : code;
}

/*
 * Copies a file that is only appended to, behind what the copy has of it. What is added meanwhile may be left out; with `lines`, a
 * line that is not whole is, too.
 */
static int copy_appended(copy_t *copy, const char *name, int lines)
{
    int from = openat(copy->from.fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), to;
    char bytes[ONCE__AUDIT_STEP];
    uint64_t done = 0;
    ssize_t len;

    if (from < 0) {
        return errno == ENOENT ? ONCE_OK : fail(copy, "cannot read what is to be copied to");
    }
    to = openat(copy->to.fd, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    do {
        len = to < 0 ? -1 : once__disk_read(&once__real_disk, from, bytes, sizeof(bytes), done);
        len = len > 0 && lines ? (ssize_t)once__audit_whole_lines(bytes, (size_t)len) : len;
        if (len > 0 && once__disk_write(&once__real_disk, to, bytes, (size_t)len, 0) != 0) {
            len = -1;
        }
        done += len > 0 ? (uint64_t)len : 0;
    } while (len > 0);
    len = len == 0 && fdatasync(to) == 0 ? 0 : -1;
    (void)close(from);
    once__close(to);
    copy->report.bytes += done;
    return len == 0 ? ONCE_OK : fail(copy, "cannot write to");
}

static int copy_all(copy_t *copy)
{
    int lock = -1, code = open_destination(copy);

    if (code == ONCE_OK &&
        once__segments_lock(copy->from.log.segments_fd, LOCK_EX, ONCE__KEEP_MS, &lock) != ONCE_OK) {
        code =
            once__fail(copy->err, ONCE_E_CONFLICT,
                       "another program removes a file of the store, or checks or copies it, and "
                       "does not come to an end; try again later");
    }
    /*
     * What is being erased, before and after: notes come before the first text is replaced, and go when the last segment with one
     * has gone. Without them the texts would stay in the copy.
     */
    code = code == ONCE_OK ? copy_appended(copy, "erasing", 0) : code;
    code = code == ONCE_OK ? copy_segments(copy) : code;
    code = code == ONCE_OK ? copy_appended(copy, "erasing", 0) : code;
    once__segments_unlock(lock);
    code = code == ONCE_OK ? copy_secrets(copy) : code;
    code = code == ONCE_OK ? copy_appended(copy, "audit", 1) : code;
    if (code == ONCE_OK && (fsync(copy->to.log.segments_fd) != 0 || fsync(copy->to.fd) != 0 ||
                            once__format_write(copy->to.fd, copy->from.log.store_id) != 0)) {
        code = fail(copy, "cannot write to");
    }
    return code;
}

int once_local_backup(const char *url, const char *destination,
                      const once_local_backup_options_t *given, once_local_backup_report_t *report,
                      once_error_t *err)
{
    once_error_t why = {0};
    once_local_backup_options_t options = ONCE_LOCAL_BACKUP_OPTIONS_INIT;
    copy_t copy = {.path = destination,
                   .options = &options,
                   .report = ONCE_LOCAL_BACKUP_REPORT_INIT,
                   .err = &why};
    once__directory_config_t config;
    once__url_t parsed;
    int code;

    if ((given != NULL && once__sized_read(&options, sizeof(options), ONCE__LOCAL_BACKUP_OPTIONS_V1,
                                           given) != ONCE_OK) ||
        (report != NULL && once__sized(report) < ONCE__LOCAL_BACKUP_REPORT_V1)) {
        return once__fail(
            err, ONCE_E_INVALID,
            "the options or the report were not set up with ONCE_LOCAL_BACKUP_..._INIT");
    }
    code = once_local_exists(url, err); /* opening would make a store */
    code = code == ONCE_OK ? once__local_url(&parsed, &config, url, err) : code;
    if (code != ONCE_OK) {
        return code;
    }
    /* As every program that uses it: an index that is not there is made, and no process is alone with it meanwhile. */
    code = once__directory_open(&copy.from, &config, &why);
    if (code == ONCE_OK) {
        code = copy_all(&copy);
        close_destination(&copy, code == ONCE_OK);
        once__directory_close(&copy.from);
    }
    if (code != ONCE_OK) {
        (void)once__fail(err, code, "%s", why.code == code ? why.text : once_error_text(code));
    }
    if (report != NULL) {
        (void)once__sized_write(report, ONCE__LOCAL_BACKUP_REPORT_V1, &copy.report,
                                sizeof(copy.report));
    }
    once__image_free(&copy.image);
    once__url_free(&parsed);
    return code;
}
