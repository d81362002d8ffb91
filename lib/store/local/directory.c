#include "store/local/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "core/secrets.h"
#include "loop/env.h"
#include "store/local/manifest.h"
#include "store/local/rebuild.h"
#include "store/local/walk.h"
#include "store/secret_file.h"

#define AGAIN   1 /* something changed meanwhile: once more from the beginning */
#define UNSEEN  2 /* others use the store, but their index is not to be seen */
#define POLL_MS 10
#define UNSEEN_MS                                                                                  \
    1000 /* for how long an index that others are just making or removing is waited for */
#define SMALL          100000 /* records: an index of fewer is removed at a clean end */
#define MANIFEST_LIMIT ((uint64_t)64 << 10)

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
    }
    *fd = -1;
}

/* ----------------------------------------------------------------------------------------------------------- secrets */

/* What failed is a limit of this process: say so, wherever the text comes from. */
static const char *advice(const char *text)
{
    return strstr(text, strerror(EMFILE)) != NULL || strstr(text, strerror(ENFILE)) != NULL
               ? "; raise the limit of open files (ulimit -n)"
               : "";
}

/* The secrets are not needed here, but a process that may not read them should fail now. */
static int check_secrets(once__directory_t *directory, const char *path, once_error_t *err)
{
    char text[2048];
    once_error_t why = {0};
    once__secrets_t secrets;
    int code;

    free(directory->secrets_path);
    if (asprintf(&directory->secrets_path, "%s/secrets", path) < 0) {
        directory->secrets_path = NULL;
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    code = once__secret_file_read(directory->secrets_path, text, sizeof(text), &why);
    if (code == ONCE_E_NOT_FOUND) {
        return ONCE_OK;
    }
    if (code != ONCE_OK) {
        return once__fail(err, code, "local store: %.180s%s", why.text, advice(why.text));
    }
    code = once__secrets_parse(&secrets, text, strlen(text), NULL);
    once__secrets_wipe(&secrets);
    OPENSSL_cleanse(text, sizeof(text));
    return code == ONCE_OK
               ? ONCE_OK
               : once__fail(err, code, "local store: %.120s/secrets: %s; restore it from a backup",
                            path, once_error_text(code));
}

/* --------------------------------------------------------------------------------------------------- which index it is */

/*
 * PATH/index has the identity of the index in use. It is written by a process that is alone, and compared by the others: a
 * process in another container may find an index of this store that was left in its own tmpfs. Not synced: an index does not
 * outlive the boot either.
 */
static int write_identity(const once__directory_t *directory, const char *path, once_error_t *err)
{
    uint8_t bytes[8];
    int fd = openat(directory->fd, "index", O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    int ok, saved;

    once__put64(bytes, once__index_identity(directory->index));
    ok = fd >= 0 && pwrite(fd, bytes, sizeof(bytes), 0) == (ssize_t)sizeof(bytes) &&
         ftruncate(fd, (off_t)sizeof(bytes)) == 0;
    saved = errno;
    close_fd(&fd);
    errno = saved;
    return ok ? ONCE_OK : once__local_errno(err, "cannot write to", path);
}

static int is_in_use(const once__directory_t *directory)
{
    uint8_t bytes[8] = {0};
    int fd = openat(directory->fd, "index", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    int same = fd >= 0 && pread(fd, bytes, sizeof(bytes), 0) == (ssize_t)sizeof(bytes) &&
               once__get64(bytes) == once__index_identity(directory->index);

    close_fd(&fd);
    return same;
}

static once__index_config_t index_config(const once__directory_t *directory,
                                         const once__directory_config_t *config)
{
    once__index_config_t result = {.directory = config->index_directory,
                                   .store = config->path,
                                   .store_fd = directory->segments_fd,
                                   .owner = geteuid()};

    if (result.directory == NULL) {
        result.directory = once__index_default_directory();
    }
    memcpy(result.store_id, directory->store_id, ONCE__STORE_ID_SIZE);
    memcpy(result.boot_id, directory->boot_id, ONCE__BOOT_ID_SIZE);
    return result;
}

static void drop_index(once__directory_t *directory)
{
    if (directory->index != NULL) {
        once__index_close(directory->index);
    }
    directory->index = NULL;
}

/* ----------------------------------------------------------------------------------------------------- alone with it */

/*
 * May the file go, which is no part of the log? One that the manifest does not mention, because it was about to become a segment,
 * has no frame. Frames in it say that the manifest is older than the log.
 */
static int may_go(const once__directory_t *directory, const once__manifest_t *manifest,
                  const char *name, uint64_t number, once_error_t *err)
{
    once__image_t image = {0};
    once__walk_t walk;
    int code, empty = 0;

    if (number == 0 || once__manifest_is_dropped(manifest, number)) {
        return ONCE_OK;
    }
    code = once__image_read(&image, directory->segments_fd, directory->disk, number,
                            directory->store_id);
    if (code == ONCE_OK) {
        once__walk_begin(&walk, &image, 0);
        empty = once__walk_next(&walk) &&
                (walk.kind == ONCE__WALK_END || walk.kind == ONCE__WALK_SEALED);
    }
    once__image_free(&image);
    if (empty) {
        return ONCE_OK;
    }
    return code == ONCE_OK || code == ONCE_E_CORRUPT
               ? once__fail(err, ONCE_E_CORRUPT,
                            "local store: segments/%s is not in the manifest, which must be older; "
                            "restore both from the same backup, or run once fsck --repair",
                            name)
               : once__fail(err, code, "local store: cannot read segments/%s: %s", name,
                            once_error_text(code));
}

/* Removes what is no part of the log. *highest: no number up to this one is used again. */
static int clean_segments(const once__directory_t *directory, const once__manifest_t *manifest,
                          const char *path, uint64_t *highest, once_error_t *err)
{
    int fd = openat(directory->segments_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    int code = ONCE_OK;

    if (stream == NULL) {
        code = once__local_errno(err, "cannot read the segments of", path);
        close_fd(&fd);
        return code;
    }
    while (code == ONCE_OK && (entry = readdir(stream)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');
        uint64_t number;
        int segment = once__segment_number(entry->d_name, &number);
        number = segment ? number : 0;
        *highest = number > *highest ? number : *highest;
        if (segment ? once__manifest_is_live(manifest, number)
                    : dot == NULL || strcmp(dot, ".new") != 0) {
            continue;
        }
        code = may_go(directory, manifest, entry->d_name, number, err);
        if (code == ONCE_OK && unlinkat(fd, entry->d_name, 0) != 0) {
            code = once__local_errno(err, "cannot remove old segments from", path);
        }
    }
    (void)closedir(stream);
    return code;
}

static int index_failed(int code, const char *path, const char *where, const once_error_t *why,
                        once_error_t *err)
{
    if (code == ONCE_E_FULL && where != NULL && advice(why->text)[0] == '\0') {
        return once__fail(
            err, code,
            "local store: %.60s: no room for the index in %.40s, which takes 1 MB and 24 "
            "bytes a record (see also ulimit -f); make it larger (docker: --shm-size), "
            "or name another tmpfs with index=DIR",
            path, where);
    }
    if (code == ONCE_E_NOMEM) {
        return once__fail(err, code,
                          "local store: no memory for the index of %.120s; is there a limit of "
                          "address space (ulimit -v)?",
                          path);
    }
    if (why->code == code && strncmp(why->text, "local store", 11) == 0) {
        return once__fail(err, code, "%s", why->text);
    }
    return once__fail(err, code, "local store: %.80s: %.140s%s", path,
                      why->code == code ? why->text : once_error_text(code), advice(why->text));
}

static int make_index(once__directory_t *directory, const once__directory_config_t *config,
                      const once__index_config_t *where, const once__manifest_t *manifest,
                      once_error_t *why)
{
    once__rebuild_config_t rebuild = {.segments_fd = directory->segments_fd,
                                      .disk = directory->disk,
                                      .progress = config->progress,
                                      .data = config->data,
                                      .manifest = manifest};
    once__rebuilt_t rebuilt;
    int code = once__index_create(&directory->index, where, why);

    memcpy(rebuild.store_id, directory->store_id, ONCE__STORE_ID_SIZE);
    memcpy(rebuild.boot_id, directory->boot_id, ONCE__BOOT_ID_SIZE);
    if (code == ONCE_OK) {
        code = once__rebuild(directory->index, &rebuild, &rebuilt, why);
    }
    if (code == ONCE_OK && where->directory != NULL) {
        code = once__index_publish(directory->index, why);
    }
    if (code == ONCE_OK && where->directory == NULL) {
        directory->exclusive = 1;
        (void)snprintf(directory->trouble, sizeof(directory->trouble),
                       "no tmpfs for the index: one program at a time can use the store; name one "
                       "with index=DIR");
    }
    return code;
}

static void tell_damage(once__directory_t *directory)
{
    uint32_t end = once__index_slot_end(directory->index), damaged = 0;

    for (uint32_t slot = 0; slot < end; slot++) {
        const once__segment_t *segment = once__index_segment(directory->index, slot);
        damaged += atomic_load(&segment->number) != 0 && atomic_load(&segment->damaged) != 0;
    }
    if (damaged > 0) {
        (void)snprintf(directory->trouble, sizeof(directory->trouble),
                       "%u damaged segment%s: some keys answer with an error; see once fsck",
                       damaged, damaged == 1 ? "" : "s");
    }
}

/* Makes sure that there is an index that says what the log says. */
static int prepare_index(once__directory_t *directory, const once__directory_config_t *config,
                         const once__manifest_t *manifest, uint64_t highest, once_error_t *err)
{
    once__index_config_t where = index_config(directory, config);
    once_error_t why = {0};
    uint64_t behind = 0;
    int code = where.directory != NULL ? once__index_attach(&directory->index, &where, &why)
                                       : ONCE_E_NOT_FOUND;

    if (code == ONCE_OK) {
        once__log_config_t log = {.segments_fd = directory->segments_fd,
                                  .index = directory->index,
                                  .disk = directory->disk};
        memcpy(log.store_id, directory->store_id, ONCE__STORE_ID_SIZE);
        memcpy(log.boot_id, directory->boot_id, ONCE__BOOT_ID_SIZE);
        once__index_set_doubt(directory->index, 1);
        code = once__verify(&log, manifest, &behind);
        if (code == ONCE_E_CORRUPT) {
            (void)once__fail(
                &why, code,
                "local store: segment %016llx lacks records that were durable; restore "
                "it, or accept the loss with once fsck --repair",
                (unsigned long long)behind);
        }
        if (code != ONCE_OK) {
            drop_index(directory);
        }
    }
    if (code == ONCE_E_NOT_FOUND) {
        code = make_index(directory, config, &where, manifest, &why);
    }
    if (code != ONCE_OK) {
        return index_failed(code, config->path, where.directory, &why, err);
    }
    /* An index that was left may not know of segments that others made and dropped since: no number is used twice. */
    once__index_raise_number(directory->index,
                             highest >= manifest->next ? highest : manifest->next - 1);
    once__index_set_doubt(directory->index, 0);
    tell_damage(directory);
    return directory->exclusive || is_in_use(directory)
               ? ONCE_OK
               : write_identity(directory, config->path, err);
}

/* A manifest that has what a crash left, or is mostly of dropped segments, is written anew. */
static int tidy_manifest(const once__directory_t *directory, const once__manifest_t *manifest)
{
    int is_long =
        manifest->bytes > MANIFEST_LIMIT && manifest->entries > 4 * (uint64_t)manifest->live_count;

    return is_long || manifest->torn
               ? once__manifest_write(directory->segments_fd, directory->disk, directory->store_id,
                                      manifest->live, manifest->live_count, manifest->next)
               : ONCE_OK;
}

static int prepare_log(once__directory_t *directory, const once__directory_config_t *config,
                       once_error_t *err)
{
    once__manifest_t manifest = {0};
    uint64_t highest = 0;
    int code = once__manifest_read(&manifest, directory->segments_fd, directory->disk,
                                   directory->store_id);

    if (code != ONCE_OK || !manifest.found) {
        code = code == ONCE_OK ? ONCE_E_CORRUPT : code;
        (void)once__fail(err, code,
                         "local store: %.100s/segments/manifest is %s; restore it from a backup, "
                         "or accept the loss with once fsck --repair",
                         config->path,
                         code != ONCE_E_CORRUPT ? once_error_text(code)
                         : manifest.found       ? "damaged"
                                                : "missing");
    }
    code =
        code == ONCE_OK ? clean_segments(directory, &manifest, config->path, &highest, err) : code;
    if (code == ONCE_OK && tidy_manifest(directory, &manifest) != ONCE_OK && manifest.torn) {
        code = once__local_errno(err, "cannot write to", config->path);
    }
    code = code == ONCE_OK ? prepare_index(directory, config, &manifest, highest, err) : code;
    once__manifest_free(&manifest);
    return code;
}

/* A new store: an empty manifest, then the format. All names are synced, also those that a killed process made. */
static int prepare_format(once__directory_t *directory, const char *path, once_error_t *err)
{
    once__format_t format = once__format_read(directory->fd, directory->store_id);

    if (format != ONCE__FORMAT_NONE) {
        int code = once__format_check(format, path, err);
        return code == ONCE_OK && once__format_keep(directory->fd) != 0
                   ? once__local_errno(err, "cannot write to", path)
                   : code;
    }
    if (once__real_env.random(NULL, directory->store_id, ONCE__STORE_ID_SIZE) != 0) {
        return once__fail(err, ONCE_E_IO, "local store: no random numbers are to be had");
    }
    return once__manifest_write(directory->segments_fd, directory->disk, directory->store_id, NULL,
                                0, 1) == ONCE_OK &&
                   once__format_write(directory->fd, directory->store_id) == 0
               ? ONCE_OK
               : once__local_errno(err, "cannot write to", path);
}

/* flock() with LOCK_NB. ONCE_OK, AGAIN: others have it, ONCE_E_IO. */
static int try_lock(int fd, int how)
{
    while (flock(fd, how | LOCK_NB) != 0) {
        if (errno != EINTR) {
            return errno == EWOULDBLOCK ? AGAIN : ONCE_E_IO;
        }
    }
    return ONCE_OK;
}

/*
 * The change from the exclusive lock to the shared one is not atomic: another process may have been alone with the store in
 * between, and have made another index.
 */
static int enter_alone(once__directory_t *directory, const once__directory_config_t *config,
                       once_error_t *err)
{
    int code = prepare_format(directory, config->path, err);

    code = code == ONCE_OK ? check_secrets(directory, config->path, err) : code;
    code = code == ONCE_OK ? prepare_log(directory, config, err) : code;
    if (code != ONCE_OK || directory->exclusive) {
        return code;
    }
    code = try_lock(directory->segments_fd, LOCK_SH);
    if (code == ONCE_E_IO) {
        return once__local_errno(err, "cannot lock", config->path);
    }
    return code == ONCE_OK && once__index_is_named(directory->index) && is_in_use(directory)
               ? ONCE_OK
               : AGAIN;
}

/* ----------------------------------------------------------------------------------------------------- among others */

/* Whichever process was alone until now has the store in order; or it failed, and then it is this process's turn. */
static int enter_shared(once__directory_t *directory, const once__directory_config_t *config,
                        once_error_t *err)
{
    once__index_config_t where;
    once_error_t why = {0};
    once__format_t format = once__format_read(directory->fd, directory->store_id);
    int code = once__format_check(format, config->path, err);

    if (format == ONCE__FORMAT_NONE) {
        return AGAIN;
    }
    code = code == ONCE_OK ? check_secrets(directory, config->path, err) : code;
    if (code != ONCE_OK) {
        return code;
    }
    where = index_config(directory, config);
    code = where.directory != NULL ? once__index_attach(&directory->index, &where, &why)
                                   : ONCE_E_NOT_FOUND;
    if (code == ONCE_E_NOT_FOUND ||
        (code == ONCE_OK && (once__index_is_doubted(directory->index) || !is_in_use(directory)))) {
        return UNSEEN;
    }
    if (code == ONCE_OK) {
        tell_damage(directory);
    }
    return code == ONCE_OK ? ONCE_OK : index_failed(code, config->path, where.directory, &why, err);
}

/* ---------------------------------------------------------------------------------------------------------- opening */

static int open_segments(once__directory_t *directory, const once__directory_config_t *config,
                         int make, once_error_t *err)
{
    once__format_t format = once__format_read(directory->fd, directory->store_id);

    if (make && format == ONCE__FORMAT_NONE && mkdirat(directory->fd, "segments", 0700) != 0 &&
        errno != EEXIST) {
        return once__local_errno(err, "cannot write to", config->path);
    }
    directory->segments_fd =
        openat(directory->fd, "segments", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (directory->segments_fd < 0 && errno == ENOENT) {
        return once__fail(
            err, ONCE_E_CORRUPT,
            "local store: %.120s/segments is missing; restore it from a backup, or run "
            "once convert again if that was interrupted",
            config->path);
    }
    if (directory->segments_fd < 0) {
        return once__local_errno(err, "cannot open the segments of", config->path);
    }
    return once__format_filesystem(directory->segments_fd, config, err);
}

/* Is the directory that is locked still the one with the name? */
static int is_named(const once__directory_t *directory)
{
    struct stat mine, named;

    return fstat(directory->segments_fd, &mine) == 0 &&
           fstatat(directory->fd, "segments", &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           mine.st_dev == named.st_dev && mine.st_ino == named.st_ino;
}

/* The lock: exclusive for a process that finds nobody else, to make the index right; then shared. */
static int enter(once__directory_t *directory, const once__directory_config_t *config,
                 once_error_t *err)
{
    int alone = 1;
    int code = open_segments(directory, config, 1, err);

    if (code != ONCE_OK) {
        return code;
    }
    code = try_lock(directory->segments_fd, LOCK_EX);
    if (code == AGAIN) {
        alone = 0;
        code = try_lock(directory->segments_fd, LOCK_SH);
    }
    if (code == ONCE_E_IO) {
        return once__local_errno(err, "cannot lock", config->path);
    }
    if (code != ONCE_OK || !is_named(directory)) {
        return AGAIN;
    }
    return alone ? enter_alone(directory, config, err) : enter_shared(directory, config, err);
}

/* Undoes enter(). A child that was forked meanwhile has the lock as well, and would keep it if it were not given up. */
static void undo(once__directory_t *directory)
{
    drop_index(directory);
    if (directory->segments_fd >= 0) {
        (void)flock(directory->segments_fd, LOCK_UN);
    }
    close_fd(&directory->segments_fd);
    directory->exclusive = 0;
    directory->trouble[0] = '\0';
}

static int try_to_enter(once__directory_t *directory, const once__directory_config_t *config,
                        once_error_t *err)
{
    uint64_t begun = once__real_env.monotonic_ms(NULL), unseen = 0;

    for (;;) {
        const char *where = config->index_directory;
        int code = enter(directory, config, err);
        uint64_t now = once__real_env.monotonic_ms(NULL);
        if (code <= ONCE_OK) {
            return code;
        }
        undo(directory);
        unseen = code != UNSEEN ? 0 : unseen == 0 ? now : unseen;
        if (code == UNSEEN && now - unseen >= UNSEEN_MS) {
            where = where != NULL ? where : once__index_default_directory();
            return once__fail(
                err, ONCE_E_CONFLICT,
                "local store: other programs use %.60s, but its index is not in %.40s "
                "here; containers that share a store must share /dev/shm (or a tmpfs "
                "named with index=DIR) and the PID namespace",
                config->path, where != NULL ? where : "any tmpfs");
        }
        if (code == AGAIN && now - begun >= config->timeout_ms) {
            return once__fail(
                err, ONCE_E_CONFLICT,
                "local store: another program has %.80s to itself (to make its index, "
                "to repair or to convert it, or for want of a tmpfs); try again when "
                "it is done",
                config->path);
        }
        (void)poll(NULL, 0, POLL_MS);
    }
}

/* A limit of file sizes is an error here, not a signal: SIGXFSZ goes to the thread that writes. */
int once__directory_open(once__directory_t *directory, const once__directory_config_t *config,
                         once_error_t *err)
{
    static const struct timespec none = {0, 0};
    sigset_t signals, before;
    int code;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGXFSZ);
    (void)pthread_sigmask(SIG_BLOCK, &signals, &before);
    code = once__directory_start(directory, config, ONCE__START_MAKE, err);
    code = code == ONCE_OK ? try_to_enter(directory, config, err) : code;
    if (code != ONCE_OK) {
        once__directory_leave(directory);
    }
    if (!sigismember(&before, SIGXFSZ)) {
        while (sigtimedwait(&signals, NULL, &none) == SIGXFSZ) {
        }
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    return code;
}

/* ---------------------------------------------------------------------------------------------------------- leaving */

void once__directory_abandon(once__directory_t *directory)
{
    drop_index(directory);
    free(directory->secrets_path);
    directory->secrets_path = NULL;
    close_fd(&directory->segments_fd);
    close_fd(&directory->fd);
}

void once__directory_leave(once__directory_t *directory)
{
    undo(directory);
    once__directory_abandon(directory);
}

void once__directory_forget_index(once__directory_t *directory)
{
    if (directory->index != NULL) {
        once__index_remove(directory->index);
    }
    (void)unlinkat(directory->fd, "index", 0);
    drop_index(directory);
}

void once__directory_close(once__directory_t *directory)
{
    /* A failed change of the lock loses it, which does not matter any more. */
    if (!directory->exclusive && try_lock(directory->segments_fd, LOCK_EX) == ONCE_OK &&
        once__index_is_named(directory->index) && once__index_entries(directory->index) < SMALL) {
        once__directory_forget_index(directory);
    }
    once__directory_leave(directory);
}

/* ---------------------------------------------------------------------------------------------------------- looking */

static int look(once__directory_t *directory, const once__directory_config_t *config, int how,
                once_error_t *err)
{
    once__index_config_t where;
    int code = once__directory_start(directory, config, ONCE__START_LOOK, err);

    if (code == ONCE_OK &&
        once__format_read(directory->fd, directory->store_id) == ONCE__FORMAT_NONE) {
        code = once__fail(err, ONCE_E_NOT_FOUND, "local store: there is no store in %.120s",
                          config->path);
    }
    code = code == ONCE_OK ? open_segments(directory, config, 0, err) : code;
    if (code != ONCE_OK) {
        return code;
    }
    code = how != 0 ? try_lock(directory->segments_fd, how) : ONCE_OK;
    if (code == ONCE_E_IO) {
        return once__local_errno(err, "cannot lock", config->path);
    }
    if (code == AGAIN || !is_named(directory)) {
        return once__fail(err, ONCE_E_CONFLICT, "local store: other programs use %.120s; stop them",
                          config->path);
    }
    code = check_secrets(directory, config->path, err);
    where = index_config(directory, config);
    if (code == ONCE_OK && where.directory != NULL &&
        once__index_attach(&directory->index, &where, NULL) == ONCE_OK && !is_in_use(directory)) {
        drop_index(directory);
    }
    return code;
}

int once__directory_look(once__directory_t *directory, const once__directory_config_t *config,
                         int how, once_error_t *err)
{
    int code = look(directory, config, how, err);

    if (code != ONCE_OK) {
        once__directory_leave(directory);
    }
    return code;
}

void once__directory_sizes(const once__directory_t *directory, once__sizes_t *sizes)
{
    int fd = openat(directory->fd, "quarantine", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;

    memset(sizes, 0, sizeof(*sizes));
    if (directory->index != NULL) {
        sizes->index_bytes = once__index_bytes(directory->index);
    }
    if (stream == NULL) {
        close_fd(&fd);
        return;
    }
    while ((entry = readdir(stream)) != NULL) {
        struct stat st;
        if (entry->d_name[0] != '.' && fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            sizes->quarantined++;
            sizes->quarantine_bytes += (uint64_t)st.st_size;
        }
    }
    (void)closedir(stream);
}
