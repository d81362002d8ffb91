/*
 * segments/manifest: which segments must exist (docs/format.md, "The manifest").
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "store/crc32c.h"
#include "store/local/log.h"

#define NUMBER_MAX ((uint64_t)1 << 62)
#define SIZE_LIMIT ((off_t)1 << 30)
#define NAME       "manifest"
#define NEW_NAME   "manifest.new"
#define ENTRY      ONCE__MANIFEST_ENTRY
#define STORE      24 /* where the mark of the store is: the first bytes of its id */
#define STORE_LEN  8
#define LOCK_MS    1000

enum { ADDED = 1, DROPPED = 2 };

typedef struct entry {
    uint64_t number;
    uint32_t what;
    uint64_t synced; /* bytes of the manifest that were synced when it was written */
} entry_t;

static void put_entry(uint8_t out[ENTRY], const uint8_t *store_id, const entry_t *entry)
{
    once__put32(out + 4, entry->what);
    once__put64(out + 8, entry->number);
    once__put64(out + 16, entry->synced);
    memcpy(out + STORE, store_id, STORE_LEN);
    once__put32(out, once__crc32c(0, out + 4, ENTRY - 4));
}

static int get_entry(entry_t *entry, const uint8_t in[ENTRY])
{
    entry->what = once__get32(in + 4);
    entry->number = once__get64(in + 8);
    entry->synced = once__get64(in + 16);
    return once__get32(in) == once__crc32c(0, in + 4, ENTRY - 4) &&
           (entry->what == ADDED || entry->what == DROPPED) && entry->number - 1 < NUMBER_MAX;
}

/* ---------------------------------------------------------------------------------------------------------- reading */

int once__compare_numbers(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static int has(const uint64_t *numbers, size_t count, uint64_t number)
{
    return count > 0 &&
           bsearch(&number, numbers, count, sizeof(number), once__compare_numbers) != NULL;
}

int once__manifest_is_live(const once__manifest_t *manifest, uint64_t number)
{
    return has(manifest->live, manifest->live_count, number);
}

int once__manifest_is_dropped(const once__manifest_t *manifest, uint64_t number)
{
    return has(manifest->dropped, manifest->dropped_count, number);
}

/* Sorts, and leaves one of each. */
static size_t sort(uint64_t *numbers, size_t count)
{
    size_t kept = 0;

    qsort(numbers, count, sizeof(*numbers), once__compare_numbers);
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || numbers[i] != numbers[kept - 1]) {
            numbers[kept++] = numbers[i];
        }
    }
    return kept;
}

/*
 * An entry that is wrong was written and never synced, if no later one says that the manifest had been synced beyond it: two
 * processes appended at the time of a crash, and only the second entry reached the disk. Nothing was done on the strength of
 * such an entry. Otherwise it is damage. So is a number that was added twice: nobody can tell which of the two was dropped.
 */
static int parse(once__manifest_t *manifest, const uint8_t *data, uint64_t size,
                 const uint8_t *store_id)
{
    uint64_t *live = manifest->live, *dropped = manifest->dropped, wrong = UINT64_MAX;
    size_t added = 0;
    entry_t entry;

    manifest->bytes = size;
    for (uint64_t at = 0; at + ENTRY <= size; at += ENTRY) {
        if (!get_entry(&entry, data + at)) {
            wrong = wrong < at ? wrong : at;
            continue;
        }
        if (entry.synced > wrong || memcmp(data + at + STORE, store_id, STORE_LEN) != 0) {
            return ONCE_E_CORRUPT;
        }
        *(entry.what == ADDED ? &live[added++] : &dropped[manifest->dropped_count++]) =
            entry.number;
        manifest->entries++;
        manifest->next = entry.number >= manifest->next ? entry.number + 1 : manifest->next;
    }
    manifest->torn = wrong != UINT64_MAX || size % ENTRY != 0;
    manifest->dropped_count = sort(dropped, manifest->dropped_count);
    if (sort(live, added) < added) {
        return ONCE_E_CORRUPT;
    }
    for (size_t i = 0; i < added; i++) {
        if (!once__manifest_is_dropped(manifest, live[i])) {
            live[manifest->live_count++] = live[i];
        }
    }
    return ONCE_OK;
}

int once__manifest_read(once__manifest_t *manifest, const once__log_config_t *log)
{
    int fd = openat(log->segments_fd, NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int code = ONCE_E_IO;
    struct stat st;

    *manifest = (once__manifest_t){.found = fd >= 0, .next = 1};
    if (fd < 0) {
        return errno == ENOENT ? ONCE_OK : ONCE_E_IO;
    }
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= SIZE_LIMIT) {
        size_t size = (size_t)st.st_size, room = (size / ENTRY + 1) * sizeof(uint64_t);
        uint8_t *data = malloc(size + 1);
        ssize_t len = data != NULL ? once__disk_read(log->disk, fd, data, size, 0) : -1;
        manifest->live = malloc(room);
        manifest->dropped = malloc(room);
        code = data == NULL || manifest->live == NULL || manifest->dropped == NULL ? ONCE_E_NOMEM
               : len < 0                                                           ? ONCE_E_IO
                         : parse(manifest, data, (uint64_t)len, log->store_id);
        free(data);
    }
    (void)close(fd);
    if (code != ONCE_OK) {
        once__manifest_free(manifest);
    }
    return code;
}

void once__manifest_free(once__manifest_t *manifest)
{
    free(manifest->live);
    free(manifest->dropped);
    *manifest = (once__manifest_t){.found = manifest->found, .next = 1};
}

/* -------------------------------------------------------------------------------------------------------- appending */

/* Where the last valid entry ends. */
static int find_end(const once__disk_t *disk, int fd, uint64_t *end, uint64_t *size)
{
    uint8_t bytes[ENTRY];
    entry_t entry;
    struct stat st;

    if (fstat(fd, &st) != 0) {
        return ONCE_E_IO;
    }
    *size = (uint64_t)st.st_size;
    for (*end = *size / ENTRY * ENTRY; *end > 0; *end -= ENTRY) {
        if (once__disk_read(disk, fd, bytes, ENTRY, *end - ENTRY) != ENTRY) {
            return ONCE_E_IO;
        }
        if (get_entry(&entry, bytes)) {
            break;
        }
    }
    return ONCE_OK;
}

/*
 * The entry says how far the manifest is synced, so that damage can be told from what a crash left (parse). The first sync makes
 * that true of every entry before this one; it is cheap, as there is nearly always nothing to write. The lock is held for
 * microseconds; a holder that was stopped just then must not stop others. What a killed process or a full disk left behind the last
 * entry is cut first, or else it would stand between entries like damage. After a short write the file is as before. The name of a
 * new file is synced, too; a manifest that was removed makes the next opening refuse the store.
 */
static int append(const once__log_config_t *log, uint64_t number, uint32_t what)
{
    const once__disk_t *disk = log->disk;
    entry_t entry = {.number = number, .what = what};
    int fd = openat(log->segments_fd, NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600), code;
    uint8_t bytes[ENTRY];
    uint64_t end, size;

    if (fd < 0) {
        return once__disk_code();
    }
    code = find_end(disk, fd, &entry.synced, &size);
    code = code == ONCE_OK && disk->sync(disk->data, fd) != 0 ? ONCE_E_IO : code;
    code = code == ONCE_OK ? once__disk_lock(fd, LOCK_EX, LOCK_MS) : code;
    if (code != ONCE_OK) {
        (void)close(fd);
        return code == ONCE_E_CONFLICT ? ONCE_E_NOREPLY : code;
    }
    put_entry(bytes, log->store_id, &entry);
    code = find_end(disk, fd, &end, &size);
    if (code == ONCE_OK && end < size && ftruncate(fd, (off_t)end) != 0) {
        code = ONCE_E_IO;
    }
    if (code == ONCE_OK && !once__disk_allows(end + ENTRY)) {
        code = ONCE_E_FULL;
    }
    if (code == ONCE_OK && once__disk_write(disk, fd, bytes, ENTRY, end) != 0) {
        code = once__disk_code();
        (void)!ftruncate(fd, (off_t)end); /* if this fails, the next process cuts it */
    }
    (void)flock(fd, LOCK_UN);
    if (code == ONCE_OK &&
        (disk->sync(disk->data, fd) != 0 ||
         (entry.synced == 0 && disk->sync_directory(disk->data, log->segments_fd) != 0))) {
        code = ONCE_E_IO;
    }
    (void)close(fd);
    return code;
}

int once__manifest_add(const once__log_config_t *log, uint64_t number)
{
    return append(log, number, ADDED);
}

int once__manifest_drop(const once__log_config_t *log, uint64_t number)
{
    return append(log, number, DROPPED);
}

/* ---------------------------------------------------------------------------------------------------------- rewriting */

/*
 * An entry for the highest number keeps it from being used again. The first sync of the directory: a removed file must not come
 * back once the manifest has forgotten that it was dropped.
 */
int once__manifest_write(const once__log_config_t *log, const uint64_t *live, size_t count,
                         uint64_t next)
{
    const once__disk_t *disk = log->disk;
    uint8_t *bytes = malloc((count + 1) * ENTRY);
    int fd = log->segments_fd, has_highest = next <= 1;
    size_t len = 0;
    int code = bytes != NULL ? ONCE_OK : ONCE_E_NOMEM;

    for (size_t i = 0; bytes != NULL && i < count + !has_highest; i++, len += ENTRY) {
        entry_t entry = {i < count ? live[i] : next - 1, i < count ? ADDED : DROPPED, len};
        has_highest |= i < count && live[i] >= next - 1;
        put_entry(bytes + len, log->store_id, &entry);
    }
    if (code == ONCE_OK &&
        (once__disk_put(disk, fd, NEW_NAME, bytes, len) != 0 ||
         disk->sync_directory(disk->data, fd) != 0 || renameat(fd, NEW_NAME, fd, NAME) != 0 ||
         disk->sync_directory(disk->data, fd) != 0)) {
        code = once__disk_code();
    }
    free(bytes);
    return code;
}
