#include "volume.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NODES   256
#define ENTRIES 64
#define NAME    40
#define RANDOM  8 /* failures at one moment that leave something, besides nothing and everything */

typedef struct entry {
    char name[NAME];
    ino_t inode;
} entry_t;

/* A file or directory that the disk knows. */
typedef struct node {
    ino_t inode;
    int fd; /* ours: so its number is not given to another, and what was removed can be read */
    uint8_t *synced; /* of a file: what it held at its last sync; NULL: never */
    size_t size;
    entry_t entries[ENTRIES]; /* of a directory: at its last sync */
    size_t entry_count;
} node_t;

static struct {
    pthread_mutex_t lock;
    int runs;
    char root[PLACE_SIZE], below[PLACE_SIZE];
    node_t nodes[NODES];
    size_t node_count;
    int promised;
    ino_t fails; /* the next sync of this one */
    dice_t dice;
} volume = {.lock = PTHREAD_MUTEX_INITIALIZER};

volume_remains_t volume_remains[VOLUME_REMAINS_MAX];
unsigned volume_remains_count;

static _Thread_local int inside; /* what we do ourselves is no change of the volume */

/* ------------------------------------------------------------------------------------------------ what the disk knows */

static node_t *node_of(int fd)
{
    struct stat st;
    node_t *node;
    char path[64];

    must(fstat(fd, &st) == 0, "fstat");
    for (size_t i = 0; i < volume.node_count; i++) {
        if (volume.nodes[i].inode == st.st_ino) {
            return &volume.nodes[i];
        }
    }
    must(volume.node_count < NODES, "too many files");
    node = &volume.nodes[volume.node_count++];
    memset(node, 0, sizeof(*node));
    node->inode = st.st_ino;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    node->fd = open(path, O_RDONLY); /* not dup: that would share its lock */
    must(node->fd >= 0, path);
    return node;
}

static const node_t *node_by_inode(ino_t inode)
{
    for (size_t i = 0; i < volume.node_count; i++) {
        if (volume.nodes[i].inode == inode) {
            return &volume.nodes[i];
        }
    }
    must(0, "the inode is known");
    return NULL;
}

static int is_directory(int fd)
{
    struct stat st;

    must(fstat(fd, &st) == 0, "fstat");
    return S_ISDIR(st.st_mode);
}

/* The names of now, each with a node. The index does not count: after a power failure it is of another boot, and made anew. */
static size_t list(int fd, entry_t entries[ENTRIES])
{
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY);
    DIR *stream = copy >= 0 ? fdopendir(copy) : NULL;
    const struct dirent *entry;
    size_t count = 0;

    must(stream != NULL, "opendir");
    while ((entry = readdir(stream)) != NULL) {
        int found;
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, "index") == 0) {
            continue;
        }
        must(count < ENTRIES, "too many names");
        must(snprintf(entries[count].name, NAME, "%s", entry->d_name) < NAME, "a long name");
        found = openat(fd, entry->d_name, O_RDONLY);
        must(found >= 0, entry->d_name);
        entries[count++].inode = node_of(found)->inode;
        (void)close(found);
    }
    (void)closedir(stream);
    return count;
}

static void note_sync(int fd)
{
    node_t *node = node_of(fd);

    if (is_directory(fd)) {
        node->entry_count = list(fd, node->entries);
        return;
    }
    free(node->synced);
    node->synced = content_read(node->fd, &node->size);
}

/* Everything below it as if it had been synced. */
static void note_all(int fd)
{
    note_sync(fd);
    if (is_directory(fd)) {
        const node_t *node = node_of(fd);
        for (size_t i = 0; i < node->entry_count; i++) {
            note_all(node_by_inode(node->entries[i].inode)->fd);
        }
    }
}

static int is_ours(int fd)
{
    char link[64], path[PLACE_SIZE] = "";
    size_t len = strlen(volume.root);

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    return readlink(link, path, sizeof(path) - 1) >= (ssize_t)len &&
           strncmp(path, volume.root, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

/* ------------------------------------------------------------------------------------------------- the power fails */

static void leave_file(const node_t *node, survival_t survival, const char *to)
{
    size_t size;
    uint8_t *bytes = content_read(node->fd, &size);

    if (node->synced != NULL && (survival == SURVIVES_NOTHING ||
                                 (survival == SURVIVES_SOMETHING && dice_roll(&volume.dice, 2)))) {
        bytes = realloc(bytes, node->size + 1); /* its length may be the old one, too */
        must(bytes != NULL, "realloc");
        if (node->size > size) {
            memcpy(bytes + size, node->synced + size, node->size - size);
        }
        size = node->size;
    } else if (node->synced == NULL && survival != SURVIVES_EVERYTHING) {
        size = survival == SURVIVES_NOTHING ? 0 : dice_roll(&volume.dice, size + 1);
    }
    content_blend(bytes, size, (once_slice_t){node->synced, node->size}, survival, &volume.dice);
    content_write(to, bytes, size);
    free(bytes);
}

static const entry_t *find(const entry_t *entries, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(entries[i].name, name) == 0) {
            return &entries[i];
        }
    }
    return NULL;
}

static void leave(const node_t *node, survival_t survival, const char *to);

/* One name: what it named at the last sync, or what it names now. NULL: nothing. */
static void leave_name(const entry_t *synced, const entry_t *now, survival_t survival,
                       const char *to)
{
    const entry_t *left = survival == SURVIVES_NOTHING      ? synced
                          : survival == SURVIVES_EVERYTHING ? now
                          : dice_roll(&volume.dice, 2) != 0 ? synced
                                                            : now;
    char path[PLACE_SIZE];

    if (left != NULL) {
        place_join(path, to, left->name);
        leave(node_by_inode(left->inode), survival, path);
    }
}

static void leave(const node_t *node, survival_t survival, const char *to)
{
    entry_t now[ENTRIES];
    size_t count;

    if (!is_directory(node->fd)) {
        leave_file(node, survival, to);
        return;
    }
    must(mkdir(to, 0700) == 0, to);
    count = list(node->fd, now);
    for (size_t i = 0; i < node->entry_count; i++) {
        const entry_t *entry = &node->entries[i];
        leave_name(entry, find(now, count, entry->name), survival, to);
    }
    for (size_t i = 0; i < count; i++) {
        if (find(node->entries, node->entry_count, now[i].name) == NULL) {
            leave_name(NULL, &now[i], survival, to);
        }
    }
}

static void fail_power(void)
{
    int root = open(volume.root, O_RDONLY | O_DIRECTORY);

    must(root >= 0, volume.root);
    for (int i = 0; i < 2 + RANDOM; i++) {
        survival_t survival = i == 0   ? SURVIVES_NOTHING
                              : i == 1 ? SURVIVES_EVERYTHING
                                       : SURVIVES_SOMETHING;
        volume_remains_t *remains = &volume_remains[volume_remains_count];
        char name[NAME];
        must(volume_remains_count < VOLUME_REMAINS_MAX, "too many failures");
        (void)snprintf(name, sizeof(name), "%u", volume_remains_count++);
        place_join(remains->path, volume.below, name);
        remains->promised = volume.promised;
        leave(node_of(root), survival, remains->path);
    }
    (void)close(root);
}

/* ------------------------------------------------------------------------------------------------------- the calls */

/* Before a change. 1: it is one that counts; then the volume is locked until leave_call. */
static int enter_call(void)
{
    if (inside) {
        return 0;
    }
    (void)pthread_mutex_lock(&volume.lock);
    inside = 1;
    if (volume.runs) {
        int saved = errno;
        fail_power();
        errno = saved;
    }
    return 1;
}

static void leave_call(int entered)
{
    if (entered) {
        inside = 0;
        (void)pthread_mutex_unlock(&volume.lock);
    }
}

/* The linker's names: every call to NAME in the program's objects becomes one to __wrap_NAME. */
#define WRAP(type, name, parameters, arguments)                                                    \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        int entered = enter_call();                                                                \
        type result = __real_##name arguments;                                                     \
        leave_call(entered);                                                                       \
        return result;                                                                             \
    }

WRAP(ssize_t, write, (int fd, const void *bytes, size_t len), (fd, bytes, len))
WRAP(ssize_t, pwrite, (int fd, const void *bytes, size_t len, off_t at), (fd, bytes, len, at))
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(int, mkdirat, (int fd, const char *path, mode_t mode), (fd, path, mode))
WRAP(int, link, (const char *from, const char *to), (from, to))
WRAP(int, unlink, (const char *path), (path))
WRAP(int, unlinkat, (int fd, const char *path, int flags), (fd, path, flags))
WRAP(int, rename, (const char *from, const char *to), (from, to))
WRAP(int, renameat, (int fd, const char *from, int to_fd, const char *to), (fd, from, to_fd, to))

WRAP(int, renameat2, (int fd, const char *from, int to_fd, const char *to, unsigned flags),
     (fd, from, to_fd, to, flags))
WRAP(int, ftruncate, (int fd, off_t size), (fd, size))

static int sync_with(int (*real)(int fd), int fd)
{
    int entered = enter_call(), code = 0;
    struct stat st;

    if (entered && volume.runs && volume.fails != 0 && fstat(fd, &st) == 0 &&
        st.st_ino == volume.fails) {
        volume.fails = 0;
        errno = EIO;
        code = -1;
    } else {
        code = real(fd);
    }
    if (entered && volume.runs && code == 0 && is_ours(fd)) {
        note_sync(fd);
    }
    leave_call(entered);
    return code;
}

#define WRAP_SYNC(name)                                                                            \
    int __real_##name(int fd);                                                                     \
    int __wrap_##name(int fd);                                                                     \
    int __wrap_##name(int fd)                                                                      \
    {                                                                                              \
        return sync_with(__real_##name, fd);                                                       \
    }

WRAP_SYNC(fsync)
WRAP_SYNC(fdatasync)

/* ---------------------------------------------------------------------------------------------------- for the tests */

void volume_start(const char *root, const char *below)
{
    int fd;

    (void)pthread_mutex_lock(&volume.lock);
    inside = 1;
    (void)snprintf(volume.root, sizeof(volume.root), "%s", root);
    (void)snprintf(volume.below, sizeof(volume.below), "%s", below);
    volume.dice.state = 1;
    volume.promised = 0;
    volume.fails = 0;
    volume_remains_count = 0;
    fd = open(root, O_RDONLY | O_DIRECTORY);
    must(fd >= 0, root);
    note_all(fd);
    (void)close(fd);
    volume.runs = 1;
    inside = 0;
    (void)pthread_mutex_unlock(&volume.lock);
}

void volume_promise(int number)
{
    (void)pthread_mutex_lock(&volume.lock);
    volume.promised = number;
    (void)pthread_mutex_unlock(&volume.lock);
}

void volume_fail_sync(const char *directory)
{
    struct stat st;

    must(stat(directory, &st) == 0, directory);
    (void)pthread_mutex_lock(&volume.lock);
    volume.fails = st.st_ino;
    (void)pthread_mutex_unlock(&volume.lock);
}

void volume_end(void)
{
    int entered = enter_call();

    volume.runs = 0;
    for (size_t i = 0; i < volume.node_count; i++) {
        (void)close(volume.nodes[i].fd);
        free(volume.nodes[i].synced);
    }
    volume.node_count = 0;
    leave_call(entered);
}
