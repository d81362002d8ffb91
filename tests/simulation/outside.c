/*
 * The records as they are, seen from outside of all processes.
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "machine.h"
#include "sight.h"

/* Was the segment begun by this boot? The file itself says so. */
static int is_of_this_boot(const machine_t *machine, uint32_t slot)
{
    uint64_t number = atomic_load(&once__index_segment(machine->directory.log.index, slot)->number);
    uint8_t bytes[ONCE__SEGMENT_HEADER];
    once__segment_header_t header;
    char name[ONCE__SEGMENT_NAME];
    int fd, same, code;

    once__segment_name(name, number);
    fd = openat(machine->directory.log.segments_fd, name, O_RDONLY | O_CLOEXEC);
    must(fd >= 0 && pread(fd, bytes, sizeof(bytes), 0) == (ssize_t)sizeof(bytes), "a segment");
    code = once__segment_header_read(&header, bytes, sizeof(bytes));
    same = (code == ONCE_OK || code == ONCE_E_TOO_BIG) &&
           memcmp(header.boot_id, machine->boot_id, ONCE__BOOT_ID_SIZE) == 0;
    (void)close(fd);
    return same;
}

static mirror_t mirror_of(const once__record_t *record)
{
    mirror_t mirror;

    memset(&mirror, 0, sizeof(mirror));
    mirror.exists = 1;
    mirror.head = record->head;
    mirror.payload_kind = record->payload.kind;
    mirror.payload_status = record->payload.status;
    mirror.payload_len = record->payload.len;
    mirror.payload_hash = sight_hash(record->payload.data, record->payload.len);
    return mirror;
}

mirror_t machine_look(machine_t *machine, const sim_key_t *key)
{
    once__index_t *index = machine->directory.log.index;
    mirror_t mirror = {0};
    once__entry_t entry;
    once__frame_t frame;
    once__record_t record;
    int code;

    must(once__index_lock(index, key->id, 0) == ONCE_OK, "a lock that nobody holds");
    if (once__index_find(index, key->id, &entry) && entry.state != ONCE_STATE_NONE) {
        code = once__reader_read(machine->reader, entry.place, 0, &frame);
        code = code == ONCE_OK ? once__reader_record(machine->reader, entry.place, &frame, &record)
                               : code;
        if (code != ONCE_OK || memcmp(frame.id, key->id, ONCE_ID_SIZE) != 0) {
            world_violate(machine->world, key->number, "every record can be read",
                          "slot %u at %llu: %s", entry.place.slot,
                          (unsigned long long)entry.place.offset, once_error_name(code));
        } else {
            mirror = mirror_of(&record);
        }
    }
    once__index_unlock(index, key->id);
    /* A lease ends with the machine. */
    if (mirror.exists && mirror.head.lease_until > mirror.head.changed &&
        !is_of_this_boot(machine, entry.place.slot)) {
        mirror.head.lease_until = mirror.head.changed;
    }
    return mirror;
}

int machine_is_unsynced(const machine_t *machine, const sim_key_t *key)
{
    const once__index_t *index = machine->directory.log.index;
    once__entry_t entry;

    return once__index_find(index, key->id, &entry) && !once__log_is_durable(index, entry.place);
}
