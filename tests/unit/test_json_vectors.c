/* Numbers and documents whose canonical text is known from elsewhere. */
#include "support/testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "core/json.h"

static int is_canonical(const char *document, const char *expected)
{
    char *text;
    size_t len;

    if (once__json_canonical(once__slice(document, strlen(document)), &text, &len) !=
        ONCE__JSON_FINE) {
        return expected == NULL;
    }
    int same = expected != NULL && len == strlen(expected) && memcmp(text, expected, len) == 0;
    free(text);
    return same;
}

static void becomes(const char *document, const char *expected)
{
    if (!is_canonical(document, expected)) {
        fail_msg("%s: is not %s", document, expected != NULL ? expected : "refused");
    }
}

static void refuses(const char *document, once__json_fault_t expected)
{
    char *text;
    size_t len;

    assert_int_equal(once__json_canonical(once__slice(document, strlen(document)), &text, &len),
                     expected);
}

/* The samples of RFC 8785, appendix B: a double's bits and its text. */
static const struct {
    uint64_t bits;
    const char *text;
} samples[] = {
    {0x0000000000000000, "0"},
    {0x0000000000000001, "5e-324"},
    {0x8000000000000001, "-5e-324"},
    {0x7fefffffffffffff, "1.7976931348623157e+308"},
    {0xffefffffffffffff, "-1.7976931348623157e+308"},
    {0x4340000000000000, "9007199254740992"},
    {0xc340000000000000, "-9007199254740992"},
    {0x4430000000000000, "295147905179352830000"},
    {0x44b52d02c7e14af5, "9.999999999999997e+22"},
    {0x44b52d02c7e14af6, "1e+23"},
    {0x44b52d02c7e14af7, "1.0000000000000001e+23"},
    {0x444b1ae4d6e2ef4e, "999999999999999700000"},
    {0x444b1ae4d6e2ef4f, "999999999999999900000"},
    {0x444b1ae4d6e2ef50, "1e+21"},
    {0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"},
    {0x3eb0c6f7a0b5ed8d, "0.000001"},
    {0x41b3de4355555553, "333333333.3333332"},
    {0x41b3de4355555554, "333333333.33333325"},
    {0x41b3de4355555555, "333333333.3333333"},
    {0x41b3de4355555556, "333333333.3333334"},
    {0x41b3de4355555557, "333333333.33333343"},
    {0xbecbf647612f3696, "-0.0000033333333333333333"},
    {0x43143ff3c1cb0959, "1424953923781206.2"},
};

static uint64_t bits_of(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static void the_samples_of_the_rfc(void **state)
{
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        assert_int_equal(bits_of(strtod(samples[i].text, NULL)), samples[i].bits);
        becomes(samples[i].text, samples[i].text);
    }
    becomes("-0", "0");
}

static void the_order_of_the_rfc(void **state)
{
    becomes("{\"\\u20ac\": \"Euro Sign\", \"\\r\": \"Carriage Return\", \"\\ufb33\": \"Hebrew "
            "Letter Dalet With "
            "Dagesh\", \"1\": \"One\", \"\\ud83d\\ude00\": \"Emoji: Grinning Face\", \"\\u0080\": "
            "\"Control\", "
            "\"\\u00f6\": \"Latin Small Letter O With Diaeresis\"}",
            "{\"\\r\":\"Carriage "
            "Return\",\"1\":\"One\",\"\xc2\x80\":\"Control\",\"\xc3\xb6\":\"Latin Small "
            "Letter O With Diaeresis\",\"\xe2\x82\xac\":\"Euro "
            "Sign\",\"\xf0\x9f\x98\x80\":\"Emoji: Grinning "
            "Face\",\"\xef\xac\xb3\":\"Hebrew Letter Dalet With Dagesh\"}");
}

#define REST                                                                                       \
    ", 1E30, 4.50, 2e-3, 0.000000000000000000000000001], \"string\": "                             \
    "\"\\u20ac$\\u000F\\u000aA'\\u0042\\u0022\\u005c\\\\\\\"\\/\", \"literals\": [null, true, "    \
    "false]}"

static void the_document_of_the_rfc(void **state)
{
    becomes("{\"numbers\": [333333333.3333333" REST,
            "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],"
            "\"string\":\"\xe2\x82\xac$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}");
    /* As it stands in the RFC it has a number that a double does not hold: there it is rounded, here that is a loss. */
    refuses("{\"numbers\": [333333333.33333329" REST, ONCE__JSON_NUMBER);
}

/* A number's text and what an ECMAScript engine prints for it; NULL where that is another decimal value. */
static const struct {
    const char *text;
    const char *canonical;
} numbers[] = {
    // clang-format off
    {"0", "0"},
    {"-0", "0"},
    {"0.0", "0"},
    {"-0e5", "0"},
    {"0e999999999", "0"},
    {"1", "1"},
    {"1.0", "1"},
    {"1e0", "1"},
    {"10e-1", "1"},
    {"0.1e1", "1"},
    {"-1.50", "-1.5"},
    {"100", "100"},
    {"1e2", "100"},
    {"1E+2", "100"},
    {"123456789012345", "123456789012345"},
    {"1234567890123456", "1234567890123456"},
    {"12345678901234567", NULL},
    {"12345678901234568", "12345678901234568"},
    {"123456789012345678", NULL},
    {"9007199254740991", "9007199254740991"},
    {"9007199254740992", "9007199254740992"},
    {"9007199254740993", NULL},
    {"9007199254740994", "9007199254740994"},
    {"-9007199254740993", NULL},
    {"0.1", "0.1"},
    {"0.2", "0.2"},
    {"0.3", "0.3"},
    {"0.30000000000000004", "0.30000000000000004"},
    {"0.1000000000000000055511151231257827", NULL},
    {"1.7976931348623157e308", "1.7976931348623157e+308"},
    {"1.7976931348623158e308", NULL},
    {"1.7976931348623159e308", NULL},
    {"1e308", "1e+308"},
    {"1e309", NULL},
    {"-1e309", NULL},
    {"2.2250738585072014e-308", "2.2250738585072014e-308"},
    {"2.2250738585072011e-308", NULL},
    {"2.225073858507201e-308", "2.225073858507201e-308"},
    {"2.22507385850720e-308", "2.2250738585072e-308"},
    {"5e-324", "5e-324"},
    {"4e-324", NULL},
    {"6e-324", NULL},
    {"4.9e-324", NULL},
    {"4.9406564584124654e-324", NULL},
    {"1e-323", "1e-323"},
    {"9.9e-324", NULL},
    {"1e-324", NULL},
    {"2e-324", NULL},
    {"1e-400", NULL},
    {"1e400", NULL},
    {"1e20", "100000000000000000000"},
    {"1e21", "1e+21"},
    {"1e22", "1e+22"},
    {"1e23", "1e+23"},
    {"100000000000000000000", "100000000000000000000"},
    {"1000000000000000000000", "1e+21"},
    {"123e18", "123000000000000000000"},
    {"123e19", "1.23e+21"},
    {"0.000001", "0.000001"},
    {"0.0000001", "1e-7"},
    {"1e-6", "0.000001"},
    {"1e-7", "1e-7"},
    {"0.00000123", "0.00000123"},
    {"0.0000000123", "1.23e-8"},
    {"99.99", "99.99"},
    {"12.345e3", "12345"},
    {"12.345e1", "123.45"},
    {"4.35", "4.35"},
    {"1.005", "1.005"},
    {"2.675", "2.675"},
    {"5e-7", "5e-7"},
    {"1.25e-7", "1.25e-7"},
    {"179769313486231570000000000000000000000", NULL},
    {"5.684341886080802e-14", "5.684341886080802e-14"},
    {"5.684341886080801e-14", "5.684341886080801e-14"},
    {"5.6843418860808015e-14", NULL},
    {"9.5367431640625e-7", "9.5367431640625e-7"},
    {"4.450147717014403e-308", "4.450147717014403e-308"},
    {"4.4501477170144023e-308", "4.4501477170144023e-308"},
    {"8.98846567431158e307", "8.98846567431158e+307"},
    {"1.1125369292536007e-308", "1.1125369292536007e-308"},
    {"6.8985890e-310", "6.898589e-310"},
    {"3.16e-322", "3.16e-322"},
    {"123.4560", "123.456"},
    {"9999999999999999", NULL},
    {"99999999999999990", NULL},
    {"0.1234567890123456", "0.1234567890123456"},
    {"0.12345678901234567", NULL},
    {"0.12345678901234568", "0.12345678901234568"},
    {"72057594037927940", "72057594037927940"},
    {"72057594037927936", NULL},
    {"72057594037927950", "72057594037927950"},
    {"1152921504606846976", NULL},
    {"1152921504606847000", "1152921504606847000"},
    {"18446744073709551615", NULL},
    {"18446744073709552000", "18446744073709552000"},
    {"4503599627370497.5", NULL},
    {"4503599627370496.5", NULL},
    {"2251799813685248.25", NULL},
    {"1.0000000000000002", "1.0000000000000002"},
    {"1.0000000000000001", NULL},
    {"1.0000000000000003", NULL},
    {"2e308", NULL},
    {"1.79769313486232e308", NULL},
    {"1.79769313486231e308", "1.79769313486231e+308"},
    {"0.300000000000000041", NULL},
    {"0.3000000000000000400000", "0.30000000000000004"},
    {"100000000000000000000001", NULL},
    {"1000000000000000000000010", NULL},
    {"3.000000000000000000000000001", NULL},
    // clang-format on
};

static void the_numbers_of_an_ecmascript_engine(void **state)
{
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        becomes(numbers[i].text, numbers[i].canonical);
        if (numbers[i].canonical == NULL) {
            refuses(numbers[i].text, ONCE__JSON_NUMBER);
        }
    }
}

static void long_numbers_are_read_to_their_end(void **state)
{
    char text[5000];

    /* 1 followed by 4000 zeros, and the exponent takes them back. */
    memset(text, '0', sizeof(text));
    text[0] = '1';
    strcpy(text + 4001, "e-4000");
    becomes(text, "1");
    strcpy(text + 4001, "1e-4001");
    refuses(text, ONCE__JSON_NUMBER);
    text[0] = '0';
    text[1] = '.';
    strcpy(text + 4001, "25e4000");
    becomes(text, "2.5");
    strcpy(text + 4001, "e4000");
    becomes(text, "0");
    becomes("1e-2147483648000", NULL);
    becomes("1e99999999999999999999", NULL);
    becomes("0e99999999999999999999", "0");
}

/* ---------------------------------------------------------------------------------- random doubles, found by trial */

static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* The significant digits of "d.ddde-x" without trailing zeros, as one number, and their count. */
static int digits_of(const char *text, uint64_t *digits)
{
    int count = 0, zeros = 0;

    *digits = 0;
    for (; *text != 'e'; text++) {
        if (*text >= '0' && *text <= '9') {
            *digits = *digits * 10 + (uint64_t)(*text - '0');
            count++;
            zeros = *text == '0' ? zeros + 1 : 0;
        }
    }
    for (; zeros > 0; zeros--, count--) {
        *digits /= 10;
    }
    return count;
}

/* The shortest text that is read as `value`, by trying every length and, at each, the closest decimal and its neighbours. */
static void shortest(double value, char out[40])
{
    for (int precision = 0; precision < 17; precision++) {
        static const int steps[] = {0, 1, -1};
        char text[40];
        (void)snprintf(text, sizeof(text), "%.*e", precision, value);
        int exponent = atoi(strchr(text, 'e') + 1) - precision;
        uint64_t digits = 0;
        for (const char *p = text; *p != 'e'; p++) {
            digits = *p == '.' ? digits : digits * 10 + (uint64_t)(*p - '0');
        }
        for (int i = 0; i < 3; i++) {
            (void)snprintf(out, 40, "%llue%d", (unsigned long long)(digits + (uint64_t)steps[i]),
                           exponent);
            if (strtod(out, NULL) == value) {
                return;
            }
        }
    }
    fail();
}

static double random_double(uint64_t *seed)
{
    for (;;) {
        uint64_t bits = next_random(seed) >> 1, kind = next_random(seed) % 6;
        double value;
        if (kind == 0) {
            bits &= ~(uint64_t)0 >> 12; /* below the smallest normal double */
        } else if (kind == 1) {
            bits &= ~(~(uint64_t)0 >> 12); /* a power of two: its lower neighbour is closer */
        }
        memcpy(&value, &bits, sizeof(value));
        if (isfinite(value) && value != 0) {
            return value;
        }
    }
}

/* The shortest text is fine. One with 17 digits is fine only if those are the shortest. */
static void random_doubles_are_held_without_loss(void **state)
{
    uint64_t seed = 88172645463325252u;

    for (int i = 0; i < 30000; i++) {
        double value = random_double(&seed);
        char text[40], full[40], *out;
        uint64_t digits, full_digits;
        size_t len;

        shortest(value, text);
        if (once__json_canonical(once__slice(text, strlen(text)), &out, &len) != ONCE__JSON_FINE) {
            fail_msg("%s is the text of a double", text);
        }
        char terminated[40] = "";
        memcpy(terminated, out, len);
        assert_true(strtod(terminated, NULL) == value);
        (void)snprintf(full, sizeof(full), "%.16e", value);
        int same =
            digits_of(text, &digits) == digits_of(full, &full_digits) && digits == full_digits;
        if (!is_canonical(full, same ? terminated : NULL)) {
            fail_msg("%s: shortest is %s", full, text);
        }
        free(out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_samples_of_the_rfc),
        cmocka_unit_test(the_order_of_the_rfc),
        cmocka_unit_test(the_document_of_the_rfc),
        cmocka_unit_test(the_numbers_of_an_ecmascript_engine),
        cmocka_unit_test(long_numbers_are_read_to_their_end),
        cmocka_unit_test(random_doubles_are_held_without_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
