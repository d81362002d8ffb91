/*
 * Two steps, each by several threads: threads that take segments collect the newest frame of each record, by shard; then threads
 * that take shards enter them.
 */
#include "store/local/rebuild.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "store/thread.h"

#define THREADS_MAX 8u
#define IMAGES_MAX  ((uint64_t)1 << 29) /* bytes of all segments in memory at a time */
#define ID_BYTES    12                  /* of an id: as much as the index has of it */

/* The newest frame of a record, as far as it is known. */
typedef struct found {
    uint8_t id[ID_BYTES];
    uint32_t size;
    uint64_t version;
    uint64_t until;
    uint64_t place; /* slot, offset / 8, state: 3 bits */
} found_t;

/* Records of a shard: a list, and a hash table of places in it. */
typedef struct set {
    pthread_mutex_t lock;
    found_t *list;
    uint32_t *table; /* place in the list + 1; 0: free */
    size_t count, room, table_room;
} set_t;

typedef struct rebuild {
    once__index_t *index;
    const once__rebuild_config_t *config;
    uint32_t *slots; /* of the manifest's live segments */
    uint64_t all_bytes;
    _Atomic size_t next; /* segment, then shard */
    _Atomic uint64_t done_bytes;
    _Atomic int code;
    pthread_mutex_t lock; /* of what follows */
    once_error_t *err;
    uint64_t latest;      /* time that any frame or header has */
    uint64_t boot_number; /* the newest segment of this boot, and its clock */
    int64_t boot_clock;
    set_t shards[ONCE__SHARDS];
} rebuild_t;

/* One thread. */
typedef struct worker {
    rebuild_t *all;
    pthread_t thread;
    int is_first;
    once__image_t image;
    once__rebuilt_t rebuilt;
} worker_t;

/* What a segment turned out to be. */
typedef struct segment {
    uint64_t number;
    uint32_t slot;
    uint64_t last;      /* frame */
    uint64_t end;       /* of its frames */
    uint64_t watermark; /* the highest */
    uint64_t first_version, last_version;
    int sealed, damaged;
} segment_t;

/* The first failure counts. */
static int fail(rebuild_t *all, const once_error_t *why)
{
    (void)pthread_mutex_lock(&all->lock);
    if (atomic_load(&all->code) == ONCE_OK) {
        if (all->err != NULL) {
            *all->err = *why;
        }
        atomic_store(&all->code, why->code);
    }
    (void)pthread_mutex_unlock(&all->lock);
    return why->code;
}

static int no_memory(rebuild_t *all)
{
    once_error_t why = {0};

    (void)once__fail(&why, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    return fail(all, &why);
}

/* -------------------------------------------------------------------------------------------------- frames by record */

/* Where the record is in the table, or belongs. */
static uint32_t *find(const set_t *set, const uint8_t *id)
{
    size_t at = once__get64(id + 2) & (set->table_room - 1);

    while (set->table[at] != 0 && memcmp(set->list[set->table[at] - 1].id, id, ID_BYTES) != 0) {
        at = (at + 1) & (set->table_room - 1);
    }
    return &set->table[at];
}

/* Room for one more. 0, or -1: no memory. */
static int grow(set_t *set)
{
    size_t room = set->room + set->room / 4 + 16, table_room = set->table_room * 2;
    found_t *list;

    if (set->count < set->room) {
        return 0;
    }
    list = realloc(set->list, room * sizeof(*list));
    if (list == NULL) {
        return -1;
    }
    set->list = list;
    set->room = room;
    if (room * 3 > set->table_room * 2) {
        table_room = table_room == 0 ? 32 : table_room;
        free(set->table);
        set->table = calloc(table_room, sizeof(*set->table));
        set->table_room = set->table != NULL ? table_room : 0;
        for (size_t i = 0; i < set->count && set->table != NULL; i++) {
            *find(set, list[i].id) = (uint32_t)i + 1;
        }
    }
    return set->table != NULL ? 0 : -1;
}

/* Adds the frame, or puts it in the place of an older one of its record. 0, or -1: no memory. */
static int add(set_t *set, const found_t *found)
{
    uint32_t *place;
    int code;

    (void)pthread_mutex_lock(&set->lock);
    code = grow(set);
    if (code == 0) {
        place = find(set, found->id);
        if (*place == 0) {
            set->list[set->count++] = *found;
            *place = (uint32_t)set->count;
        } else {
            found_t *other = &set->list[*place - 1];
            /* Of two with the same version, the removal took the place of the other one. */
            if (found->version > other->version ||
                (found->version == other->version && (found->place & 7) == ONCE_STATE_NONE)) {
                *other = *found;
            }
        }
    }
    (void)pthread_mutex_unlock(&set->lock);
    return code;
}

/* ------------------------------------------------------------------------------------------------------- one segment */

static void tell(worker_t *worker, uint64_t number, const once__walk_t *walk, int code)
{
    const once__rebuild_config_t *config = worker->all->config;

    if (config->found != NULL) {
        (void)pthread_mutex_lock(&worker->all->lock);
        config->found(config->data, number, walk, code);
        (void)pthread_mutex_unlock(&worker->all->lock);
    }
}

/* A frame with a valid head. */
static int read_frame(worker_t *worker, segment_t *segment, const once__walk_t *walk)
{
    const once__frame_t *frame = &walk->frame;
    found_t found = {.size = frame->size, .version = frame->version};
    int damaged = walk->kind == ONCE__WALK_DAMAGED;
    once__head_t head;

    worker->rebuilt.frames++;
    segment->last = walk->offset;
    segment->watermark =
        frame->watermark > segment->watermark ? frame->watermark : segment->watermark;
    if (frame->kind != ONCE__FRAME_RECORD && frame->kind != ONCE__FRAME_REMOVED) {
        return ONCE_OK;
    }
    if (frame->kind == ONCE__FRAME_RECORD && !damaged) {
        damaged = once__unpack_head(&head, frame) == ONCE_E_CORRUPT;
        found.until = damaged ? 0 : once__index_kept_until(&head);
    }
    if (damaged) {
        found.until = frame->state != ONCE_STATE_NONE ? UINT64_MAX : 0;
        segment->damaged = 1;
        worker->rebuilt.damaged++;
        tell(worker, segment->number, walk, ONCE_E_CORRUPT);
    }
    if (segment->first_version == 0 || frame->version < segment->first_version) {
        segment->first_version = frame->version;
    }
    if (frame->version > segment->last_version) {
        segment->last_version = frame->version;
    }
    memcpy(found.id, frame->id, ID_BYTES);
    found.id[ID_BYTES - 1] &= 7; /* the index has 91 bits */
    found.place = (uint64_t)segment->slot << 32 | walk->offset / 8 << 3 | (frame->state & 7);
    return add(&worker->all->shards[once__index_shard_of(found.id)], &found) == 0
               ? ONCE_OK
               : no_memory(worker->all);
}

static int is_lost(worker_t *worker, segment_t *segment, const once__walk_t *walk)
{
    once_error_t why = {0};

    segment->damaged = 1;
    worker->rebuilt.lost++;
    tell(worker, segment->number, walk, ONCE_E_CORRUPT);
    if (worker->all->config->accept_lost) {
        return ONCE_OK;
    }
    (void)once__fail(
        &why, ONCE_E_CORRUPT,
        "local store: segment %016llx is damaged at %llu (%llu bytes), and whose records "
        "those were cannot be told; restore it from a backup, or accept the loss with "
        "once fsck --repair",
        (unsigned long long)segment->number, (unsigned long long)walk->offset,
        (unsigned long long)(walk->end - walk->offset));
    return fail(worker->all, &why);
}

static int walk_segment(worker_t *worker, segment_t *segment)
{
    once__walk_t walk;
    int code = ONCE_OK;

    once__walk_begin(&walk, &worker->image, 0);
    while (code == ONCE_OK && once__walk_next(&walk)) {
        segment->end = walk.end;
        switch (walk.kind) {
        case ONCE__WALK_FRAME:
        case ONCE__WALK_DAMAGED:
            code = read_frame(worker, segment, &walk);
            break;
        case ONCE__WALK_LOST:
            code = is_lost(worker, segment, &walk);
            break;
        case ONCE__WALK_SEALED:
            segment->sealed = 1;
            segment->last = walk.offset;
            break;
        case ONCE__WALK_TORN:
            worker->rebuilt.torn++;
            tell(worker, segment->number, &walk, ONCE_OK);
            segment->end = walk.offset;
            break;
        case ONCE__WALK_END:
            segment->end = walk.offset;
            break;
        }
    }
    return code;
}

/*
 * Everything that was found counts from now on, so it must be durable, and the end must say so: otherwise later damage to the last
 * batch would be taken for a torn tail. What no watermark covers is written again first: if a sync of it failed before, the
 * kernel may believe that the disk has it.
 */
static int seal(worker_t *worker, segment_t *segment, uint64_t durable)
{
    const once__image_t *image = &worker->image;
    const once__disk_t *disk = worker->all->config->disk;
    once__log_config_t log = {
        .segments_fd = worker->all->config->segments_fd, .index = worker->all->index, .disk = disk};
    once__own_t own = {.slot = segment->slot,
                       .number = segment->number,
                       .word = image->header.word,
                       .size = image->header.size,
                       .tail = segment->end};
    uint64_t len = segment->end - durable;
    int code = ONCE_OK;

    own.fd = once__segment_open(&log, segment->number, O_RDWR);
    if (own.fd < 0 || once__disk_write(disk, own.fd, image->data + durable, len, durable) != 0 ||
        disk->sync(disk->data, own.fd) != 0) {
        code = once__disk_code();
        once__own_release(&own);
        return code;
    }
    once__segment_seal(&log, &own);
    return atomic_load(&once__index_segment(log.index, segment->slot)->state) ==
                   ONCE__SEGMENT_SEALED
               ? ONCE_OK
               : once__disk_code();
}

/*
 * The disk is full, and the segment cannot be sealed. What is durable is served; the rest, which the last batch may be part of, is
 * busy until a process can take the segment over.
 */
static void leave_open(const worker_t *worker, const segment_t *segment, uint64_t durable)
{
    once__segment_t *to = once__index_segment(worker->all->index, segment->slot);
    once__walk_t walk;
    uint64_t last = 0;

    once__walk_begin(&walk, &worker->image, 0);
    while (once__walk_next(&walk) && walk.offset < durable) {
        last = walk.offset;
    }
    atomic_store(&to->last, last);
    atomic_store(&to->synced, durable);
}

/* Seals a segment that its writer has not sealed. */
static int finish(worker_t *worker, segment_t *segment)
{
    uint64_t start = once__segment_start(worker->image.header.dictionary_len);
    uint64_t durable = segment->watermark > start ? segment->watermark : start;
    once_error_t why = {0};
    int code;

    durable = durable < segment->end ? durable : segment->end;
    code = seal(worker, segment, durable);
    if (code == ONCE_E_FULL) {
        leave_open(worker, segment, durable);
    } else if (code != ONCE_OK) {
        (void)once__fail(&why, code, "local store: cannot write to segments/%016llx.log: %s",
                         (unsigned long long)segment->number, strerror(errno));
        return fail(worker->all, &why);
    }
    return ONCE_OK;
}

/* Tells the index what it needs to know of the segment. */
static int enter_segment(worker_t *worker, segment_t *segment)
{
    rebuild_t *all = worker->all;
    const once__segment_header_t *header = &worker->image.header;
    once__segment_t *to = once__index_segment(all->index, segment->slot);
    int this_boot = memcmp(header->boot_id, all->config->boot_id, ONCE__BOOT_ID_SIZE) == 0;
    int sealed = segment->sealed || all->config->looks_only;
    uint64_t latest = segment->last_version >> 20;

    to->dictionary_len = header->dictionary_len;
    to->word = header->word;
    to->size = header->size;
    to->created = header->created;
    to->other_boot = (uint16_t)!this_boot;
    atomic_store(&to->first_version, segment->first_version);
    atomic_store(&to->last_version, segment->last_version);
    atomic_store(&to->damaged, (uint16_t)segment->damaged);
    atomic_store(&to->tail, segment->end);
    atomic_store(&to->synced, sealed ? UINT64_MAX : segment->end);
    atomic_store(&to->last, segment->last);
    atomic_store(&to->state, sealed ? ONCE__SEGMENT_SEALED : ONCE__SEGMENT_ACTIVE);

    (void)pthread_mutex_lock(&all->lock);
    latest = header->created > latest ? header->created : latest;
    all->latest = latest > all->latest ? latest : all->latest;
    if (this_boot && segment->number > all->boot_number) {
        all->boot_number = segment->number;
        all->boot_clock = header->clock_offset;
    }
    (void)pthread_mutex_unlock(&all->lock);
    return sealed ? ONCE_OK : finish(worker, segment);
}

/* ONCE_OK: go on without it. */
static int cannot_read(worker_t *worker, uint64_t number, uint32_t slot, int code)
{
    rebuild_t *all = worker->all;
    int saved = errno, is_lost = code == ONCE_E_NOT_FOUND || code == ONCE_E_CORRUPT;
    once_error_t why = {0};
    char text[160];

    tell(worker, number, NULL, code);
    if (all->config->accept_lost &&
        (is_lost || (code == ONCE_E_IO && all->config->found != NULL))) {
        worker->rebuilt.lost++;
        once__index_free_slot(all->index, slot);
        return ONCE_OK;
    }
    (void)snprintf(text, sizeof(text), "cannot be read: %s%s", strerror(saved),
                   saved == EMFILE || saved == ENFILE
                       ? "; raise the limit of open files (ulimit -n)"
                       : "; check the disk, then see once fsck");
    (void)once__fail(
        &why, code == ONCE_E_NOT_FOUND ? ONCE_E_CORRUPT : code, "local store: segment %016llx %s%s",
        (unsigned long long)number,
        code == ONCE_E_NOT_FOUND ? "is missing"
        : code == ONCE_E_CORRUPT ? "has a damaged header"
        : code == ONCE_E_NEWER   ? "was written by a newer version of once; upgrade this program"
        : code == ONCE_E_CONFIG  ? "belongs to another user; run as that one, or chown everything "
                                   "in the directory"
                                 : text,
        is_lost ? "; restore it from a backup, or accept the loss with once fsck --repair" : "");
    return fail(all, &why);
}

static int read_segment(worker_t *worker, size_t at)
{
    const once__rebuild_config_t *config = worker->all->config;
    segment_t segment = {.number = config->manifest->live[at], .slot = worker->all->slots[at]};
    uint64_t limit =
        config->limit != NULL ? config->limit(config->data, segment.number) : UINT64_MAX;
    int code = once__image_read(&worker->image, config->segments_fd, config->disk, segment.number,
                                config->store_id);

    if (code == ONCE_E_NOMEM) {
        return no_memory(worker->all);
    }
    if (code != ONCE_OK) {
        return cannot_read(worker, segment.number, segment.slot, code);
    }
    worker->image.end = limit < worker->image.end ? limit : worker->image.end;
    segment.end = once__segment_start(worker->image.header.dictionary_len);
    worker->rebuilt.segments++;
    worker->rebuilt.bytes += worker->image.size;
    code = walk_segment(worker, &segment);
    return code == ONCE_OK ? enter_segment(worker, &segment) : code;
}

static void *read_segments(void *data)
{
    worker_t *worker = data;
    rebuild_t *all = worker->all;
    const once__rebuild_config_t *config = all->config;
    size_t at;

    while (atomic_load(&all->code) == ONCE_OK &&
           (at = atomic_fetch_add(&all->next, 1)) < config->manifest->live_count &&
           read_segment(worker, at) == ONCE_OK) {
        (void)atomic_fetch_add(&all->done_bytes, worker->image.size);
        if (worker->is_first && config->progress != NULL) {
            config->progress(config->data, atomic_load(&all->done_bytes), all->all_bytes);
        }
    }
    once__image_free(&worker->image);
    return NULL;
}

/* --------------------------------------------------------------------------------------------------------- one shard */

static int enter_shard(worker_t *worker, set_t *set)
{
    static const once__weight_t nothing = {0, 0};
    rebuild_t *all = worker->all;
    once_error_t why = {0};
    uint8_t id[ONCE_ID_SIZE] = {0};
    int code = ONCE_OK;

    for (size_t i = 0; i < set->count && code == ONCE_OK; i++) {
        const found_t *found = &set->list[i];
        once__entry_t entry = {
            {(uint32_t)(found->place >> 32), (found->place >> 3 & 0xfffffff) * 8},
            (uint8_t)(found->place & 7)};
        once__weight_t weight = {found->size, found->until};
        memcpy(id, found->id, ID_BYTES);
        code = i == 0 ? once__index_reserve(all->index, id, set->count)
                      : once__index_make_room(all->index, id);
        if (code == ONCE_OK) {
            once__index_set(all->index, id, &entry, weight, NULL, nothing);
            once__index_raise_version(all->index, id, found->version);
            worker->rebuilt.records += entry.state != ONCE_STATE_NONE;
        }
    }
    if (code != ONCE_OK) {
        (void)once__fail(&why, code, "no room for the index");
        return fail(all, &why);
    }
    return ONCE_OK;
}

static void *enter_shards(void *data)
{
    worker_t *worker = data;
    rebuild_t *all = worker->all;
    size_t shard;

    while (atomic_load(&all->code) == ONCE_OK &&
           (shard = atomic_fetch_add(&all->next, 1)) < ONCE__SHARDS &&
           enter_shard(worker, &all->shards[shard]) == ONCE_OK) {
    }
    return NULL;
}

/* --------------------------------------------------------------------------------------------------------------- all */

/* The calling thread is one of them. If fewer than `count` can be started, those do the work. */
static void run_all(rebuild_t *all, worker_t *workers, unsigned count, void *(*work)(void *))
{
    int started[THREADS_MAX] = {0};

    atomic_store(&all->next, 0);
    for (unsigned i = 1; i < count; i++) {
        started[i] = once__spawn(&workers[i].thread, work, &workers[i]) == 0;
    }
    (void)work(&workers[0]);
    for (unsigned i = 1; i < count; i++) {
        if (started[i]) {
            (void)pthread_join(workers[i].thread, NULL);
        }
    }
}

static unsigned count_threads(const once__rebuild_config_t *config, uint64_t largest)
{
    cpu_set_t processors;
    unsigned count = config->threads;

    if (count == 0) {
        count = sched_getaffinity(0, sizeof(processors), &processors) == 0
                    ? (unsigned)CPU_COUNT(&processors)
                    : 1;
    }
    while (count > 1 && (count > THREADS_MAX || count * largest > IMAGES_MAX)) {
        count--;
    }
    return count;
}

/* Gives each segment its slot, and adds up their bytes. Returns the size of the largest. */
static uint64_t list_segments(rebuild_t *all)
{
    const once__manifest_t *manifest = all->config->manifest;
    once_error_t why = {0};
    uint64_t largest = 0;

    for (size_t i = 0; i < manifest->live_count && atomic_load(&all->code) == ONCE_OK; i++) {
        char name[ONCE__SEGMENT_NAME];
        struct stat st;
        once__segment_name(name, manifest->live[i]);
        if (once__index_enter_segment(all->index, manifest->live[i], &all->slots[i]) != ONCE_OK) {
            (void)once__fail(&why, ONCE_E_FULL,
                             "local store: %zu segments, or the index has no room",
                             manifest->live_count);
            (void)fail(all, &why);
        } else if (fstatat(all->config->segments_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            all->all_bytes += (uint64_t)st.st_size;
            largest = (uint64_t)st.st_size > largest ? (uint64_t)st.st_size : largest;
        }
    }
    return largest;
}

static uint64_t clock_ms(clockid_t id)
{
    struct timespec now;

    (void)clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int64_t once__clock_after(uint64_t latest)
{
    uint64_t now = clock_ms(CLOCK_REALTIME);

    return (int64_t)((latest >= now ? latest + 1 : now) - clock_ms(CLOCK_BOOTTIME));
}

static void free_all(rebuild_t *all, const worker_t *workers, unsigned threads,
                     once__rebuilt_t *sum)
{
    for (unsigned i = 0; i < threads; i++) {
        const once__rebuilt_t *part = &workers[i].rebuilt;
        sum->segments += part->segments;
        sum->frames += part->frames;
        sum->records += part->records;
        sum->bytes += part->bytes;
        sum->damaged += part->damaged;
        sum->lost += part->lost;
        sum->torn += part->torn;
    }
    for (uint32_t i = 0; i < ONCE__SHARDS; i++) {
        free(all->shards[i].list);
        free(all->shards[i].table);
        (void)pthread_mutex_destroy(&all->shards[i].lock);
    }
    (void)pthread_mutex_destroy(&all->lock);
    free(all->slots);
    free(all);
}

int once__rebuild(once__index_t *index, const once__rebuild_config_t *config,
                  once__rebuilt_t *rebuilt, once_error_t *err)
{
    worker_t workers[THREADS_MAX];
    rebuild_t *all = calloc(1, sizeof(*all));
    uint32_t *slots = calloc(config->manifest->live_count + 1, sizeof(*slots));
    unsigned threads;
    int code;

    memset(rebuilt, 0, sizeof(*rebuilt));
    memset(workers, 0, sizeof(workers));
    if (all == NULL || slots == NULL) {
        free(all);
        free(slots);
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    all->index = index;
    all->config = config;
    all->slots = slots;
    all->err = err;
    (void)pthread_mutex_init(&all->lock, NULL);
    for (uint32_t i = 0; i < ONCE__SHARDS; i++) {
        (void)pthread_mutex_init(&all->shards[i].lock, NULL);
    }
    threads = count_threads(config, list_segments(all));
    for (unsigned i = 0; i < threads; i++) {
        workers[i].all = all;
        workers[i].is_first = i == 0;
    }
    run_all(all, workers, threads, read_segments);
    if (config->progress != NULL && atomic_load(&all->code) == ONCE_OK) {
        config->progress(config->data, all->all_bytes, all->all_bytes);
    }
    run_all(all, workers, threads, enter_shards);
    code = atomic_load(&all->code);
    if (code == ONCE_OK) {
        once__index_raise_number(index, config->manifest->next - 1);
        /* The clock of this boot goes on; a new one begins with the time of day, or where the log ends if that is later. */
        once__index_set_clock(index, all->boot_number != 0 ? all->boot_clock
                                                           : once__clock_after(all->latest));
    }
    free_all(all, workers, threads, rebuilt);
    return code;
}
