#include "base/text.h"

#include <string.h>

#include "base/bytes.h"

static int is_continuation(unsigned char byte)
{
    return (byte & 0xc0) == 0x80;
}

size_t once__utf8_len(const void *at, size_t left)
{
    const unsigned char *p = at;
    unsigned char low = 0x80, high = 0xbf; /* what the second byte may be */

    if (left == 0) {
        return 0;
    }
    if (p[0] < 0x80) {
        return 1;
    }
    if (p[0] >= 0xc2 && p[0] <= 0xdf) {
        return left >= 2 && is_continuation(p[1]) ? 2 : 0;
    }
    if (p[0] >= 0xe0 && p[0] <= 0xef) {
        low = p[0] == 0xe0 ? 0xa0 : low;
        high = p[0] == 0xed ? 0x9f : high;
        return left >= 3 && p[1] >= low && p[1] <= high && is_continuation(p[2]) ? 3 : 0;
    }
    if (p[0] >= 0xf0 && p[0] <= 0xf4) {
        low = p[0] == 0xf0 ? 0x90 : low;
        high = p[0] == 0xf4 ? 0x8f : high;
        return left >= 4 && p[1] >= low && p[1] <= high && is_continuation(p[2]) &&
                       is_continuation(p[3])
                   ? 4
                   : 0;
    }
    return 0;
}

int once__percent_decode(char *out, size_t size, const char *text, size_t len)
{
    size_t at = 0;

    for (size_t i = 0; i < len; i++) {
        uint8_t byte = (uint8_t)text[i];
        if (byte == '%') {
            if (len - i < 3 || once__unhex(&byte, 1, text + i + 1, 2) != 0) {
                return -1;
            }
            i += 2;
        }
        if (byte == 0 || at + 1 >= size) {
            return -1;
        }
        out[at++] = (char)byte;
    }
    if (size == 0) {
        return -1;
    }
    out[at] = '\0';
    return 0;
}

size_t once__percent_escape(char out[3], char byte)
{
    static const char digits[] = "0123456789ABCDEF";

    out[0] = '%';
    out[1] = digits[(unsigned char)byte >> 4];
    out[2] = digits[(unsigned char)byte & 15];
    return 3;
}

size_t once__percent_encode(char out[3], char byte)
{
    char lower = (char)(byte | 0x20);

    if ((lower >= 'a' && lower <= 'z') || (byte >= '0' && byte <= '9') ||
        (byte != '\0' && strchr("-._~", byte) != NULL)) {
        out[0] = byte;
        return 1;
    }
    return once__percent_escape(out, byte);
}

int once__is_token(const void *text, size_t len)
{
    const char *p = text;

    for (size_t i = 0; i < len; i++) {
        char lower = (char)(p[i] | 0x20);
        if (!(lower >= 'a' && lower <= 'z') && !(p[i] >= '0' && p[i] <= '9') &&
            (p[i] == '\0' || strchr("!#$%&'*+-.^_`|~", p[i]) == NULL)) {
            return 0;
        }
    }
    return len > 0;
}

int once__is_field_value(const void *text, size_t len)
{
    const unsigned char *p = text;

    for (size_t i = 0; i < len; i++) {
        if ((p[i] < 0x20 && p[i] != '\t') || p[i] == 0x7f) {
            return 0;
        }
    }
    return 1;
}

size_t once__key_field(char *out, const char *key, size_t len)
{
    size_t at = 0;
    int plain = len > 0 && key[0] != ' ' && key[len - 1] != ' ';

    for (size_t i = 0; i < len; i++) {
        plain &= strchr("\",\\", key[i]) == NULL;
    }
    if (plain) {
        memcpy(out, key, len);
        out[len] = '\0';
        return len;
    }
    out[at++] = '"';
    for (size_t i = 0; i < len; i++) {
        if (key[i] == '"' || key[i] == '\\') {
            out[at++] = '\\';
        }
        out[at++] = key[i];
    }
    out[at++] = '"';
    out[at] = '\0';
    return at;
}

size_t once__json_escape(char out[6], char byte)
{
    static const char letters[] = "btn\0fr"; /* of 8 to 13; 11 has none */
    const uint8_t code = (uint8_t)byte;
    char hex[3];

    if (code == '"' || code == '\\') {
        out[0] = '\\';
        out[1] = byte;
        return 2;
    }
    if (code >= 8 && code <= 13 && letters[code - 8] != '\0') {
        out[0] = '\\';
        out[1] = letters[code - 8];
        return 2;
    }
    if (code < 0x20 || code == 0x7f) {
        once__hex(hex, &code, 1);
        memcpy(out, "\\u00", 4);
        memcpy(out + 4, hex, 2);
        return 6;
    }
    out[0] = byte;
    return 1;
}
