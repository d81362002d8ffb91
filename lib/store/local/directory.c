#include "store/local/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/secrets.h"
#include "base/bytes.h"
#include "base/error.h"
#include "store/local/format.h"
#include "store/local/image.h"
#include "store/local/log.h"
#include "store/local/look.h"
#include "store/local/rebuild.h"
#include "store/secret_file.h"

#define AGAIN   1 /* what we waited for did not come: once more from the beginning */
#define TRIES   50
#define WAIT_MS 20

/* -------------------------------------------------------------------------------------------------------------- parts */

/* Those who read the files say what went wrong, but not always what to do about it. */
static const char *advice(const char *text)
{
    return strstr(text, strerror(EMFILE)) != NULL || strstr(text, strerror(ENFILE)) != NULL
               ? "; raise the limit of open files (ulimit -n)"
               : "";
}

/* The secrets are not needed here; but who may not have them should hear it now, and why. */
static int check_secrets(once__directory_t *directory, const char *path, once_error_t *err)
{
    char text[2048];
    once_error_t why = {0};
    once__secrets_t secrets;
    int code;

    if (asprintf(&directory->secrets_path, "%s/secrets", path) < 0) {
        directory->secrets_path = NULL;
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    code = once__secret_file_read(directory->secrets_path, text, sizeof(text), &why);
    if (code == ONCE_E_NOT_FOUND) {
        return ONCE_OK;
    }
    if (code != ONCE_OK) {
        (void)once__fail(err, code, "local store: %.180s%s", why.text, advice(why.text));
    } else {
        code = once__secrets_parse(&secrets, text, strlen(text), NULL);
        once__secrets_wipe(&secrets);
        if (code != ONCE_OK) {
            (void)once__fail(err, code, "local store: %.120s/secrets: %s; restore it from a backup",
                             path, once_error_text(code));
        }
    }
    OPENSSL_cleanse(text, sizeof(text));
    return code;
}

static int remember(const once__directory_t *directory, const char *path, once_error_t *err)
{
    char identity[ONCE__IDENTITY_SIZE];
    ssize_t len;

    once__directory_identify(directory, identity);
    len = (ssize_t)strlen(identity);
    if (pwrite(directory->lock_fd, identity, (size_t)len, 0) != len ||
        ftruncate(directory->lock_fd, (off_t)len) != 0 || fdatasync(directory->lock_fd) != 0) {
        return once__local_errno(err, "cannot write to", path);
    }
    return ONCE_OK;
}

/* ---------------------------------------------------------------------------------------------------- alone with it */

static int index_failed(int code, const char *path, const once_error_t *why, once_error_t *err)
{
    if (code == ONCE_E_FULL) {
        return once__fail(err, code,
                          "local store: no space for the index of %.120s; make some room, then "
                          "try again",
                          path);
    }
    if (code == ONCE_E_NOMEM) {
        return once__fail(err, code,
                          "local store: no memory for the index of %.120s; is there a limit of "
                          "address space (ulimit -v)?",
                          path);
    }
    if (why->code == code && strncmp(why->text, "local store", 11) == 0) {
        return once__fail(err, code, "%.180s%s", why->text, advice(why->text));
    }
    return once__fail(err, code, "local store: %.100s: %.80s%s", path,
                      why->code == code ? why->text : once_error_text(code), advice(why->text));
}

/* What the index knows of must be there. After a rebuild it is; but files can go while nobody looks. */
static int check_segments(const once__directory_t *directory, once_error_t *err)
{
    uint32_t end = once__index_end_segment(directory->index);

    for (uint32_t n = once__index_first_segment(directory->index); n < end; n++) {
        char name[ONCE__SEGMENT_NAME];
        struct stat st;
        once__segment_name(name, n, "log");
        if (fstatat(directory->segments_fd, name, &st, 0) == 0) {
            if (st.st_uid != geteuid()) {
                return once__segment_foreign(n, err);
            }
        } else {
            return once__fail(err, ONCE_E_CORRUPT,
                              "local store: segment %08x is missing; restore it from a backup, or "
                              "accept the loss with once fsck --repair",
                              n);
        }
    }
    return ONCE_OK;
}

static int make_index(once__directory_t *directory, once_error_t *why)
{
    once__rebuilt_t rebuilt;
    int code = once__index_open(&directory->index, directory->fd, directory->boot_id, 1, why);

    return code == ONCE_OK ? once__rebuild(directory, &rebuilt, why) : code;
}

/*
 * Does anybody write to a segment? He would have the shared lock, if the file `lock` were the one that he has locked: somebody has
 * removed that. To make an index beside his would be to decide each key twice.
 */
static int has_writers(const once__directory_t *directory)
{
    uint32_t *numbers;
    size_t count;
    uint64_t unfinished;
    int found = 0;

    if (once__image_list(directory->segments_fd, &numbers, &count, &unfinished) != ONCE_OK) {
        return 0; /* the rebuild will tell */
    }
    for (size_t i = 0; i < count && !found; i++) {
        char name[ONCE__SEGMENT_NAME];
        int fd;
        once__segment_name(name, numbers[i], "log");
        fd = openat(directory->segments_fd, name, O_RDONLY | O_CLOEXEC);
        found = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    free(numbers);
    return found;
}

/* Does the index know the frame at `place`, or a later one of its record? */
static int knows_frame(const once__index_t *index, once__place_t place, const once__frame_t *frame)
{
    static const uint8_t nobody[ONCE_ID_SIZE];
    once__entry_t entry;
    uint64_t cursor = 0;
    int found = 0;

    while (once__index_find(index, frame->id, &cursor, &entry)) {
        if (entry.place.segment > place.segment ||
            (entry.place.segment == place.segment && entry.place.offset >= place.offset)) {
            return 1;
        }
        found = 1;
    }
    return frame->kind == ONCE__FRAME_REMOVED &&
           (!found || memcmp(frame->id, nobody, sizeof(nobody)) == 0);
}

/* Is there anything at all at `place`? Nearly always not, and then the file need not be read. */
static int has_bytes(const once__directory_t *directory, once__place_t place)
{
    uint8_t len[4] = {0};
    char name[ONCE__SEGMENT_NAME];
    int fd, bytes;

    once__segment_name(name, place.segment, "log");
    fd = openat(directory->segments_fd, name, O_RDONLY | O_CLOEXEC);
    bytes = fd >= 0 && pread(fd, len, sizeof(len), (off_t)place.offset) == (ssize_t)sizeof(len) &&
            once__get32(len) != 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return bytes;
}

/*
 * Has a segment whose writer is gone frames that the index does not know, behind those that it knows to be synced? A writer
 * that was killed left no more than a batch there, which the index knows.
 */
static int has_unknown_frames(const once__directory_t *directory, uint32_t number, uint64_t synced)
{
    once__image_t image = {0};
    once__place_t place = {number, synced};
    once__frame_t frame = {0};
    int unknown = 0;

    if (!has_bytes(directory, place) ||
        once__image_read(&image, directory->segments_fd, number) != ONCE_OK) {
        return 0; /* whoever reads it will be told why */
    }
    while (!unknown && place.offset + ONCE__FRAME_HEADER <= image.size &&
           once__frame_read(&frame, place, image.data + place.offset, image.size - place.offset) &&
           frame.kind != ONCE__FRAME_SEALED) {
        unknown = !knows_frame(directory->index, place, &frame);
        place.offset += frame.size;
    }
    once__image_free(&image);
    return unknown;
}

/*
 * Has the log a segment or a frame that the index does not know? Then the index is older: the filesystem came back without its last
 * pages, or somebody put a copy back. (Or a process was killed while it began a segment: a rebuild is right then, too.)
 */
static int is_outdated(const once__directory_t *directory)
{
    const once__index_t *index = directory->index;
    uint32_t end = once__index_end_segment(index);
    uint32_t *numbers;
    size_t count;
    uint64_t unfinished;
    int outdated;

    if (once__image_list(directory->segments_fd, &numbers, &count, &unfinished) != ONCE_OK) {
        return 1; /* the rebuild will tell */
    }
    outdated = count > 0 && numbers[count - 1] >= end;
    free(numbers);
    for (uint32_t n = once__index_first_segment(index); n < end && !outdated; n++) {
        const once__segment_info_t *info = once__index_segment(index, n);
        uint64_t synced = atomic_load(&info->synced);
        outdated = synced >= ONCE__SEGMENT_HEADER && synced < info->size &&
                   has_unknown_frames(directory, n, synced);
    }
    return outdated;
}

/* Makes sure that there is an index that can be used. AGAIN: others are there. */
static int prepare_index(once__directory_t *directory, const char *path, once_error_t *err)
{
    once_error_t why = {0};
    int code = ONCE_E_CORRUPT;

    if (once__directory_is_known(directory)) {
        code = once__index_open(&directory->index, directory->fd, directory->boot_id, 0, &why);
    }
    if (code == ONCE_OK && (once__index_has_changed(directory->index) || is_outdated(directory))) {
        once__index_close(directory->index);
        directory->index = NULL;
        code = ONCE_E_CORRUPT;
    }
    if (code == ONCE_OK) {
        once__index_free_locks(directory->index);
        code = check_segments(directory, &why);
    } else if (code == ONCE_E_CORRUPT) {
        if (has_writers(directory)) {
            return AGAIN;
        }
        code = make_index(directory, &why);
        if (code == ONCE_OK) {
            code = remember(directory, path, &why);
        }
    }
    if (code == ONCE_OK) {
        code = once__index_mark_used(directory->index);
    }
    return code == ONCE_OK ? ONCE_OK : index_failed(code, path, &why, err);
}

static int exists(const once__directory_t *directory, const char *name)
{
    struct stat st;

    return fstatat(directory->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/*
 * A new store gets its segments/ first of all. Later it cannot be missing, unless somebody has taken it away. All names are synced
 * here, also those that were there: whoever made them may have ended before that.
 */
static int make_segments(const once__directory_t *directory, const char *path, once_error_t *err)
{
    if (!exists(directory, "segments") &&
        (exists(directory, "index") || exists(directory, "secrets"))) {
        return once__segments_missing(path, err);
    }
    if (mkdirat(directory->fd, "segments", 0700) != 0 && errno != EEXIST) {
        return once__local_errno(err, "cannot write to", path);
    }
    return once__format_keep(directory->fd, path, err);
}

static int prepare_parts(once__directory_t *directory, const char *path, once_error_t *err)
{
    once__format_t format = once__format_look(directory->fd);
    int code = format == ONCE__FORMAT_NONE ? once__format_write(directory->fd, path, err)
                                           : once__format_check(format, path, err);

    code = code == ONCE_OK ? make_segments(directory, path, err) : code;
    code = code == ONCE_OK ? once__directory_open_segments(directory, path, err) : code;
    return code == ONCE_OK ? check_secrets(directory, path, err) : code;
}

/*
 * Between the exclusive lock and the shared one there is a moment without any: somebody else may have been alone with the store
 * meanwhile. If he ended cleanly, the index says so, which it must not while we use it; if he repaired it, it is another one.
 */
static int enter_alone(once__directory_t *directory, const char *path, once_error_t *err)
{
    char before[ONCE__IDENTITY_SIZE], after[ONCE__IDENTITY_SIZE];
    int code = prepare_parts(directory, path, err);

    code = code == ONCE_OK ? prepare_index(directory, path, err) : code;
    if (code != ONCE_OK) {
        return code;
    }
    once__directory_identify(directory, before);
    if (once__lock_shared(directory->lock_fd) != 0) {
        return once__local_errno(err, "cannot lock", path);
    }
    once__directory_identify(directory, after);
    if (strcmp(before, after) != 0) {
        return AGAIN;
    }
    code = once__index_mark_used(directory->index);
    return code == ONCE_OK ? ONCE_OK : once__local_errno(err, "cannot write the index of", path);
}

/* ----------------------------------------------------------------------------------------------------- among others */

/* Whoever is there, or was exclusive until now, has the store in order; or he failed, and then it is our turn. */
static int enter_shared(once__directory_t *directory, const char *path, once_error_t *err)
{
    once_error_t why = {0};
    once__format_t format = once__format_look(directory->fd);
    int code = once__format_check(format, path, err);

    if (format == ONCE__FORMAT_NONE || (code == ONCE_OK && !once__directory_has_index(directory))) {
        return AGAIN;
    }
    code = code == ONCE_OK ? once__directory_open_segments(directory, path, err) : code;
    code = code == ONCE_OK ? check_secrets(directory, path, err) : code;
    if (code != ONCE_OK) {
        return code;
    }
    code = once__index_open(&directory->index, directory->fd, directory->boot_id, 0, &why);
    if (code == ONCE_E_CORRUPT) {
        return AGAIN;
    }
    code = code == ONCE_OK ? once__index_mark_used(directory->index) : code;
    return code == ONCE_OK ? ONCE_OK : index_failed(code, path, &why, err);
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
    }
    *fd = -1;
}

static void leave(once__directory_t *directory)
{
    once__index_close(directory->index);
    directory->index = NULL;
    free(directory->secrets_path);
    directory->secrets_path = NULL;
    close_fd(&directory->segments_fd);
}

/* The lock: exclusive for whoever finds nobody else, to make the index right; then shared. */
static int enter(once__directory_t *directory, const char *path, once_error_t *err)
{
    if (flock(directory->lock_fd, LOCK_EX | LOCK_NB) == 0) {
        return enter_alone(directory, path, err);
    }
    if (errno != EWOULDBLOCK || once__lock_shared(directory->lock_fd) != 0) {
        return once__local_errno(err, "cannot lock", path);
    }
    return enter_shared(directory, path, err);
}

int once__directory_open(once__directory_t *directory, const char *path, once_error_t *err)
{
    return once__directory_open_on(directory, path, &once__real_disk, err);
}

int once__directory_open_on(once__directory_t *directory, const char *path,
                            const once__disk_t *disk, once_error_t *err)
{
    int code = once__directory_start(directory, path, 1, err);

    directory->disk = disk;
    if (code == ONCE_OK) {
        directory->lock_fd =
            openat(directory->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        code = directory->lock_fd < 0 ? once__local_errno(err, "cannot write to", path) : AGAIN;
    }
    for (int tries = 0; code == AGAIN && tries < TRIES; tries++) {
        if (tries > 1) {
            (void)poll(NULL, 0, WAIT_MS);
        }
        code = enter(directory, path, err);
        if (code == AGAIN) {
            leave(directory);
            (void)flock(directory->lock_fd, LOCK_UN);
        }
    }
    if (code == AGAIN) {
        code = once__fail(err, ONCE_E_CONFLICT,
                          "local store: other programs use %.120s, and its index cannot be used; "
                          "stop them all, then start them again",
                          path);
    }
    if (code != ONCE_OK) {
        once__directory_leave(directory);
    }
    return code;
}

/* ---------------------------------------------------------------------------------------------------------- leaving */

void once__directory_abandon(once__directory_t *directory)
{
    leave(directory);
    close_fd(&directory->lock_fd);
    close_fd(&directory->fd);
}

/* A child that was forked meanwhile has the lock as well, and would keep it for as long as it lives. */
void once__directory_leave(once__directory_t *directory)
{
    if (directory->lock_fd >= 0) {
        (void)flock(directory->lock_fd, LOCK_UN);
    }
    once__directory_abandon(directory);
}

void once__directory_close(once__directory_t *directory)
{
    if (flock(directory->lock_fd, LOCK_EX | LOCK_NB) == 0) {
        (void)once__index_mark_clean(directory->index);
    }
    once__directory_leave(directory);
}
