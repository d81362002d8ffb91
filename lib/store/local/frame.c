#include "store/local/frame.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "store/local/crc32c.h"

#define FILLER_MAX ((uint64_t)1 << 20)

static const uint8_t magic[8] = {'O', 'N', 'C', 'E', 'L', 'O', 'G', '2'};
#define OLDEST '1' /* without completions */

void once__segment_header_write(const once__segment_header_t *header,
                                uint8_t out[ONCE__SEGMENT_HEADER])
{
    memset(out, 0, ONCE__SEGMENT_HEADER);
    memcpy(out, magic, sizeof(magic));
    once__put32(out + 8, header->number);
    once__put64(out + 16, header->size);
    once__put64(out + 24, header->created);
    memcpy(out + 32, header->boot_id, ONCE__BOOT_ID_SIZE);
    once__put32(out + 12, once__crc32c(0, out, ONCE__SEGMENT_HEADER));
}

int once__segment_header_read(once__segment_header_t *header,
                              const uint8_t in[ONCE__SEGMENT_HEADER])
{
    uint8_t copy[ONCE__SEGMENT_HEADER];

    memset(header, 0, sizeof(*header));
    memcpy(copy, in, sizeof(copy));
    once__put32(copy + 12, 0);
    if (memcmp(in, magic, sizeof(magic) - 1) != 0 ||
        once__crc32c(0, copy, sizeof(copy)) != once__get32(in + 12)) {
        return ONCE_E_CORRUPT;
    }
    if (in[7] < OLDEST || in[7] > magic[7]) {
        return in[7] > magic[7] ? ONCE_E_NEWER : ONCE_E_CORRUPT;
    }
    header->number = once__get32(in + 8);
    header->size = once__get64(in + 16);
    header->created = once__get64(in + 24);
    memcpy(header->boot_id, in + 32, ONCE__BOOT_ID_SIZE);
    return ONCE_OK;
}

static uint32_t padded(size_t len)
{
    return (uint32_t)((len + 7) & ~(size_t)7);
}

uint32_t once__frame_padded(size_t len)
{
    return padded(ONCE__FRAME_HEADER + len);
}

uint32_t once__frame_size(const once__record_t *record)
{
    return padded(ONCE__FRAME_HEADER + (record != NULL ? once__record_size(record) : 0));
}

/* The first that the checksum of a frame is made of: the segment in four bytes, the offset in eight. */
static void write_place(uint8_t where[12], once__place_t place)
{
    once__put64(where, place.segment | place.offset << 32);
    once__put32(where + 8, (uint32_t)(place.offset >> 32));
}

uint32_t once__frame_checksum(once__place_t place, const uint8_t *frame, size_t len)
{
    uint8_t where[12];

    write_place(where, place);
    return once__crc32c(once__crc32c(0, where, sizeof(where)), frame + 8, len - 8);
}

/* The length comes last: without it there is no frame. */
uint32_t once__frame_write_around(uint8_t *out, once__place_t place, uint64_t watermark,
                                  uint8_t kind, const uint8_t *id, size_t rest)
{
    static const uint8_t nobody[ONCE_ID_SIZE];
    size_t len = ONCE__FRAME_HEADER + rest;

    assert(place.offset % 8 == 0);
    memset(out + 8, 0, 8);
    memset(out + len, 0, padded(len) - len);
    out[8] = kind;
    once__put32(out + 12, (uint32_t)(watermark / 8));
    memcpy(out + 16, id != NULL ? id : nobody, ONCE_ID_SIZE);
    once__put32(out + 4, once__frame_checksum(place, out, len));
    once__put32(out, (uint32_t)len);
    return padded(len);
}

void once__frame_write(uint8_t *out, once__place_t place, uint64_t watermark, const uint8_t *id,
                       const once__record_t *record)
{
    uint8_t kind = id != NULL ? ONCE__FRAME_REMOVED : ONCE__FRAME_SEALED;
    size_t len = 0;

    if (record != NULL) {
        kind = ONCE__FRAME_RECORD;
        len = once__record_size(record);
        once__record_encode(record, out + ONCE__FRAME_HEADER);
    }
    (void)once__frame_write_around(out, place, watermark, kind, id, len);
}

void once__frame_write_bytes(uint8_t *out, once__place_t place, uint64_t watermark,
                             const uint8_t *id, const uint8_t *bytes, size_t len)
{
    memcpy(out + ONCE__FRAME_HEADER, bytes, len);
    (void)once__frame_write_around(out, place, watermark, ONCE__FRAME_RECORD, id, len);
}

void once__frame_write_filler(uint8_t *out, once__place_t place, uint64_t len)
{
    memset(out, 0, len);
    while (len > 0) {
        /* What is left must not be too short for another one. */
        uint64_t part = len <= FILLER_MAX ? len : FILLER_MAX - ONCE__FRAME_HEADER;
        (void)once__frame_write_around(out, place, place.offset, ONCE__FRAME_REMOVED, NULL,
                                       part - ONCE__FRAME_HEADER);
        out += part;
        place.offset += part;
        len -= part;
    }
}

void once__frame_set_watermark(uint8_t *data, once__place_t place, uint64_t watermark)
{
    once__put32(data + 12, (uint32_t)(watermark / 8));
    once__put32(data + 4, once__frame_checksum(place, data, once__get32(data)));
}

/* A long frame of kind removed covers damage: it is nobody's. */
static int is_filler(const uint8_t *data, size_t len)
{
    static const uint8_t nobody[ONCE_ID_SIZE];

    return len > ONCE__FRAME_HEADER && len <= FILLER_MAX &&
           memcmp(data + 16, nobody, ONCE_ID_SIZE) == 0;
}

/* Is this a length that a frame of this kind can have? */
static int fits_kind(const uint8_t *data, size_t len)
{
    switch (data[8]) {
    case ONCE__FRAME_RECORD:
        return len > ONCE__FRAME_HEADER;
    case ONCE__FRAME_COMPLETION:
        return len >= ONCE__FRAME_HEADER + ONCE__COMPLETION_HEADER;
    case ONCE__FRAME_REMOVED:
        return len == ONCE__FRAME_HEADER || is_filler(data, len);
    default:
        return data[8] == ONCE__FRAME_SEALED && len == ONCE__FRAME_HEADER;
    }
}

/* What can be said of a frame before its checksum. Its length, or 0: there is none. */
static size_t plausible_length(const uint8_t *data, size_t room)
{
    size_t len = once__get32(data);

    if (len > room || len > ONCE__FRAME_MAX || !fits_kind(data, len) || data[9] != 0 ||
        data[10] != 0 || data[11] != 0) {
        return 0;
    }
    return len;
}

static void fill_in(once__frame_t *frame, const uint8_t *data, size_t len)
{
    frame->kind = data[8];
    frame->watermark = (uint64_t)once__get32(data + 12) * 8;
    frame->size = padded(len);
    frame->id = data + 16;
    frame->bytes = data + ONCE__FRAME_HEADER;
    frame->len = len - ONCE__FRAME_HEADER;
}

int once__frame_read(once__frame_t *frame, once__place_t place, const uint8_t *data, size_t room)
{
    size_t len = room < ONCE__FRAME_HEADER ? 0 : plausible_length(data, room);

    if (len == 0 || once__frame_checksum(place, data, len) != once__get32(data + 4)) {
        return 0;
    }
    fill_in(frame, data, len);
    return 1;
}

int once__frame_read_two(once__frame_t frames[2], const once__place_t places[2],
                         const uint8_t *const data[2], const size_t rooms[2])
{
    const uint8_t *from[2];
    uint8_t where[2][12];
    uint32_t sums[2];
    size_t lens[2];

    for (size_t i = 0; i < 2; i++) {
        size_t len = rooms[i] < ONCE__FRAME_HEADER ? 0 : plausible_length(data[i], rooms[i]);
        if (len == 0) {
            return 0;
        }
        fill_in(&frames[i], data[i], len);
        from[i] = data[i] + 8;
        lens[i] = len - 8;
        write_place(where[i], places[i]);
    }
    once__crc32c_two(sums, where, from, lens);
    return sums[0] == once__get32(data[0] + 4) && sums[1] == once__get32(data[1] + 4);
}

int once__frame_has_record(const once__frame_t *frame)
{
    return frame->kind == ONCE__FRAME_RECORD || frame->kind == ONCE__FRAME_COMPLETION;
}

int once__frame_is_lost(const once__frame_t *frame)
{
    return frame->kind == ONCE__FRAME_RECORD && frame->len == 1 &&
           (frame->bytes[0] == ONCE_STATE_PENDING || frame->bytes[0] == ONCE_STATE_UNKNOWN);
}

int once__frame_head(const once__frame_t *frame, once__head_t *head)
{
    once__record_t record;
    int code;

    if (frame->kind == ONCE__FRAME_COMPLETION) {
        code = once__envelope_decode(head, frame->bytes);
        return code == ONCE_OK && head->state == ONCE_STATE_COMPLETED ? ONCE_OK : ONCE_E_CORRUPT;
    }
    if (frame->kind != ONCE__FRAME_RECORD) {
        memset(head, 0, sizeof(*head));
        return ONCE_E_CORRUPT;
    }
    code = once__record_decode(&record, frame->bytes, frame->len);
    *head = record.head;
    return code;
}

/* Is it worth summing up? The envelope of a record looks like the beginning of a frame, and old ones may be everywhere. */
static size_t likely_length(const uint8_t *data, size_t room)
{
    size_t len = plausible_length(data, room);
    once__frame_t frame = {.kind = data[8], .bytes = data + ONCE__FRAME_HEADER};
    once__head_t head;

    frame.len = len != 0 ? len - ONCE__FRAME_HEADER : 0;
    if (len != 0 && once__frame_has_record(&frame) && !once__frame_is_lost(&frame) &&
        once__frame_head(&frame, &head) == ONCE_E_CORRUPT) {
        return 0;
    }
    return len;
}

/*
 * A client whose bytes are echoed in a response could make every second word of it look like the beginning of a long frame,
 * and each would be summed up: so there is a limit to that, which no honest segment comes near.
 */
#define EFFORT 8 /* bytes summed up, for each byte of the segment */

/* The next valid frame from `*offset` on. 1; 0: there is none; -1: it would take too long to find out. */
static int find_frame(once__search_t *search, const uint8_t *data, uint64_t size, uint32_t segment,
                      uint64_t *offset, once__frame_t *frame)
{
    for (; *offset + ONCE__FRAME_HEADER <= size; *offset += 8) {
        once__place_t place = {segment, *offset};
        size_t len = likely_length(data + *offset, size - *offset);
        if (len == 0) {
            continue;
        }
        search->effort += len;
        if (search->effort > size * EFFORT) {
            return -1;
        }
        if (once__frame_read(frame, place, data + *offset, size - *offset)) {
            return 1;
        }
    }
    return 0;
}

/*
 * Where to look first: behind the damaged frame, if it still says where that is and there is one. What stands inside it may be
 * somebody's idea of a frame.
 */
static uint64_t begin_search(const uint8_t *data, uint64_t size, once__place_t place)
{
    uint64_t len = once__get32(data + place.offset);
    once__place_t behind = {place.segment, place.offset + padded(len)};
    once__frame_t frame;

    return len >= ONCE__FRAME_HEADER && len <= ONCE__FRAME_MAX && behind.offset < size &&
                   once__frame_read(&frame, behind, data + behind.offset, size - behind.offset)
               ? behind.offset
               : place.offset + 8;
}

once__gap_t once__frame_search(once__search_t *search, const uint8_t *data, uint64_t size,
                               once__place_t place, uint64_t *next)
{
    uint64_t offset = begin_search(data, size, place);
    once__frame_t frame;
    int found;

    search->used = 1;
    *next = 0; /* valid frame behind the place */
    while ((found = find_frame(search, data, size, place.segment, &offset, &frame)) > 0) {
        *next = *next != 0 ? *next : offset;
        search->synced = frame.watermark > search->synced ? frame.watermark : search->synced;
        if (search->synced > place.offset) {
            return ONCE__GAP_DAMAGE;
        }
        offset += frame.size;
    }
    if (found < 0) {
        *next = *next != 0 ? *next : size;
        return ONCE__GAP_UNKNOWN;
    }
    return *next != 0 || once__get32(data + place.offset) != 0 ? ONCE__GAP_TORN : ONCE__GAP_END;
}

int once__frame_is_no_end(once__search_t *search, const uint8_t *data, uint64_t size,
                          once__place_t place, uint64_t *next)
{
    once__frame_t frame;
    int found;

    *next = place.offset + ONCE__FRAME_HEADER;
    while ((found = find_frame(search, data, size, place.segment, next, &frame)) > 0) {
        if (frame.kind != ONCE__FRAME_SEALED) {
            return 1;
        }
        *next += frame.size;
    }
    *next = size;
    return found;
}

once__gap_t once__frame_gap(const uint8_t *data, uint64_t size, once__place_t place, uint64_t *next)
{
    once__search_t search = {0};

    return once__frame_search(&search, data, size, place, next);
}
