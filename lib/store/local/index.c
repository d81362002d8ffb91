#include "store/local/index_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "store/local/crc32c.h"
#include "store/local/index_pages.h"

#define INDEX_MAGIC   0x3158444945434e4fu /* "ONCEIDX1" */
#define INDEX_VERSION 6u

int once__index_reserve(int fd, uint64_t from, uint64_t to)
{
    int code;

    do {
        code = fallocate(fd, 0, (off_t)from, (off_t)(to - from));
    } while (code != 0 && errno == EINTR);
    if (code != 0 && errno == EOPNOTSUPP) {
        errno = posix_fallocate(fd, (off_t)from, (off_t)(to - from));
        code = errno == 0 ? 0 : -1;
    }
    return code;
}

/* ---------------------------------------------------------------------------------------------------------- opening */

static void init_mutex(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attributes;

    (void)pthread_mutexattr_init(&attributes);
    (void)pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    (void)pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    (void)pthread_mutex_init(lock, &attributes);
    (void)pthread_mutexattr_destroy(&attributes);
}

static int make_fresh(once__index_t *index, const uint8_t *boot_id)
{
    once__index_header_t *map = index->map;

    /* The bits that tell which pages are used get their room as the file grows. */
    if (once__index_reserve(index->fd, 0, offsetof(once__index_header_t, pages_used)) != 0 ||
        ftruncate(index->fd, sizeof(*map)) != 0) {
        return errno == ENOSPC || errno == EDQUOT ? ONCE_E_FULL : ONCE_E_IO;
    }
    map->version = INDEX_VERSION;
    memcpy(map->boot_id, boot_id, ONCE__BOOT_ID_SIZE);
    atomic_store(&map->next_segment, 1);
    atomic_store(&map->first_segment, 1);
    atomic_store(&map->end, sizeof(*map));
    atomic_store(&map->table_bytes, sizeof(map->first_tables));
    map->free_page = (uint32_t)(sizeof(*map) / ONCE__INDEX_PAGE);
    init_mutex(&map->grow_lock);
    init_mutex(&map->segment_lock);
    for (uint32_t i = 0; i < ONCE__SHARDS; i++) {
        uint64_t at = (uint64_t)((char *)map->first_tables[i] - (char *)map);
        init_mutex(&map->shards[i].lock);
        atomic_store(&map->shards[i].table, at / 16 << 24 | ONCE__SHARD_ENTRIES);
    }
    return ONCE_OK;
}

/* Of the clock, the entries, and what is known of the live segments; not of locks, nor of what another boot changes. */
static uint32_t sum_up(const once__index_t *index)
{
    const once__index_header_t *map = index->map;
    uint64_t numbers[] = {once__index_first_segment(index),
                          once__index_end_segment(index),
                          (uint64_t)atomic_load(&map->clock_offset),
                          atomic_load(&map->closed_at),
                          atomic_load(&map->damaged),
                          atomic_load(&map->end)};
    uint32_t sum = once__crc32c(0, numbers, sizeof(numbers));

    for (uint32_t n = (uint32_t)numbers[0]; n < numbers[1]; n++) {
        sum = once__crc32c(sum, once__index_segment(index, n),
                           offsetof(once__segment_info_t, other_boot));
    }
    for (uint32_t i = 0; i < ONCE__SHARDS; i++) {
        const once__shard_t *shard = &map->shards[i];
        uint64_t table = atomic_load(&shard->table);
        sum = once__crc32c(sum, (const char *)shard + offsetof(once__shard_t, table),
                           sizeof(*shard) - offsetof(once__shard_t, table));
        sum = once__crc32c(sum, (const char *)map + (table >> 24) * 16,
                           (size_t)once__table_size(table) * sizeof(once__slot_t));
    }
    return sum;
}

int once__index_has_changed(const once__index_t *index)
{
    return atomic_load(&index->map->clean) == ONCE__CLEAN && index->map->sum != sum_up(index);
}

void once__index_free_locks(once__index_t *index)
{
    once__index_header_t *map = index->map;

    if (atomic_load(&map->clean) != ONCE__CLEAN) {
        return;
    }
    init_mutex(&map->grow_lock);
    init_mutex(&map->segment_lock);
    for (uint32_t i = 0; i < ONCE__SHARDS; i++) {
        init_mutex(&map->shards[i].lock);
    }
}

/* Left by another boot, but cleanly: as good as new, except that nobody of that boot lives. */
static int adopt(once__index_t *index, const uint8_t *boot_id)
{
    once__index_header_t *map = index->map;

    if (once__index_has_changed(index)) {
        return ONCE_E_CORRUPT;
    }
    once__index_free_locks(index);
    for (uint32_t i = 0; i < ONCE__RING; i++) {
        map->ring[i].other_boot = 1;
    }
    memcpy(map->boot_id, boot_id, ONCE__BOOT_ID_SIZE);
    once__index_start_clock(index, atomic_load(&map->closed_at));
    map->sum = sum_up(index);
    return ONCE_OK;
}

/* Does the table lie where tables are? */
static int is_inside(const once__index_header_t *map, uint64_t table)
{
    uint64_t at = (table >> 24) * 16;

    return at >= offsetof(once__index_header_t, first_tables) && at <= atomic_load(&map->end) &&
           (uint64_t)once__table_size(table) * sizeof(once__slot_t) <= atomic_load(&map->end) - at;
}

/* Has the shard a table? Others may be at work: if it has another one by now, that one counts. */
static int has_table(const once__index_header_t *map, const once__shard_t *shard)
{
    uint64_t table = atomic_load(&shard->table), looked_at;

    do {
        looked_at = table;
        if (once__table_size(table) != 0 && is_inside(map, table) && once__pages_hold(map, table)) {
            return 1;
        }
        table = atomic_load(&shard->table);
    } while (table != looked_at);
    return 0;
}

/*
 * Has the file all that is in use of it? `size` is what it had a moment ago; but others may make it grow, so that only a size that
 * is younger than the end can tell that something is missing.
 */
static int has_all(const once__index_t *index, uint64_t size)
{
    uint64_t end = atomic_load(&index->map->end);
    struct stat st;

    return size >= end || (fstat(index->fd, &st) == 0 && (uint64_t)st.st_size >= end);
}

/* A file that was cut short or overwritten is noticed here; the entries themselves are checked by the frames they lead to. */
static int is_sound(const once__index_t *index, uint64_t file_size)
{
    const once__index_header_t *map = index->map;
    uint32_t first = atomic_load(&map->first_segment), next = atomic_load(&map->next_segment);

    if (map->magic != INDEX_MAGIC || map->version != INDEX_VERSION || !has_all(index, file_size) ||
        first == 0 || first > next || next - first > ONCE__RING || next > ONCE__SEGMENT_MAX + 1) {
        return 0;
    }
    for (uint32_t i = 0; i < ONCE__SHARDS; i++) {
        if (!has_table(map, &map->shards[i])) {
            return 0;
        }
    }
    return 1;
}

static int check_old(once__index_t *index, const uint8_t *boot_id)
{
    const once__index_header_t *map = index->map;
    struct stat st;

    if (fstat(index->fd, &st) != 0 || (uint64_t)st.st_size < sizeof(once__index_header_t) ||
        !is_sound(index, (uint64_t)st.st_size)) {
        return ONCE_E_CORRUPT;
    }
    if (memcmp(map->boot_id, boot_id, ONCE__BOOT_ID_SIZE) == 0) {
        return ONCE_OK;
    }
    return atomic_load(&map->clean) == ONCE__CLEAN ? adopt(index, boot_id) : ONCE_E_CORRUPT;
}

int once__index_is_current(int directory_fd, const uint8_t boot_id[ONCE__BOOT_ID_SIZE])
{
    struct {
        uint64_t magic;
        uint32_t version, clean;
        uint8_t boot_id[ONCE__BOOT_ID_SIZE];
    } begin; /* as the header begins */
    int fd = openat(directory_fd, "index", O_RDONLY | O_CLOEXEC);
    int current = fd >= 0 && pread(fd, &begin, sizeof(begin), 0) == (ssize_t)sizeof(begin) &&
                  begin.magic == INDEX_MAGIC && begin.version == INDEX_VERSION &&
                  memcmp(begin.boot_id, boot_id, sizeof(begin.boot_id)) == 0;

    _Static_assert(offsetof(once__index_header_t, boot_id) == 16, "as the header begins");
    if (fd >= 0) {
        (void)close(fd);
    }
    return current;
}

int once__index_open(once__index_t **out, int directory_fd,
                     const uint8_t boot_id[ONCE__BOOT_ID_SIZE], int fresh, once_error_t *err)
{
    once__index_t *index = calloc(1, sizeof(*index));
    int code;

    *out = NULL;
    if (index == NULL) {
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    /* A new file, and never the old one emptied: somebody may still have that one mapped. */
    if (fresh) {
        (void)unlinkat(directory_fd, "index", 0);
    }
    index->fd =
        openat(directory_fd, "index", O_RDWR | O_CLOEXEC | (fresh ? O_CREAT | O_EXCL : 0), 0600);
    if (index->fd < 0) {
        code = errno == ENOENT ? ONCE_E_CORRUPT : ONCE_E_IO;
        free(index);
        return once__fail(err, code, "cannot open the index: %s", strerror(errno));
    }
    index->map = mmap(NULL, ONCE__INDEX_VIEW, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                      index->fd, 0);
    if (index->map == MAP_FAILED) {
        index->map = NULL;
        once__index_close(index);
        return once__fail(err, ONCE_E_NOMEM, "cannot map the index: %s", strerror(errno));
    }
    code = fresh ? make_fresh(index, boot_id) : check_old(index, boot_id);
    if (code != ONCE_OK) {
        once__index_close(index);
        return once__fail(err, code, "the index cannot be used: %s", once_error_text(code));
    }
    *out = index;
    return ONCE_OK;
}

void once__index_close(once__index_t *index)
{
    if (index == NULL) {
        return;
    }
    if (index->map != NULL) {
        (void)munmap(index->map, ONCE__INDEX_VIEW);
    }
    (void)close(index->fd);
    free(index);
}

/* One that was only removed goes on being used: nobody else can make another while its users are there. */
static int is_replaced(const struct stat *st, int directory_fd)
{
    struct stat other;

    return st->st_nlink == 0 && fstatat(directory_fd, "index", &other, AT_SYMLINK_NOFOLLOW) == 0 &&
           (other.st_ino != st->st_ino || other.st_dev != st->st_dev);
}

int once__index_is_whole(const once__index_t *index, int directory_fd)
{
    struct stat st;

    return fstat(index->fd, &st) == 0 && !is_replaced(&st, directory_fd) &&
           (uint64_t)st.st_size >= sizeof(once__index_header_t) &&
           has_all(index, (uint64_t)st.st_size);
}

/*
 * Whoever finds that somebody has begun does it himself as well: the other one may have been killed before the disk knew, and after
 * a power failure the end would still be clean.
 */
int once__index_mark_used(once__index_t *index)
{
    if (index->map->magic == INDEX_MAGIC && atomic_load(&index->map->clean) == ONCE__IN_USE) {
        return ONCE_OK;
    }
    /* Without its magic an index is none: it comes last. */
    atomic_store(&index->map->clean, ONCE__BEGUN);
    atomic_thread_fence(memory_order_seq_cst);
    index->map->magic = INDEX_MAGIC;
    if (msync(index->map, ONCE__INDEX_PAGE, MS_SYNC) != 0) {
        return ONCE_E_IO;
    }
    atomic_store(&index->map->clean, ONCE__IN_USE);
    return ONCE_OK;
}

int once__index_mark_clean(once__index_t *index)
{
    for (uint32_t n = once__index_first_segment(index); n < once__index_end_segment(index); n++) {
        if (atomic_load(&once__index_segment(index, n)->state) == ONCE__SEGMENT_ACTIVE) {
            return ONCE_E_CONFLICT;
        }
    }
    atomic_store(&index->map->closed_at, once__index_now(index));
    index->map->sum = sum_up(index);
    if (msync(index->map, atomic_load(&index->map->end), MS_SYNC) != 0) {
        return ONCE_E_IO;
    }
    atomic_store(&index->map->clean, ONCE__CLEAN);
    return msync(index->map, ONCE__INDEX_PAGE, MS_SYNC) == 0 ? ONCE_OK : ONCE_E_IO;
}

/* ------------------------------------------------------------------------------------------------ clock and segments */

static uint64_t read_clock(clockid_t id)
{
    struct timespec t;

    (void)clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t once__index_now(const once__index_t *index)
{
    return read_clock(CLOCK_BOOTTIME) + (uint64_t)atomic_load(&index->map->clock_offset);
}

void once__index_start_clock(once__index_t *index, uint64_t at_least)
{
    uint64_t wall = read_clock(CLOCK_REALTIME);
    uint64_t start = wall > at_least ? wall : at_least;

    atomic_store(&index->map->clock_offset, (int64_t)(start - read_clock(CLOCK_BOOTTIME)));
}

int once__index_lock_segments(once__index_t *index)
{
    int code = pthread_mutex_lock(&index->map->segment_lock);

    if (code == EOWNERDEAD) {
        (void)pthread_mutex_consistent(&index->map->segment_lock);
        return 1;
    }
    assert(code == 0);
    return 0;
}

void once__index_unlock_segments(once__index_t *index)
{
    (void)pthread_mutex_unlock(&index->map->segment_lock);
}

uint32_t once__index_next_segment(const once__index_t *index)
{
    uint32_t number = atomic_load(&index->map->next_segment);

    /* The ring has one place for each number: a place is free when its segment was dropped. */
    if (number > ONCE__SEGMENT_MAX ||
        number - atomic_load(&index->map->first_segment) >= ONCE__RING) {
        return 0;
    }
    return number;
}

void once__index_add_segment(once__index_t *index, uint32_t number, once__segment_state_t state,
                             uint64_t size, int other_boot)
{
    once__segment_info_t *info = once__index_segment(index, number);

    atomic_store(&info->number, number);
    atomic_store(&info->synced, state == ONCE__SEGMENT_SEALED ? UINT64_MAX : ONCE__SEGMENT_HEADER);
    atomic_store(&info->last_expiry, 0);
    atomic_store(&info->frames, 0);
    atomic_store(&info->current, 0);
    atomic_store(&info->held, 0);
    info->size = size;
    info->other_boot = (uint16_t)other_boot;
    atomic_store(&info->suspect, 0);
    atomic_store(&info->window, 0);
    atomic_store(&info->state, state);
    if (atomic_load(&index->map->next_segment) <= number) {
        atomic_store(&index->map->next_segment, number + 1);
    }
}

void once__index_start_segments(once__index_t *index, uint32_t at_least)
{
    once__index_header_t *map = index->map;

    if (atomic_load(&map->next_segment) < at_least) {
        if (atomic_load(&map->first_segment) == atomic_load(&map->next_segment)) {
            atomic_store(&map->first_segment, at_least); /* there are none */
        }
        atomic_store(&map->next_segment, at_least);
    }
}

once__segment_info_t *once__index_segment(const once__index_t *index, uint32_t number)
{
    return &index->map->ring[number % ONCE__RING];
}

/* Pending and unknown records go a retention after their lease, unless hold keeps them: then they are carried. */
uint64_t once__index_kept_until(const once__head_t *head)
{
    if (head->expires != 0) {
        return head->expires;
    }
    if (head->state == ONCE_STATE_COMPLETED || head->state == ONCE_STATE_FAILED) {
        return UINT64_MAX;
    }
    return head->recover != ONCE_RECOVER_HOLD && head->lease_until <= UINT64_MAX - head->ttl_ms
               ? head->lease_until + head->ttl_ms
               : 0;
}

void once__index_note_frame(once__index_t *index, uint32_t number, const once__head_t *head)
{
    once__segment_info_t *info = once__index_segment(index, number);
    uint64_t until = head != NULL ? once__index_kept_until(head) : 0;

    atomic_fetch_add(&info->frames, 1);
    if (until > atomic_load(&info->last_expiry)) {
        atomic_store(&info->last_expiry, until);
    }
}

uint32_t once__index_first_segment(const once__index_t *index)
{
    return atomic_load_explicit(&index->map->first_segment, memory_order_acquire);
}

uint32_t once__index_end_segment(const once__index_t *index)
{
    return atomic_load(&index->map->next_segment);
}

void once__index_set_first_segment(once__index_t *index, uint32_t number)
{
    atomic_store(&index->map->first_segment, number);
}

void once__index_count_damage(once__index_t *index)
{
    atomic_fetch_add(&index->map->damaged, 1);
}

void once__index_stats(const once__index_t *index, once__index_stats_t *stats)
{
    stats->entries = atomic_load(&index->map->entries);
    stats->table_bytes = atomic_load(&index->map->table_bytes);
    stats->damaged = atomic_load(&index->map->damaged);
}

/* Not `entries`: those of segments that were dropped are among them for a while. */
void once__index_usage(const once__index_t *index, uint64_t *records, uint64_t *bytes)
{
    uint32_t end = once__index_end_segment(index);

    *records = 0;
    *bytes = 0;
    for (uint32_t number = once__index_first_segment(index); number < end; number++) {
        const once__segment_info_t *info = once__index_segment(index, number);
        int64_t current = atomic_load_explicit(&info->current, memory_order_relaxed);
        *records += current > 0 ? (uint64_t)current : 0;
        *bytes += info->size;
    }
}

uint32_t once__index_oldest_active(const once__index_t *index)
{
    once__index_header_t *map = index->map;
    uint32_t number = atomic_load(&map->oldest_active);
    uint32_t end = once__index_end_segment(index), first = once__index_first_segment(index);

    for (number = number > first ? number : first; number < end; number++) {
        if (atomic_load(&once__index_segment(index, number)->state) == ONCE__SEGMENT_ACTIVE) {
            break;
        }
    }
    atomic_store(&map->oldest_active, number);
    return number;
}
