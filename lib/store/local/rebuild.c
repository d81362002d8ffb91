/*
 * Makes an index from the log, or finds out whether one that was left says what the log says.
 *
 * A rebuild has two steps, each by several threads: threads that take segments collect the newest frame of each record, by shard;
 * then threads that take shards enter them.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "loop/env.h"
#include "store/local/directory.h"
#include "store/thread.h"

#define THREADS_MAX 8u
#define IMAGES_MAX  ((uint64_t)1 << 29) /* bytes of all segments in memory at a time */
#define ID_BYTES    12                  /* of an id: as much as the index has of it */

/* The newest frame of a record, as far as it is known. */
typedef struct found {
    uint8_t id[ID_BYTES];
    uint32_t size; /* 0: nothing is here */
    uint64_t version;
    uint64_t until;
    uint64_t place; /* slot, offset / 8, state: 3 bits */
} found_t;

/* Records of a shard: a hash table. */
typedef struct set {
    pthread_mutex_t lock;
    found_t *table;
    size_t count, room;
} set_t;

typedef struct rebuild {
    const once__rebuild_config_t *config;
    once__index_t *index;
    uint64_t all_bytes;
    pthread_t caller;
    _Atomic size_t next; /* segment, then shard */
    _Atomic uint64_t done_bytes;
    _Atomic int code;
    pthread_mutex_t lock; /* of what follows */
    once_error_t *err;
    uint64_t failed; /* the segment of that error */
    once__rebuilt_t *rebuilt;
    uint64_t latest;      /* time that any frame or header has */
    uint64_t boot_number; /* the newest segment of this boot, and its clock */
    int64_t boot_clock;
    set_t shards[ONCE__SHARDS];
} rebuild_t;

/* What a segment turned out to be. */
typedef struct segment {
    rebuild_t *all;
    once__image_t *image;
    uint64_t number;
    uint32_t slot;
    uint64_t last;      /* frame */
    uint64_t end;       /* of its frames */
    uint64_t watermark; /* the highest */
    uint64_t first_version, last_version;
    int sealed;
    uint64_t frames, damaged; /* or lost */
} segment_t;

static int fail(rebuild_t *all, uint64_t number, int code, const char *format, ...)
    ONCE_PRINTF(4, 5);

/* Of several segments that fail, the lowest number counts, whichever thread comes first: lower ones were begun before. */
static int fail(rebuild_t *all, uint64_t number, int code, const char *format, ...)
{
    char text[sizeof(all->err->text)];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    (void)pthread_mutex_lock(&all->lock);
    if (atomic_load(&all->code) == ONCE_OK || number < all->failed) {
        all->failed = number;
        atomic_store(&all->code, once__fail(all->err, code, "%s", text));
    }
    (void)pthread_mutex_unlock(&all->lock);
    return code;
}

static uint64_t greater(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* -------------------------------------------------------------------------------------------------- frames by record */

/* Where the record is in the table, or belongs. */
static found_t *find(const set_t *set, const uint8_t *id)
{
    size_t at = (size_t)(once__get64(id + 2) % set->room);

    while (set->table[at].size != 0 && memcmp(set->table[at].id, id, ID_BYTES) != 0) {
        at = at + 1 < set->room ? at + 1 : 0;
    }
    return &set->table[at];
}

/* Room for one more, so that a quarter stays free. 0, or -1: no memory. */
static int grow(set_t *set)
{
    set_t more = {.room = set->room + set->room / 2 + 32};

    if ((set->count + 1) * 4 <= set->room * 3) {
        return 0;
    }
    more.table = calloc(more.room, sizeof(*more.table));
    if (more.table == NULL) {
        return -1;
    }
    for (size_t i = 0; i < set->room; i++) {
        if (set->table[i].size != 0) {
            *find(&more, set->table[i].id) = set->table[i];
        }
    }
    free(set->table);
    set->table = more.table;
    set->room = more.room;
    return 0;
}

/* Adds the frame, or puts it in the place of an older one of its record. 0, or -1: no memory. */
static int add(set_t *set, const found_t *found)
{
    int code;

    (void)pthread_mutex_lock(&set->lock);
    code = grow(set);
    if (code == 0) {
        found_t *other = find(set, found->id);
        set->count += other->size == 0;
        /* Of two with the same version, the removal took the place of the other one. */
        if (other->size == 0 || found->version > other->version ||
            (found->version == other->version && (found->place & 7) == ONCE_STATE_NONE)) {
            *other = *found;
        }
    }
    (void)pthread_mutex_unlock(&set->lock);
    return code;
}

/* ------------------------------------------------------------------------------------------------------- one segment */

static void tell(const segment_t *segment, const once__walk_t *walk, int code)
{
    const once__rebuild_config_t *config = segment->all->config;

    if (config->found != NULL) {
        (void)pthread_mutex_lock(&segment->all->lock);
        config->found(config->data, segment->number, walk, code);
        (void)pthread_mutex_unlock(&segment->all->lock);
    }
}

/* A frame with a valid head. */
static int read_frame(segment_t *segment, const once__walk_t *walk)
{
    const once__frame_t *frame = &walk->frame;
    found_t found = {.size = frame->size, .version = frame->version};
    int damaged = walk->kind == ONCE__WALK_DAMAGED;
    once__head_t head;

    segment->frames++;
    segment->last = walk->offset;
    segment->watermark = greater(segment->watermark, frame->watermark);
    if (frame->kind != ONCE__FRAME_RECORD && frame->kind != ONCE__FRAME_REMOVED) {
        return ONCE_OK;
    }
    if (frame->kind == ONCE__FRAME_RECORD && !damaged) {
        damaged = once__unpack_head(&head, frame) == ONCE_E_CORRUPT;
        found.until = damaged ? 0 : once__index_kept_until(&head);
    }
    if (damaged) {
        found.until = frame->state != ONCE_STATE_NONE ? UINT64_MAX : 0;
        segment->damaged++;
        tell(segment, walk, ONCE_E_CORRUPT);
    }
    if (segment->first_version == 0 || frame->version < segment->first_version) {
        segment->first_version = frame->version;
    }
    segment->last_version = greater(segment->last_version, frame->version);
    memcpy(found.id, frame->id, ID_BYTES);
    found.id[ID_BYTES - 1] &= 7; /* the index has 91 bits */
    found.place = (uint64_t)segment->slot << 32 | walk->offset / 8 << 3 | (frame->state & 7);
    return add(&segment->all->shards[once__index_shard_of(found.id)], &found) == 0
               ? ONCE_OK
               : fail(segment->all, segment->number, ONCE_E_NOMEM, "no memory to read the log");
}

static int walk_segment(segment_t *segment)
{
    once__walk_t walk;
    int code = ONCE_OK;

    once__walk_begin(&walk, segment->image, 0);
    while (code == ONCE_OK && once__walk_next(&walk)) {
        segment->end = walk.end;
        switch (walk.kind) {
        case ONCE__WALK_FRAME:
        case ONCE__WALK_DAMAGED:
            code = read_frame(segment, &walk);
            break;
        case ONCE__WALK_LOST:
            segment->damaged++;
            tell(segment, &walk, ONCE_E_CORRUPT);
            if (!segment->all->config->accept_lost) {
                code = fail(segment->all, segment->number, ONCE_E_CORRUPT,
                            "local store: segment %016llx is damaged at %llu (%llu bytes), and "
                            "whose records those were cannot be told; " ONCE__RESTORE,
                            (unsigned long long)segment->number, (unsigned long long)walk.offset,
                            (unsigned long long)(walk.end - walk.offset));
            }
            break;
        case ONCE__WALK_SEALED:
            segment->sealed = 1;
            segment->last = walk.offset;
            break;
        case ONCE__WALK_TORN:
            tell(segment, &walk, ONCE_OK);
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
 * Tells the index what it needs to know of the segment. Of one that its writer has not sealed, what no watermark covers counts as
 * not synced yet, until it is taken over.
 */
static int enter_segment(const segment_t *segment)
{
    rebuild_t *all = segment->all;
    const once__segment_header_t *header = &segment->image->header;
    once__segment_t *to = once__index_segment(all->index, segment->slot);
    int this_boot = memcmp(header->boot_id, all->config->log->boot_id, ONCE__BOOT_ID_SIZE) == 0;
    int sealed = segment->sealed || all->config->looks_only;
    uint64_t durable = greater(segment->watermark, once__segment_start(header->dictionary_len));
    uint64_t last = 0;
    once__walk_t walk;

    durable = durable < segment->end ? durable : segment->end;
    once__walk_begin(&walk, segment->image, 0);
    while (!sealed && once__walk_next(&walk) && walk.offset < durable) {
        last = walk.offset;
    }
    once__segment_publish(to, header, segment->end);
    to->other_boot = (uint16_t)!this_boot;
    atomic_store(&to->first_version, segment->first_version);
    atomic_store(&to->last_version, segment->last_version);
    atomic_store(&to->damaged, segment->damaged > 0);
    atomic_store(&to->synced, sealed ? UINT64_MAX : durable);
    atomic_store(&to->last, sealed ? segment->last : last);
    atomic_store(&to->state, sealed ? ONCE__SEGMENT_SEALED : ONCE__SEGMENT_ACTIVE);

    (void)pthread_mutex_lock(&all->lock);
    all->rebuilt->segments++;
    all->rebuilt->bytes += segment->image->size;
    all->rebuilt->frames += segment->frames;
    all->latest = greater(all->latest, greater(header->created, segment->last_version >> 20));
    if (this_boot && segment->number > all->boot_number) {
        all->boot_number = segment->number;
        all->boot_clock = header->clock_offset;
    }
    (void)pthread_mutex_unlock(&all->lock);
    return ONCE_OK;
}

/* ONCE_OK: go on without it. */
static int cannot_read(const segment_t *segment, int code)
{
    static const struct {
        int code;
        const char *text;
    } known[] = {
        {ONCE_E_NOT_FOUND, "is missing; " ONCE__RESTORE},
        {ONCE_E_CORRUPT, "has a damaged header; " ONCE__RESTORE},
        {ONCE_E_NEWER, "was written by a newer version of once; upgrade this program"},
        {ONCE_E_CONFIG, "belongs to another user; run as that one, or chown everything in the "
                        "directory"},
    };
    rebuild_t *all = segment->all;
    int saved = errno, is_lost = code == ONCE_E_NOT_FOUND || code == ONCE_E_CORRUPT;
    unsigned long long number = segment->number;

    tell(segment, NULL, code);
    if (all->config->accept_lost &&
        (is_lost || (code == ONCE_E_IO && all->config->found != NULL))) {
        once__index_free_slot(all->index, segment->slot);
        return ONCE_OK;
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i].code == code) {
            return fail(all, number, is_lost ? ONCE_E_CORRUPT : code,
                        "local store: segment %016llx %s", number, known[i].text);
        }
    }
    return fail(all, number, code, "local store: segment %016llx cannot be read: %s; %s", number,
                strerror(saved),
                saved == EMFILE || saved == ENFILE ? "raise the limit of open files (ulimit -n)"
                                                   : "check the disk, then see once fsck");
}

static int read_segment(rebuild_t *all, size_t at, once__image_t *image)
{
    const once__rebuild_config_t *config = all->config;
    segment_t segment = {
        .all = all, .image = image, .number = config->manifest->live[at], .slot = (uint32_t)at};
    uint64_t limit = once__index_durable(config->in_use, segment.number); /* before it is read */
    int code = once__image_read(image, config->log, segment.number);

    if (code != ONCE_OK) {
        return cannot_read(&segment, code);
    }
    image->end = limit < image->end ? limit : image->end;
    segment.end = once__segment_start(image->header.dictionary_len);
    code = walk_segment(&segment);
    return code == ONCE_OK ? enter_segment(&segment) : code;
}

static void *read_segments(void *data)
{
    rebuild_t *all = data;
    const once__rebuild_config_t *config = all->config;
    once__image_t image = {0};
    size_t at;

    while (atomic_load(&all->code) == ONCE_OK &&
           (at = atomic_fetch_add(&all->next, 1)) < config->manifest->live_count &&
           read_segment(all, at, &image) == ONCE_OK) {
        uint64_t done = atomic_fetch_add(&all->done_bytes, image.size) + image.size;
        if (config->progress != NULL && pthread_equal(pthread_self(), all->caller)) {
            config->progress(done, all->all_bytes, config->progress_data);
        }
    }
    once__image_free(&image);
    return NULL;
}

/* --------------------------------------------------------------------------------------------------------- one shard */

static int enter_shard(rebuild_t *all, const set_t *set)
{
    static const once__weight_t nothing = {0, 0};
    uint8_t id[ONCE_ID_SIZE] = {0};
    uint64_t entries = 0;

    for (size_t i = 0; i < set->room; i++) {
        const found_t *found = &set->table[i];
        once__entry_t entry = {
            {(uint32_t)(found->place >> 32), (found->place >> 3 & 0xfffffff) * 8},
            (uint8_t)(found->place & 7)};
        once__weight_t weight = {found->size, found->until};
        if (found->size == 0) {
            continue;
        }
        memcpy(id, found->id, ID_BYTES);
        if ((entries++ == 0 ? once__index_reserve(all->index, id, set->count)
                            : once__index_make_room(all->index, id)) != ONCE_OK) {
            return fail(all, 0, ONCE_E_FULL, "no room for the index");
        }
        once__index_set(all->index, id, &entry, weight, NULL, nothing);
        once__index_raise_version(all->index, id, found->version);
    }
    return ONCE_OK;
}

static void *enter_shards(void *data)
{
    rebuild_t *all = data;
    size_t shard;

    while (atomic_load(&all->code) == ONCE_OK &&
           (shard = atomic_fetch_add(&all->next, 1)) < ONCE__SHARDS &&
           enter_shard(all, &all->shards[shard]) == ONCE_OK) {
    }
    return NULL;
}

/* --------------------------------------------------------------------------------------------------------------- all */

/* The calling thread is one of them. If fewer than `count` can be started, those do the work. */
static void run_all(rebuild_t *all, unsigned count, void *(*work)(void *))
{
    pthread_t threads[THREADS_MAX];
    unsigned started = 0;

    atomic_store(&all->next, 0);
    while (started + 1 < count && once__spawn(&threads[started], work, all) == 0) {
        started++;
    }
    (void)work(all);
    while (started > 0) {
        (void)pthread_join(threads[--started], NULL);
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

/* Gives each segment its slot: the index is empty, so the first has 0. Adds up their bytes. Returns the size of the largest. */
static uint64_t list_segments(rebuild_t *all)
{
    const once__manifest_t *manifest = all->config->manifest;
    uint64_t largest = 0;

    for (size_t i = 0; i < manifest->live_count; i++) {
        char name[ONCE__SEGMENT_NAME];
        struct stat st;
        uint64_t number = 0;
        uint32_t slot = 0;
        once__segment_name(name, manifest->live[i]);
        once__index_raise_number(all->index, manifest->live[i] - 1);
        if (once__index_take_slot(all->index, &slot, &number) != ONCE_OK || slot != i ||
            number != manifest->live[i]) {
            (void)fail(all, 0, ONCE_E_FULL, "local store: %zu segments, or the index has no room",
                       manifest->live_count);
            break;
        }
        if (fstatat(all->config->log->segments_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            all->all_bytes += (uint64_t)st.st_size;
            largest = greater(largest, (uint64_t)st.st_size);
        }
    }
    return largest;
}

int64_t once__clock_after(uint64_t latest)
{
    struct timespec t;
    uint64_t now;

    (void)clock_gettime(CLOCK_REALTIME, &t);
    now = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
    return (int64_t)((latest >= now ? latest + 1 : now) - once__real_env.monotonic_ms(NULL));
}

int once__rebuild(const once__rebuild_config_t *config, once__rebuilt_t *rebuilt, once_error_t *err)
{
    rebuild_t *all = calloc(1, sizeof(*all));
    unsigned threads;
    int code = ONCE_E_NOMEM;

    memset(rebuilt, 0, sizeof(*rebuilt));
    if (all == NULL) {
        return once__fail(err, code, "%s", once_error_text(code));
    }
    all->config = config;
    all->index = config->log->index;
    all->caller = pthread_self();
    all->err = err;
    all->rebuilt = rebuilt;
    (void)pthread_mutex_init(&all->lock, NULL);
    for (uint32_t i = 0; i < ONCE__SHARDS; i++) {
        (void)pthread_mutex_init(&all->shards[i].lock, NULL);
    }
    threads = count_threads(config, list_segments(all));
    run_all(all, threads, read_segments);
    if (config->progress != NULL && atomic_load(&all->code) == ONCE_OK) {
        config->progress(all->all_bytes, all->all_bytes, config->progress_data);
    }
    run_all(all, threads, enter_shards);
    code = atomic_load(&all->code);
    if (code == ONCE_OK) {
        once__index_raise_number(all->index, config->manifest->next - 1);
        /* The clock of this boot goes on; a new one begins with the time of day, or where the log ends if that is later. */
        once__index_set_clock(all->index, all->boot_number != 0 ? all->boot_clock
                                                                : once__clock_after(all->latest));
        /*
         * Everything that was found counts from now on, so it must be durable, and the end must say so: otherwise later damage to
         * the last batch would be taken for a torn tail. What cannot be taken over now (the disk is full, or fails) stays as it
         * is: its durable frames are served.
         */
        once__segments_take_over(config->log, UINT32_MAX);
    }
    for (uint32_t i = 0; i < ONCE__SHARDS; i++) {
        free(all->shards[i].table);
        (void)pthread_mutex_destroy(&all->shards[i].lock);
    }
    (void)pthread_mutex_destroy(&all->lock);
    free(all);
    return code;
}

/* -------------------------------------------------------------------------------------------------- an index that was left */

/* What the file of a segment says about the index: ONCE_OK, or as once__verify. */
static int compare(const once__log_config_t *log, uint32_t slot, once__image_t *image)
{
    const once__segment_t *segment = once__index_segment(log->index, slot);
    uint64_t last = atomic_load(&segment->last), end = UINT64_MAX, room;
    const once__buffer_t *buffer = once__buffer_of(log->index, slot, &room);
    int active = atomic_load(&segment->state) == ONCE__SEGMENT_ACTIVE;
    uint64_t from = last != 0 ? last : once__segment_start(segment->dictionary_len), more = 0;
    once__walk_t walk;

    if (active) { /* up to here the file has whole frames */
        end = buffer != NULL ? atomic_load(&buffer->written) : atomic_load(&segment->tail);
        more = last == end ? ONCE__SEAL_ROOM : 0; /* killed while it sealed: `last` is that frame */
    }
    if ((!active && last == 0) || end < from ||
        once__image_read_part(image, log, atomic_load(&segment->number), from, end + more) !=
            ONCE_OK ||
        image->header.word != segment->word) {
        return ONCE_E_NOT_FOUND;
    }
    once__walk_begin(&walk, image, 0);
    walk.end = from;
    if (last != 0 && (!once__walk_next(&walk) ||
                      (walk.kind != ONCE__WALK_FRAME && walk.kind != ONCE__WALK_SEALED))) {
        return ONCE_E_CORRUPT;
    }
    /* An index that is newer than the log fails here: what it calls written is not there. */
    while (active && walk.end < end) {
        if (!once__walk_next(&walk) || walk.kind != ONCE__WALK_FRAME) {
            return ONCE_E_NOT_FOUND;
        }
    }
    return ONCE_OK;
}

int once__verify(const once__log_config_t *log, const once__manifest_t *manifest, uint64_t *behind)
{
    uint32_t slots = once__index_slot_end(log->index);
    once__image_t image = {0};
    size_t known = 0;
    int code = ONCE_OK;

    for (uint32_t slot = 0; slot < slots && code != ONCE_E_CORRUPT; slot++) {
        const once__segment_t *segment = once__index_segment(log->index, slot);
        uint64_t number = atomic_load(&segment->number);
        uint32_t state = atomic_load(&segment->state);
        int live = number != 0 && once__manifest_is_live(manifest, number);
        if (state == ONCE__SEGMENT_ACTIVE || state == ONCE__SEGMENT_SEALED) {
            int is = live ? compare(log, slot, &image) : ONCE_E_NOT_FOUND;
            *behind = number;
            code = number >= manifest->next ? ONCE_E_CORRUPT : is != ONCE_OK ? is : code;
            known++;
        } else {
            known += live && state == ONCE__SEGMENT_PREPARING; /* it has no frames yet */
        }
    }
    once__image_free(&image);
    if (code == ONCE_OK && known != manifest->live_count) {
        code = ONCE_E_NOT_FOUND;
    }
    if (code == ONCE_OK) {
        once__segments_take_over(log, UINT32_MAX);
    }
    return code;
}
