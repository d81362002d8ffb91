/*
 * Small helpers over bytes: comparing without a timing leak, little-endian numbers, hex, base32 and base64 text.
 */
#ifndef ONCE_BASE_BYTES_H
#define ONCE_BASE_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <once/key.h>

/* Equal? Takes the same time wherever the difference is. */
static inline int once__equal(const void *a, const void *b, size_t len)
{
    const unsigned char *x = a, *y = b;
    uint64_t different = 0;
    for (; len >= 8; len -= 8, x += 8, y += 8) {
        uint64_t v, w;
        memcpy(&v, x, 8);
        memcpy(&w, y, 8);
        different |= v ^ w;
    }
    for (size_t i = 0; i < len; i++) {
        different |= (uint64_t)(x[i] ^ y[i]);
    }
    return different == 0;
}

static inline once_slice_t once__slice(const void *data, size_t len)
{
    once_slice_t slice = {data, len};
    return slice;
}

static inline once_slice_t once__slice_of(const char *text)
{
    return once__slice(text, strlen(text));
}

static inline void once__put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static inline void once__put32(uint8_t *p, uint32_t v)
{
    once__put16(p, (uint16_t)v);
    once__put16(p + 2, (uint16_t)(v >> 16));
}

static inline void once__put64(uint8_t *p, uint64_t v)
{
    once__put32(p, (uint32_t)v);
    once__put32(p + 4, (uint32_t)(v >> 32));
}

static inline uint16_t once__get16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t once__get32(const uint8_t *p)
{
    return (uint32_t)once__get16(p) | (uint32_t)once__get16(p + 2) << 16;
}

static inline uint64_t once__get64(const uint8_t *p)
{
    return (uint64_t)once__get32(p) | (uint64_t)once__get32(p + 4) << 32;
}

/* The value of a hex digit of either case; -1 for any other byte. */
static inline int once__hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The lower-case hex digit with a value of 0 to 15. */
static inline char once__to_hex_digit(unsigned value)
{
    return "0123456789abcdef"[value];
}

/* Writes 2 * len lower-case characters and a terminator. */
void once__hex(char *out, const uint8_t *data, size_t len);

/* Reads exactly 2 * len hex characters (either case). 0, or -1 when the text is not that. */
int once__unhex(uint8_t *out, size_t len, const char *text, size_t text_len);

/* Unpadded base64url and lower-case base32 (RFC 4648) with a terminator; sizes for `len` bytes are below. */
#define ONCE__BASE64_SIZE(len) (((len)*8 + 5) / 6 + 1)
#define ONCE__BASE32_SIZE(len) (((len)*8 + 4) / 5 + 1)
void once__base64url(char *out, const uint8_t *data, size_t len);
void once__base32(char *out, const uint8_t *data, size_t len);

/* Base64 with padding, (len + 2) / 3 * 4 characters, and a terminator. */
void once__base64(char *out, const uint8_t *data, size_t len);

/* Reads exactly `len` bytes from unpadded base64url text; spare bits must be zero. 0, or -1. */
int once__unbase64url(uint8_t *out, size_t len, const char *text, size_t text_len);

#endif
