#include "store/local/decide.h"

#include "store/local/newest.h"
#include "store/local/quarantine.h"

/* What is already no more than a frame that says so was kept when it was made. */
static int keep_bytes(const once__records_t *records, once__place_t place)
{
    const uint8_t *bytes;
    uint64_t len;
    once__frame_t frame;
    int code = once__log_read(records->log, place, &frame);

    if (code == ONCE_OK && once__frame_is_lost(&frame)) {
        return ONCE_OK;
    }
    code = once__log_read_raw(records->log, place, &bytes, &len);
    if (code == ONCE_E_CORRUPT) {
        return ONCE_OK; /* there is nothing to keep */
    }
    if (code == ONCE_OK) {
        code = once__quarantine_keep(records->directory_fd, place, bytes, len);
    }
    if (code == ONCE_OK) {
        once__index_count_damage(records->index);
    }
    return code;
}

/* The shard is locked. Whoever changed the record meanwhile has moved it himself. */
static int replace(const once__records_t *records, const uint8_t *id, const once__entry_t *lost)
{
    uint32_t not_before = once__index_floor(records->index, id);
    once__entry_t entry;
    uint64_t cursor = 0;

    while (once__index_find(records->index, id, &cursor, &entry)) {
        if (entry.place.segment == lost->place.segment &&
            entry.place.offset == lost->place.offset) {
            int code = once__log_lose(
                records->log, id, entry.state,
                not_before > lost->place.segment ? not_before : lost->place.segment, &entry.place);
            if (code == ONCE_OK) {
                once__index_set(records->index, id, cursor, 1, &entry);
            }
            return code;
        }
    }
    return ONCE_OK;
}

int once__records_lose(once__records_t *records, uint32_t shard, const once__shard_entry_t *entry)
{
    uint8_t id[ONCE_ID_SIZE];
    int code = keep_bytes(records, entry->entry.place);

    if (code == ONCE_OK) {
        once__newest_id(id, (uint16_t)shard, entry->key);
        once__index_lock(records->index, id);
        code = replace(records, id, &entry->entry);
        once__index_unlock(records->index, id);
    }
    return code;
}
