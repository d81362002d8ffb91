#include "store/local/directory.h"

#include <dirent.h>
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

#include "base/bytes.h"
#include "base/error.h"
#include "core/secrets.h"
#include "loop/env.h"
#include "store/secret_file.h"

#define AGAIN          1 /* something changed meanwhile: once more from the beginning */
#define UNSEEN         2 /* others use the store, but their index is not to be seen */
#define POLL_MS        10
#define UNSEEN_MS      1000   /* how long an index that others just make or remove is waited for */
#define SMALL          100000 /* records: an index of fewer is removed at a clean end */
#define MANIFEST_LIMIT ((uint64_t)64 << 10)

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
    if (code != ONCE_OK) {
        return code == ONCE_E_NOT_FOUND
                   ? ONCE_OK
                   : once__fail(err, code, "local store: %.180s%s", why.text, advice(why.text));
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
static int write_identity(const once__directory_t *directory)
{
    uint8_t bytes[8];
    int fd = openat(directory->fd, "index", O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600), ok;

    once__put64(bytes, once__index_identity(directory->log.index));
    ok = fd >= 0 && pwrite(fd, bytes, sizeof(bytes), 0) == (ssize_t)sizeof(bytes) &&
         ftruncate(fd, (off_t)sizeof(bytes)) == 0;
    once__close(fd);
    return ok;
}

static int is_in_use(const once__directory_t *directory)
{
    uint8_t bytes[8] = {0};
    int fd = openat(directory->fd, "index", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    int same = fd >= 0 && pread(fd, bytes, sizeof(bytes), 0) == (ssize_t)sizeof(bytes) &&
               once__get64(bytes) == once__index_identity(directory->log.index);

    once__close(fd);
    return same;
}

static const char *index_directory(const once__directory_config_t *config)
{
    return config->index_directory != NULL ? config->index_directory
                                           : once__index_default_directory();
}

static once__index_config_t index_config(const once__directory_t *directory,
                                         const once__directory_config_t *config)
{
    once__index_config_t result = {.directory = index_directory(config),
                                   .store = config->path,
                                   .store_fd = directory->log.segments_fd,
                                   .owner = geteuid()};

    memcpy(result.store_id, directory->log.store_id, ONCE__STORE_ID_SIZE);
    memcpy(result.boot_id, directory->log.boot_id, ONCE__BOOT_ID_SIZE);
    return result;
}

static int attach(once__directory_t *directory, const once__index_config_t *where,
                  once_error_t *why)
{
    return where->directory != NULL ? once__index_attach(&directory->log.index, where, why)
                                    : ONCE_E_NOT_FOUND;
}

static void drop_index(once__directory_t *directory)
{
    once__index_close(directory->log.index);
    directory->log.index = NULL;
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
        return once__local_fail(err, code, "no memory for the index of", path,
                                "; is there a limit of address space (ulimit -v)?");
    }
    if (why->code == code && strncmp(why->text, "local store", 11) == 0) {
        return once__fail(err, code, "%s", why->text);
    }
    return once__fail(err, code, "local store: %.80s: %.140s%s", path,
                      why->code == code ? why->text : once_error_text(code), advice(why->text));
}

/* ----------------------------------------------------------------------------------------------------- alone with it */

/*
 * May the file go, which is no part of the log? One that the manifest does not mention, because it was about to become a segment,
 * has no frame. Frames in it say that the manifest is older than the log.
 */
static int may_go(const once__directory_t *directory, const once__manifest_t *manifest,
                  const char *name, uint64_t number, once_error_t *err)
{
    int code;

    if (number == 0 || once__manifest_is_dropped(manifest, number)) {
        return ONCE_OK;
    }
    code = once__segment_is_empty(&directory->log, number);
    if (code == ONCE_E_CORRUPT) {
        return once__fail(err, code,
                          "local store: segments/%s is not in the manifest, which must be older; "
                          "restore both from the same backup, or run once fsck --repair",
                          name);
    }
    return code == ONCE_OK ? ONCE_OK
                           : once__fail(err, code, "local store: cannot read segments/%s: %s", name,
                                        once_error_text(code));
}

/* Removes what is no part of the log. *highest: no number up to this one is used again. */
static int clean_segments(const once__directory_t *directory, const once__manifest_t *manifest,
                          const char *path, uint64_t *highest, once_error_t *err)
{
    DIR *stream = once__disk_list(directory->log.segments_fd, ".");
    const struct dirent *entry;
    int code = ONCE_OK;

    if (stream == NULL) {
        return once__local_errno(err, "cannot read the segments of", path);
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
        if (code == ONCE_OK && unlinkat(dirfd(stream), entry->d_name, 0) != 0) {
            code = once__local_errno(err, "cannot remove old segments from", path);
        }
    }
    (void)closedir(stream);
    return code;
}

typedef struct teller {
    const once__directory_config_t *config;
    uint64_t told; /* the time of the last message, or of the beginning: short ones say nothing */
} teller_t;

static void tell_progress(uint64_t done, uint64_t all, void *data)
{
    teller_t *teller = data;
    uint64_t now = once__real_env.monotonic_ms(NULL);
    char message[192];

    if (now < teller->told + 1000) {
        return;
    }
    teller->told = now;
    (void)snprintf(message, sizeof(message),
                   "local store: rebuilding the index of %.80s: %llu of %llu MB of its log read",
                   teller->config->path, (unsigned long long)(done >> 20),
                   (unsigned long long)(all >> 20));
    teller->config->progress(teller->config->data, message);
}

static int make_index(once__directory_t *directory, const once__directory_config_t *config,
                      const once__index_config_t *where, const once__manifest_t *manifest,
                      once_error_t *why)
{
    teller_t teller = {config, once__real_env.monotonic_ms(NULL)};
    once__rebuild_config_t rebuild = {.log = &directory->log,
                                      .manifest = manifest,
                                      .progress = config->progress != NULL ? tell_progress : NULL,
                                      .progress_data = &teller};
    once__rebuilt_t rebuilt;
    int code = once__index_create(&directory->log.index, where, why);

    code = code == ONCE_OK ? once__rebuild(&rebuild, &rebuilt, why) : code;
    if (code == ONCE_OK && where->directory != NULL) {
        return once__index_publish(directory->log.index, why);
    }
    directory->exclusive = code == ONCE_OK;
    return code;
}

/* Makes sure that there is an index that says what the log says. */
static int prepare_index(once__directory_t *directory, const once__directory_config_t *config,
                         const once__manifest_t *manifest, uint64_t highest, once_error_t *err)
{
    once__index_config_t where = index_config(directory, config);
    once_error_t why = {0};
    uint64_t behind = 0;
    int code = attach(directory, &where, &why);

    if (code == ONCE_OK) {
        atomic_store(&directory->log.index->map->doubted, 1);
        code = once__verify(&directory->log, manifest, &behind);
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
    once__index_raise_number(directory->log.index,
                             highest >= manifest->next ? highest : manifest->next - 1);
    atomic_store(&directory->log.index->map->doubted, 0);
    return directory->exclusive || is_in_use(directory) || write_identity(directory)
               ? ONCE_OK
               : once__local_errno(err, "cannot write to", config->path);
}

static int prepare_log(once__directory_t *directory, const once__directory_config_t *config,
                       once_error_t *err)
{
    const once__log_config_t *log = &directory->log;
    once__manifest_t manifest = {0};
    uint64_t highest = 0;
    int code = once__manifest_read(&manifest, log), is_long;

    if (code != ONCE_OK || !manifest.found) {
        code = code == ONCE_OK ? ONCE_E_CORRUPT : code;
        (void)once__fail(err, code, "local store: %.100s/segments/manifest is %s; " ONCE__RESTORE,
                         config->path,
                         code != ONCE_E_CORRUPT ? once_error_text(code)
                         : manifest.found       ? "damaged"
                                                : "missing");
    }
    code =
        code == ONCE_OK ? clean_segments(directory, &manifest, config->path, &highest, err) : code;
    /* A manifest that has what a crash left, or is mostly of dropped segments, is written anew. */
    is_long = manifest.bytes > MANIFEST_LIMIT && manifest.entries > 4 * manifest.live_count;
    if (code == ONCE_OK && (is_long || manifest.torn) &&
        once__manifest_write(log, manifest.live, manifest.live_count, manifest.next) != ONCE_OK &&
        manifest.torn) {
        code = once__local_errno(err, "cannot write to", config->path);
    }
    code = code == ONCE_OK ? prepare_index(directory, config, &manifest, highest, err) : code;
    once__manifest_free(&manifest);
    return code;
}

/* A new store: an empty manifest, then the format. All names are synced, also those that a killed process made. */
static int prepare_format(once__directory_t *directory, const char *path, once_error_t *err)
{
    once__log_config_t *log = &directory->log;
    once__format_t format = once__format_read(directory->fd, log->store_id);
    int code = once__format_check(format, path, err), ok;

    if (code != ONCE_OK) {
        return code;
    }
    if (format == ONCE__FORMAT_NONE) {
        ok = once__real_env.random(NULL, log->store_id, ONCE__STORE_ID_SIZE) == 0 &&
             once__manifest_write(log, NULL, 0, 1) == ONCE_OK &&
             once__format_write(directory->fd, log->store_id) == 0;
    } else {
        ok = once__format_keep(directory->fd) == 0;
    }
    return ok ? ONCE_OK : once__local_errno(err, "cannot write to", path);
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
    code = once__disk_lock(directory->log.segments_fd, LOCK_SH, 0);
    if (code == ONCE_E_IO) {
        return once__local_errno(err, "cannot lock", config->path);
    }
    return code == ONCE_OK && once__index_is_named(directory->log.index) && is_in_use(directory)
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
    once__format_t format = once__format_read(directory->fd, directory->log.store_id);
    int code = once__format_check(format, config->path, err);

    if (format == ONCE__FORMAT_NONE) {
        return AGAIN;
    }
    code = code == ONCE_OK ? check_secrets(directory, config->path, err) : code;
    if (code != ONCE_OK) {
        return code;
    }
    where = index_config(directory, config);
    code = attach(directory, &where, &why);
    if (code == ONCE_E_NOT_FOUND ||
        (code == ONCE_OK &&
         (atomic_load(&directory->log.index->map->doubted) || !is_in_use(directory)))) {
        return UNSEEN;
    }
    if (code != ONCE_OK) {
        return index_failed(code, config->path, where.directory, &why, err);
    }
    return ONCE_OK;
}

/* ---------------------------------------------------------------------------------------------------------- opening */

static int open_segments(once__directory_t *directory, const once__directory_config_t *config,
                         int make, once_error_t *err)
{
    once__log_config_t *log = &directory->log;

    if (make && once__format_read(directory->fd, log->store_id) == ONCE__FORMAT_NONE &&
        mkdirat(directory->fd, "segments", 0700) != 0 && errno != EEXIST) {
        return once__local_errno(err, "cannot write to", config->path);
    }
    log->segments_fd =
        openat(directory->fd, "segments", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (log->segments_fd < 0 && errno == ENOENT) {
        return once__local_fail(err, ONCE_E_CORRUPT, "", config->path,
                                "/segments is missing; restore it from a backup, or run once "
                                "convert again if that was interrupted");
    }
    if (log->segments_fd < 0) {
        return once__local_errno(err, "cannot open the segments of", config->path);
    }
    return once__format_filesystem(log->segments_fd, config, err);
}

/* Locks segments/, which is still the directory with that name afterwards. ONCE_OK, AGAIN, or ONCE_E_IO with its text. */
static int lock_segments(const once__directory_t *directory, int how, const char *path,
                         once_error_t *err)
{
    struct stat mine, named;
    int fd = directory->log.segments_fd, code = how != 0 ? once__disk_lock(fd, how, 0) : ONCE_OK;

    if (code == ONCE_E_IO) {
        return once__local_errno(err, "cannot lock", path);
    }
    return code == ONCE_OK && fstat(fd, &mine) == 0 &&
                   fstatat(directory->fd, "segments", &named, AT_SYMLINK_NOFOLLOW) == 0 &&
                   mine.st_dev == named.st_dev && mine.st_ino == named.st_ino
               ? ONCE_OK
               : AGAIN;
}

/* The lock: exclusive for a process that finds nobody else, to make the index right; then shared. */
static int enter(once__directory_t *directory, const once__directory_config_t *config,
                 once_error_t *err)
{
    int code = open_segments(directory, config, 1, err);

    code = code == ONCE_OK ? lock_segments(directory, LOCK_EX, config->path, err) : code;
    if (code == ONCE_OK) {
        return enter_alone(directory, config, err);
    }
    code = code == AGAIN ? lock_segments(directory, LOCK_SH, config->path, err) : code;
    return code == ONCE_OK ? enter_shared(directory, config, err) : code;
}

/* Undoes enter(). A child that was forked meanwhile has the lock as well, and would keep it if it were not given up. */
static void undo(once__directory_t *directory)
{
    drop_index(directory);
    if (directory->log.segments_fd >= 0) {
        (void)flock(directory->log.segments_fd, LOCK_UN);
    }
    once__close(directory->log.segments_fd);
    directory->log.segments_fd = -1;
    directory->exclusive = 0;
}

static int try_to_enter(once__directory_t *directory, const once__directory_config_t *config,
                        once_error_t *err)
{
    uint64_t begun = once__real_env.monotonic_ms(NULL), unseen = 0;

    for (;;) {
        int code = enter(directory, config, err);
        uint64_t now = once__real_env.monotonic_ms(NULL);
        if (code <= ONCE_OK) {
            return code;
        }
        undo(directory);
        unseen = code != UNSEEN ? 0 : unseen == 0 ? now : unseen;
        if (code == UNSEEN && now - unseen >= UNSEEN_MS) {
            const char *where = index_directory(config);
            return once__fail(
                err, ONCE_E_CONFLICT,
                "local store: other programs use %.60s, but its index is not in %.40s "
                "here; containers that share a store must share /dev/shm (or a tmpfs "
                "named with index=DIR) and the PID namespace",
                config->path, where != NULL ? where : "any tmpfs");
        }
        if (code == AGAIN && now - begun >= config->timeout_ms) {
            return once__local_fail(err, ONCE_E_CONFLICT, "another program has", config->path,
                                    " to itself (to make its index, to repair or to convert it, or "
                                    "for want of a tmpfs); try again when it is done");
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
    once__close(directory->log.segments_fd);
    once__close(directory->fd);
    *directory = (once__directory_t){.fd = -1, .log = {.segments_fd = -1}};
}

void once__directory_leave(once__directory_t *directory)
{
    undo(directory);
    once__directory_abandon(directory);
}

void once__directory_forget_index(once__directory_t *directory)
{
    if (directory->log.index != NULL) {
        once__index_remove(directory->log.index);
    }
    (void)unlinkat(directory->fd, "index", 0);
    drop_index(directory);
}

void once__directory_close(once__directory_t *directory)
{
    const once__index_t *index = directory->log.index;

    /* A failed change of the lock loses it, which does not matter any more. */
    if (!directory->exclusive &&
        once__disk_lock(directory->log.segments_fd, LOCK_EX, 0) == ONCE_OK &&
        once__index_is_named(index) && once__index_entries(index) < SMALL) {
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

    code = code == ONCE_OK ? open_segments(directory, config, 0, err) : code;
    code = code == ONCE_OK ? lock_segments(directory, how, config->path, err) : code;
    if (code == AGAIN) {
        code = once__local_fail(err, ONCE_E_CONFLICT, "other programs use", config->path,
                                "; stop them");
    }
    code = code == ONCE_OK ? check_secrets(directory, config->path, err) : code;
    where = index_config(directory, config);
    if (code == ONCE_OK && attach(directory, &where, NULL) == ONCE_OK && !is_in_use(directory)) {
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

void once__directory_quarantine(const once__directory_t *directory, uint64_t *files,
                                uint64_t *bytes)
{
    DIR *stream = once__disk_list(directory->fd, "quarantine");
    const struct dirent *entry;

    *files = *bytes = 0;
    while (stream != NULL && (entry = readdir(stream)) != NULL) {
        struct stat st;
        if (entry->d_name[0] != '.' &&
            fstatat(dirfd(stream), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            (*files)++;
            *bytes += (uint64_t)st.st_size;
        }
    }
    if (stream != NULL) {
        (void)closedir(stream);
    }
}
