#include "store/local/index.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/bytes.h"
#include "core/units.h"

#define INDEX_MAGIC   0x31584449454e4f4eu /* "NONEIDX1" */
#define INDEX_VERSION 1u
#define RESERVED_VIEW ((uint64_t)1 << 36) /* addresses set aside: the file grows into them */
#define SHARD_ENTRIES 48u                 /* of a new table */
#define FILL_PERCENT  85u
#define PAGE          4096u

/* A table entry: two words. `where` 0: empty. */
typedef struct slot {
    _Atomic uint64_t key;
    _Atomic uint64_t where;
} slot_t;

#define WHERE_DEAD 1u /* segment 0: removed, the run goes on */

typedef struct shard {
    pthread_mutex_t lock;
    _Atomic uint64_t
        table;     /* offset of the table / 16 in the upper 40 bits, entries in the lower 24 */
    uint64_t used; /* slots that are not empty */
} shard_t;

typedef struct header {
    uint64_t magic;
    uint32_t version;
    _Atomic uint32_t clean;
    uint8_t boot_id[ONCE__BOOT_ID_SIZE];
    _Atomic int64_t clock_offset;
    _Atomic uint64_t closed_at; /* store time of the last clean end */
    _Atomic uint32_t next_segment;
    _Atomic uint32_t first_segment;
    _Atomic uint64_t damaged;
    _Atomic uint64_t entries;
    _Atomic uint64_t table_bytes;
    pthread_mutex_t grow_lock;
    pthread_mutex_t segment_lock;
    _Atomic uint64_t end; /* of the part of the file that is in use */
    once__segment_info_t ring[ONCE__RING];
    shard_t shards[ONCE__SHARDS];
} header_t;

struct once__index {
    int fd;
    header_t *map;
};

/* ------------------------------------------------------------------------------------------------------------ words */

static uint64_t key_of(const uint8_t *id)
{
    return once__get64(id + 2);
}

static shard_t *shard_of(const once__index_t *index, const uint8_t *id)
{
    return &index->map->shards[once__get16(id) % ONCE__SHARDS];
}

static uint64_t pack(const once__entry_t *entry)
{
    return (uint64_t)entry->place.segment << 40 | entry->place.offset / 8 << 12 |
           (uint64_t)entry->state << 8 | 2;
}

static once__entry_t unpack(uint64_t where)
{
    once__entry_t entry = {{(uint32_t)(where >> 40), (where >> 12 & 0xfffffff) * 8},
                           (uint8_t)(where >> 8 & 7)};
    return entry;
}

static int is_live(const once__index_t *index, uint64_t where)
{
    uint32_t segment = (uint32_t)(where >> 40);

    return segment != 0 &&
           segment >= atomic_load_explicit(&index->map->first_segment, memory_order_acquire);
}

static uint32_t table_size(uint64_t table)
{
    return (uint32_t)(table & 0xffffff);
}

static slot_t *table_slots(const once__index_t *index, uint64_t table)
{
    return (slot_t *)(void *)((char *)index->map + (table >> 24) * 16);
}

/* The place where a key's run begins: order-preserving, so that tables of any size can be used. */
static uint32_t home(uint64_t key, uint32_t size)
{
    return (uint32_t)((key >> 32) * size >> 32);
}

/* ------------------------------------------------------------------------------------------------------------ space */

static uint64_t round_up(uint64_t n, uint64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static void lock_robust(pthread_mutex_t *lock)
{
    int code = pthread_mutex_lock(lock);

    /* The one before us was killed. Every store it made left things valid: nothing to repair. */
    if (code == EOWNERDEAD) {
        code = pthread_mutex_consistent(lock);
    }
    assert(code == 0);
}

/* Real room, not a hole: a hole that cannot be filled later would be a SIGBUS. */
static int reserve(int fd, uint64_t from, uint64_t to)
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

/* A new table, zeroed. 0: no room. */
static uint64_t new_table(once__index_t *index, uint32_t size)
{
    header_t *map = index->map;
    uint64_t bytes = round_up((uint64_t)size * sizeof(slot_t), size < 1024 ? 64 : PAGE);
    uint64_t at, table = 0;

    lock_robust(&map->grow_lock);
    at = round_up(atomic_load(&map->end), size < 1024 ? 64 : PAGE);
    if (at + bytes <= RESERVED_VIEW && reserve(index->fd, at, at + bytes) == 0) {
        atomic_store(&map->end, at + bytes);
        atomic_fetch_add(&map->table_bytes, bytes);
        table = at / 16 << 24 | size;
    }
    (void)pthread_mutex_unlock(&map->grow_lock);
    return table;
}

/* Gives the pages of an old table back to the system. */
static void free_table(once__index_t *index, uint64_t table)
{
    uint64_t at = (table >> 24) * 16;
    uint64_t end = at + (uint64_t)table_size(table) * sizeof(slot_t);
    uint64_t first = round_up(at, PAGE), last = end / PAGE * PAGE;

    atomic_fetch_sub(&index->map->table_bytes, end - at);
    if (first < last) {
        (void)fallocate(index->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)first,
                        (off_t)(last - first));
    }
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
    uint64_t tables = round_up(sizeof(header_t), PAGE);
    uint64_t bytes = (uint64_t)SHARD_ENTRIES * sizeof(slot_t);
    header_t *map = index->map;

    if (reserve(index->fd, 0, tables + ONCE__SHARDS * bytes) != 0) {
        return errno == ENOSPC || errno == EDQUOT ? ONCE_E_FULL : ONCE_E_IO;
    }
    map->version = INDEX_VERSION;
    memcpy(map->boot_id, boot_id, ONCE__BOOT_ID_SIZE);
    atomic_store(&map->next_segment, 1);
    atomic_store(&map->first_segment, 1);
    atomic_store(&map->end, tables + ONCE__SHARDS * bytes);
    atomic_store(&map->table_bytes, ONCE__SHARDS * bytes);
    init_mutex(&map->grow_lock);
    init_mutex(&map->segment_lock);
    for (uint32_t i = 0; i < ONCE__SHARDS; i++) {
        init_mutex(&map->shards[i].lock);
        atomic_store(&map->shards[i].table, (tables + i * bytes) / 16 << 24 | SHARD_ENTRIES);
    }
    return ONCE_OK;
}

/* Left by another boot, but cleanly: as good as new, except that nobody of that boot lives. */
static int adopt(once__index_t *index, const uint8_t *boot_id)
{
    header_t *map = index->map;

    init_mutex(&map->grow_lock);
    init_mutex(&map->segment_lock);
    for (uint32_t i = 0; i < ONCE__SHARDS; i++) {
        init_mutex(&map->shards[i].lock);
    }
    for (uint32_t i = 0; i < ONCE__RING; i++) {
        map->ring[i].other_boot = 1;
    }
    memcpy(map->boot_id, boot_id, ONCE__BOOT_ID_SIZE);
    once__index_start_clock(index, atomic_load(&map->closed_at));
    return ONCE_OK;
}

static int check_old(once__index_t *index, const uint8_t *boot_id)
{
    header_t *map = index->map;
    struct stat st;

    if (fstat(index->fd, &st) != 0 || (uint64_t)st.st_size < sizeof(header_t) ||
        map->magic != INDEX_MAGIC || map->version != INDEX_VERSION ||
        atomic_load(&map->end) > (uint64_t)st.st_size) {
        return ONCE_E_CORRUPT;
    }
    if (memcmp(map->boot_id, boot_id, ONCE__BOOT_ID_SIZE) == 0) {
        return ONCE_OK;
    }
    return atomic_load(&map->clean) ? adopt(index, boot_id) : ONCE_E_CORRUPT;
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
    index->fd =
        openat(directory_fd, "index", O_RDWR | O_CLOEXEC | (fresh ? O_CREAT | O_TRUNC : 0), 0600);
    if (index->fd < 0) {
        code = errno == ENOENT ? ONCE_E_CORRUPT : ONCE_E_IO;
        free(index);
        return once__fail(err, code, "cannot open the index: %s", strerror(errno));
    }
    index->map =
        mmap(NULL, RESERVED_VIEW, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, index->fd, 0);
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
        (void)munmap(index->map, RESERVED_VIEW);
    }
    (void)close(index->fd);
    free(index);
}

int once__index_mark_used(once__index_t *index)
{
    /* Without its magic an index is none: it comes last. */
    atomic_store(&index->map->clean, 0);
    atomic_thread_fence(memory_order_seq_cst);
    index->map->magic = INDEX_MAGIC;
    return msync(index->map, PAGE, MS_SYNC) == 0 ? ONCE_OK : ONCE_E_IO;
}

int once__index_mark_clean(once__index_t *index)
{
    atomic_store(&index->map->closed_at, once__index_now(index));
    if (msync(index->map, atomic_load(&index->map->end), MS_SYNC) != 0) {
        return ONCE_E_IO;
    }
    atomic_store(&index->map->clean, 1);
    return msync(index->map, PAGE, MS_SYNC) == 0 ? ONCE_OK : ONCE_E_IO;
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
    info->other_boot = (uint32_t)other_boot;
    atomic_store(&info->state, state);
    if (atomic_load(&index->map->next_segment) <= number) {
        atomic_store(&index->map->next_segment, number + 1);
    }
}

once__segment_info_t *once__index_segment(const once__index_t *index, uint32_t number)
{
    return &index->map->ring[number % ONCE__RING];
}

/* Pending and unknown records go a retention after their lease, unless hold keeps them: then they are carried. */
void once__index_note_frame(once__index_t *index, uint32_t number, const once__head_t *head)
{
    once__segment_info_t *info = once__index_segment(index, number);
    uint64_t until = head != NULL ? head->expires : 0;

    atomic_fetch_add(&info->frames, 1);
    if (head != NULL && until == 0 && head->recover != ONCE_HOLD &&
        head->lease_until <= UINT64_MAX - head->ttl_ms) {
        until = head->lease_until + head->ttl_ms;
    }
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

/* ---------------------------------------------------------------------------------------------------------- entries */

void once__index_lock(once__index_t *index, const uint8_t *id)
{
    lock_robust(&shard_of(index, id)->lock);
}

void once__index_unlock(once__index_t *index, const uint8_t *id)
{
    (void)pthread_mutex_unlock(&shard_of(index, id)->lock);
}

/* The cursor counts the slots of the run that were passed, plus one. */
int once__index_find(const once__index_t *index, const uint8_t *id, uint64_t *cursor,
                     once__entry_t *entry)
{
    uint64_t table = atomic_load(&shard_of(index, id)->table);
    slot_t *slots = table_slots(index, table);
    uint32_t size = table_size(table);
    uint64_t key = key_of(id);
    uint32_t start = home(key, size);

    for (uint64_t passed = *cursor; passed < size; passed++) {
        const slot_t *slot = &slots[(start + passed) % size];
        uint64_t where = atomic_load_explicit(&slot->where, memory_order_acquire);
        if (where == 0) {
            break;
        }
        if (atomic_load_explicit(&slot->key, memory_order_relaxed) == key &&
            is_live(index, where)) {
            *cursor = passed + 1;
            *entry = unpack(where);
            return 1;
        }
    }
    return 0;
}

static void put(slot_t *slots, uint32_t size, uint64_t key, uint64_t where)
{
    uint32_t at = home(key, size);

    while (atomic_load_explicit(&slots[at].where, memory_order_relaxed) != 0) {
        at = (at + 1) % size;
    }
    atomic_store_explicit(&slots[at].key, key, memory_order_relaxed);
    atomic_store_explicit(&slots[at].where, where, memory_order_release);
}

/* Replaces the shard's table by one with room: only what lives is taken over. */
static int replace_table(once__index_t *index, shard_t *shard)
{
    uint64_t old = atomic_load(&shard->table), fresh;
    slot_t *from = table_slots(index, old), *to;
    uint32_t live = 0, size;

    for (uint32_t i = 0; i < table_size(old); i++) {
        live += (uint32_t)is_live(index, atomic_load(&from[i].where));
    }
    size = live + live / 2 < SHARD_ENTRIES ? SHARD_ENTRIES : live * 100 / FILL_PERCENT * 5 / 4;
    fresh = size > 0xffffff ? 0 : new_table(index, size);
    if (fresh == 0) {
        return ONCE_E_FULL;
    }
    to = table_slots(index, fresh);
    for (uint32_t i = 0; i < table_size(old); i++) {
        uint64_t where = atomic_load(&from[i].where);
        if (is_live(index, where)) {
            put(to, size, atomic_load(&from[i].key), where);
        }
    }
    atomic_fetch_add(&index->map->entries,
                     live - shard->used); /* the dead ones were counted, too */
    shard->used = live;
    atomic_store_explicit(&shard->table, fresh, memory_order_release);
    free_table(index, old);
    return ONCE_OK;
}

static void count(const once__index_t *index, const once__entry_t *entry, int64_t by)
{
    once__segment_info_t *info = once__index_segment(index, entry->place.segment);

    atomic_fetch_add(&info->current, by);
    if (entry->state == ONCE_STATE_PENDING || entry->state == ONCE_STATE_UNKNOWN) {
        atomic_fetch_add(&info->held, by);
    }
}

int once__index_make_room(once__index_t *index, const uint8_t *id)
{
    shard_t *shard = shard_of(index, id);
    uint64_t room = (uint64_t)table_size(atomic_load(&shard->table)) * FILL_PERCENT;

    return (shard->used + 1) * 100 > room ? replace_table(index, shard) : ONCE_OK;
}

static void add(once__index_t *index, shard_t *shard, uint64_t key, uint64_t where)
{
    uint64_t table = atomic_load(&shard->table);

    assert(shard->used < table_size(table));
    shard->used++;
    atomic_fetch_add(&index->map->entries, 1);
    put(table_slots(index, table), table_size(table), key, where);
}

void once__index_set(once__index_t *index, const uint8_t *id, uint64_t cursor, int replace,
                     const once__entry_t *entry)
{
    shard_t *shard = shard_of(index, id);
    uint64_t where = entry->state == ONCE_STATE_NONE ? WHERE_DEAD : pack(entry);
    uint64_t table = atomic_load(&shard->table);
    slot_t *slots = table_slots(index, table), *slot;
    uint32_t size = table_size(table);
    once__entry_t old;

    /* Being killed in between leaves the counts too high, never too low: a segment is then searched for nothing. */
    if (entry->state != ONCE_STATE_NONE) {
        count(index, entry, 1);
    }
    if (!replace) {
        assert(entry->state != ONCE_STATE_NONE);
        add(index, shard, key_of(id), where);
        return;
    }
    assert(cursor > 0 && cursor <= size);
    slot = &slots[(home(key_of(id), size) + cursor - 1) % size];
    old = unpack(atomic_load(&slot->where));
    atomic_store_explicit(&slot->where, where, memory_order_release);
    count(index, &old, -1);
}

static int by_key(const void *a, const void *b)
{
    const once__shard_entry_t *x = a, *y = b;

    return x->key < y->key ? -1 : x->key > y->key;
}

int once__index_shard(once__index_t *index, uint32_t number, once__shard_entry_t **entries,
                      size_t *count)
{
    shard_t *shard = &index->map->shards[number];
    uint64_t table;
    slot_t *slots;

    lock_robust(&shard->lock);
    table = atomic_load(&shard->table);
    slots = table_slots(index, table);
    *count = 0;
    *entries = malloc((table_size(table) + 1) * sizeof(once__shard_entry_t));
    for (uint32_t i = 0; i < table_size(table) && *entries != NULL; i++) {
        uint64_t where = atomic_load(&slots[i].where);
        if (is_live(index, where)) {
            once__shard_entry_t found = {atomic_load(&slots[i].key), unpack(where)};
            (*entries)[(*count)++] = found;
        }
    }
    (void)pthread_mutex_unlock(&shard->lock);
    if (*entries == NULL) {
        return ONCE_E_NOMEM;
    }
    qsort(*entries, *count, sizeof(once__shard_entry_t), by_key);
    return ONCE_OK;
}
