/*
 * All records: a step through them, and their numbers.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "store/local/decide.h"

#define TRIES 4 /* at a record that is moved meanwhile */

/* Finds the entry again. 1: it leads elsewhere by now; 0: it does not, as far as is known; -1: there is none any more. */
static int find_again(once__records_t *records, uint32_t shard, once__shard_entry_t *item)
{
    once__place_t before = item->entry.place;
    uint8_t id[ONCE_ID_SIZE] = {0};
    int found;

    once__index_id(id, shard, item);
    if (once__index_lock(records->index, id, ONCE__INDEX_WAIT_MS) != ONCE_OK) {
        return 0;
    }
    found = once__index_find(records->index, id, &item->entry);
    once__index_unlock(records->index, id);
    return found ? !once__is_same_place(before, item->entry.place) : -1;
}

/* The shard is not locked: the segment may be dropped meanwhile, and its slot may be given to another one. */
static int read_item(once__records_t *records, const once__shard_entry_t *item,
                     once__record_t *record)
{
    once__frame_t frame;
    int code = once__reader_read(records->reader, item->entry.place, 0, &frame);

    if (code == ONCE_OK &&
        (frame.kind != ONCE__FRAME_RECORD || !once__index_is_key(frame.id, item->key, item->tag))) {
        code = ONCE_E_NOT_FOUND;
    }
    if (code == ONCE_OK) {
        code = once__reader_record(records->reader, item->entry.place, &frame, record);
    }
    return code == ONCE_E_NEWER ? ONCE_OK : code;
}

/*
 * A record that is being written is shown, too (a holder that renews writes all the time), but as pending: how it ended is not
 * visible before that is durable. One that cannot be read is counted. 1 or 0.
 */
static int see(once__records_t *records, uint32_t shard, const once__shard_entry_t *seen,
               once__record_t *record, uint64_t *damaged)
{
    once__shard_entry_t item = *seen;
    int code = ONCE_E_NOT_FOUND, moved = 1;

    for (int i = 0; i < TRIES && moved > 0 && item.entry.state != ONCE_STATE_NONE; i++) {
        code = read_item(records, &item, record);
        if (code == ONCE_OK && !once__is_settled(records->index, item.entry.place)) {
            record->head.state = ONCE_STATE_PENDING;
            record->head.expires = 0;
            memset(&record->payload, 0, sizeof(record->payload));
        }
        if (code == ONCE_OK) {
            return 1;
        }
        moved = find_again(records, shard, &item);
    }
    *damaged += moved >= 0 && item.entry.state != ONCE_STATE_NONE && code != ONCE_E_NOMEM;
    return 0;
}

/*
 * Whether the record has to be read. A step that a person waits for does not read what its filter leaves out by the state, which
 * the index knows; a whole scan does, because it counts what cannot be read.
 */
static int is_wanted(const once__records_t *records, const once__op_t *op,
                     const once__entry_t *entry)
{
    unsigned state = once__is_settled(records->index, entry->place) ? entry->state
                                                                    : (unsigned)ONCE_STATE_PENDING;

    return op->looks == 0 ||
           ((op->filter->states == 0 || (op->filter->states & 1u << state) != 0) &&
            (!op->filter->stuck || state == ONCE_STATE_PENDING || state == ONCE_STATE_UNKNOWN));
}

/* From the key *from on. When the shard is done, the next one is next, from the beginning. `*looks` more may be looked at. */
static int scan_shard(once__records_t *records, once__op_t *op, uint32_t *shard, uint64_t *from,
                      uint64_t *looks)
{
    once__shard_entry_t *entries;
    once__record_t record;
    size_t count;
    int code = once__index_shard(records->index, *shard, &entries, &count);

    for (size_t i = 0; code == ONCE_OK && i < count; i++) {
        if (entries[i].key < *from) {
            continue;
        }
        if (op->count == op->limit || *looks == 0) {
            free(entries);
            return ONCE_OK;
        }
        --*looks;
        *from = entries[i].key + 1;
        if (is_wanted(records, op, &entries[i].entry) &&
            see(records, *shard, &entries[i], &record, &op->damaged) &&
            once__filter_passes(op->filter, &record, op->now)) {
            op->records[op->count] = once__record_clone(&record);
            code = op->records[op->count] != NULL ? ONCE_OK : ONCE_E_NOMEM;
            op->count += code == ONCE_OK;
        }
    }
    free(entries);
    *shard += code == ONCE_OK;
    *from = code == ONCE_OK ? 0 : *from;
    return code;
}

/* The cursor: the shard (4 bytes), and the key from which to go on in it (8). */
void once__records_scan(once__records_t *records, once__op_t *op)
{
    uint32_t shard = once__get32(op->cursor.bytes);
    uint64_t from = once__get64(op->cursor.bytes + 4);
    uint64_t looks = op->looks != 0 ? op->looks : UINT64_MAX;

    op->count = 0;
    op->damaged = 0;
    op->now = once__index_now(records->index);
    op->records = calloc(op->limit, sizeof(once__record_t *));
    op->error = op->records != NULL ? ONCE_OK : ONCE_E_NOMEM;
    while (op->error == ONCE_OK && shard < ONCE__SHARDS && op->count < op->limit && looks > 0) {
        op->error = scan_shard(records, op, &shard, &from, &looks);
    }
    if (op->error == ONCE_OK && op->looks != 0) { /* otherwise the step is repeated */
        op->looks -= looks;
    }
    once__put32(op->cursor.bytes, shard);
    once__put64(op->cursor.bytes + 4, from);
    op->cursor.end = shard >= ONCE__SHARDS;
}

void once__records_stats(once__records_t *records, once__op_t *op, int (*tend)(void *data),
                         void *data)
{
    op->error = ONCE_OK;
    op->now = once__index_now(records->index);
    memset(&op->stats, 0, sizeof(op->stats));
    for (uint32_t shard = 0; op->thorough && shard < ONCE__SHARDS; shard++) {
        once__shard_entry_t *entries;
        size_t count;
        op->error =
            tend(data) ? ONCE_E_CLOSED : once__index_shard(records->index, shard, &entries, &count);
        if (op->error != ONCE_OK) {
            return;
        }
        for (size_t i = 0; i < count; i++) {
            once__record_t record;
            if (see(records, shard, &entries[i], &record, &op->stats.damaged)) {
                once__stats_add(&op->stats, &record, op->now);
            }
        }
        free(entries);
    }
    once__index_usage(records->index, &op->count, &op->stats.bytes);
    op->stats.segments =
        once__index_count(records->index, ONCE__SEGMENT_ACTIVE, ONCE__SEGMENT_SEALED);
    op->stats.max_records = records->limits.max_records;
    op->stats.max_bytes = records->limits.max_bytes;
}
