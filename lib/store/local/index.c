/*
 * The index as a file in a tmpfs (made, found, removed), its locks, its clock, and the table of segments.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "store/local/log.h"

#define INDEX_MAGIC   0x3258444945434e4fu /* "ONCEIDX2" */
#define INDEX_VERSION 5u
#define VIEW_LEAST    ((uint64_t)256 << 20)
#define STEP          ((uint64_t)1 << 20) /* a call for memory that a signal interrupts is repeated */
#define FIXED         offsetof(once__index_header_t, segments)
#define PAGE_SLOTS    (ONCE__INDEX_PAGE / (uint32_t)sizeof(once__segment_t))
#define MAKE_TRIES    100

#ifdef __GLIBC__
#define LIBC 1u
#else
#define LIBC 2u
#endif

/* Waits go by a clock that nobody sets. Where there is none (musl), or it is not understood (ThreadSanitizer): the time of day. */
#if !defined(__GLIBC__) || defined(__SANITIZE_THREAD__)
#define BY_TIME_OF_DAY 1
#elif defined(__has_feature)
#define BY_TIME_OF_DAY __has_feature(thread_sanitizer)
#else
#define BY_TIME_OF_DAY 0
#endif

_Static_assert(ONCE__INDEX_PAGE % sizeof(once__segment_t) == 0, "no segment lies on two pages");
_Static_assert(sizeof(once__index_header_t) % ONCE__INDEX_PAGE == 0, "pages follow");
_Static_assert(offsetof(once__index_header_t, first_tables) % 16 == 0, "tables begin so");

/* --------------------------------------------------------------------------------------------------------- memory */

int once__index_allocate(const once__index_t *index, uint64_t from, uint64_t to)
{
    if (index->fd < 0) {
        return 0;
    }
    if (!once__disk_allows(to)) {
        errno = EFBIG;
        return -1;
    }
    while (from < to) {
        uint64_t len = to - from < STEP ? to - from : STEP;
        int code = fallocate(index->fd, 0, (off_t)from, (off_t)len) == 0 ? 0 : errno;
        if (code == EOPNOTSUPP) { /* ramfs */
            code = posix_fallocate(index->fd, (off_t)from, (off_t)len);
        }
        if (code != 0 && code != EINTR) {
            errno = code;
            return -1;
        }
        from += code == 0 ? len : 0;
    }
    return 0;
}

uint64_t once__index_bytes(const once__index_t *index)
{
    const once__index_header_t *map = index->map;
    uint64_t bits = atomic_load(&map->page_limit) / ONCE__BITS_PAGE;

    return FIXED + (uint64_t)atomic_load(&map->slot_limit) * sizeof(once__segment_t) +
           (bits + once__pages_count(map)) * ONCE__INDEX_PAGE;
}

/* Addresses for all that the file can become; fewer where the process may not have that many. */
static int map_index(once__index_t *index, once_error_t *err)
{
    int flags = MAP_NORESERVE | (index->fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);

    for (index->view = ONCE__INDEX_VIEW; index->view >= VIEW_LEAST; index->view /= 4) {
        void *map = mmap(NULL, index->view, PROT_READ | PROT_WRITE, flags, index->fd, 0);
        if (map != MAP_FAILED) {
            index->map = map;
            (void)madvise(map, index->view, MADV_DONTDUMP);
            return ONCE_OK;
        }
    }
    return once__fail(err, ONCE_E_NOMEM,
                      "cannot map the index: %s (it needs 256 MiB of addresses: see ulimit -v)",
                      strerror(errno));
}

/* ---------------------------------------------------------------------------------------------------------- locks */

static void init_mutex(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attributes;

    (void)pthread_mutexattr_init(&attributes);
    (void)pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    (void)pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    (void)pthread_mutex_init(lock, &attributes);
    (void)pthread_mutexattr_destroy(&attributes);
}

int once__index_lock_mutex(pthread_mutex_t *mutex, uint32_t wait_ms, int *died)
{
    int code = pthread_mutex_trylock(mutex);

    if (code == EBUSY && wait_ms > 0) {
        struct timespec until;
        (void)clock_gettime(BY_TIME_OF_DAY ? CLOCK_REALTIME : CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
        until.tv_sec += wait_ms / 1000 + until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
#if BY_TIME_OF_DAY
        code = pthread_mutex_timedlock(mutex, &until);
#else
        code = pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &until);
#endif
    }
    if (died != NULL) {
        *died = code == EOWNERDEAD;
    }
    if (code == EOWNERDEAD) {
        code = pthread_mutex_consistent(mutex);
    }
    return code == 0 ? ONCE_OK : ONCE_E_NOREPLY;
}

/* -------------------------------------------------------------------------------------------------- the directory */

/* After a system call that failed. */
static int fail(once_error_t *err, const char *what, const char *name)
{
    int denied = errno == EACCES || errno == EPERM || errno == EROFS || errno == EEXIST ||
                 errno == ELOOP || errno == ENOTDIR || errno == ENXIO;
    int code = errno == ENOENT   ? ONCE_E_NOT_FOUND
               : errno == ENOMEM ? ONCE_E_FULL
               : denied          ? ONCE_E_CONFIG
                                 : once__disk_code();

    return once__fail(err, code, "cannot %s the index %s: %s%s", what, name, strerror(errno),
                      code == ONCE_E_FULL     ? " (1 MB and 24 bytes a record; see index=DIR)"
                      : code == ONCE_E_CONFIG ? " (see index=DIR)"
                                              : "");
}

/* A directory in a tmpfs. -1: it is none (*reason). */
static int open_tmpfs(const char *path, const char **reason)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct statfs fs;

    *reason = "is not a tmpfs, and the index must be memory";
    if (fd < 0) {
        *reason = strerror(errno);
    } else if (fstatfs(fd, &fs) != 0 ||
               ((uint64_t)fs.f_type != TMPFS_MAGIC && (uint64_t)fs.f_type != RAMFS_MAGIC)) {
        (void)close(fd);
        fd = -1;
    }
    return fd;
}

const char *once__index_default_directory(void)
{
    const char *candidates[] = {"/dev/shm", getenv("XDG_RUNTIME_DIR"), "/run/shm", "/run", "/tmp"};
    const char *reason;

    for (size_t i = 0; i < sizeof(candidates) / sizeof(candidates[0]); i++) {
        int fd = candidates[i] != NULL ? open_tmpfs(candidates[i], &reason) : -1;
        if (fd >= 0) {
            int usable = faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) == 0;
            (void)close(fd);
            if (usable) {
                return candidates[i];
            }
        }
    }
    return NULL;
}

static uint64_t namespace_of(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? st.st_ino : 0;
}

/* What an index of this store has in its header, but for the random number. `label` is zeroed. */
static int fill_label(once__index_label_t *label, const once__index_config_t *config,
                      once_error_t *err)
{
    uint64_t abi[] = {INDEX_VERSION,
                      sizeof(once__index_header_t),
                      sizeof(pthread_mutex_t),
                      (uint64_t)sysconf(_SC_PAGESIZE),
                      sizeof(void *),
                      LIBC,
                      namespace_of("/proc/self/ns/pid"),
                      namespace_of("/proc/self/ns/time")};
    char *path = config->store != NULL ? realpath(config->store, NULL) : NULL;
    struct stat st = {0};

    if (config->store_fd >= 0 && fstat(config->store_fd, &st) != 0) {
        free(path);
        return once__fail(err, ONCE_E_IO, "%s: %s", config->store, strerror(errno));
    }
    label->magic = INDEX_MAGIC;
    memcpy(label->abi, abi, sizeof(label->abi));
    memcpy(label->store_id, config->store_id, ONCE__STORE_ID_SIZE);
    memcpy(label->boot_id, config->boot_id, ONCE__BOOT_ID_SIZE);
    label->device = st.st_dev;
    label->inode = st.st_ino;
    if (path != NULL && strlen(path) < sizeof(label->segments) - 10) {
        (void)snprintf(label->segments, sizeof(label->segments), "%s/segments", path);
    }
    free(path);
    return ONCE_OK;
}

/* Device and inode are in the name as well, so that a store and its copy do not take the name from each other. */
static void fill_names(once__index_t *index, const once__index_label_t *label)
{
    char id[2 * ONCE__STORE_ID_SIZE + 1];
    uint64_t boot =
        once__get64(label->boot_id) ^ (label->device * 0x9e3779b97f4a7c15u + label->inode);

    once__hex(id, label->store_id, ONCE__STORE_ID_SIZE);
    (void)snprintf(index->name, sizeof(index->name), "once-%s-%016llx", id,
                   (unsigned long long)boot);
}

/* Never the name of another file, so that a process that removes one by its name cannot remove this one. */
static int draw_new_name(once__index_t *index)
{
    uint64_t number;

    if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number)) {
        return -1;
    }
    (void)snprintf(index->new_name, sizeof(index->new_name), "%.38s%016llx.new", index->name,
                   (unsigned long long)number);
    return 0;
}

/* Does no store have this index? Its path leads to nothing, or to another directory. When in doubt: 0. */
static int has_no_store(int fd)
{
    once__index_label_t label;
    struct stat st;

    if (pread(fd, &label, sizeof(label), 0) != (ssize_t)sizeof(label) ||
        label.magic != INDEX_MAGIC || label.abi[0] != INDEX_VERSION || label.segments[0] != '/' ||
        memchr(label.segments, 0, sizeof(label.segments)) == NULL) {
        return 0;
    }
    return stat(label.segments, &st) == 0 ? label.device != st.st_dev || label.inode != st.st_ino
                                          : errno == ENOENT || errno == ENOTDIR;
}

/*
 * Removes indexes that nothing needs: of this owner, used by no process (users have a shared flock() on theirs), and unfinished or
 * without a store. By the time of the lock, another file may have the name.
 */
static void remove_orphans(int directory_fd, const once__index_config_t *config)
{
    DIR *directory = once__disk_list(directory_fd, ".");
    struct dirent *entry;

    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        const char *name = entry->d_name;
        size_t len = strlen(name);
        int is_new = len == 58 && strcmp(name + 54, ".new") == 0, fd = -1;
        struct stat st, now;
        if (strncmp(name, "once-", 5) == 0 && (len == 54 || is_new)) {
            fd = openat(directory_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        }
        if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == config->owner &&
            (is_new || has_no_store(fd)) && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
            fstatat(directory_fd, name, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
            now.st_ino == st.st_ino) {
            (void)unlinkat(directory_fd, name, 0);
        }
        once__close(fd);
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
}

/* --------------------------------------------------------------------------------------------------------- making */

/* Users have a shared lock; the exclusive one is that of a process that removes the file. 1: it is locked, and has its name. */
static int lock_file(const once__index_t *index)
{
    struct stat st;

    return flock(index->fd, LOCK_SH | LOCK_NB) == 0 && fstat(index->fd, &st) == 0 &&
           st.st_nlink == 1;
}

/*
 * The file under its temporary name, with the memory that an empty index needs. Until it is locked, another process that removes
 * orphans may take it for one: then another file is made.
 */
static int make_file(once__index_t *index, const once__index_config_t *config, once_error_t *err)
{
    uint64_t end = sizeof(once__index_header_t);

    remove_orphans(index->directory_fd, config);
    for (int tries = 0; tries < MAKE_TRIES && draw_new_name(index) == 0; tries++) {
        index->fd = openat(index->directory_fd, index->new_name,
                           O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (index->fd < 0 || lock_file(index)) {
            break;
        }
        (void)close(index->fd);
        index->fd = -1;
        errno = EEXIST;
    }
    return index->fd >= 0 && (geteuid() != 0 || fchown(index->fd, config->owner, (gid_t)-1) == 0) &&
                   once__index_allocate(index, 0, FIXED + ONCE__INDEX_PAGE) == 0 &&
                   once__index_allocate(index, end - 1, end) == 0
               ? ONCE_OK
               : fail(err, "make", index->new_name);
}

static int create(once__index_t *index, const once__index_config_t *config,
                  const once__index_label_t *label, once_error_t *err)
{
    int code = config->directory != NULL ? make_file(index, config, err) : ONCE_OK;
    once__index_header_t *map;

    code = code == ONCE_OK ? map_index(index, err) : code;
    if (code != ONCE_OK) {
        return code;
    }
    map = index->map;
    map->label = *label;
    if (getrandom(&map->label.identity, sizeof(uint64_t), 0) != (ssize_t)sizeof(uint64_t)) {
        return fail(err, "draw the number of", index->name);
    }
    atomic_store(&map->next_number, 1);
    atomic_store(&map->slot_limit, PAGE_SLOTS);
    atomic_store(&map->end, sizeof(*map));
    map->view = index->view;
    init_mutex(&map->slot_lock);
    init_mutex(&map->page_lock);
    for (uint32_t i = 0; i < ONCE__SHARDS; i++) {
        uint64_t at = (uint64_t)((char *)map->first_tables[i] - (char *)map);
        init_mutex(&map->shards[i].lock);
        atomic_store(&map->shards[i].table, at / 16 << 24 | ONCE__FIRST_ENTRIES);
    }
    return ONCE_OK;
}

/* ------------------------------------------------------------------------------------------------------ attaching */

/*
 * Why what is mapped is not an index that this process can use; NULL: it is one. Everything in it must lie inside the file: others
 * may be at work, but the file only grows. What entries say is checked by the frames that they lead to.
 */
static const char *why_not(const once__index_t *index, const once__index_label_t *ours)
{
    const once__index_header_t *map = index->map;
    uint64_t end = atomic_load(&map->end);
    uint32_t slots = atomic_load(&map->slot_end), limit = atomic_load(&map->slot_limit);
    size_t which = offsetof(once__index_label_t, store_id);
    struct stat st;
    int sound;

    if (map->label.magic != ours->magic) {
        return "it is not an index";
    }
    if (memcmp(map->label.abi, ours->abi, sizeof(ours->abi)) != 0) {
        return "another version of once made it, or one with another C library or in another "
               "container";
    }
    if (memcmp((const char *)map + which, (const char *)ours + which,
               offsetof(once__index_label_t, identity) - which) != 0) {
        return "it belongs to another store";
    }
    sound = fstat(index->fd, &st) == 0 && (uint64_t)st.st_size >= end && end >= sizeof(*map) &&
            end % ONCE__INDEX_PAGE == 0 && end <= map->view && map->view <= ONCE__INDEX_VIEW &&
            slots <= limit && limit <= ONCE__SLOTS &&
            atomic_load(&map->page_limit) <= ONCE__INDEX_PAGES;
    for (uint32_t i = 0; sound && i < ONCE__SHARDS; i++) {
        uint64_t table = atomic_load(&map->shards[i].table), at = once__table_at(table);
        uint64_t size = once__table_size(table) * sizeof(once__cell_t);
        sound = at >= offsetof(once__index_header_t, first_tables) && size > 0 &&
                at + size <= atomic_load(&map->end);
    }
    for (uint32_t i = 0; sound && i < slots; i++) {
        uint64_t buffer = atomic_load(&map->segments[i].buffer);
        uint64_t at = (buffer & UINT32_MAX) * ONCE__INDEX_PAGE, pages = buffer >> 32;
        sound = buffer == 0 || (at >= sizeof(*map) && pages > 0 &&
                                at + pages * ONCE__INDEX_PAGE <= atomic_load(&map->end));
    }
    return sound ? NULL : "it is damaged";
}

/* Opens the file that has the name, if it is one that only the owner can have written. */
static int open_file(once__index_t *index, const once__index_config_t *config, once_error_t *err)
{
    struct stat st;

    index->fd = openat(index->directory_fd, index->name,
                       O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (index->fd < 0) {
        return fail(err, "open", index->name);
    }
    if (fstat(index->fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_nlink > 1 ||
        (st.st_uid != config->owner && st.st_uid != geteuid()) || (st.st_mode & 077) != 0) {
        return once__fail(err, ONCE_E_CONFIG,
                          "the index %s/%s is not ours alone (owner, mode, links): remove it, or "
                          "see index=DIR",
                          config->directory, index->name);
    }
    return lock_file(index) && (uint64_t)st.st_size >= sizeof(once__index_header_t)
               ? ONCE_OK
               : once__fail(err, ONCE_E_NOT_FOUND, "the index %s was removed, or cut short",
                            index->name);
}

/* The index must not grow beyond what the user with the smallest view can see: pages behind it are not taken, and not used. */
static int limit_growth(once__index_t *index, once_error_t *err)
{
    once__index_header_t *map = index->map;
    uint64_t used = 0;
    int code = once__index_lock_mutex(&map->page_lock, ONCE__INDEX_WAIT_MS, NULL);

    if (code != ONCE_OK) {
        return once__fail(err, code, "a lock of the index could not be had within a second");
    }
    for (uint64_t page = index->view / ONCE__INDEX_PAGE; page < map->page_limit; page += 64) {
        used |= once__load(&map->page_bits[page / 64]);
    }
    if (used != 0) {
        code = once__fail(err, ONCE_E_NOMEM,
                          "the index is larger than what this process may map: see ulimit -v");
    } else if (index->view < map->view) {
        map->view = index->view;
    }
    (void)pthread_mutex_unlock(&map->page_lock);
    return code;
}

static int attach(once__index_t *index, const once__index_config_t *config,
                  const once__index_label_t *label, once_error_t *err)
{
    const char *reason;
    int code;

    index->is_named = 1;
    code = config->directory != NULL ? open_file(index, config, err)
                                     : once__fail(err, ONCE_E_NOT_FOUND, "there is no index");
    code = code == ONCE_OK ? map_index(index, err) : code;
    reason = code == ONCE_OK ? why_not(index, label) : NULL;
    if (reason != NULL) {
        return once__fail(err, ONCE_E_NOT_FOUND, "the index %s/%s cannot be used: %s",
                          config->directory, index->name, reason);
    }
    return code == ONCE_OK ? limit_growth(index, err) : code;
}

/* --------------------------------------------------------------------------------------------- opening and closing */

static int open_index(once__index_t **out, const once__index_config_t *config, int fresh,
                      once_error_t *err)
{
    once__index_t *index = calloc(1, sizeof(*index));
    once__index_label_t label = {0};
    const char *reason;
    int code;

    *out = NULL;
    if (index == NULL) {
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    index->fd = index->directory_fd = -1;
    code = fill_label(&label, config, err);
    if (code == ONCE_OK && config->directory != NULL) {
        index->directory_fd = open_tmpfs(config->directory, &reason);
        if (index->directory_fd < 0) {
            code = once__fail(err, ONCE_E_CONFIG, "no index can be in %s: %s (see index=DIR)",
                              config->directory, reason);
        }
    }
    if (code == ONCE_OK) {
        fill_names(index, &label);
        code = fresh ? create(index, config, &label, err) : attach(index, config, &label, err);
    }
    if (code != ONCE_OK) {
        once__index_close(index);
        return code;
    }
    *out = index;
    return ONCE_OK;
}

int once__index_create(once__index_t **out, const once__index_config_t *config, once_error_t *err)
{
    return open_index(out, config, 1, err);
}

int once__index_attach(once__index_t **out, const once__index_config_t *config, once_error_t *err)
{
    return open_index(out, config, 0, err);
}

int once__index_publish(once__index_t *index, once_error_t *err)
{
    if (index->fd >= 0 && !index->is_named &&
        renameat(index->directory_fd, index->new_name, index->directory_fd, index->name) != 0) {
        return fail(err, "give its name to", index->name);
    }
    index->is_named = 1;
    return ONCE_OK;
}

void once__index_close(once__index_t *index)
{
    if (index == NULL) {
        return;
    }
    if (index->fd >= 0 && !index->is_named) {
        (void)unlinkat(index->directory_fd, index->new_name, 0);
    }
    if (index->map != NULL) {
        (void)munmap(index->map, index->view);
    }
    once__close(index->fd);
    once__close(index->directory_fd);
    free(index);
}

int once__index_is_named(const once__index_t *index)
{
    uint64_t end = atomic_load(&index->map->end);
    struct stat st, other;

    return index->fd < 0 ||
           (fstat(index->fd, &st) == 0 && (uint64_t)st.st_size >= end &&
            (st.st_nlink != 0 || fstatat(index->directory_fd, index->name, &other, 0) != 0));
}

void once__index_remove(once__index_t *index)
{
    struct stat st;

    if (index->fd >= 0 && index->is_named && fstat(index->fd, &st) == 0 && st.st_nlink != 0) {
        (void)unlinkat(index->directory_fd, index->name, 0);
    }
}

/* ----------------------------------------------------------------------------------------------------------- clock */

uint64_t once__index_now(const once__index_t *index)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000 +
           (uint64_t)once__index_clock(index);
}

/* -------------------------------------------------------------------------------------------------------- segments */

static int is_free(const once__index_header_t *map, uint32_t slot)
{
    return once__load(&map->segments[slot].state) == ONCE__SEGMENT_FREE;
}

/* The lowest free slot, with memory behind it. ONCE_OK or ONCE_E_FULL. */
static int find_free(once__index_t *index, uint32_t *slot)
{
    once__index_header_t *map = index->map;
    uint32_t end = atomic_load(&map->slot_end), limit = atomic_load(&map->slot_limit);

    while (end > 0 && is_free(map, end - 1)) {
        end--;
    }
    for (*slot = 0; *slot < end && !is_free(map, *slot); (*slot)++) {
    }
    if (*slot == limit) {
        uint64_t at = (uint64_t)((char *)&map->segments[limit] - (char *)map);
        if (limit == ONCE__SLOTS || once__index_allocate(index, at, at + ONCE__INDEX_PAGE) != 0) {
            return ONCE_E_FULL;
        }
        atomic_store(&map->slot_limit, limit + PAGE_SLOTS);
    }
    atomic_store(&map->slot_end, *slot < end ? end : *slot + 1);
    return ONCE_OK;
}

/* The state is stored last: a process that is killed leaves a free slot. */
int once__index_take_slot(once__index_t *index, uint32_t *slot, uint64_t *number)
{
    once__index_header_t *map = index->map;
    int code = once__index_lock_mutex(&map->slot_lock, ONCE__INDEX_WAIT_MS, NULL);

    if (code != ONCE_OK) {
        return code;
    }
    code = find_free(index, slot);
    if (code == ONCE_OK) {
        once__segment_t *segment = &map->segments[*slot];
        assert(atomic_load(&segment->state) == ONCE__SEGMENT_FREE);
        *number = atomic_fetch_add(&map->next_number, 1);
        memset((char *)segment, 0, sizeof(*segment));
        atomic_store(&segment->number, *number);
        atomic_store(&segment->state, ONCE__SEGMENT_PREPARING);
    }
    (void)pthread_mutex_unlock(&map->slot_lock);
    return code;
}

/* The state is stored last: from then on another process may take the slot. */
void once__index_free_slot(once__index_t *index, uint32_t slot)
{
    once__segment_t *segment = once__index_segment(index, slot);

    atomic_store(&segment->number, 0);
    atomic_store(&segment->state, ONCE__SEGMENT_FREE);
}

void once__index_raise_number(once__index_t *index, uint64_t at_least)
{
    uint64_t next = atomic_load(&index->map->next_number);

    while (next <= at_least &&
           !atomic_compare_exchange_weak(&index->map->next_number, &next, at_least + 1)) {
    }
}

uint32_t once__index_count(const once__index_t *index, once__segment_state_t first,
                           once__segment_state_t last)
{
    uint32_t count = 0;

    for (uint32_t slot = 0; slot < once__index_slot_end(index); slot++) {
        uint32_t state = atomic_load(&once__index_segment(index, slot)->state);
        count += state >= (uint32_t)first && state <= (uint32_t)last;
    }
    return count;
}

uint64_t once__index_durable(const once__index_t *index, uint64_t number)
{
    for (uint32_t slot = 0; index != NULL && slot < once__index_slot_end(index); slot++) {
        const once__segment_t *segment = once__index_segment(index, slot);
        if (atomic_load(&segment->number) == number) {
            return atomic_load(&segment->state) >= ONCE__SEGMENT_ACTIVE
                       ? atomic_load(&segment->synced)
                       : 0;
        }
    }
    return UINT64_MAX;
}

uint64_t once__index_entries(const once__index_t *index)
{
    uint64_t records = 0;

    for (uint32_t i = 0; i < ONCE__SHARDS; i++) {
        records += once__load(&index->map->shards[i].records);
    }
    return records;
}

void once__index_usage(const once__index_t *index, uint64_t *records, uint64_t *bytes)
{
    uint32_t end = once__index_slot_end(index);

    *records = once__index_entries(index);
    *bytes = 0;
    for (uint32_t slot = 0; slot < end; slot++) {
        const once__segment_t *segment = &index->map->segments[slot];
        uint32_t state = atomic_load(&segment->state);
        if (state == ONCE__SEGMENT_ACTIVE) {
            *bytes += segment->size;
        } else if (state == ONCE__SEGMENT_SEALED) {
            *bytes += once__load(&segment->tail);
        }
    }
}
