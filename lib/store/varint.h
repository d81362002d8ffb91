/*
 * Numbers of seven bits a byte, lowest first (docs/format.md: `v`), and reading from untrusted bytes.
 */
#ifndef ONCE_STORE_VARINT_H
#define ONCE_STORE_VARINT_H

#include <stddef.h>
#include <stdint.h>

#define ONCE__VARINT_MAX 10

static inline uint8_t *once__put_varint(uint8_t *out, uint64_t number)
{
    while (number >= 0x80) {
        *out++ = (uint8_t)(number | 0x80);
        number >>= 7;
    }
    *out++ = (uint8_t)number;
    return out;
}

/* A signed number (`d`): twice the number, or twice the amount of a negative one less one. */
static inline uint8_t *once__put_signed(uint8_t *out, uint64_t number)
{
    return once__put_varint(out, number << 1 ^ (number >> 63 != 0 ? UINT64_MAX : 0));
}

/* What is still to be read. Behind a mistake everything is 0. */
typedef struct once__input {
    const uint8_t *at, *end;
    int is_broken;
} once__input_t;

/* At most 255 bytes. */
static inline const uint8_t *once__get_bytes(once__input_t *input, size_t len)
{
    static const uint8_t zeros[UINT8_MAX];
    const uint8_t *at = input->at;

    if ((size_t)(input->end - at) < len) {
        input->is_broken = 1;
        input->at = input->end;
        return zeros;
    }
    input->at += len;
    return at;
}

/* Only the shortest form of a number is one, and only if it is not above `most`. */
static inline uint64_t once__get_varint(once__input_t *input, uint64_t most)
{
    uint64_t number = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint64_t byte = *once__get_bytes(input, 1);
        number |= (byte & 0x7f) << shift;
        if (byte < 0x80) {
            input->is_broken |=
                number > most || (byte == 0 && shift > 0) || number >> shift != byte;
            return number;
        }
    }
    input->is_broken = 1;
    return 0;
}

static inline uint64_t once__get_signed(once__input_t *input)
{
    uint64_t number = once__get_varint(input, UINT64_MAX);

    return number >> 1 ^ (number & 1 ? UINT64_MAX : 0);
}

#endif
