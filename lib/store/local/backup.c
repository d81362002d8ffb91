/*
 * A copy of a store that is in use. Why everything that was acknowledged before the beginning is in it:
 *
 *  - What is acknowledged is durable, so it stands before the synced mark of its segment. Each segment is copied up to its
 *    mark, and the mark is read after the beginning. What stands behind the mark may be half written; it is left out.
 *  - Segments are dropped from the oldest on, and only when what still counts in them is durable in later ones. They are copied
 *    from the oldest on, too: if one is gone when its turn comes, what counted in it is in a later one, which is copied after
 *    that. What was copied before is then older than the gap, and is thrown away: so the numbers in the copy follow one
 *    another, as they must.
 *  - The secrets come after the segments: those that made the fingerprints in the copy are among them.
 *  - The format comes last, when the names of all else are synced: what has none is not a store.
 *
 * Every segment of the copy is sealed and only as long as it must be. The index is not copied: it is made anew.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/secrets.h"
#include "base/error.h"
#include "core/sized.h"
#include "store/local/directory.h"
#include "store/local/extent.h"
#include "store/local/format.h"
#include "store/local/fsck.h"
#include "store/local/image.h"
#include "store/local/log.h"
#include "store/secret_file.h"

typedef struct copy {
    const char *path; /* of the copy */
    int fd, segments_fd;
    int made; /* the directory did not exist before */
    once__directory_t from;
    const once_local_backup_options_t *options;
    once_local_backup_report_t report;
    once_error_t *err;
} copy_t;

static int fail(const copy_t *copy, const char *what)
{
    return once__local_errno(copy->err, what, copy->path);
}

/* --------------------------------------------------------------------------------------------------------- destination */

static int check_destination(copy_t *copy)
{
    once__format_t format = once__format_look(copy->fd);
    struct stat st;

    if (format == ONCE__FORMAT_UNREADABLE || fstat(copy->fd, &st) != 0) {
        return fail(copy, "cannot read");
    }
    if (format != ONCE__FORMAT_NONE) {
        return once__fail(copy->err, ONCE_E_CONFIG,
                          "%.120s is not empty; name a directory that does not exist yet",
                          copy->path);
    }
    if (st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
        return once__fail(copy->err, ONCE_E_CONFIG,
                          "%.120s is open to others, and the copy holds secrets; chmod 700 it, or "
                          "name a directory that does not exist yet",
                          copy->path);
    }
    return ONCE_OK;
}

static int open_destination(copy_t *copy)
{
    int code;

    copy->made = mkdir(copy->path, 0700) == 0;
    if (!copy->made && errno == ENOENT) {
        return once__fail(copy->err, ONCE_E_CONFIG,
                          "cannot make %.120s: the directory above it does not exist", copy->path);
    }
    if (!copy->made && errno != EEXIST) {
        return fail(copy, "cannot make");
    }
    copy->fd = open(copy->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (copy->fd < 0) {
        return fail(copy, "cannot open");
    }
    code = check_destination(copy);
    if (code != ONCE_OK) {
        return code;
    }
    if (mkdirat(copy->fd, "segments", 0700) != 0) {
        return fail(copy, "cannot write to");
    }
    copy->segments_fd = openat(copy->fd, "segments", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return copy->segments_fd < 0 ? fail(copy, "cannot write to") : ONCE_OK;
}

/* Removes the segments of the copy, all of them or those before `end`. */
static void remove_segments(copy_t *copy, uint32_t end)
{
    uint32_t *numbers;
    uint64_t unfinished;
    size_t count;

    if (once__image_list(copy->segments_fd, &numbers, &count, &unfinished) != ONCE_OK) {
        return;
    }
    for (size_t i = 0; i < count && numbers[i] < end; i++) {
        char name[ONCE__SEGMENT_NAME];
        struct stat st;
        once__segment_name(name, numbers[i], "log");
        if (fstatat(copy->segments_fd, name, &st, 0) == 0 &&
            unlinkat(copy->segments_fd, name, 0) == 0) {
            copy->report.segments--;
            copy->report.bytes -= (uint64_t)st.st_size;
        }
    }
    free(numbers);
}

static void close_destination(copy_t *copy, int ok)
{
    if (!ok && copy->segments_fd >= 0) {
        remove_segments(copy, UINT32_MAX);
        (void)unlinkat(copy->fd, "format", 0);
        (void)unlinkat(copy->fd, "format.new", 0);
        (void)unlinkat(copy->fd, "secrets", 0);
        (void)unlinkat(copy->segments_fd, "extent", 0);
        (void)unlinkat(copy->fd, "segments", AT_REMOVEDIR);
    }
    if (copy->segments_fd >= 0) {
        (void)close(copy->segments_fd);
    }
    if (copy->fd >= 0) {
        (void)close(copy->fd);
    }
    if (!ok && copy->made) {
        (void)rmdir(copy->path);
    }
}

/* ----------------------------------------------------------------------------------------------------------- segments */

/* Where the copy of a finished segment ends: where a rebuild would end. Counts the damaged ranges on the way. */
static uint64_t find_end(once__image_t *image, uint64_t limit, uint64_t *damaged)
{
    uint64_t offset = ONCE__SEGMENT_HEADER;
    once__piece_t piece;

    while (offset < limit) {
        once__image_piece(image, offset, &piece);
        if (piece.kind != ONCE__PIECE_FRAME && piece.kind != ONCE__PIECE_DAMAGE) {
            break;
        }
        *damaged += piece.kind == ONCE__PIECE_DAMAGE;
        offset += piece.length;
    }
    return offset;
}

static int write_segment(copy_t *copy, once__image_t *image, uint64_t limit)
{
    once__segment_header_t header;
    char name[ONCE__SEGMENT_NAME];
    uint64_t end;
    int code = once__image_header(image, &header);

    if (code == ONCE_OK && image->unreadable > 0) {
        code = ONCE_E_IO;
    }
    if (code == ONCE_E_NEWER) {
        return once__fail(copy->err, code,
                          "segment %08x was written by a newer version of once; upgrade this "
                          "program",
                          image->number);
    }
    if (code != ONCE_OK) {
        return once__fail(copy->err, code,
                          "segment %08x cannot be read (%s); see once fsck, or stop everything and "
                          "copy the directory as it is",
                          image->number, once_error_text(code));
    }
    /* A segment that is being written ends at its mark, whatever may be damaged before that. */
    end = find_end(image, limit < image->size ? limit : image->size, &copy->report.damaged);
    end = limit < image->size ? limit : end;
    once__segment_name(name, image->number, "log");
    code = once__image_write(&once__real_disk, copy->segments_fd, name, &header, image->data, end);
    if (code != ONCE_OK) {
        return fail(copy, "cannot write to");
    }
    copy->report.segments++;
    copy->report.bytes += header.size;
    return ONCE_OK;
}

/* ONCE_E_NOT_FOUND: it was dropped. */
static int copy_segment(copy_t *copy, uint32_t number)
{
    const once__segment_info_t *info = once__index_segment(copy->from.index, number);
    /* Before reading: what stands before it does not change any more. */
    uint64_t mark = atomic_load(&info->synced);
    once__image_t image;
    int code = once__image_read(&image, copy->from.segments_fd, number);

    if (number < once__index_first_segment(copy->from.index)) {
        /* And so the mark may be that of another one. */
        if (code == ONCE_OK) {
            once__image_free(&image);
        }
        return ONCE_E_NOT_FOUND;
    }
    if (code != ONCE_OK) {
        return once__fail(copy->err, code == ONCE_E_NOT_FOUND ? ONCE_E_CORRUPT : code,
                          "segment %08x cannot be read: %s; see once fsck", number,
                          code == ONCE_E_NOT_FOUND ? "it is missing" : strerror(errno));
    }
    code = write_segment(copy, &image, mark);
    once__image_free(&image);
    return code;
}

/* What the copy has must be there when it is used: also all of it when it has come back from an archive. */
static int write_extent(const copy_t *copy)
{
    once__extent_t extent;
    uint32_t *numbers;
    uint64_t unfinished;
    size_t count;
    int fd = -1, ok = 1;

    if (once__image_list(copy->segments_fd, &numbers, &count, &unfinished) != ONCE_OK) {
        return fail(copy, "cannot read");
    }
    if (count > 0) {
        extent.first = numbers[0];
        extent.last = numbers[count - 1];
        fd = once__extent_write(&once__real_disk, copy->segments_fd, &extent);
        ok = fd >= 0 && fdatasync(fd) == 0;
    }
    free(numbers);
    if (fd >= 0) {
        (void)close(fd);
    }
    return ok && fsync(copy->segments_fd) == 0 ? ONCE_OK : fail(copy, "cannot write to");
}

/* From the oldest to the newest of the beginning; further when one was dropped, because what counted in it moved on. */
static int copy_segments(copy_t *copy)
{
    const once__index_t *index = copy->from.index;
    uint32_t end = once__index_end_segment(index);
    uint32_t first = once__index_first_segment(index);

    for (uint32_t number = first; number < end; number++) {
        int code = copy_segment(copy, number);
        if (code == ONCE_E_NOT_FOUND) {
            number = once__index_first_segment(index) - 1;
            end = once__index_end_segment(index);
            remove_segments(copy, number + 1);
            continue;
        }
        if (code != ONCE_OK) {
            return code;
        }
        if (copy->options->progress != NULL) {
            copy->options->progress(number - first + 1, end - first, copy->options->data);
        }
    }
    return write_extent(copy);
}

/* ---------------------------------------------------------------------------------------------------------- the rest */

static int copy_secrets(copy_t *copy)
{
    char text[ONCE__SECRETS_TEXT_SIZE], path[4096];
    int code = once__secret_file_read(copy->from.secrets_path, text, sizeof(text), copy->err);

    if (code == ONCE_E_NOT_FOUND) {
        copy->report.secrets = 0;
        return ONCE_OK;
    }
    if (code == ONCE_OK) {
        copy->report.secrets = 1;
        (void)snprintf(path, sizeof(path), "%s/secrets", copy->path);
        code = once__secret_file_create(path, text, copy->err);
    }
    OPENSSL_cleanse(text, sizeof(text));
    return code;
}

static int copy_all(copy_t *copy)
{
    int code = open_destination(copy);

    code = code == ONCE_OK ? copy_segments(copy) : code;
    code = code == ONCE_OK ? copy_secrets(copy) : code;
    if (code == ONCE_OK && fsync(copy->fd) != 0) {
        code = fail(copy, "cannot write to");
    }
    return code == ONCE_OK ? once__format_write(copy->fd, copy->path, copy->err) : code;
}

/* NULL is fine for both. */
static int read_options(once_local_backup_options_t *options,
                        const once_local_backup_options_t *given,
                        const once_local_backup_report_t *report, once_error_t *err)
{
    if ((given != NULL && once__sized_read(options, sizeof(*options), ONCE__LOCAL_BACKUP_OPTIONS_V1,
                                           given) != ONCE_OK) ||
        (report != NULL && once__sized(report) < ONCE__LOCAL_BACKUP_REPORT_V1)) {
        return once__fail(
            err, ONCE_E_INVALID,
            "the options or the report were not set up with ONCE_LOCAL_BACKUP_..._INIT");
    }
    return ONCE_OK;
}

int once_local_backup(const char *url, const char *destination,
                      const once_local_backup_options_t *given, once_local_backup_report_t *report,
                      once_error_t *err)
{
    once_error_t why = {0};
    once_local_backup_options_t options = ONCE_LOCAL_BACKUP_OPTIONS_INIT;
    copy_t copy = {.path = destination,
                   .fd = -1,
                   .segments_fd = -1,
                   .options = &options,
                   .report = ONCE_LOCAL_BACKUP_REPORT_INIT,
                   .err = &why};
    once__url_t parsed;
    int code = read_options(&options, given, report, err);

    if (code == ONCE_OK) {
        code = once_local_exists(url, err); /* opening would make a store */
    }
    if (code == ONCE_OK) {
        code = once__local_url(&parsed, url, err);
    }
    if (code != ONCE_OK) {
        return code;
    }
    /* As every program that uses it: an index that is not there is made, and nobody is alone with it meanwhile. */
    code = once__directory_open(&copy.from, parsed.path, &why);
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
    once__url_free(&parsed);
    return code;
}
