#include "disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------------ what is there */

static disk_file_t *find_file(disk_t *disk, ino_t inode)
{
    for (size_t i = 0; i < disk->file_count; i++) {
        if (disk->files[i].inode == inode) {
            return &disk->files[i];
        }
    }
    must(disk->file_count < DISK_FILES, "too many files");
    memset(&disk->files[disk->file_count], 0, sizeof(disk_file_t));
    disk->files[disk->file_count].inode = inode;
    return &disk->files[disk->file_count++];
}

/* A file that is in no name any more may come back as another one with the same number. */
static void forget_nameless(disk_t *disk)
{
    char path[PLACE_SIZE];
    size_t kept = 0;
    DIR *directory;

    place_join(path, disk->store, "segments");
    directory = opendir(path);
    must(directory != NULL, "opendir");
    for (size_t i = 0; i < disk->file_count; i++) {
        const struct dirent *entry;
        int named = disk->files[i].name[0] != '\0';
        rewinddir(directory);
        while (!named && (entry = readdir(directory)) != NULL) {
            named = entry->d_ino == disk->files[i].inode;
        }
        if (named) {
            disk->files[kept++] = disk->files[i];
        } else {
            free(disk->files[i].synced);
        }
    }
    disk->file_count = kept;
    (void)closedir(directory);
}

static void note_names(disk_t *disk)
{
    char path[PLACE_SIZE];
    const struct dirent *entry;
    DIR *directory;

    for (size_t i = 0; i < disk->file_count; i++) {
        disk->files[i].name[0] = '\0';
    }
    place_join(path, disk->store, "segments");
    directory = opendir(path);
    must(directory != NULL, "opendir");
    while ((entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] != '.') {
            (void)snprintf(find_file(disk, entry->d_ino)->name, DISK_NAME, "%.31s", entry->d_name);
        }
    }
    (void)closedir(directory);
    forget_nameless(disk);
}

static void note_content(disk_t *disk, int fd)
{
    char path[64];
    struct stat st;
    disk_file_t *file;
    int readable;

    must(fstat(fd, &st) == 0, "fstat");
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    readable = open(path, O_RDONLY);
    must(readable >= 0, path);
    file = find_file(disk, st.st_ino);
    free(file->synced);
    file->synced = content_read(readable, &file->size);
    (void)close(readable);
}

/* ------------------------------------------------------------------------------------------------------------- hooks */

static int hook_sync(void *data, int fd)
{
    disk_t *disk = data;
    int code = 0;

    (void)pthread_mutex_lock(&disk->lock);
    disk->syncs++;
    if (disk->boundary != NULL) {
        disk->boundary(disk, disk->data);
    }
    if (disk->fail_sync != 0) {
        code = -1;
    } else {
        note_content(disk, fd);
    }
    (void)pthread_mutex_unlock(&disk->lock);
    if (code != 0) {
        errno = disk->fail_sync;
    }
    return code;
}

static int hook_sync_directory(void *data, int fd)
{
    disk_t *disk = data;

    (void)pthread_mutex_lock(&disk->lock);
    disk->directory_syncs++;
    if (disk->boundary != NULL) {
        disk->boundary(disk, disk->data);
    }
    note_names(disk);
    (void)pthread_mutex_unlock(&disk->lock);
    return 0;
}

static int hook_allocate(void *data, int fd, uint64_t size)
{
    const disk_t *disk = data;

    if (disk->full) {
        errno = ENOSPC;
        return -1;
    }
    return once__real_disk.allocate(NULL, fd, size);
}

static ssize_t hook_write(void *data, int fd, const void *bytes, size_t len, uint64_t offset)
{
    disk_t *disk = data;
    unsigned most = disk->short_write;

    if (disk->fail_write != 0) {
        if (disk->writes_left == 0) {
            errno = disk->fail_write;
            return -1;
        }
        disk->writes_left--;
    }
    return pwrite(fd, bytes, most != 0 && most < len ? most : len, (off_t)offset);
}

static int is_first_segment(int fd)
{
    uint8_t header[ONCE__SEGMENT_HEADER];
    once__segment_header_t segment = {0};

    if (pread(fd, header, sizeof(header), 0) != (ssize_t)sizeof(header)) {
        return 0;
    }
    (void)once__segment_header_read(&segment, header, sizeof(header));
    return segment.number == 1;
}

static ssize_t hook_read(void *data, int fd, void *bytes, size_t len, uint64_t offset)
{
    const disk_t *disk = data;
    uint64_t bad = disk->fail_read;

    if (bad != 0 && offset <= bad && bad - offset < len && is_first_segment(fd)) {
        errno = EIO;
        return -1;
    }
    return pread(fd, bytes, len, (off_t)offset);
}

void disk_read_by_hook(disk_t *disk)
{
    disk->hooks.read = hook_read;
}

void disk_init(disk_t *disk, const char *path)
{
    char folder[PLACE_SIZE];
    DIR *directory;
    const struct dirent *entry;

    memset(disk, 0, sizeof(*disk));
    (void)snprintf(disk->store, sizeof(disk->store), "%s", path);
    (void)pthread_mutex_init(&disk->lock, NULL);
    disk->hooks.sync = hook_sync;
    disk->hooks.sync_directory = hook_sync_directory;
    disk->hooks.allocate = hook_allocate;
    disk->hooks.write = hook_write;
    disk->hooks.data = disk;
    place_join(folder, path, "segments");
    directory = opendir(folder);
    must(directory != NULL, "opendir");
    while ((entry = readdir(directory)) != NULL) {
        int fd = entry->d_name[0] != '.' ? openat(dirfd(directory), entry->d_name, O_RDONLY) : -1;
        if (fd >= 0) {
            note_content(disk, fd);
            (void)close(fd);
        }
    }
    (void)closedir(directory);
    note_names(disk);
}

void disk_free(disk_t *disk)
{
    for (size_t i = 0; i < disk->file_count; i++) {
        free(disk->files[i].synced);
    }
    (void)pthread_mutex_destroy(&disk->lock);
}

/* ----------------------------------------------------------------------------------------------------------- crashes */

static void copy_top(const disk_t *disk, const char *name, const char *to)
{
    char from[PLACE_SIZE], target[PLACE_SIZE];
    uint8_t *bytes;
    size_t size;
    int fd;

    place_join(from, disk->store, name);
    place_join(target, to, name);
    fd = open(from, O_RDONLY);
    if (fd < 0 && errno == ENOENT) {
        return; /* not made yet */
    }
    must(fd >= 0, from);
    bytes = content_read(fd, &size);
    (void)close(fd);
    content_write(target, bytes, size);
    free(bytes);
}

static const char *now_named(DIR *directory, ino_t inode, char out[DISK_NAME])
{
    const struct dirent *entry;

    out[0] = '\0';
    rewinddir(directory);
    while ((entry = readdir(directory)) != NULL) {
        if (entry->d_ino == inode && entry->d_name[0] != '.') {
            (void)snprintf(out, DISK_NAME, "%.31s", entry->d_name);
        }
    }
    return out;
}

/* It has the size of its last sync again. */
static uint8_t *keep_size(uint8_t *bytes, size_t size, const disk_file_t *file)
{
    bytes = realloc(bytes, file->size + 1);
    must(bytes != NULL, "a file that was cut");
    if (file->size > size) {
        memcpy(bytes + size, file->synced + size, file->size - size);
    }
    return bytes;
}

static void crash_file(disk_t *disk, const disk_file_t *file, DIR *directory, survival_t survival,
                       dice_t *dice, const char *to)
{
    char now[DISK_NAME], path[PLACE_SIZE];
    int renamed = strcmp(now_named(directory, file->inode, now), file->name) != 0;
    int old = renamed && (survival == SURVIVES_NOTHING ||
                          (survival == SURVIVES_SOMETHING && dice_roll(dice, 2) == 0));
    const char *name = old ? file->name : now;
    uint8_t *bytes = NULL;
    size_t size;
    int fd;

    if (name[0] == '\0') {
        return;
    }
    fd = now[0] != '\0' ? openat(dirfd(directory), now, O_RDONLY) : -1;
    if (fd >= 0) {
        bytes = content_read(fd, &size);
        (void)close(fd);
    } else { /* removed since: it is as it was, or empty when nothing of it was ever synced */
        size = file->synced != NULL ? file->size : 0;
        bytes = malloc(size + 1);
        must(bytes != NULL, "a removed file");
        if (size > 0) {
            memcpy(bytes, file->synced, size);
        }
    }
    if (size != file->size && file->synced != NULL && now[0] != '\0' &&
        (survival == SURVIVES_NOTHING ||
         (survival == SURVIVES_SOMETHING && dice_roll(dice, 2) == 0))) {
        bytes = keep_size(bytes, size, file);
        size = file->size;
    }
    content_blend(bytes, size, (once_slice_t){file->synced, file->size}, survival, dice);
    must(snprintf(path, sizeof(path), "%s/segments/%s", to, name) < PLACE_SIZE, "name");
    content_write(path, bytes, size);
    free(bytes);
}

void disk_crash(disk_t *disk, survival_t survival, dice_t *dice, const char *to)
{
    char path[PLACE_SIZE];
    const struct dirent *entry;
    DIR *directory;

    must(mkdir(to, 0700) == 0, "mkdir");
    place_join(path, to, "segments");
    must(mkdir(path, 0700) == 0, "mkdir");
    copy_top(disk, "format", to);
    copy_top(disk, "secrets", to);
    if (dice_roll(dice, 2) == 0) {
        copy_top(disk, "index", to);
    }
    place_join(path, disk->store, "segments");
    directory = opendir(path);
    must(directory != NULL, "opendir");
    while ((entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] != '.') {
            (void)find_file(disk, entry->d_ino);
        }
    }
    for (size_t i = 0; i < disk->file_count; i++) {
        crash_file(disk, &disk->files[i], directory, survival, dice, to);
    }
    (void)closedir(directory);
}
