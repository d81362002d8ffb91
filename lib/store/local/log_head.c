/*
 * The heads of records, read where they stand in the mappings: nothing is copied but what the head has. For looks at many records,
 * which know afterwards whether the frames were still theirs.
 */
#include <string.h>

#include "store/local/log_inside.h"

#define LINE 64 /* bytes that a processor fetches together */

static void fetch(const once__reader_t *reader, uint64_t offset, unsigned lines)
{
    for (unsigned i = 0; i < lines; i++) {
        __builtin_prefetch(reader->map + offset + (uint64_t)i * LINE);
    }
}

/* NULL: it is not mapped. */
static once__reader_t *reader_of(once__log_t *log, once__place_t place)
{
    once__reader_t *reader = &log->readers[place.segment % ONCE__READERS];

    return reader->number == place.segment && place.offset < reader->size ? reader : NULL;
}

void once__log_expect(once__log_t *log, once__place_t place)
{
    const once__reader_t *reader = reader_of(log, place);

    if (reader != NULL) {
        fetch(reader, place.offset, 3);
    }
}

void once__log_expect_claim(once__log_t *log, once__place_t place)
{
    once__reader_t *reader = reader_of(log, place);
    uint64_t room = reader != NULL ? once__log_at_hand(log, reader, place.offset) : 0;
    uint64_t claim = room > 0 ? once__completion_claim(reader->map + place.offset, room) : 0;

    if (claim > 0 && claim < reader->size) {
        fetch(reader, claim, 4);
    }
}

/* The head of a completed record is in two frames: what the claim said stays true, and the envelope is new. */
static int read_completed(const once__frame_t frames[2], uint64_t offset, const uint8_t *id,
                          once__record_t *record)
{
    once__completion_t completion;
    int code = once__completion_read(&completion, &frames[0], offset);

    if (code == ONCE_OK &&
        (frames[1].kind != ONCE__FRAME_RECORD || memcmp(frames[1].id, id, ONCE_ID_SIZE) != 0)) {
        code = ONCE_E_CORRUPT;
    }
    code = code == ONCE_OK ? once__record_decode(record, frames[1].bytes, frames[1].len) : code;
    code = code == ONCE_OK ? once__envelope_replace(&record->head, completion.envelope) : code;
    return code == ONCE_OK && record->head.state != ONCE_STATE_COMPLETED ? ONCE_E_CORRUPT : code;
}

int once__log_read_head(once__log_t *log, once__place_t place, const uint8_t *id,
                        once__record_t *record)
{
    once__place_t places[2] = {place, place};
    const uint8_t *data[2];
    uint64_t rooms[2];
    once__frame_t frames[2];
    once__reader_t *reader;
    int code = once__log_find_reader(log, place.segment, &reader), valid;

    if (code != ONCE_OK) {
        return code;
    }
    rooms[0] = once__log_at_hand(log, reader, place.offset);
    if (rooms[0] == 0) {
        return ONCE_E_UNAVAILABLE;
    }
    data[0] = reader->map + place.offset;
    places[1].offset = once__completion_claim(data[0], rooms[0]);
    rooms[1] = places[1].offset != 0 ? once__log_at_hand(log, reader, places[1].offset) : 0;
    if (rooms[1] > 0) {
        data[1] = reader->map + places[1].offset;
        valid = once__frame_read_two(frames, places, data, rooms);
    } else {
        valid = once__frame_read(&frames[0], place, data[0], rooms[0]);
    }
    if (!valid) {
        return ONCE_E_CORRUPT;
    }
    if (memcmp(frames[0].id, id, ONCE_ID_SIZE) != 0) {
        return ONCE_E_NOT_FOUND;
    }
    if (frames[0].kind != ONCE__FRAME_COMPLETION) {
        return frames[0].kind == ONCE__FRAME_RECORD
                   ? once__record_decode(record, frames[0].bytes, frames[0].len)
                   : ONCE_E_CORRUPT;
    }
    return rooms[1] > 0 ? read_completed(frames, place.offset, id, record) : ONCE_E_UNAVAILABLE;
}
