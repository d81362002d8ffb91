/*
 * Numbers of a JSON document in the text that ECMAScript gives to a double (RFC 8785, 3.2.2.3).
 *
 * A number is kept as its decimal digits, never as a double. If its text in the document and the text of the nearest double have
 * the same decimal value, the canonical text is those digits in another layout. If they differ, the document has no canonical form.
 */
#ifndef ONCE_CORE_JSON_NUMBER_H
#define ONCE_CORE_JSON_NUMBER_H

#include <stddef.h>
#include <stdint.h>

#define ONCE__NUMBER_DIGITS 17 /* no text of a double needs more */
#define ONCE__NUMBER_SIZE   32 /* holds any canonical number */

/* The value is 0.DIGITS * 10^point, negative or not; count 0 is zero. The first and the last digit are not '0'. */
typedef struct once__number {
    char digits[ONCE__NUMBER_DIGITS];
    uint8_t count;
    uint8_t negative;
    /* there are more digits than a double's text can have; only the first ones are kept */
    uint8_t cut;
    int32_t point;
} once__number_t;

/* Reads a number from the start of `text`; returns its length, 0 if it is not a number by the grammar of RFC 8259. */
size_t once__number_scan(const char *text, size_t len, once__number_t *number);

/* Is the nearest double's text the same decimal value? */
int once__number_lossless(const once__number_t *number);

/* Writes the canonical text of a lossless number, not terminated; returns its length. */
size_t once__number_write(const once__number_t *number, char out[ONCE__NUMBER_SIZE]);

#endif
