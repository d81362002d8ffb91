#include "store/local/remains.h"

#include <string.h>

#include "base/bytes.h"
#include "store/local/crc32c.h"

#define POLYNOMIAL 0x82f63b78u
#define SUMMED     64u /* bits of a frame that its checksum does not cover: length and checksum */

/*
 * Which bit was it, if it was one? A changed bit changes the checksum in a way that only depends on how far it is from the end, so
 * one way back over the frame tells. The number of the bit; 0: one that is not summed up; -1: it was not one bit.
 */
static int64_t changed_bit(once__place_t place, const uint8_t *frame, uint32_t len)
{
    uint32_t wrong = once__frame_checksum(place, frame, len) ^ once__get32(frame + 4);
    uint32_t effect = POLYNOMIAL;

    if ((wrong & (wrong - 1)) == 0) {
        return 0;
    }
    for (int64_t bit = (int64_t)len * 8 - 1; bit >= (int64_t)SUMMED; bit--) {
        if (effect == wrong) {
            return bit;
        }
        effect = effect >> 1 ^ (effect & 1 ? POLYNOMIAL : 0);
    }
    return -1;
}

/* The length, if it was only that which changed: then the frame was all of the range, and its checksum agrees. 0: it was not. */
static uint32_t length_of_range(const uint8_t *frame, once__place_t place, uint64_t room)
{
    for (uint64_t less = 0; room <= ONCE__FRAME_MAX && less < 8; less++) {
        uint32_t len = (uint32_t)(room - less);
        if (len >= ONCE__FRAME_HEADER &&
            once__frame_checksum(place, frame, len) == once__get32(frame + 4)) {
            return len;
        }
    }
    return 0;
}

/* The length that the frame had, and the bit of it that changed, as above. 0: it cannot be told. */
static uint32_t find_length(const uint8_t *frame, once__place_t place, uint64_t room, int first,
                            int64_t *bit)
{
    uint32_t len = once__get32(frame), all;

    *bit = -1;
    if (len < ONCE__FRAME_HEADER || len > ONCE__FRAME_MAX ||
        once__frame_padded(len - ONCE__FRAME_HEADER) > room) {
        len = 0;
    }
    if (len != 0) {
        *bit = changed_bit(place, frame, len);
    }
    all = first && *bit < 0 ? length_of_range(frame, place, room) : 0;
    if (all != 0) {
        *bit = 0;
    }
    return all != 0 ? all : len;
}

int once__frame_remains(once__remains_t *remains, const uint8_t *data, once__place_t place,
                        uint64_t end, int first)
{
    static const uint8_t nobody[ONCE_ID_SIZE];
    const uint8_t *frame = data + place.offset;
    uint64_t room = end - place.offset;
    uint8_t front[ONCE__FRAME_HEADER + ONCE__ENVELOPE_SIZE] = {0};
    int64_t bit;
    uint32_t len = room >= ONCE__FRAME_HEADER ? find_length(frame, place, room, first, &bit) : 0;

    memset(remains, 0, sizeof(*remains));
    if (len == 0) {
        return 0;
    }
    memcpy(front, frame, len < sizeof(front) ? len : sizeof(front));
    if (bit > 0 && (uint64_t)bit < sizeof(front) * 8) {
        front[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    remains->size = once__frame_padded(len - ONCE__FRAME_HEADER);
    remains->certain = bit >= 0;
    memcpy(remains->id, front + 16, ONCE_ID_SIZE);
    remains->nobodys = remains->certain && memcmp(remains->id, nobody, ONCE_ID_SIZE) == 0;
    remains->has_head =
        len >= sizeof(front) &&
        once__envelope_decode(&remains->head, front + ONCE__FRAME_HEADER) != ONCE_E_CORRUPT;
    return 1;
}
