#include "base/bytes.h"

void once__hex(char *out, const uint8_t *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        *out++ = once__to_hex_digit(data[i] >> 4);
        *out++ = once__to_hex_digit(data[i] & 15);
    }
    *out = '\0';
}

int once__unhex(uint8_t *out, size_t len, const char *text, size_t text_len)
{
    if (text_len != 2 * len) {
        return -1;
    }
    for (size_t i = 0; i < len; i++) {
        int high = once__hex_digit(text[2 * i]), low = once__hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0) {
            return -1;
        }
        out[i] = (uint8_t)(high << 4 | low);
    }
    return 0;
}

/* Writes the bits of `data`, most significant first, `width` at a time; the last character is filled with zero bits. */
static void write_bits(char *out, const uint8_t *data, size_t len, unsigned width,
                       const char *alphabet)
{
    unsigned held = 0, bits = 0;

    for (size_t i = 0; i < len; i++) {
        held = held << 8 | data[i];
        bits += 8;
        while (bits >= width) {
            bits -= width;
            *out++ = alphabet[held >> bits & ((1u << width) - 1)];
        }
        held &= (1u << bits) - 1;
    }
    if (bits > 0) {
        *out++ = alphabet[held << (width - bits) & ((1u << width) - 1)];
    }
    *out = '\0';
}

/* Whole groups first: every claim that a gateway forwards is written like this. */
static inline void write_base64(char *out, const uint8_t *data, size_t len, const char *alphabet)
{
    for (; len >= 3; len -= 3, data += 3, out += 4) {
        unsigned bits = (unsigned)data[0] << 16 | (unsigned)data[1] << 8 | data[2];
        out[0] = alphabet[bits >> 18];
        out[1] = alphabet[bits >> 12 & 63];
        out[2] = alphabet[bits >> 6 & 63];
        out[3] = alphabet[bits & 63];
    }
    write_bits(out, data, len, 6, alphabet);
}

#define LETTERS_AND_DIGITS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

void once__base64url(char *out, const uint8_t *data, size_t len)
{
    write_base64(out, data, len, LETTERS_AND_DIGITS "-_");
}

void once__base64(char *out, const uint8_t *data, size_t len)
{
    write_base64(out, data, len, LETTERS_AND_DIGITS "+/");
    if (len % 3 != 0) {
        memcpy(out + len / 3 * 4 + len % 3 + 1, "==", 3 - len % 3);
        out[(len + 2) / 3 * 4] = '\0';
    }
}

void once__base32(char *out, const uint8_t *data, size_t len)
{
    write_bits(out, data, len, 5, "abcdefghijklmnopqrstuvwxyz234567");
}

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    if (c == '-') {
        return 62;
    }
    return c == '_' ? 63 : -1;
}

int once__unbase64url(uint8_t *out, size_t len, const char *text, size_t text_len)
{
    unsigned held = 0, bits = 0;

    if (text_len != ONCE__BASE64_SIZE(len) - 1) {
        return -1;
    }
    for (size_t i = 0; i < text_len; i++) {
        int value = base64_value(text[i]);
        if (value < 0) {
            return -1;
        }
        held = held << 6 | (unsigned)value;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            *out++ = (uint8_t)(held >> bits);
            held &= (1u << bits) - 1;
        }
    }
    return held == 0 ? 0 : -1;
}
