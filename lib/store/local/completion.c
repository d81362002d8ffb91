/*
 * Frames of kind completion: what they say, and what becomes of it together with the frames that they refer to.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "store/local/frame.h"
#include "store/local/pack.h"

/* Where things are, behind the header of the frame. */
enum {
    AT_ENVELOPE = 0,
    AT_CLAIM = ONCE__ENVELOPE_SIZE,
    AT_TEMPLATE = 68,
    AT_STATUS = 72,
};

static_assert(AT_STATUS + 2 == ONCE__COMPLETION_HEADER, "the header has its size");

uint64_t once__completion_claim(const uint8_t *data, size_t room)
{
    return room >= ONCE__FRAME_HEADER + ONCE__COMPLETION_HEADER && data[8] == ONCE__FRAME_COMPLETION
               ? (uint64_t)once__get32(data + ONCE__FRAME_HEADER + AT_CLAIM) * 8
               : 0;
}

int once__completion_read(once__completion_t *completion, const once__frame_t *frame,
                          uint64_t offset)
{
    const uint8_t *bytes = frame->bytes;

    if (frame->kind != ONCE__FRAME_COMPLETION || frame->len < ONCE__COMPLETION_HEADER) {
        return ONCE_E_CORRUPT;
    }
    completion->envelope = bytes + AT_ENVELOPE;
    completion->claim = (uint64_t)once__get32(bytes + AT_CLAIM) * 8;
    completion->template = (uint64_t)once__get32(bytes + AT_TEMPLATE) * 8;
    completion->status = once__get16(bytes + AT_STATUS);
    completion->bytes = bytes + ONCE__COMPLETION_HEADER;
    completion->size = frame->len - ONCE__COMPLETION_HEADER;
    if (completion->claim < ONCE__SEGMENT_HEADER || completion->claim >= offset) {
        return ONCE_E_CORRUPT;
    }
    if (completion->template == 0) {
        completion->len = (uint32_t)completion->size;
        return ONCE_OK;
    }
    completion->len = once__packed_length(completion->bytes, completion->size);
    if (completion->len == 0 || completion->template <ONCE__SEGMENT_HEADER ||
                                                      completion->template >= offset) {
        return ONCE_E_CORRUPT;
    }
    return ONCE_OK;
}

uint32_t once__completion_write(uint8_t *out, once__place_t place, uint64_t watermark,
                                const once__record_t *record, const once__completion_t *completion)
{
    uint8_t *bytes = out + ONCE__FRAME_HEADER;

    assert(record->head.state == ONCE_STATE_COMPLETED);
    once__envelope_encode(&record->head, bytes + AT_ENVELOPE);
    once__put32(bytes + AT_CLAIM, (uint32_t)(completion->claim / 8));
    once__put32(bytes + AT_TEMPLATE, (uint32_t)(completion->template / 8));
    once__put16(bytes + AT_STATUS, record->payload.status);
    return once__frame_write_around(out, place, watermark, ONCE__FRAME_COMPLETION, record->id,
                                    ONCE__COMPLETION_HEADER + completion->size);
}

/* The response of a frame that others are packed against: it stands there as it is. */
static int plain_response(const once__frame_t *frame, uint64_t offset, once_slice_t *out)
{
    once__completion_t completion;
    once__record_t record;

    if (frame->kind == ONCE__FRAME_COMPLETION) {
        if (once__completion_read(&completion, frame, offset) != ONCE_OK ||
            completion.template != 0) {
            return ONCE_E_CORRUPT;
        }
        *out = once__slice(completion.bytes, completion.size);
        return ONCE_OK;
    }
    if (frame->kind != ONCE__FRAME_RECORD ||
        once__record_decode(&record, frame->bytes, frame->len) != ONCE_OK ||
        record.payload.kind != ONCE__PAYLOAD_RESPONSE) {
        return ONCE_E_CORRUPT;
    }
    *out = once__slice(record.payload.data, record.payload.len);
    return ONCE_OK;
}

int once__completion_expand(const once__completion_t *completion, const uint8_t *id,
                            const once__frame_t *claim, const once__frame_t *template, uint8_t *out,
                            size_t *len)
{
    once__record_t record;
    once_slice_t alike;
    uint8_t *response;

    if (claim->kind != ONCE__FRAME_RECORD || memcmp(claim->id, id, ONCE_ID_SIZE) != 0) {
        return ONCE_E_CORRUPT;
    }
    response = once__record_respond(out, claim->bytes, claim->len, completion->envelope,
                                    completion->status, completion->len);
    if (response == NULL) {
        return ONCE_E_CORRUPT;
    }
    if (template == NULL) {
        memcpy(response, completion->bytes, completion->size);
    } else if (plain_response(template, completion->template, &alike) != ONCE_OK ||
               once__unpack((const uint8_t *)alike.data, alike.len, completion->bytes,
                            completion->size, response) != 0) {
        return ONCE_E_CORRUPT;
    }
    *len = (size_t)(response - out) + completion->len;
    return once__record_decode(&record, out, *len);
}

/* ------------------------------------------------------------------------------------------------- a segment in memory */

static int frame_at(const uint8_t *data, uint64_t size, uint32_t segment, uint64_t offset,
                    once__frame_t *frame)
{
    once__place_t place = {segment, offset};

    return offset < size && once__frame_read(frame, place, data + offset, size - offset);
}

int once__frame_complete(once__whole_t *whole, const uint8_t *data, uint64_t size,
                         once__place_t place, once__frame_t *frame)
{
    once__completion_t completion;
    once__frame_t claim, template;
    size_t len;
    int packed;

    if (frame->kind != ONCE__FRAME_COMPLETION) {
        return ONCE_OK;
    }
    if (once__completion_read(&completion, frame, place.offset) != ONCE_OK) {
        return ONCE_E_CORRUPT;
    }
    packed = completion.template != 0;
    if (!frame_at(data, size, place.segment, completion.claim, &claim) ||
        (packed && !frame_at(data, size, place.segment, completion.template, &template))) {
        return ONCE_E_CORRUPT;
    }
    if (whole->room < ONCE__RECORD_REST + (size_t)completion.len) {
        size_t room = 2 * (ONCE__RECORD_REST + (size_t)completion.len);
        uint8_t *more = realloc(whole->bytes, room);
        if (more == NULL) {
            return ONCE_E_NOMEM;
        }
        whole->bytes = more;
        whole->room = room;
    }
    if (once__completion_expand(&completion, frame->id, &claim, packed ? &template : NULL,
                                whole->bytes, &len) != ONCE_OK) {
        return ONCE_E_CORRUPT;
    }
    frame->kind = ONCE__FRAME_RECORD;
    frame->bytes = whole->bytes;
    frame->len = len;
    return ONCE_OK;
}
