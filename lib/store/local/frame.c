#include "store/local/frame.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "store/crc32c.h"

static const uint8_t magic[8] = {'O', 'N', 'C', 'E', 'L', 'O', 'G', '3'};
static const uint8_t zeros[64];

/* Where things are in the header of a segment. */
enum {
    AT_SEGMENT_CRC = 8,
    AT_DICTIONARY_LEN = 12,
    AT_NUMBER = 16,
    AT_WORD = 24,
    AT_SIZE = 32,
    AT_CREATED = 40,
    AT_CLOCK = 48,
    AT_BOOT_ID = 56,
    AT_STORE_ID = 72,
    AT_DICTIONARY_CRC = 88,
    AT_RESERVED = 92,
};

/* Where things are in the head of a frame. */
enum {
    AT_LENGTH = 0,
    AT_HEAD_CRC = 4,
    AT_BODY_CRC = 8,
    AT_KIND = 12,
    AT_STATE = 13,
    AT_FLAGS = 14,
    AT_ZERO = 15,
    AT_VERSION = 16,
    AT_WATERMARK = 24,
    AT_ID = 28,
    SINCE_SIZE = 8,
};

static_assert(AT_ID + ONCE_ID_SIZE == ONCE__FRAME_HEADER, "the head is full");
static_assert(ONCE__FRAME_HEADER <= ONCE__SEAL_ROOM, "the frame that seals has room");

/* ------------------------------------------------------------------------------------------------- segment header */

static uint64_t padded(uint64_t len)
{
    return (len + 7) & ~(uint64_t)7;
}

uint64_t once__segment_start(uint32_t dictionary_len)
{
    return padded(ONCE__SEGMENT_HEADER + (uint64_t)dictionary_len);
}

static uint32_t header_crc(const uint8_t *in)
{
    uint32_t crc = once__crc32c(once__crc32c(0, in, AT_SEGMENT_CRC), zeros, 4);

    return once__crc32c(crc, in + AT_DICTIONARY_LEN, ONCE__SEGMENT_HEADER - AT_DICTIONARY_LEN);
}

void once__segment_header_write(const once__segment_header_t *header, const uint8_t *dictionary,
                                uint8_t *out)
{
    uint32_t len = header->dictionary_len;

    assert(len <= ONCE__DICTIONARY_MAX && header->number != 0);
    memset(out, 0, once__segment_start(len));
    memcpy(out, magic, sizeof(magic));
    once__put32(out + AT_DICTIONARY_LEN, len);
    once__put64(out + AT_NUMBER, header->number);
    once__put64(out + AT_WORD, header->word);
    once__put64(out + AT_SIZE, header->size);
    once__put64(out + AT_CREATED, header->created);
    once__put64(out + AT_CLOCK, (uint64_t)header->clock_offset);
    memcpy(out + AT_BOOT_ID, header->boot_id, ONCE__BOOT_ID_SIZE);
    memcpy(out + AT_STORE_ID, header->store_id, ONCE__STORE_ID_SIZE);
    if (len > 0) {
        memcpy(out + ONCE__SEGMENT_HEADER, dictionary, len);
        once__put32(out + AT_DICTIONARY_CRC, once__crc32c(0, dictionary, len));
    }
    once__put32(out + AT_SEGMENT_CRC, header_crc(out));
}

int once__segment_header_read(once__segment_header_t *header, const uint8_t *in, size_t len)
{
    memset(header, 0, sizeof(*header));
    if (len < ONCE__SEGMENT_HEADER || memcmp(in, magic, sizeof(magic) - 1) != 0 ||
        in[7] < magic[7]) {
        return ONCE_E_CORRUPT;
    }
    if (in[7] > magic[7]) {
        return ONCE_E_NEWER;
    }
    header->dictionary_len = once__get32(in + AT_DICTIONARY_LEN);
    header->number = once__get64(in + AT_NUMBER);
    header->word = once__get64(in + AT_WORD);
    header->size = once__get64(in + AT_SIZE);
    header->created = once__get64(in + AT_CREATED);
    header->clock_offset = (int64_t)once__get64(in + AT_CLOCK);
    memcpy(header->boot_id, in + AT_BOOT_ID, ONCE__BOOT_ID_SIZE);
    memcpy(header->store_id, in + AT_STORE_ID, ONCE__STORE_ID_SIZE);
    if (header->dictionary_len > ONCE__DICTIONARY_MAX || header->number == 0 ||
        header->size > ONCE__SEGMENT_MAX || header->size % 8 != 0 ||
        header->size < once__segment_start(header->dictionary_len) ||
        memcmp(in + AT_RESERVED, zeros, ONCE__SEGMENT_HEADER - AT_RESERVED) != 0 ||
        header_crc(in) != once__get32(in + AT_SEGMENT_CRC)) {
        return ONCE_E_CORRUPT;
    }
    return ONCE_OK;
}

const uint8_t *once__segment_dictionary(const uint8_t *in, size_t len)
{
    uint32_t dictionary_len = once__get32(in + AT_DICTIONARY_LEN);
    const uint8_t *dictionary = in + ONCE__SEGMENT_HEADER;

    return dictionary_len > 0 && len >= once__segment_start(dictionary_len) &&
                   once__crc32c(0, dictionary, dictionary_len) ==
                       once__get32(in + AT_DICTIONARY_CRC)
               ? dictionary
               : NULL;
}

/* ---------------------------------------------------------------------------------------------------------- frames */

uint32_t once__frame_size(size_t len, int has_since)
{
    return (uint32_t)padded(ONCE__FRAME_HEADER + (has_since ? SINCE_SIZE : 0) + len);
}

uint8_t *once__frame_body(uint8_t *out, int has_since)
{
    return out + ONCE__FRAME_HEADER + (has_since ? SINCE_SIZE : 0);
}

/* Everything that it covers in a row, so that it is one short sum. */
static uint32_t head_crc(const uint8_t *head, uint64_t word, uint64_t offset, uint32_t len)
{
    uint8_t bytes[8 + 8 + 4 + ONCE__FRAME_HEADER - AT_BODY_CRC];

    once__put64(bytes, word);
    once__put64(bytes + 8, offset);
    once__put32(bytes + 16, len);
    memcpy(bytes + 20, head + AT_BODY_CRC, ONCE__FRAME_HEADER - AT_BODY_CRC);
    return once__crc32c(0, bytes, sizeof(bytes));
}

/* The halves of the word are exchanged: a body is not valid as a head. */
static uint32_t body_crc(const uint8_t *body, size_t len, uint64_t word, uint64_t offset)
{
    uint8_t bytes[16];

    once__put64(bytes, word >> 32 | word << 32);
    once__put64(bytes + 8, offset);
    return once__crc32c(once__crc32c(0, bytes, sizeof(bytes)), body, len);
}

uint32_t once__frame_write(uint8_t *out, uint64_t word, uint64_t offset, const once__frame_t *frame)
{
    int has_since = frame->since != 0;
    uint8_t *body = once__frame_body(out, has_since);
    uint32_t len = (uint32_t)((size_t)(body - out) + frame->len);
    uint32_t size = (uint32_t)padded(len);

    assert(offset % 8 == 0 && frame->watermark % 8 == 0 && frame->watermark <= offset);
    if (has_since) {
        once__put64(out + ONCE__FRAME_HEADER, frame->since);
    }
    if (frame->len > 0 && frame->body != body) {
        memcpy(body, frame->body, frame->len);
    }
    memset(out + len, 0, size - len);
    out[AT_KIND] = frame->kind;
    out[AT_STATE] = frame->state;
    out[AT_FLAGS] =
        (uint8_t)((frame->flags & ~ONCE__FRAME_SINCE) | (has_since ? ONCE__FRAME_SINCE : 0));
    out[AT_ZERO] = 0;
    once__put64(out + AT_VERSION, frame->version);
    once__put32(out + AT_WATERMARK, (uint32_t)(frame->watermark / 8));
    memcpy(out + AT_ID, frame->id != NULL ? frame->id : zeros, ONCE_ID_SIZE);
    once__put32(out + AT_BODY_CRC,
                body_crc(out + ONCE__FRAME_HEADER, len - ONCE__FRAME_HEADER, word, offset));
    once__put32(out + AT_HEAD_CRC, head_crc(out, word, offset, len));
    once__put32(out + AT_LENGTH, len);
    return size;
}

void once__frame_write_filler(uint8_t *out, uint64_t word, uint64_t offset, uint64_t len,
                              uint64_t watermark)
{
    assert(len % 8 == 0 && len >= ONCE__SEAL_ROOM);
    memset(out, 0, len);
    while (len > 0) {
        /* What is left must not be too short for another one. */
        uint64_t part = len <= ONCE__FILLER_MAX ? len : ONCE__FILLER_MAX - ONCE__SEAL_ROOM;
        once__frame_t frame = {.kind = ONCE__FRAME_FILLER,
                               .watermark = watermark < offset ? watermark : offset,
                               .body = once__frame_body(out, 0),
                               .len = part - ONCE__FRAME_HEADER};
        (void)once__frame_write(out, word, offset, &frame);
        out += part;
        offset += part;
        len -= part;
    }
}

/* Can a frame of this kind be like that? Asked before anything is summed up. */
static int is_plausible(const uint8_t *data, uint64_t offset, uint32_t len)
{
    uint8_t flags = data[AT_FLAGS], state = data[AT_STATE];
    uint32_t least = ONCE__FRAME_HEADER + (flags & ONCE__FRAME_SINCE ? SINCE_SIZE : 0);

    if (len < least || len > ONCE__FRAME_MAX || data[AT_ZERO] != 0 ||
        (uint64_t)once__get32(data + AT_WATERMARK) * 8 > offset) {
        return 0;
    }
    switch (data[AT_KIND]) {
    case ONCE__FRAME_RECORD:
        return (flags & ~(ONCE__FRAME_SINCE | ONCE__FRAME_COMPRESSED | ONCE__FRAME_SHORT_ABOUT)) ==
                   0 &&
               len > least && state >= ONCE_STATE_PENDING && state <= ONCE_STATE_UNKNOWN;
    case ONCE__FRAME_REMOVED:
        return (flags & ~ONCE__FRAME_SINCE) == 0 && len == least && state == 0;
    case ONCE__FRAME_SEALED:
    case ONCE__FRAME_FILLER:
        return flags == 0 && state == 0 && memcmp(data + AT_ID, zeros, ONCE_ID_SIZE) == 0 &&
               (data[AT_KIND] == ONCE__FRAME_SEALED ? len == least : len <= ONCE__FILLER_MAX);
    default:
        return 0;
    }
}

int once__frame_read_head(once__frame_t *frame, uint64_t word, uint64_t offset, const uint8_t *data)
{
    uint32_t len = once__get32(data + AT_LENGTH);

    if (!is_plausible(data, offset, len) ||
        head_crc(data, word, offset, len) != once__get32(data + AT_HEAD_CRC)) {
        return 0;
    }
    frame->kind = data[AT_KIND];
    frame->state = data[AT_STATE];
    frame->flags = data[AT_FLAGS];
    frame->version = once__get64(data + AT_VERSION);
    frame->since = 0;
    frame->watermark = (uint64_t)once__get32(data + AT_WATERMARK) * 8;
    frame->id = data + AT_ID;
    frame->body = NULL;
    frame->len = len - ONCE__FRAME_HEADER - (frame->flags & ONCE__FRAME_SINCE ? SINCE_SIZE : 0);
    frame->size = (uint32_t)padded(len);
    return 1;
}

once__frame_code_t once__frame_read(once__frame_t *frame, uint64_t word, uint64_t offset,
                                    const uint8_t *data, size_t room)
{
    int has_since;
    uint32_t len;

    if (room < ONCE__FRAME_HEADER || once__get32(data + AT_LENGTH) > room ||
        !once__frame_read_head(frame, word, offset, data)) {
        return ONCE__FRAME_NONE;
    }
    has_since = (frame->flags & ONCE__FRAME_SINCE) != 0;
    len = once__get32(data + AT_LENGTH);
    if (body_crc(data + ONCE__FRAME_HEADER, len - ONCE__FRAME_HEADER, word, offset) !=
        once__get32(data + AT_BODY_CRC)) {
        return ONCE__FRAME_DAMAGED;
    }
    frame->since = has_since ? once__get64(data + ONCE__FRAME_HEADER) : 0;
    frame->body = data + ONCE__FRAME_HEADER + (has_since ? SINCE_SIZE : 0);
    return ONCE__FRAME_OK;
}

uint64_t once__frame_find(once__frame_t *frame, uint64_t word, uint64_t offset, const uint8_t *data,
                          uint64_t size)
{
    for (; offset + ONCE__FRAME_HEADER <= size; offset += 8) {
        if (once__frame_read_head(frame, word, offset, data + offset)) {
            return offset;
        }
    }
    return size;
}
