#include "core/json_number.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ reading */

/* Exponents beyond this are cut. A document's digits can shift the point by a million places at most, so a cut one is out of
   a double's range whatever the digits are. */
#define EXPONENT_MAX 100000000

typedef struct reader {
    const char *at;
    const char *end;
    once__number_t *number;
    int32_t
        zeros; /* zeros read since the last other digit: they count only if another one follows */
} reader_t;

static int is_digit(const reader_t *reader)
{
    return reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9';
}

static void add_digit(once__number_t *number, char digit)
{
    if (number->count < ONCE__NUMBER_DIGITS) {
        number->digits[number->count++] = digit;
    } else {
        number->cut = 1;
    }
}

/* Digits up to the next other character; returns how many. The point moves right by `step` with each. */
static size_t read_digits(reader_t *reader, int32_t step)
{
    once__number_t *number = reader->number;
    const char *start = reader->at;

    for (; is_digit(reader); reader->at++) {
        if (*reader->at != '0') {
            for (; reader->zeros > 0 && !number->cut; reader->zeros--) {
                add_digit(number, '0');
            }
            reader->zeros = 0;
            add_digit(number, *reader->at);
            number->point += step;
        } else if (number->count > 0) {
            reader->zeros++;
            number->point += step;
        } else {
            number->point -= 1 - step; /* 0.000ddd: the digits begin further right */
        }
    }
    return (size_t)(reader->at - start);
}

static int read_exponent(reader_t *reader)
{
    int32_t exponent = 0;
    int negative = 0;

    reader->at++;
    if (reader->at < reader->end && (*reader->at == '+' || *reader->at == '-')) {
        negative = *reader->at++ == '-';
    }
    if (!is_digit(reader)) {
        return -1;
    }
    for (; is_digit(reader); reader->at++) {
        if (exponent < EXPONENT_MAX) {
            exponent = exponent * 10 + (*reader->at - '0');
        }
    }
    reader->number->point += negative ? -exponent : exponent;
    return 0;
}

size_t once__number_scan(const char *text, size_t len, once__number_t *number)
{
    reader_t reader = {text, text + len, number, 0};

    memset(number, 0, sizeof(*number));
    if (len > 0 && *text == '-') {
        number->negative = 1;
        reader.at++;
    }
    const char *first = reader.at;
    size_t whole = read_digits(&reader, 1);
    if (whole == 0 || (whole > 1 && *first == '0')) {
        return 0;
    }
    if (reader.at < reader.end && *reader.at == '.') {
        reader.at++;
        if (read_digits(&reader, 0) == 0) {
            return 0;
        }
    }
    if (reader.at < reader.end && (*reader.at == 'e' || *reader.at == 'E') &&
        read_exponent(&reader) != 0) {
        return 0;
    }
    return (size_t)(reader.at - text);
}

/* ---------------------------------------------------------------------------------------------- exact big arithmetic */

/* The largest value is below 2^60 * 5^340, less than 900 bits. */
#define LIMBS 16

__extension__ typedef unsigned __int128 wide_t;

typedef struct big {
    uint64_t limbs[LIMBS]; /* the least significant first */
    unsigned count;        /* in use; the top one is not 0 */
} big_t;

static void big_multiply(big_t *big, uint64_t factor)
{
    uint64_t carry = 0;

    assert(factor != 0);
    for (unsigned i = 0; i < big->count; i++) {
        wide_t product = (wide_t)big->limbs[i] * factor + carry;
        big->limbs[i] = (uint64_t)product;
        carry = (uint64_t)(product >> 64);
    }
    if (carry != 0) {
        assert(big->count < LIMBS);
        big->limbs[big->count++] = carry;
    }
}

static void big_shift(big_t *big, unsigned bits)
{
    unsigned limbs = bits / 64;

    bits %= 64;
    if (bits != 0) {
        big_multiply(big, (uint64_t)1 << bits);
    }
    assert(big->count + limbs <= LIMBS);
    memmove(big->limbs + limbs, big->limbs, big->count * sizeof(big->limbs[0]));
    memset(big->limbs, 0, limbs * sizeof(big->limbs[0]));
    big->count += limbs;
}

static int big_compare(const big_t *a, const big_t *b)
{
    if (a->count != b->count) {
        return a->count < b->count ? -1 : 1;
    }
    for (unsigned i = a->count; i-- > 0;) {
        if (a->limbs[i] != b->limbs[i]) {
            return a->limbs[i] < b->limbs[i] ? -1 : 1;
        }
    }
    return 0;
}

static void big_power_of_5(big_t *big, unsigned power)
{
    const uint64_t fifth27 = 7450580596923828125u; /* 5^27, the largest that fits */

    big->limbs[0] = 1;
    big->count = 1;
    for (; power >= 27; power -= 27) {
        big_multiply(big, fifth27);
    }
    for (; power > 0; power--) {
        big_multiply(big, 5);
    }
}

/* ------------------------------------------------------------------------------------------- is it the double's text? */

/* What is read as one double: everything from low * 2^binary to high * 2^binary; the double itself is middle * 2^binary. */
typedef struct range {
    uint64_t low;
    uint64_t middle;
    uint64_t high;
    int binary;
    int closed;  /* both ends are read as the double, too: its last bit is even */
    int decimal; /* decimals to compare with are t * 10^decimal */
    big_t power; /* 5^|decimal| */
} range_t;

/* The sign of t * 10^decimal - limit * 2^binary. Neither is 0. */
static int compare(const range_t *range, uint64_t t, uint64_t limit)
{
    big_t one = {{1}, 1};
    big_t left = range->decimal >= 0 ? range->power : one;
    big_t right = range->decimal >= 0 ? one : range->power;
    int shift = range->binary - range->decimal;

    big_multiply(&left, t);
    big_multiply(&right, limit);
    if (shift >= 0) {
        big_shift(&right, (unsigned)shift);
    } else {
        big_shift(&left, (unsigned)-shift);
    }
    return big_compare(&left, &right);
}

/* Would t * 10^decimal be read as the double? */
static int inside(const range_t *range, uint64_t t)
{
    int low = compare(range, t, range->low), high = compare(range, t, range->high);

    return range->closed ? low >= 0 && high <= 0 : low > 0 && high < 0;
}

static void range_set(range_t *range, double value, int decimal)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint64_t fraction = bits & (((uint64_t)1 << 52) - 1);
    int biased = (int)(bits >> 52 & 0x7ff);
    uint64_t mantissa = biased == 0 ? fraction : fraction | (uint64_t)1 << 52;

    range->binary = (biased == 0 ? 1 : biased) - 1075 - 2;
    range->middle = 4 * mantissa;
    range->low = range->middle -
                 (fraction == 0 && biased > 1 ? 1 : 2); /* below 2^n doubles are twice as dense */
    range->high = range->middle + 2;
    range->closed = mantissa % 2 == 0;
    range->decimal = decimal;
    big_power_of_5(&range->power, (unsigned)abs(decimal));
}

/*
 * ECMAScript's text has as few digits as identify the double, and of those with that many digits the one closest to it (of
 * two, the even one). So the number t * 10^decimal is that text, unless one with fewer digits or a closer one is inside.
 */
static int is_shortest(const range_t *range, uint64_t t, unsigned digits)
{
    uint64_t shorter = t - t % 10;

    if (digits > 1 && (inside(range, shorter) || inside(range, shorter + 10))) {
        return 0;
    }
    int above =
        -compare(range, 2 * t + 1, 2 * range->middle); /* > 0: t + 1 is closer; 0: as close */
    if ((above > 0 || (above == 0 && t % 2 != 0)) && inside(range, t + 1)) {
        return 0;
    }
    int below = compare(range, 2 * t - 1, 2 * range->middle);
    return !((below > 0 || (below == 0 && t % 2 != 0)) && inside(range, t - 1));
}

/* "e-7", "e+21": a sign always, no leading zeros. */
static char *write_exponent(char *out, int exponent)
{
    *out++ = 'e';
    *out++ = exponent < 0 ? '-' : '+';
    exponent = abs(exponent);
    if (exponent >= 100) {
        *out++ = (char)('0' + exponent / 100);
    }
    if (exponent >= 10) {
        *out++ = (char)('0' + exponent / 10 % 10);
    }
    *out++ = (char)('0' + exponent % 10);
    return out;
}

static int lossless_hard(const once__number_t *number)
{
    char text[ONCE__NUMBER_SIZE];
    int decimal = number->point - number->count;
    range_t range;

    /* Without a decimal point, so that the host's locale does not matter. */
    memcpy(text, number->digits, number->count);
    *write_exponent(text + number->count, decimal) = '\0';
    double value = strtod(text, NULL);
    if (value == 0 || isinf(value)) {
        return 0;
    }
    range_set(&range, value, decimal);
    return is_shortest(&range, strtoull(text, NULL, 10), number->count);
}

/*
 * Up to 15 digits, away from the ends of a double's range, different decimals have different doubles: the text of the double
 * is the decimal itself, and nothing needs to be computed. That is nearly every number anybody sends.
 */
int once__number_lossless(const once__number_t *number)
{
    if (number->count == 0) {
        return 1;
    }
    if (number->cut || number->point > 309 || number->point < -323) {
        return 0;
    }
    if (number->count <= 15 && number->point <= 308 && number->point >= -306) {
        return 1;
    }
    return lossless_hard(number);
}

/* ------------------------------------------------------------------------------------------------------------ writing */

static char *write_zeros(char *out, int count)
{
    memset(out, '0', (size_t)count);
    return out + count;
}

static char *write_digits(char *out, const once__number_t *number, int from, int to)
{
    memcpy(out, number->digits + from, (size_t)(to - from));
    return out + (to - from);
}

static char *write_scientific(char *out, const once__number_t *number)
{
    *out++ = number->digits[0];
    if (number->count > 1) {
        *out++ = '.';
        out = write_digits(out, number, 1, number->count);
    }
    return write_exponent(out, number->point - 1);
}

size_t once__number_write(const once__number_t *number, char out[ONCE__NUMBER_SIZE])
{
    int count = number->count, point = number->point;
    char *at = out;

    if (count == 0) {
        *out = '0'; /* also for -0 */
        return 1;
    }
    assert(!number->cut && abs(point) < 400);
    if (number->negative) {
        *at++ = '-';
    }
    if (point > 21 || point <= -6) {
        at = write_scientific(at, number);
    } else if (point >= count) {
        at = write_digits(at, number, 0, count);
        at = write_zeros(at, point - count);
    } else if (point > 0) {
        at = write_digits(at, number, 0, point);
        *at++ = '.';
        at = write_digits(at, number, point, count);
    } else {
        *at++ = '0';
        *at++ = '.';
        at = write_zeros(at, -point);
        at = write_digits(at, number, 0, count);
    }
    return (size_t)(at - out);
}
