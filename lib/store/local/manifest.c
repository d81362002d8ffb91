#include "store/local/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "store/local/crc32c.h"

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

static int by_number(const void *a, const void *b)
{
    const entry_t *x = a, *y = b;

    if (x->number != y->number) {
        return x->number < y->number ? -1 : 1;
    }
    return x->what < y->what ? -1 : x->what > y->what;
}

/*
 * Sorts the entries, and splits the numbers: a segment that was dropped once stays dropped. A number that was added twice is
 * damage: nobody can tell which of the two was dropped.
 */
static int sort_out(once__manifest_t *manifest, entry_t *entries)
{
    size_t count = (size_t)manifest->entries;

    manifest->live = malloc((count + 1) * sizeof(uint64_t));
    manifest->dropped = malloc((count + 1) * sizeof(uint64_t));
    if (manifest->live == NULL || manifest->dropped == NULL) {
        return ONCE_E_NOMEM;
    }
    qsort(entries, count, sizeof(*entries), by_number);
    for (size_t i = 0; i < count; i++) {
        uint64_t number = entries[i].number;
        if (i + 1 < count && entries[i + 1].number == number) {
            if (entries[i + 1].what == ADDED) {
                return ONCE_E_CORRUPT;
            }
            continue;
        }
        if (entries[i].what == ADDED) {
            manifest->live[manifest->live_count++] = number;
        } else {
            manifest->dropped[manifest->dropped_count++] = number;
        }
        manifest->next = number + 1;
    }
    return ONCE_OK;
}

/*
 * An entry that is wrong was written and never synced, if no later one says that the manifest had been synced beyond it: two
 * processes appended at the time of a crash, and only the second entry reached the disk. Nothing was done on the strength of
 * such an entry. Otherwise it is damage.
 */
static int parse(once__manifest_t *manifest, const uint8_t *data, uint64_t size,
                 const uint8_t *store_id)
{
    entry_t *entries = malloc((size_t)(size / ENTRY + 1) * sizeof(*entries));
    uint64_t wrong = UINT64_MAX;
    int code = entries != NULL ? ONCE_OK : ONCE_E_NOMEM;

    manifest->bytes = size;
    for (uint64_t at = 0; code == ONCE_OK && at + ENTRY <= size; at += ENTRY) {
        entry_t *entry = &entries[manifest->entries];
        if (!get_entry(entry, data + at)) {
            wrong = wrong < at ? wrong : at;
            continue;
        }
        if (entry->synced > wrong || memcmp(data + at + STORE, store_id, STORE_LEN) != 0) {
            code = ONCE_E_CORRUPT;
        }
        manifest->entries++;
    }
    manifest->torn = wrong != UINT64_MAX || size % ENTRY != 0;
    if (code == ONCE_OK) {
        code = sort_out(manifest, entries);
    }
    free(entries);
    return code;
}

int once__manifest_read(once__manifest_t *manifest, int segments_fd, const once__disk_t *disk,
                        const uint8_t store_id[ONCE__STORE_ID_SIZE])
{
    int fd = openat(segments_fd, NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK),
        code = ONCE_E_IO;
    uint8_t *data = NULL;
    struct stat st;

    *manifest = (once__manifest_t){.found = fd >= 0, .next = 1};
    if (fd < 0) {
        return errno == ENOENT ? ONCE_OK : ONCE_E_IO;
    }
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= SIZE_LIMIT) {
        ssize_t size = -1;
        data = malloc((size_t)st.st_size + 1);
        if (data != NULL) {
            size = once__disk_read(disk, fd, data, (uint64_t)st.st_size, 0);
        }
        code = data == NULL ? ONCE_E_NOMEM : ONCE_E_IO;
        code = size >= 0 ? parse(manifest, data, (uint64_t)size, store_id) : code;
    }
    free(data);
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

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

static int has(const uint64_t *numbers, size_t count, uint64_t number)
{
    return count > 0 && bsearch(&number, numbers, count, sizeof(number), compare) != NULL;
}

int once__manifest_is_live(const once__manifest_t *manifest, uint64_t number)
{
    return has(manifest->live, manifest->live_count, number);
}

int once__manifest_is_dropped(const once__manifest_t *manifest, uint64_t number)
{
    return has(manifest->dropped, manifest->dropped_count, number);
}

/* -------------------------------------------------------------------------------------------------------- appending */

/* It is held for microseconds. A holder that was stopped just then must not stop others. */
static int lock(int fd)
{
    struct timespec pause = {.tv_nsec = 1000000};

    for (int i = 0; i < LOCK_MS; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            return ONCE_OK;
        }
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return ONCE_E_IO;
        }
        (void)nanosleep(&pause, NULL);
    }
    return ONCE_E_NOREPLY;
}

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
 * The lock is held. What a killed process or a full disk left behind the last entry is cut first, or else it would stand between
 * entries like damage. After a short write the file is as before.
 */
static int write_entry(const once__disk_t *disk, int fd, const uint8_t entry[ENTRY])
{
    uint64_t end, size;
    int code = find_end(disk, fd, &end, &size);

    if (code == ONCE_OK && end < size && ftruncate(fd, (off_t)end) != 0) {
        code = ONCE_E_IO;
    }
    if (code == ONCE_OK && !once__disk_allows(end + ENTRY)) {
        code = ONCE_E_FULL;
    }
    if (code == ONCE_OK && once__disk_write(disk, fd, entry, ENTRY, end) != 0) {
        code = once__disk_code();
        (void)!ftruncate(fd, (off_t)end); /* if this fails, the next process cuts it */
    }
    return code;
}

/*
 * The entry says how far the manifest is synced, so that damage can be told from what a crash left (parse). The first sync makes
 * that true of every entry before this one; it is cheap, as there is nearly always nothing to write. The name of a new file is
 * synced, too; a manifest that was removed makes the next opening refuse the store.
 */
static int append(int segments_fd, const once__disk_t *disk, const uint8_t *store_id,
                  uint64_t number, uint32_t what)
{
    entry_t entry = {.number = number, .what = what};
    int fd = openat(segments_fd, NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600), code;
    uint8_t bytes[ENTRY];
    uint64_t size;

    if (fd < 0) {
        return once__disk_code();
    }
    code = find_end(disk, fd, &entry.synced, &size);
    if (code == ONCE_OK) {
        code = disk->sync(disk->data, fd) == 0 ? lock(fd) : ONCE_E_IO;
    }
    if (code == ONCE_OK) {
        put_entry(bytes, store_id, &entry);
        code = write_entry(disk, fd, bytes);
        (void)flock(fd, LOCK_UN);
    }
    if (code == ONCE_OK &&
        (disk->sync(disk->data, fd) != 0 ||
         (entry.synced == 0 && disk->sync_directory(disk->data, segments_fd) != 0))) {
        code = ONCE_E_IO;
    }
    (void)close(fd);
    return code;
}

int once__manifest_add(int segments_fd, const once__disk_t *disk,
                       const uint8_t store_id[ONCE__STORE_ID_SIZE], uint64_t number)
{
    return append(segments_fd, disk, store_id, number, ADDED);
}

int once__manifest_drop(int segments_fd, const once__disk_t *disk,
                        const uint8_t store_id[ONCE__STORE_ID_SIZE], uint64_t number)
{
    return append(segments_fd, disk, store_id, number, DROPPED);
}

/* ---------------------------------------------------------------------------------------------------------- rewriting */

/* The bytes of a manifest with these segments, and an entry that keeps the highest number from being used again. */
static uint8_t *compose(const uint8_t *store_id, const uint64_t *live, size_t count, uint64_t next,
                        size_t *len)
{
    uint8_t *bytes = malloc((count + 1) * ENTRY);
    int has_highest = next <= 1;
    entry_t entry = {.what = ADDED};

    for (size_t i = 0; bytes != NULL && i < count; i++) {
        entry.number = live[i];
        entry.synced = i * ENTRY;
        put_entry(bytes + i * ENTRY, store_id, &entry);
        has_highest |= live[i] >= next - 1;
    }
    *len = count * ENTRY;
    if (bytes != NULL && !has_highest) {
        entry = (entry_t){.what = DROPPED, .number = next - 1, .synced = *len};
        put_entry(bytes + *len, store_id, &entry);
        *len += ENTRY;
    }
    return bytes;
}

/* The first sync of the directory: a removed file must not come back once the manifest has forgotten that it was dropped. */
static int replace(int segments_fd, const once__disk_t *disk, const uint8_t *bytes, size_t len)
{
    int fd, code = ONCE_OK;

    (void)unlinkat(segments_fd, NEW_NAME, 0);
    fd = openat(segments_fd, NEW_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return once__disk_code();
    }
    if (!once__disk_allows(len)) {
        code = ONCE_E_FULL;
    } else if (once__disk_write(disk, fd, bytes, len, 0) != 0 || disk->sync(disk->data, fd) != 0 ||
               disk->sync_directory(disk->data, segments_fd) != 0 ||
               renameat(segments_fd, NEW_NAME, segments_fd, NAME) != 0 ||
               disk->sync_directory(disk->data, segments_fd) != 0) {
        code = once__disk_code();
    }
    (void)close(fd);
    if (code != ONCE_OK) {
        (void)unlinkat(segments_fd, NEW_NAME, 0);
    }
    return code;
}

int once__manifest_write(int segments_fd, const once__disk_t *disk,
                         const uint8_t store_id[ONCE__STORE_ID_SIZE], const uint64_t *live,
                         size_t count, uint64_t next)
{
    size_t len;
    uint8_t *bytes = compose(store_id, live, count, next, &len);
    int code = bytes != NULL ? replace(segments_fd, disk, bytes, len) : ONCE_E_NOMEM;

    free(bytes);
    return code;
}
