#include "store/local/summary.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "store/local/crc32c.h"
#include "store/local/newest.h"

#define MAGIC         "ONCESUM1"
#define OFFSET_MAX    (ONCE__OFFSET_LIMIT - 8)
#define AT_NUMBER     8
#define AT_CRC        12
#define AT_SEGMENT    16 /* the checksum in the segment's header */
#define AT_COUNT      20
#define AT_END        24
#define AT_FRAMES     32
#define AT_EXPIRY     40
#define AT_LATEST     48
#define ENTRY_SHARD   8
#define ENTRY_STATE   10
#define ENTRY_OFFSET  12
#define FRAME_ID      16 /* in a frame */
#define HEADER_CRC_AT 12 /* in the segment's header */

void once__summary_entry(const once__summary_t *summary, uint32_t i, once__summary_entry_t *entry)
{
    const uint8_t *at = summary->bytes + ONCE__SUMMARY_HEADER + (size_t)i * ONCE__SUMMARY_ENTRY;

    entry->key = once__get64(at);
    entry->shard = once__get16(at + ENTRY_SHARD);
    entry->offset = (uint64_t)once__get32(at + ENTRY_OFFSET) * 8;
    entry->state = at[ENTRY_STATE];
}

void once__summary_free(once__summary_t *summary)
{
    free(summary->bytes);
    memset(summary, 0, sizeof(*summary));
}

static uint32_t checksum(const once__summary_t *summary)
{
    static const uint8_t zero[4];
    uint32_t crc = once__crc32c(0, summary->bytes, AT_CRC);

    crc = once__crc32c(crc, zero, sizeof(zero));
    return once__crc32c(crc, summary->bytes + AT_CRC + 4, summary->size - AT_CRC - 4);
}

/* ---------------------------------------------------------------------------------------------------------- parsing */

/* In the order of the segment, each record once: whoever made it sees to that, and the sum vouches for it. */
static int are_entries_sound(const once__summary_t *summary)
{
    uint64_t before = 0;

    for (uint32_t i = 0; i < summary->count; i++) {
        once__summary_entry_t entry;
        once__summary_entry(summary, i, &entry);
        if (entry.offset < ONCE__SEGMENT_HEADER || entry.offset <= before ||
            entry.offset >= summary->end || entry.state > ONCE_STATE_UNKNOWN ||
            entry.shard >= ONCE__SHARDS) {
            return 0;
        }
        before = entry.offset;
    }
    return 1;
}

int once__summary_parse(once__summary_t *summary, uint32_t number)
{
    const uint8_t *bytes = summary->bytes;

    if (summary->size < ONCE__SUMMARY_HEADER || memcmp(bytes, MAGIC, 8) != 0 ||
        once__get32(bytes + AT_NUMBER) != number) {
        return 0;
    }
    summary->count = once__get32(bytes + AT_COUNT);
    summary->end = once__get64(bytes + AT_END);
    summary->frames = once__get64(bytes + AT_FRAMES);
    summary->last_expiry = once__get64(bytes + AT_EXPIRY);
    summary->latest = once__get64(bytes + AT_LATEST);
    return summary->size == ONCE__SUMMARY_HEADER + (uint64_t)summary->count * ONCE__SUMMARY_ENTRY &&
           checksum(summary) == once__get32(bytes + AT_CRC) && summary->end <= OFFSET_MAX &&
           summary->end >= ONCE__SEGMENT_HEADER && summary->count <= summary->frames &&
           are_entries_sound(summary);
}

/* --------------------------------------------------------------------------------------------------------- building */

/* Where the entry of each record is: numbers of entries plus one, by the key. */
typedef struct places {
    uint32_t *slots;
    size_t size; /* a power of two */
} places_t;

static uint8_t *entry_at(const once__summary_t *summary, uint32_t i)
{
    return summary->bytes + ONCE__SUMMARY_HEADER + (size_t)i * ONCE__SUMMARY_ENTRY;
}

/* The slot of the record: of its entry, or an empty one. Keys are as good as random. */
static uint32_t *find(const once__summary_t *summary, const places_t *places, uint64_t key,
                      uint16_t shard)
{
    size_t i = (size_t)key & (places->size - 1);

    assert(places->slots != NULL);
    while (places->slots[i] != 0) {
        once__summary_entry_t entry;
        once__summary_entry(summary, places->slots[i] - 1, &entry);
        if (entry.key == key && entry.shard == shard) {
            break;
        }
        i = (i + 1) & (places->size - 1);
    }
    return &places->slots[i];
}

static int grow_places(const once__summary_t *summary, places_t *places)
{
    places_t more = {NULL, places->size == 0 ? 1024 : places->size * 2};

    more.slots = calloc(more.size, sizeof(uint32_t));
    if (more.slots == NULL) {
        return ONCE_E_NOMEM;
    }
    for (uint32_t i = 0; i < summary->count; i++) {
        once__summary_entry_t entry;
        once__summary_entry(summary, i, &entry);
        *find(summary, &more, entry.key, entry.shard) = i + 1;
    }
    free(places->slots);
    *places = more;
    return ONCE_OK;
}

static int reserve(once__summary_t *summary, places_t *places)
{
    size_t size = ONCE__SUMMARY_HEADER + ((size_t)summary->count + 1) * ONCE__SUMMARY_ENTRY;

    if (size > summary->room) {
        size_t room = size * 2 + 4096;
        uint8_t *more = realloc(summary->bytes, room);
        if (more == NULL) {
            return ONCE_E_NOMEM;
        }
        summary->bytes = more;
        summary->room = room;
    }
    return ((size_t)summary->count + 1) * 2 > places->size ? grow_places(summary, places) : ONCE_OK;
}

/* Puts the record's newest frame into its entry. */
static int enter(once__summary_t *summary, const places_t *places, const once__frame_t *frame,
                 const uint8_t *data, uint64_t offset, uint8_t state)
{
    uint16_t shard = once__newest_shard(frame->id);
    uint32_t *slot = find(summary, places, once__newest_key(frame->id), shard);
    uint8_t *entry;

    if (*slot == 0) {
        *slot = ++summary->count;
        entry = entry_at(summary, *slot - 1);
    } else {
        entry = entry_at(summary, *slot - 1);
        if (memcmp(data + (uint64_t)once__get32(entry + ENTRY_OFFSET) * 8 + FRAME_ID, frame->id,
                   ONCE_ID_SIZE) != 0) {
            return ONCE_E_CORRUPT;
        }
    }
    once__put64(entry, once__newest_key(frame->id));
    once__put16(entry + ENTRY_SHARD, shard);
    entry[ENTRY_STATE] = state;
    entry[ENTRY_STATE + 1] = 0;
    once__put32(entry + ENTRY_OFFSET, (uint32_t)(offset / 8));
    return ONCE_OK;
}

static int add_frame(once__summary_t *summary, places_t *places, const once__frame_t *frame,
                     const uint8_t *data, uint64_t offset)
{
    int code = reserve(summary, places);
    uint8_t state = ONCE_STATE_NONE;

    if (code != ONCE_OK) {
        return code;
    }
    summary->frames++;
    if (once__frame_has_record(frame)) {
        once__head_t head;
        uint64_t until;
        if (once__frame_head(frame, &head) == ONCE_E_CORRUPT) {
            return ONCE_E_CORRUPT;
        }
        state = head.state;
        until = once__index_kept_until(&head);
        summary->last_expiry = until > summary->last_expiry ? until : summary->last_expiry;
        summary->latest = head.changed > summary->latest ? head.changed : summary->latest;
    }
    return enter(summary, places, frame, data, offset, state);
}

static int add_frames(once__summary_t *summary, places_t *places, uint32_t number,
                      const uint8_t *data, uint64_t size)
{
    once__place_t place = {number, ONCE__SEGMENT_HEADER};
    once__whole_t whole = {NULL, 0};
    int code = ONCE_OK;
    once__frame_t frame;
    uint64_t next;
    once__gap_t gap;

    while (code == ONCE_OK && place.offset + ONCE__FRAME_HEADER <= size &&
           once__frame_read(&frame, place, data + place.offset, size - place.offset) &&
           frame.kind != ONCE__FRAME_SEALED) {
        once__frame_t complete = frame;
        code = once__frame_complete(&whole, data, size, place, &complete);
        code = code == ONCE_OK ? add_frame(summary, places, &frame, data, place.offset) : code;
        place.offset += frame.size;
    }
    free(whole.bytes);
    summary->end = place.offset;
    if (code == ONCE_OK && place.offset + ONCE__FRAME_HEADER <= size &&
        !once__frame_read(&frame, place, data + place.offset, size - place.offset)) {
        gap = once__frame_gap(data, size, place, &next);
        code = gap == ONCE__GAP_DAMAGE || gap == ONCE__GAP_UNKNOWN ? ONCE_E_CORRUPT : ONCE_OK;
    }
    return code;
}

static int by_offset(const void *a, const void *b)
{
    uint32_t x = once__get32((const uint8_t *)a + ENTRY_OFFSET);
    uint32_t y = once__get32((const uint8_t *)b + ENTRY_OFFSET);

    return x < y ? -1 : x > y;
}

static void finish(once__summary_t *summary, uint32_t number, const uint8_t *segment)
{
    uint8_t *bytes = summary->bytes;

    summary->size = ONCE__SUMMARY_HEADER + (size_t)summary->count * ONCE__SUMMARY_ENTRY;
    qsort(entry_at(summary, 0), summary->count, ONCE__SUMMARY_ENTRY, by_offset);
    memset(bytes, 0, ONCE__SUMMARY_HEADER);
    memcpy(bytes, MAGIC, 8);
    once__put32(bytes + AT_NUMBER, number);
    once__put32(bytes + AT_SEGMENT, once__get32(segment + HEADER_CRC_AT));
    once__put32(bytes + AT_COUNT, summary->count);
    once__put64(bytes + AT_END, summary->end);
    once__put64(bytes + AT_FRAMES, summary->frames);
    once__put64(bytes + AT_EXPIRY, summary->last_expiry);
    once__put64(bytes + AT_LATEST, summary->latest);
    once__put32(bytes + AT_CRC, checksum(summary));
}

int once__summary_build(once__summary_t *summary, uint32_t number, const uint8_t *data,
                        uint64_t size)
{
    once__segment_header_t header;
    places_t places = {NULL, 0};
    int code = ONCE_E_CORRUPT;

    memset(summary, 0, sizeof(*summary));
    if (size >= ONCE__SEGMENT_HEADER && once__segment_header_read(&header, data) == ONCE_OK &&
        header.number == number && header.size == size) {
        summary->latest = header.created;
        code = reserve(summary, &places);
        code = code == ONCE_OK ? add_frames(summary, &places, number, data, size) : code;
    }
    if (code == ONCE_OK) {
        finish(summary, number, data);
    } else {
        once__summary_free(summary);
    }
    free(places.slots);
    return code;
}
