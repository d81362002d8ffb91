/*
 * All records: a step through them, and their numbers.
 */
#include <stdlib.h>
#include <string.h>

#include "store/local/decide.h"

#define TRIES 4 /* at a record that is moved meanwhile */

/* Finds the entry again, in case it has changed since the shard was copied. 1, or 0: there is none any more. */
static int find_again(once__records_t *records, uint32_t shard, once__shard_entry_t *item)
{
    once__shard_entry_t *entries;
    size_t count;
    int found = 0;

    if (once__index_shard(records->index, shard, &entries, &count) != ONCE_OK) {
        return 1; /* as far as is known */
    }
    for (size_t i = 0; i < count && !found; i++) {
        if (entries[i].key == item->key && entries[i].tag == item->tag) {
            item->entry = entries[i].entry;
            found = 1;
        }
    }
    free(entries);
    return found;
}

/* The shard is not locked: the segment may be dropped meanwhile, and its slot may be given to another one. */
static int read_item(once__records_t *records, const once__shard_entry_t *item,
                     once__record_t *record)
{
    once__frame_t frame;
    int code = once__reader_read(records->reader, item->entry.place, 0, &frame);

    if (code != ONCE_OK) {
        return code;
    }
    if (frame.kind != ONCE__FRAME_RECORD || !once__index_is_key(frame.id, item->key, item->tag)) {
        return ONCE_E_NOT_FOUND;
    }
    code = once__reader_record(records->reader, item->entry.place, &frame, record);
    return code == ONCE_E_NEWER ? ONCE_OK : code;
}

/*
 * A record that is being written is shown, too (a holder that renews writes all the time), but as pending: how it ended is not
 * visible before that is durable. One that cannot be read is counted.
 */
static int see(once__records_t *records, uint32_t shard, const once__shard_entry_t *seen,
               once__record_t *record, uint64_t *damaged)
{
    once__shard_entry_t item = *seen;
    int code = ONCE_E_NOT_FOUND;

    for (int i = 0; i < TRIES && code != ONCE_OK; i++) {
        once__place_t before = item.entry.place;
        if (item.entry.state == ONCE_STATE_NONE) {
            return 0;
        }
        code = read_item(records, &item, record);
        if (code != ONCE_OK && !find_again(records, shard, &item)) {
            return 0;
        }
        if (code != ONCE_OK && once__is_same_place(before, item.entry.place)) {
            break;
        }
    }
    if (code != ONCE_OK) {
        *damaged += code != ONCE_E_NOMEM;
        return 0;
    }
    if (!once__is_settled(records->index, item.entry.place)) {
        record->head.state = ONCE_STATE_PENDING;
        record->head.expires = 0;
        memset(&record->payload, 0, sizeof(record->payload));
    }
    return 1;
}

/* The cursor: the shard (4 bytes), and the key after which to go on in it (8), if the last byte is set. */
static int scan_shard(once__records_t *records, once__op_t *op, uint32_t *shard, uint64_t *after,
                      int *inside)
{
    once__shard_entry_t *entries;
    size_t count;
    int code = once__index_shard(records->index, *shard, &entries, &count);
    size_t i = 0;

    if (code != ONCE_OK) {
        return code;
    }
    while (*inside && i < count && entries[i].key <= *after) {
        i++;
    }
    for (; i < count && op->count < op->limit; i++) {
        once__record_t record;
        *after = entries[i].key;
        *inside = 1;
        if (!see(records, *shard, &entries[i], &record, &op->damaged) ||
            !once__filter_passes(op->filter, &record, op->now)) {
            continue;
        }
        op->records[op->count] = once__record_clone(&record);
        if (op->records[op->count] == NULL) {
            code = ONCE_E_NOMEM;
            break;
        }
        op->count++;
    }
    if (code == ONCE_OK && i == count) {
        (*shard)++;
        *inside = 0;
    }
    free(entries);
    return code;
}

void once__records_scan(once__records_t *records, once__op_t *op)
{
    uint32_t shard;
    uint64_t after;
    int inside = op->cursor.bytes[12];

    memcpy(&shard, op->cursor.bytes, sizeof(shard));
    memcpy(&after, op->cursor.bytes + 4, sizeof(after));
    op->error = ONCE_OK;
    op->count = 0;
    op->damaged = 0;
    op->now = once__index_now(records->index);
    op->records = calloc(op->limit, sizeof(once__record_t *));
    if (op->records == NULL) {
        op->error = ONCE_E_NOMEM;
        return;
    }
    while (op->error == ONCE_OK && shard < ONCE__SHARDS && op->count < op->limit) {
        op->error = scan_shard(records, op, &shard, &after, &inside);
    }
    memcpy(op->cursor.bytes, &shard, sizeof(shard));
    memcpy(op->cursor.bytes + 4, &after, sizeof(after));
    op->cursor.bytes[12] = (uint8_t)inside;
    op->cursor.end = shard >= ONCE__SHARDS;
}

static void count_segments(const once__records_t *records, once_stats_t *stats)
{
    for (uint32_t slot = 0; slot < once__index_slot_end(records->index); slot++) {
        stats->segments +=
            atomic_load(&once__index_segment(records->index, slot)->state) >= ONCE__SEGMENT_ACTIVE;
    }
}

void once__records_stats(once__records_t *records, once__op_t *op)
{
    op->error = ONCE_OK;
    op->now = once__index_now(records->index);
    memset(&op->stats, 0, sizeof(op->stats));
    for (uint32_t shard = 0; op->thorough && shard < ONCE__SHARDS; shard++) {
        once__shard_entry_t *entries;
        size_t count;
        op->error = once__index_shard(records->index, shard, &entries, &count);
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
    count_segments(records, &op->stats);
    op->stats.max_records = records->limits.max_records;
    op->stats.max_bytes = records->limits.max_bytes;
}
