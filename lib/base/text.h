/*
 * Text from outside: UTF-8, percent-encoding, header fields of HTTP, strings of JSON.
 */
#ifndef ONCE_BASE_TEXT_H
#define ONCE_BASE_TEXT_H

#include <stddef.h>

/* The length of the UTF-8 character at `at` (RFC 3629: shortest form, no surrogates, up to U+10FFFF), at most `left`; 0 if it is
 * none. */
size_t once__utf8_len(const void *at, size_t left);

/*
 * Decodes %XX. Writes at most `size` bytes with the terminator; `out` may be `text`. Returns 0, or -1 if an escape is incomplete
 * or stands for a zero byte, or if the result does not fit.
 */
int once__percent_decode(char *out, size_t size, const char *text, size_t len);

/* Writes the form that a byte has in any part of a URL: itself if it is unreserved (RFC 3986), else %XX. Returns its length. */
size_t once__percent_encode(char out[3], char byte);

/* Writes %XX, whichever byte it is: for texts that leave others as they are than a URL does. Returns 3. */
size_t once__percent_escape(char out[3], char byte);

/* May it be the name of a header, a method or the like (RFC 9110, token)? */
int once__is_token(const void *text, size_t len);

/* May it be the value of a header: no control bytes except tabs? */
int once__is_field_value(const void *text, size_t len);

/*
 * Writes a key as the value of a header: as it is, or as a quoted string (RFC 8941) where it could be mistaken for something else.
 * `out` has room for 2 * len + 3 bytes. Returns the length.
 */
size_t once__key_field(char *out, const char *key, size_t len);

/* Writes the form that an ASCII byte has in a string of JSON, with short escapes where there are any. Returns its length. */
size_t once__json_escape(char out[6], char byte);

#endif
