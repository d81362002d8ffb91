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
    /* zeros read since the last other digit: they count only if another one follows */
    int32_t zeros;
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

    uint64_t rest = 1;

    for (unsigned i = power % 27; i > 0; i--) {
        rest *= 5;
    }
    big->limbs[0] = rest;
    big->count = 1;
    for (; power >= 27; power -= 27) {
        big_multiply(big, fifth27);
    }
}

/* ---------------------------------------------------------------------------------------------- near arithmetic, fast */

/* A number from below: top * 2^exponent, its highest bit set. What was cut off is less than the last bit. */
typedef struct near {
    wide_t top;
    int exponent;
} near_t;

static near_t near_normal(near_t near)
{
    uint64_t high = (uint64_t)(near.top >> 64);
    int shift = high != 0 ? __builtin_clzll(high) : 64 + __builtin_clzll((uint64_t)near.top);

    return (near_t){near.top << shift, near.exponent - shift};
}

static near_t near_big(const big_t *big)
{
    uint64_t below = big->count > 2 ? big->limbs[big->count - 3] : 0;
    uint64_t low = big->count > 1 ? big->limbs[big->count - 2] : 0;
    uint64_t high = big->limbs[big->count - 1];
    int shift = __builtin_clzll(high);
    wide_t top = ((wide_t)high << 64 | low) << shift;

    if (shift > 0) {
        top |= below >> (64 - shift);
    }
    return (near_t){top, 64 * ((int)big->count - 2) - shift};
}

/* The product of a near number and an exact one: what is cut off is less than four of its last bits. */
static near_t near_multiply(near_t near, uint64_t factor)
{
    near_t exact = near_normal((near_t){factor, 0});
    uint64_t f = (uint64_t)(exact.top >> 64);
    wide_t low = (wide_t)(uint64_t)near.top * f;
    wide_t high = (wide_t)(uint64_t)(near.top >> 64) * f + (uint64_t)(low >> 64);

    return near_normal((near_t){high, near.exponent + exact.exponent + 128});
}

/* The sign of left - right; 0 if they are too close to decide. */
static int near_compare(near_t left, near_t right)
{
    if (left.exponent != right.exponent) {
        /* Also one that was cut down to the end of its binade is at most as large as the other. */
        int apart = left.exponent - right.exponent;
        if (apart == 1 || apart == -1) {
            wide_t larger = apart > 0 ? left.top : right.top;
            wide_t smaller = apart > 0 ? right.top : left.top;
            if (larger - ((wide_t)1 << 127) < 8 && ~smaller < 8) {
                return 0;
            }
        }
        return apart < 0 ? -1 : 1;
    }
    if (left.top > right.top) {
        return left.top - right.top > 8 ? 1 : 0;
    }
    return right.top - left.top > 8 ? -1 : 0;
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
    near_t near; /* the same, from below */
} range_t;

/* The first 128 bits of both sides are nearly always enough; then nothing is copied or multiplied out. */
static int compare_near(const range_t *range, uint64_t t, uint64_t limit)
{
    near_t one = {1, 0};
    near_t left = near_multiply(range->decimal >= 0 ? range->near : near_normal(one), t);
    near_t right = near_multiply(range->decimal >= 0 ? near_normal(one) : range->near, limit);

    left.exponent += range->decimal;
    right.exponent += range->binary;
    return near_compare(left, right);
}

/* The sign of t * 10^decimal - limit * 2^binary. Neither is 0. */
static int compare_exact(const range_t *range, uint64_t t, uint64_t limit)
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

static int compare(const range_t *range, uint64_t t, uint64_t limit)
{
    int near = compare_near(range, t, limit);

    return near != 0 ? near : compare_exact(range, t, limit);
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
    range->near = near_big(&range->power);
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
    /* > 0: t + 1 is closer; 0: as close */
    int above = -compare(range, 2 * t + 1, 2 * range->middle);
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

/* By the library, without a decimal point, so that the host's locale does not matter. */
static double nearest(const once__number_t *number, int decimal)
{
    char text[ONCE__NUMBER_SIZE];

    memcpy(text, number->digits, number->count);
    *write_exponent(text + number->count, decimal) = '\0';
    return strtod(text, NULL);
}

/*
 * Among the smallest doubles, which are all 2^-1074 apart, a close one is cheap to find, and it is nearly always the nearest.
 * These are the numbers whose texts are short and yet hard: 5e-324, 1.5e-323.
 */
static double guess(uint64_t t, int decimal)
{
    double steps = (double)t * 0.20240225330731063; /* 10^-324 / 2^-1074 */

    for (; decimal < -324; decimal++) {
        steps /= 10;
    }
    return ldexp(steps, -1074);
}

static int lossless_hard(const once__number_t *number)
{
    int decimal = number->point - number->count;
    double value;
    uint64_t t = 0;
    range_t range;

    for (unsigned i = 0; i < number->count; i++) {
        t = 10 * t + (uint64_t)(number->digits[i] - '0');
    }
    if (decimal <= -324 && number->count <= 15) {
        value = guess(t, decimal);
        if (value != 0) {
            range_set(&range, value, decimal);
            if (inside(&range, t)) {
                return is_shortest(&range, t, number->count);
            }
        }
    }
    value = nearest(number, decimal);
    if (value == 0 || isinf(value)) {
        return 0;
    }
    range_set(&range, value, decimal);
    return is_shortest(&range, t, number->count);
}

/*
 * Where decimals of that many digits are further apart than doubles are, each has a double of its own, and the text of that
 * double is the decimal itself: nothing needs to be computed. That is so for 15 digits, and nearly all numbers in practice
 * have no more. At the small end of the range doubles are 2^-1074 (5e-324) apart below 4e-308, and four times that below 1e-306.
 */
static int lossless_easy(const once__number_t *number)
{
    static const char top[] = "179769313486231"; /* of the largest double */
    int decimal = number->point - number->count;

    if (number->count > 15) {
        return 0;
    }
    if (number->point == 309) {
        return memcmp(number->digits, top, number->count) <= 0;
    }
    return number->point >= -306 || decimal >= (number->point <= -308 ? -323 : -322);
}

/*
 * Short texts of numbers that are hard would make a document slow: what is easy is not computed, and what is hard takes about
 * as long for each of its bytes as other numbers do. A bound of hard numbers would be simpler, but the canonical form of a
 * document must not depend on the machine.
 */
int once__number_lossless(const once__number_t *number)
{
    if (number->count == 0) {
        return 1;
    }
    if (number->cut || number->point > 309 || number->point < -323) {
        return 0;
    }
    return lossless_easy(number) || lossless_hard(number);
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
