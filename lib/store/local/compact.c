/*
 * Compaction: segments that are mostly dead, or have texts that were erased, are emptied and dropped; expired records leave the
 * index.
 *
 * A victim is emptied frame by frame: live ones are copied, with a higher version, to a segment that has nothing but copies. Others
 * need not wait for its sync: until the victim is dropped, it has the same, and it is dropped after that sync.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "store/local/decide.h"
#include "store/local/log.h"

#define LOCK_WAIT_MS 1000
#define SYNC_WAIT_MS 1000                /* for frames of others to become durable */
#define SYNC_BYTES   ((uint64_t)4 << 20) /* of copies that are synced together */
#define SMALL_ONES   8u                  /* segments that may be small */
#define SMALL_PART   16u
#define HALVES                                                                                     \
    8u /* segments that are half live and are taken in one compaction that is not thorough */
#define TEND_STEP  256u  /* frames between two calls of tend() */
#define SWEEP_STEP 10000 /* records that are looked at if it is not thorough */

typedef struct range {
    uint64_t first, last; /* versions */
} range_t;

typedef struct compactor {
    once__records_t *records;
    once__compaction_t *compaction;
    uint64_t now;
    uint32_t steps;
    uint8_t tried[ONCE__SLOTS / 8]; /* in this compaction */
    uint32_t halves;

    /* The victim. */
    uint32_t slot;
    uint64_t number;
    once__segment_t *segment;
    int is_live; /* it was chosen for its size, or for what was erased */
    once__image_t image;
    once__dictionary_t *dictionary;
    once__scratch_t scratch;
    range_t *others; /* versions of the other segments */
    size_t other_count;
    uint64_t unsynced;   /* bytes of copies */
    uint64_t wait_until; /* for frames of others */
} compactor_t;

/* Between two frames. 1: stop. */
static int tend(compactor_t *compactor)
{
    const once__compaction_t *compaction = compactor->compaction;

    if (compaction->thorough && compaction->limit != 0 &&
        compaction->removed >= compaction->limit) {
        return 1;
    }
    return ++compactor->steps % TEND_STEP == 0 && compaction->tend != NULL &&
           compaction->tend(compaction->data);
}

/* ---------------------------------------------------------------------------------------------------------- choosing */

/* Copies count as written twice already: they are copied again for half of their room only. */
int once__segment_is_dead(const once__segment_t *segment, uint64_t now)
{
    uint64_t tail = atomic_load(&segment->tail);

    return once__segment_live(segment, now) <
           (atomic_load(&segment->copies) ? tail / 2 : tail / 3 * 2);
}

/* It has claims beside their completions. That can wait: so that under much load it takes a bounded part of a processor. */
static int must_wait(const compactor_t *compactor, double part)
{
    return part >= 0.5 && compactor->halves >= HALVES && !compactor->compaction->thorough;
}

/*
 * Finds the victim: the segment with the smallest live part; of equals, the oldest. If none is mostly dead: one with texts that
 * were erased. If there is none, and too many are small: the smallest. 1, or 0: none is worth it.
 */
static int choose(compactor_t *compactor)
{
    const once__index_t *index = compactor->records->index;
    uint64_t small = compactor->records->log_config->segment_size / SMALL_PART;
    uint32_t small_count = 0;
    double best = INFINITY;

    compactor->number = 0;
    for (uint32_t slot = 0; slot < once__index_slot_end(index); slot++) {
        once__segment_t *segment = once__index_segment(index, slot);
        uint64_t tail = atomic_load(&segment->tail), number = atomic_load(&segment->number);
        int dead = once__segment_is_dead(segment, compactor->now);
        int erased = once__erasing_concerns(index, segment);
        double part = dead     ? (double)once__segment_live(segment, compactor->now) / (double)tail
                      : erased ? 1
                               : 1 + (double)tail;
        if (atomic_load(&segment->state) != ONCE__SEGMENT_SEALED || number == 0 ||
            atomic_load(&segment->damaged) || (compactor->tried[slot / 8] & 1u << slot % 8) ||
            (dead && !erased && must_wait(compactor, part))) {
            continue;
        }
        small_count += tail < small;
        if ((dead || erased || tail < small) &&
            (part < best || (part <= best && number < compactor->number))) {
            best = part;
            compactor->slot = slot;
            compactor->number = number;
            compactor->segment = segment;
            compactor->is_live = !dead;
        }
    }
    compactor->halves += best >= 0.5 && best < 1;
    return compactor->number != 0 && (!compactor->is_live || small_count > SMALL_ONES ||
                                      once__erasing_concerns(index, compactor->segment));
}

/*
 * The versions of the other segments. One that is mostly dead by now may be the victim of a compaction that did not end: its copies
 * have no `since`, so it counts as if it reached up to now.
 */
static int note_others(compactor_t *compactor)
{
    const once__index_t *index = compactor->records->index;
    uint64_t now = once__index_now(index);
    uint32_t end = once__index_slot_end(index);

    compactor->others = malloc((end + 1) * sizeof(range_t));
    compactor->other_count = 0;
    for (uint32_t slot = 0; compactor->others != NULL && slot < end; slot++) {
        const once__segment_t *segment = once__index_segment(index, slot);
        uint32_t state = atomic_load(&segment->state);
        range_t range = {atomic_load(&segment->first_version), atomic_load(&segment->last_version)};
        if (slot == compactor->slot || state < ONCE__SEGMENT_ACTIVE || range.first == 0) {
            continue;
        }
        if (state == ONCE__SEGMENT_SEALED && once__segment_is_dead(segment, now)) {
            range.last = UINT64_MAX;
        }
        compactor->others[compactor->other_count++] = range;
    }
    return compactor->others != NULL ? ONCE_OK : ONCE_E_NOMEM;
}

/* May another segment have a frame of this record that is older than this one? */
static int has_older(const compactor_t *compactor, const once__frame_t *frame)
{
    for (size_t i = 0; frame->since != 0 && i < compactor->other_count; i++) {
        if (compactor->others[i].first <= frame->version &&
            compactor->others[i].last >= frame->since) {
            return 1;
        }
    }
    return 0;
}

/* ----------------------------------------------------------------------------------------------------------- copying */

/* A frame of the victim that leads its record, and the one that takes its place. */
typedef struct copy {
    once__entry_t from, to;
    once__weight_t from_weight, to_weight;
    once__record_t record;
    uint64_t version, since;
} copy_t;

typedef enum fate {
    FATE_NONE, /* nothing is to be done, or it is done */
    FATE_WAIT, /* a newer one is not durable */
    FATE_COPY,
    FATE_REMOVED, /* a frame of kind removed takes its place */
} fate_t;

static uint64_t number_of(const compactor_t *compactor, once__place_t place)
{
    return atomic_load(&once__index_segment(compactor->records->index, place.slot)->number);
}

/* What becomes of a frame. Its shard is locked. */
static fate_t judge(compactor_t *compactor, const once__frame_t *frame, uint64_t offset,
                    copy_t *copy)
{
    once__records_t *records = compactor->records;
    const once__place_t here = {compactor->slot, offset};
    once__head_t head;

    if (!once__index_find(records->index, frame->id, &copy->from)) {
        return FATE_NONE;
    }
    if (!once__is_same_place(copy->from.place, here)) {
        return once__log_is_durable(records->index, copy->from.place) ||
                       copy->from.place.slot == once__log_slot(records->log) /* synced in the end */
                   ? FATE_NONE
                   : FATE_WAIT;
    }
    copy->from_weight = once__frame_weight(frame, copy->from.state);
    if (copy->from.state != ONCE_STATE_NONE && once__unpack_head(&head, frame) == ONCE_OK &&
        !once__records_may_go(records, &head)) {
        return FATE_COPY;
    }
    if (has_older(compactor, frame)) {
        return FATE_REMOVED;
    }
    once__index_forget(records->index, frame->id, &copy->from, copy->from_weight);
    compactor->compaction->removed += copy->from.state != ONCE_STATE_NONE;
    return FATE_NONE;
}

/* What is to be appended. */
static int prepare(compactor_t *compactor, fate_t fate, const once__frame_t *frame, copy_t *copy)
{
    once__index_t *index = compactor->records->index;
    once__head_t *head = &copy->record.head;
    int code;

    if (fate == FATE_REMOVED) {
        copy->version = frame->version;
        copy->since = frame->since;
        copy->to.state = ONCE_STATE_NONE;
        copy->to_weight.until = 0;
        return ONCE_OK;
    }
    code = once__unpack(&copy->record, frame, compactor->dictionary, &compactor->scratch);
    if (code != ONCE_OK) {
        return code;
    }
    if (compactor->segment->other_boot && head->lease_until > head->changed) {
        head->lease_until = head->changed;
    }
    copy->version = once__index_next_version(index, frame->id, once__index_now(index));
    copy->since = has_older(compactor, frame) ? frame->since : 0;
    /* note_others does not see that a segment is a victim if that is mostly live. */
    if (compactor->is_live && copy->since == 0) {
        copy->since = frame->since != 0 ? frame->since : frame->version;
    }
    copy->to.state = head->state;
    copy->to_weight.until = once__index_kept_until(head);
    return ONCE_OK;
}

static void enter(compactor_t *compactor, const once__frame_t *frame, const copy_t *copy)
{
    once__index_t *index = compactor->records->index;

    atomic_store(&once__index_segment(index, copy->to.place.slot)->copies, 1);
    once__index_set(index, frame->id, &copy->to, copy->to_weight, &copy->from, copy->from_weight);
    compactor->unsynced += copy->to_weight.size;
    compactor->compaction->carried += copy->to.state != ONCE_STATE_NONE;
    compactor->compaction->removed +=
        copy->to.state == ONCE_STATE_NONE && copy->from.state != ONCE_STATE_NONE;
}

/*
 * Waits until a frame is durable that is newer than one of the victim. If its segment was dropped, a still newer one is.
 * ONCE_E_NOREPLY: the victim stays this time.
 */
static int await_durable(compactor_t *compactor, once__place_t place, uint64_t number)
{
    const once__records_t *records = compactor->records;
    const struct timespec pause = {0, 1000000};

    while (number_of(compactor, place) == number && !once__log_is_durable(records->index, place)) {
        if (once__segment_take_over(records->log_config, place.slot)) {
            continue;
        }
        compactor->steps = UINT32_MAX; /* tend() at once */
        if (compactor->compaction->tend == NULL || tend(compactor) ||
            once__index_now(records->index) > compactor->wait_until) {
            return ONCE_E_NOREPLY;
        }
        (void)nanosleep(&pause, NULL);
    }
    return ONCE_OK;
}

static int empty_frame(compactor_t *compactor, const once__frame_t *frame, uint64_t offset)
{
    once__records_t *records = compactor->records;
    uint64_t number = 0; /* of the segment that has the newest frame */
    copy_t copy;
    fate_t fate;
    int code, changes;

    do {
        code = once__index_lock(records->index, frame->id, LOCK_WAIT_MS);
        if (code != ONCE_OK) {
            return code;
        }
        fate = judge(compactor, frame, offset, &copy);
        changes = fate == FATE_COPY || fate == FATE_REMOVED;
        number = fate == FATE_WAIT ? number_of(compactor, copy.from.place) : 0;
        code = changes ? prepare(compactor, fate, frame, &copy) : ONCE_OK;
        if (changes && code == ONCE_OK) {
            code =
                once__log_append(records->log, frame->id, fate == FATE_COPY ? &copy.record : NULL,
                                 copy.version, copy.since, &copy.to.place, &copy.to_weight.size);
            if (code == ONCE_OK) {
                enter(compactor, frame, &copy);
            }
        }
        once__index_unlock(records->index, frame->id);
        if (code == ONCE__E_ROOM) {
            code = once__log_reserve(records->log, copy.to_weight.size);
            code = code == ONCE_OK ? ONCE__E_ROOM : code;
        }
    } while (code == ONCE__E_ROOM);
    if (code == ONCE_OK && fate == FATE_WAIT) {
        code = await_durable(compactor, copy.from.place, number);
    }
    return code;
}

/* Now and then, and before the victim is dropped: also copies of an earlier compaction, whose sync may have found no room. */
static int sync_copies(compactor_t *compactor)
{
    compactor->unsynced = 0;
    return once__log_sync(compactor->records->log);
}

/* ---------------------------------------------------------------------------------------------------------- emptying */

/*
 * Is every frame of the victim sound and of a schema that is known here? Before the first one is copied. A segment with records of
 * a newer version stays for that version.
 */
static int is_sound(const compactor_t *compactor)
{
    once__walk_t walk;
    int code = ONCE_OK;

    once__walk_begin(&walk, &compactor->image, 0);
    while (code == ONCE_OK && once__walk_next(&walk)) {
        code = once__walk_code(&walk);
    }
    if (code == ONCE_E_CORRUPT) {
        atomic_store(&compactor->segment->damaged, 1);
    }
    return code == ONCE_OK;
}

static int empty(compactor_t *compactor)
{
    once__walk_t walk;
    int code = ONCE_OK, synced;

    once__walk_begin(&walk, &compactor->image, 0);
    while (code == ONCE_OK && once__walk_next(&walk)) {
        if (tend(compactor)) {
            code = ONCE_E_UNAVAILABLE; /* the rest another time */
        } else if (walk.kind == ONCE__WALK_FRAME && walk.frame.kind != ONCE__FRAME_FILLER) {
            code = empty_frame(compactor, &walk.frame, walk.offset);
            if (code == ONCE_OK && compactor->unsynced > SYNC_BYTES) {
                code = sync_copies(compactor);
            }
        }
    }
    synced = sync_copies(compactor);
    return code != ONCE_OK ? code : synced;
}

/* Is the slot still the victim's? If its file is not locked, another process may drop it meanwhile. */
static int is_there(const compactor_t *compactor)
{
    return atomic_load(&compactor->segment->number) == compactor->number &&
           atomic_load(&compactor->segment->state) == ONCE__SEGMENT_SEALED;
}

/* A process that was killed may have left the count too high. 1: no entry leads to the victim. */
static int has_no_entries(const compactor_t *compactor)
{
    once__index_t *index = compactor->records->index;
    int found = 0;

    if (atomic_load(&compactor->segment->entries) == 0) {
        return 1;
    }
    for (uint32_t shard = 0; shard < ONCE__SHARDS && !found; shard++) {
        once__shard_entry_t *entries;
        size_t count;
        if (once__index_shard(index, shard, &entries, &count) != ONCE_OK) {
            return 0;
        }
        for (size_t i = 0; i < count; i++) {
            found |= entries[i].entry.place.slot == compactor->slot;
        }
        free(entries);
    }
    if (found && is_there(compactor)) { /* to frames that are not there */
        atomic_store(&compactor->segment->damaged, 1);
    }
    return !found;
}

/* A process that was killed or stopped while it dropped the segment has removed the file. Or it is lost. */
static int drop_missing(const compactor_t *compactor)
{
    return has_no_entries(compactor) && is_there(compactor)
               ? once__segment_drop(compactor->records->log_config, compactor->slot,
                                    compactor->number)
               : ONCE_OK;
}

/* Its file is locked. */
static int empty_and_drop(compactor_t *compactor)
{
    const once__log_config_t *config = compactor->records->log_config;
    once__image_t *image = &compactor->image;
    int code = once__image_read(image, config, compactor->number);

    if (code == ONCE_E_NOT_FOUND) {
        return drop_missing(compactor);
    }
    if (code == ONCE_E_CORRUPT) {
        atomic_store(&compactor->segment->damaged, 1);
        return ONCE_OK;
    }
    if (code != ONCE_OK || !is_sound(compactor)) {
        return code;
    }
    if (image->dictionary != NULL) { /* a damaged one costs descriptions, which are empty then */
        compactor->dictionary =
            once__dictionary_open(image->dictionary, image->header.dictionary_len, 0);
    }
    compactor->wait_until = once__index_now(compactor->records->index) + SYNC_WAIT_MS;
    code = image->dictionary != NULL && compactor->dictionary == NULL ? ONCE_E_NOMEM : ONCE_OK;
    code = code == ONCE_OK ? note_others(compactor) : code;
    code = code == ONCE_OK ? empty(compactor) : code;
    if (code == ONCE_E_CORRUPT) {
        atomic_store(&compactor->segment->damaged, 1);
        code = ONCE_OK;
    } else if (code == ONCE_OK && has_no_entries(compactor)) {
        code = once__segment_drop(config, compactor->slot, compactor->number);
        compactor->compaction->segments += code == ONCE_OK;
    }
    once__dictionary_close(compactor->dictionary);
    compactor->dictionary = NULL;
    free(compactor->others);
    compactor->others = NULL;
    return code;
}

/*
 * As long as its file is locked, no other process compacts or drops the victim. If this process is stopped, others go on with other
 * segments; what it has done so far is what it would have left if it had been killed.
 */
static int compact_victim(compactor_t *compactor)
{
    int fd = once__segment_open(compactor->records->log_config, compactor->number, O_RDONLY);
    int code = ONCE_OK;

    if (fd < 0) {
        return errno == ENOENT ? drop_missing(compactor) : once__disk_code();
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && is_there(compactor)) {
        code = empty_and_drop(compactor);
    }
    once__segments_unlock(fd);
    return code;
}

/* ---------------------------------------------------------------------------------------------------------- sweeping */

/*
 * Marks the entry of a record that may go. Its frame stays where it is, and says the same when it is read again. The segment may be
 * dropped before the shard is locked, and another one have its slot.
 */
static void sweep_one(compactor_t *compactor, const once__shard_entry_t *item)
{
    uint64_t number = number_of(compactor, item->entry.place);
    once__records_t *records = compactor->records;
    once__index_t *index = records->index;
    once__entry_t entry, gone = item->entry;
    once__frame_t frame;
    once__head_t head;

    if (item->entry.state == ONCE_STATE_NONE || !once__log_is_durable(index, item->entry.place) ||
        once__reader_read(records->reader, item->entry.place, 0, &frame) != ONCE_OK ||
        frame.kind != ONCE__FRAME_RECORD || !once__index_is_key(frame.id, item->key, item->tag) ||
        once__unpack_head(&head, &frame) != ONCE_OK || !once__records_may_go(records, &head) ||
        once__index_lock(index, frame.id, LOCK_WAIT_MS) != ONCE_OK) {
        return;
    }
    if (once__index_find(index, frame.id, &entry) &&
        once__is_same_place(entry.place, item->entry.place) && entry.state == item->entry.state &&
        number_of(compactor, entry.place) == number) {
        gone.state = ONCE_STATE_NONE;
        once__index_set(index, frame.id, &gone, (once__weight_t){frame.size, 0}, &entry,
                        once__frame_weight(&frame, entry.state));
        compactor->compaction->removed++;
    }
    once__index_unlock(index, frame.id);
}

static void sweep(compactor_t *compactor)
{
    once__compaction_t *compaction = compactor->compaction;
    uint64_t seen = 0;
    int stop = 0;

    for (uint32_t i = 0; i < ONCE__SHARDS && !stop && (compaction->thorough || seen < SWEEP_STEP);
         i++) {
        once__shard_entry_t *entries;
        size_t count;
        if (once__index_shard(compactor->records->index, compaction->sweep_shard, &entries,
                              &count) != ONCE_OK) {
            return;
        }
        for (size_t k = 0; k < count && !stop; k++) {
            stop = tend(compactor);
            if (!stop) {
                sweep_one(compactor, &entries[k]);
            }
        }
        free(entries);
        seen += count;
        if (!stop) {
            compaction->sweep_shard = (compaction->sweep_shard + 1) % ONCE__SHARDS;
        }
    }
}

/* --------------------------------------------------------------------------------------------------------------- all */

int once__records_compact(once__records_t *records, once__compaction_t *compaction)
{
    compactor_t *compactor;
    int lock, code = once__segments_lock(records->log_config->segments_fd, LOCK_SH, 0, &lock);

    if (code != ONCE_OK) {
        return code;
    }
    once__segments_unlock(lock); /* once__segment_drop takes it again */
    compactor = calloc(1, sizeof(*compactor));
    if (compactor != NULL) {
        compactor->records = records;
        compactor->compaction = compaction;
        compactor->now = once__index_now(records->index);
    }
    if (compactor == NULL) {
        code = ONCE_E_NOMEM;
    } else {
        /* What killed writers left is compacted as well, once it is sealed. */
        once__segments_take_over(records->log_config, once__log_slot(records->log));
        while ((code == ONCE_OK || code == ONCE_E_NOREPLY) &&
               (compaction->until == 0 || once__index_now(records->index) < compaction->until) &&
               choose(compactor)) {
            compactor->tried[compactor->slot / 8] |= (uint8_t)(1u << compactor->slot % 8);
            code = compact_victim(compactor);
        }
        if (code != ONCE_E_UNAVAILABLE && code != ONCE_E_CONFLICT) {
            sweep(compactor);
        }
        once__image_free(&compactor->image);
        free(compactor->scratch.bytes);
    }
    free(compactor);
    /* Stopped, or a shard whose lock is taken: the rest another time. */
    return code == ONCE_E_UNAVAILABLE || code == ONCE_E_NOREPLY ? ONCE_OK : code;
}
