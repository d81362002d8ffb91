/*
 * The records as they are, seen from outside of all processes.
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "machine.h"
#include "sight.h"

/* Was the segment begun by this boot? The file itself says so. */
static int is_of_this_boot(const machine_t *machine, uint32_t number)
{
    uint8_t bytes[ONCE__SEGMENT_HEADER];
    once__segment_header_t header;
    char name[ONCE__SEGMENT_NAME];
    int fd, same;

    once__segment_name(name, number, "log");
    fd = openat(machine->directory.segments_fd, name, O_RDONLY | O_CLOEXEC);
    same = fd >= 0 && pread(fd, bytes, sizeof(bytes), 0) == (ssize_t)sizeof(bytes) &&
           once__segment_header_read(&header, bytes) == ONCE_OK &&
           memcmp(header.boot_id, machine->boot_id, ONCE__BOOT_ID_SIZE) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
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
    once__index_t *index = machine->directory.index;
    mirror_t mirror = {0};
    uint64_t cursor = 0;
    once__entry_t entry;

    once__index_lock(index, key->id);
    while (!mirror.exists && once__index_find(index, key->id, &cursor, &entry)) {
        once__frame_t frame;
        once__record_t record;
        int code = once__log_read(machine->reader, entry.place, &frame);
        if (code == ONCE_OK) {
            code = once__record_decode(&record, frame.bytes, frame.len);
        }
        if (code != ONCE_OK) {
            world_violate(machine->world, key->number, "every record can be read",
                          "segment %08x at %llu: %s", entry.place.segment,
                          (unsigned long long)entry.place.offset, once_error_name(code));
            break;
        }
        if (memcmp(frame.id, key->id, ONCE_ID_SIZE) == 0) {
            mirror = mirror_of(&record);
        }
    }
    once__index_unlock(index, key->id);
    /* A lease ends with the machine. */
    if (mirror.exists && mirror.head.lease_until > mirror.head.changed &&
        !is_of_this_boot(machine, entry.place.segment)) {
        mirror.head.lease_until = mirror.head.changed;
    }
    return mirror;
}

int machine_is_unsynced(const machine_t *machine, const sim_key_t *key)
{
    const once__index_t *index = machine->directory.index;
    uint64_t cursor = 0;
    once__entry_t entry;

    return once__index_find(index, key->id, &cursor, &entry) &&
           entry.place.offset >=
               atomic_load(&once__index_segment(index, entry.place.segment)->synced);
}
