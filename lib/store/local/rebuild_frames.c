#include "store/local/rebuild_inside.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "store/local/quarantine.h"
#include "store/local/remains.h"

/* ----------------------------------------------------------------------------------------------------------- entering */

/*
 * 1 or 0; negative: it cannot be told, and then the index would have the record twice. A frame that is damaged is taken
 * for the same record's: 74 bits of the ids are equal.
 */
static int same_record(once__rebuild_t *rebuild, const once__entry_t *entry, const uint8_t *id)
{
    once__frame_t frame;
    int code;

    /* Nearly always: a claim, which was found valid a moment ago. */
    if (rebuild->data != NULL && entry->place.segment == rebuild->number) {
        uint64_t offset = entry->place.offset;
        return memcmp(rebuild->data + offset + 16, id, ONCE_ID_SIZE) == 0 ||
               !once__frame_read(&frame, entry->place, rebuild->data + offset,
                                 rebuild->size - offset);
    }
    code = once__log_read(rebuild->reader, entry->place, &frame);
    if (code == ONCE_E_CORRUPT) {
        return 1;
    }
    if (code != ONCE_OK) {
        return once__fail(rebuild->err, code == ONCE_E_NOMEM ? code : ONCE_E_IO,
                          "local store: cannot read segment %08x again: %s", entry->place.segment,
                          strerror(errno));
    }
    return memcmp(frame.id, id, ONCE_ID_SIZE) == 0;
}

int once__rebuild_enter(once__rebuild_t *rebuild, const uint8_t *id, int whole,
                        const once__entry_t *entry)
{
    uint8_t all[ONCE_ID_SIZE];
    once__entry_t old;
    uint64_t cursor = 0;
    int found = 0;

    memcpy(all, id, sizeof(all));
    while (found == 0 && once__index_find(rebuild->index, id, &cursor, &old)) {
        once__frame_t frame;
        if (!whole && once__log_read(rebuild->reader, entry->place, &frame) != ONCE_OK) {
            found = 1; /* it cannot be read, which who asks for the record will be told */
            break;
        }
        if (!whole) {
            memcpy(all, frame.id, sizeof(all));
            whole = 1;
        }
        found = same_record(rebuild, &old, all);
    }
    if (found < 0) {
        return found;
    }
    if (!found && entry->state == ONCE_STATE_NONE) {
        return ONCE_OK;
    }
    if (!found && once__index_make_room(rebuild->index, id) != ONCE_OK) {
        return ONCE_E_FULL;
    }
    once__index_set(rebuild->index, id, cursor, found, entry);
    return ONCE_OK;
}

/*
 * Enters the frame. ONCE_E_CORRUPT: what it refers to is damaged. It is entered all the same: its record cannot be
 * served, but it must not be taken for unused either.
 */
static int enter_frame(once__rebuild_t *rebuild, once__place_t place, const once__frame_t *frame,
                       int code)
{
    once__entry_t entry = {place, ONCE_STATE_NONE};
    int record = once__frame_has_record(frame), entered;
    once__head_t head;

    if (once__frame_is_lost(frame)) {
        entry.state = frame->bytes[0];
        once__index_note_frame(rebuild->index, place.segment, NULL);
        return once__rebuild_enter(rebuild, frame->id, 1, &entry);
    }
    if (record && once__frame_head(frame, &head) == ONCE_E_CORRUPT) {
        entry.state = ONCE_STATE_COMPLETED; /* as with remains */
        record = 0;
        code = ONCE_E_CORRUPT;
    } else if (record) {
        entry.state = head.state;
        rebuild->latest = head.changed > rebuild->latest ? head.changed : rebuild->latest;
    }
    once__index_note_frame(rebuild->index, place.segment, record ? &head : NULL);
    entered = once__rebuild_enter(rebuild, frame->id, 1, &entry);
    return entered == ONCE_OK ? code : entered;
}

/* Keeps a damaged range aside, so that nothing is lost that somebody could still make sense of. */
static int quarantine(once__rebuild_t *rebuild, uint32_t number, uint64_t offset,
                      const uint8_t *data, uint64_t len)
{
    once__place_t place = {number, offset};
    int code = once__quarantine_keep(rebuild->directory->fd, place, data, len);

    if (code != ONCE_OK) {
        return once__fail(rebuild->err, code, "local store: cannot write to quarantine/: %s",
                          strerror(errno));
    }
    rebuild->rebuilt->damaged++;
    once__index_count_damage(rebuild->index);
    return ONCE_OK;
}

/* ------------------------------------------------------------------------------------------------------------ damage */

static int is_known(const once__rebuild_t *rebuild, const uint8_t *id)
{
    once__entry_t entry;
    uint64_t cursor = 0;

    return once__index_find(rebuild->index, id, &cursor, &entry);
}

/* Which keys must not be granted again? Nobody knows: then none may be, until somebody has decided. */
static int cannot_tell(const once__rebuild_t *rebuild, once__place_t place, uint64_t end)
{
    return once__fail(
        rebuild->err, ONCE_E_CORRUPT,
        "local store: segment %08x is damaged at %llu (%llu bytes), and whose records "
        "those were cannot be told; restore it from a backup, or accept the loss with "
        "once fsck --repair",
        place.segment, (unsigned long long)place.offset, (unsigned long long)(end - place.offset));
}

/*
 * Enters the records that had frames in a damaged range: whoever asks for one is told that it is damaged, unless a later frame
 * tells more. Without that the frame before would count: a completed record would be pending again, or never have been.
 * As completed: nobody can carry it to another segment, so it is not to be counted among those that must be.
 */
static int enter_remains(once__rebuild_t *rebuild, once__place_t place, const uint8_t *data,
                         uint64_t end)
{
    once__place_t begin = place;
    once__remains_t remains;

    for (; place.offset < end; place.offset += remains.size) {
        once__entry_t entry = {place, ONCE_STATE_COMPLETED};
        int code = ONCE_OK;
        if (!once__frame_remains(&remains, data, place, end, place.offset == begin.offset) ||
            (!remains.certain && !is_known(rebuild, remains.id))) {
            return cannot_tell(rebuild, begin, end);
        }
        if (!remains.nobodys) {
            once__index_note_frame(rebuild->index, place.segment,
                                   remains.has_head ? &remains.head : NULL);
            code = once__rebuild_enter(rebuild, remains.id, 1, &entry);
        }
        if (code != ONCE_OK) {
            return code;
        }
    }
    return ONCE_OK;
}

/* What stands where no valid frame begins. Goes on at *next; 0: nowhere. */
static int read_gap(once__rebuild_t *rebuild, once__search_t *search, once__place_t place,
                    const uint8_t *data, uint64_t size, uint64_t *next)
{
    once__gap_t gap = once__frame_search(search, data, size, place, next);
    int code;

    if (gap == ONCE__GAP_END || gap == ONCE__GAP_TORN) {
        rebuild->rebuilt->torn += gap == ONCE__GAP_TORN;
        rebuild->open_end = *next == 0 ? place.offset : 0;
        *next = 0;
        return ONCE_OK;
    }
    /* Records may stand behind it that nobody would find: going on at the end of the segment would set their keys free. */
    code = gap == ONCE__GAP_UNKNOWN ? cannot_tell(rebuild, place, *next)
                                    : enter_remains(rebuild, place, data, *next);
    return code == ONCE_OK ? quarantine(rebuild, place.segment, place.offset, data + place.offset,
                                        *next - place.offset)
                           : code;
}

/* A frame that says that it is the last one is believed, unless something before it was damaged. Goes on at *next; 0: nowhere. */
static int read_seal(once__rebuild_t *rebuild, once__search_t *search, once__place_t place,
                     const uint8_t *data, uint64_t size, uint64_t *next)
{
    int more = search->used ? once__frame_is_no_end(search, data, size, place, next) : 0;
    int code;

    if (more == 0) {
        *next = 0;
        return ONCE_OK;
    }
    code =
        more < 0 ? cannot_tell(rebuild, place, *next) : enter_remains(rebuild, place, data, *next);
    return code == ONCE_OK ? quarantine(rebuild, place.segment, place.offset, data + place.offset,
                                        *next - place.offset)
                           : code;
}

/* ------------------------------------------------------------------------------------------------------------ frames */

/*
 * Where the index will be looked at some frames from now: it fetches many places at a time, where we would wait for
 * each. Only a hint: whatever is there is taken for a frame. Returns where the next one begins.
 */
#define AHEAD 4096u /* bytes: some twenty frames */

static uint64_t expect(const once__rebuild_t *rebuild, const uint8_t *data, uint64_t size,
                       uint64_t offset)
{
    uint32_t len;

    if (offset + ONCE__FRAME_HEADER > size) {
        return size;
    }
    len = once__get32(data + offset);
    once__index_expect(rebuild->index, data + offset + 16);
    return len < ONCE__FRAME_HEADER || len > size - offset ? size : (offset + len + 7) / 8 * 8;
}

static int read_frame(once__rebuild_t *rebuild, once__place_t place, const uint8_t *data,
                      uint64_t size, const once__frame_t *frame)
{
    once__frame_t whole = *frame;
    int code = once__frame_complete(&rebuild->whole, data, size, place, &whole);

    code = code == ONCE_E_NOMEM ? code : enter_frame(rebuild, place, frame, code);
    rebuild->rebuilt->frames++;
    return code == ONCE_E_CORRUPT
               ? quarantine(rebuild, place.segment, place.offset, data + place.offset, frame->size)
               : code;
}

int once__rebuild_frames(once__rebuild_t *rebuild, uint32_t number, const uint8_t *data,
                         uint64_t size)
{
    once__place_t place = {number, ONCE__SEGMENT_HEADER};
    once__search_t search = {0};
    uint64_t ahead = ONCE__SEGMENT_HEADER;

    while (place.offset + ONCE__FRAME_HEADER <= size) {
        once__frame_t frame;
        uint64_t next;
        int code;

        while (ahead < size && ahead < place.offset + AHEAD) {
            ahead = expect(rebuild, data, size, ahead);
        }
        if (!once__frame_read(&frame, place, data + place.offset, size - place.offset)) {
            code = read_gap(rebuild, &search, place, data, size, &next);
        } else if (frame.kind == ONCE__FRAME_SEALED) {
            code = read_seal(rebuild, &search, place, data, size, &next);
        } else {
            next = place.offset + frame.size;
            code = read_frame(rebuild, place, data, size, &frame);
        }
        if (code != ONCE_OK || next == 0) {
            return code;
        }
        place.offset = next;
    }
    return ONCE_OK;
}
