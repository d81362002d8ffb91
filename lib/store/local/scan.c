/*
 * All records, for people who look: a step through them, and their numbers.
 */
#include <stdlib.h>
#include <string.h>

#include "store/local/decide_inside.h"

/*
 * For people who look: a record that is being written is there, too (a holder that renews writes all the time), but only that
 * somebody is at work on it: how it ended is nobody's business before that is durable. One that cannot be read is counted.
 */
static int see_entry(once__records_t *records, const once__entry_t *entry, once__record_t *record,
                     uint64_t *damaged)
{
    int code = once__records_read(records, entry, record);

    if (code != ONCE_OK) {
        *damaged += code == ONCE_E_CORRUPT || code == ONCE_E_IO;
        return 0;
    }
    if (!once__log_is_durable(records->log, entry->place)) {
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
        if (!see_entry(records, &entries[i].entry, &record, &op->damaged) ||
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
    once__log_forget_readers(records->log);
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

void once__records_stats(once__records_t *records, once__op_t *op)
{
    op->error = ONCE_OK;
    op->now = once__index_now(records->index);
    memset(&op->stats, 0, sizeof(op->stats));
    once__log_forget_readers(records->log);
    for (uint32_t shard = 0; shard < ONCE__SHARDS; shard++) {
        once__shard_entry_t *entries;
        size_t count;
        op->error = once__index_shard(records->index, shard, &entries, &count);
        if (op->error != ONCE_OK) {
            return;
        }
        for (size_t i = 0; i < count; i++) {
            once__record_t record;
            if (see_entry(records, &entries[i].entry, &record, &op->stats.damaged)) {
                once__stats_add(&op->stats, &record, op->now);
            }
        }
        free(entries);
    }
    once__index_usage(records->index, &op->count, &op->stats.bytes);
    op->stats.max_records = records->limits.max_records;
    op->stats.max_bytes = records->limits.max_bytes;
}
