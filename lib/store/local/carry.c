/*
 * Records that stand in the way: those that count are carried out of a segment that is to go, those that may go leave the index.
 */
#include <stdlib.h>
#include <string.h>

#include "store/local/decide_inside.h"

/* 1: the entry has a record, and that is durable. */
static int read_entry(once__records_t *records, const once__entry_t *entry, once__record_t *record)
{
    return once__records_read(records, entry, record) == ONCE_OK &&
           once__log_is_durable(records->log, entry->place);
}

static int may_go(const once__records_t *records, const once__head_t *head)
{
    static const once__event_t reap = {.kind = ONCE__REAP};
    once__step_t step;

    once__step(records->rules, head, &reap, once__index_now(records->index), &step);
    return step.outcome == ONCE_OUTCOME_DONE;
}

/* Moves a record that a newer version wrote: as it is, since we cannot read all of it. */
static int copy(const once__records_t *records, const once__current_t *current)
{
    const uint8_t *id = current->frame.id;
    once__entry_t entry = current->entry;
    int code = once__log_copy(records->log, &current->frame, &current->record.head,
                              once__records_not_before(records, id, current), &entry.place);

    if (code == ONCE_OK) {
        once__index_set(records->index, id, current->cursor, 1, &entry);
    }
    return code;
}

/* Moves one record out of the segment, or lets it go if it may. */
static int carry_one(const once__records_t *records, once__place_t place, const uint8_t *id)
{
    static const once__entry_t gone = {{0, 0}, ONCE_STATE_NONE};
    once__current_t current;
    int code;

    code = once__records_load(records, id, &current);
    if (code != ONCE_OK || !current.found || current.entry.place.segment != place.segment ||
        current.entry.place.offset != place.offset) {
        return code;
    }
    if (may_go(records, &current.record.head)) {
        /* No older frame of it is anywhere: this is the oldest segment. So no frame need say that it is gone. */
        once__index_set(records->index, id, current.cursor, 1, &gone);
        return ONCE_OK;
    }
    if (current.record.head.schema > ONCE__SCHEMA) {
        return copy(records, &current);
    }
    return once__records_publish(records, id, &current, &current.record);
}

static int carry_entry(once__records_t *records, uint32_t shard, const once__shard_entry_t *entry)
{
    uint8_t id[ONCE_ID_SIZE];
    once__frame_t frame;
    int code = once__log_read(records->log, entry->entry.place, &frame);

    if (code == ONCE_OK) {
        memcpy(id, frame.id, sizeof(id));
        once__index_lock(records->index, id);
        code = carry_one(records, entry->entry.place, id);
        once__index_unlock(records->index, id);
    }
    if (code == ONCE_E_CORRUPT && once__is_held(entry->entry.state)) {
        code = once__records_lose(records, shard, entry);
    }
    return code;
}

static int carry_shard(once__records_t *records, uint32_t shard, uint32_t segment, int everything)
{
    once__shard_entry_t *entries;
    size_t count;
    int code = once__index_shard_of(records->index, shard, segment, &entries, &count);

    for (size_t i = 0; code == ONCE_OK && i < count; i++) {
        if (everything || once__is_held(entries[i].entry.state)) {
            code = carry_entry(records, shard, &entries[i]);
        }
    }
    free(entries);
    return code;
}

/* Bytes that must be written to carry everything that counts. */
static int weigh(once__records_t *records, uint32_t segment, uint64_t *bytes)
{
    int code = ONCE_OK;

    *bytes = 0;
    for (uint32_t shard = 0; code == ONCE_OK && shard < ONCE__SHARDS; shard++) {
        once__shard_entry_t *entries;
        size_t count;
        code = once__index_shard_of(records->index, shard, segment, &entries, &count);
        for (size_t i = 0; code == ONCE_OK && i < count; i++) {
            once__place_t place = entries[i].entry.place;
            once__record_t record;
            once__frame_t frame;
            code = once__log_read(records->log, place, &frame);
            if (code == ONCE_E_CORRUPT && once__is_held(entries[i].entry.state)) {
                code = ONCE_OK; /* hardly anything is left of it */
            } else if (code == ONCE_OK &&
                       (once__records_decode(records, place, &frame, &record) != ONCE_OK ||
                        !may_go(records, &record.head))) {
                *bytes += frame.len + ONCE__FRAME_HEADER;
            }
        }
        free(entries);
    }
    return code;
}

int once__records_carry(once__records_t *records, uint32_t segment, int everything)
{
    int code = ONCE_OK;

    /* Few records may still be most of the segment: those stay where they are, or they would be written again and again. */
    if (everything) {
        uint64_t bytes;
        code = weigh(records, segment, &bytes);
        if (code == ONCE_E_CORRUPT || /* what is completed and damaged goes when it expires */
            (code == ONCE_OK && bytes > once__index_segment(records->index, segment)->size / 2)) {
            code = ONCE_E_NOT_FOUND;
        }
    }
    for (uint32_t shard = 0; code == ONCE_OK && shard < ONCE__SHARDS; shard++) {
        code = carry_shard(records, shard, segment, everything);
    }
    if (code == ONCE_OK) {
        code = once__log_sync(records->log);
    }
    if (code == ONCE_OK) {
        atomic_store(&once__index_segment(records->index, segment)->held, 0);
        if (everything) {
            atomic_store(&once__index_segment(records->index, segment)->current, 0);
        }
    }
    return code;
}

/* Takes the record out of the index if it may go. 1: it went. Frames that stay behind say the same when they are read again. */
static int sweep_one(const once__records_t *records, const uint8_t *id)
{
    static const once__entry_t gone = {{0, 0}, ONCE_STATE_NONE};
    once__current_t current;
    int went;

    once__index_lock(records->index, id);
    went = once__records_load(records, id, &current) == ONCE_OK && current.found &&
           may_go(records, &current.record.head);
    if (went) {
        once__index_set(records->index, id, current.cursor, 1, &gone);
    }
    once__index_unlock(records->index, id);
    return went;
}

/* How many of the shard went. `seen` grows by those that were looked at. */
static uint64_t sweep_shard(once__records_t *records, uint32_t shard, uint64_t limit,
                            uint64_t *seen)
{
    once__shard_entry_t *entries;
    uint64_t went = 0;
    size_t count;

    if (once__index_shard(records->index, shard, &entries, &count) != ONCE_OK) {
        return 0;
    }
    for (size_t i = 0; i < count && (limit == 0 || went < limit); i++) {
        once__record_t record;
        uint8_t id[ONCE_ID_SIZE];
        if (read_entry(records, &entries[i].entry, &record) && may_go(records, &record.head)) {
            memcpy(id, record.id, sizeof(id));
            went += (uint64_t)sweep_one(records, id);
        }
    }
    *seen += count;
    free(entries);
    return went;
}

uint64_t once__records_sweep(once__records_t *records, uint64_t look, uint64_t limit)
{
    uint64_t went = 0, seen = 0;

    for (uint32_t i = 0; i < ONCE__SHARDS && (look == 0 || seen < look); i++) {
        went += sweep_shard(records, records->sweep_shard, limit == 0 ? 0 : limit - went, &seen);
        if (limit != 0 && went >= limit) {
            break;
        }
        records->sweep_shard = (records->sweep_shard + 1) % ONCE__SHARDS;
    }
    return went;
}
