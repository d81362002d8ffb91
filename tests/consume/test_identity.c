/*
 * The ids of messages as texts: which bytes stay as they are, and that two values never give one text.
 */
#include "support/testing.h"

#include <stdio.h>
#include <string.h>

#include "consume/identity.h"

#define LONGEST 40

static once__broker_pair_t headers[4]; /* that all messages have */
static size_t header_count;

void __wrap_once__broker_delivery_headers(once__broker_delivery_t *delivery,
                                          void (*each)(void *data, once_slice_t name,
                                                       once_slice_t value),
                                          void *data);

void __wrap_once__broker_delivery_headers(once__broker_delivery_t *delivery,
                                          void (*each)(void *data, once_slice_t name,
                                                       once_slice_t value),
                                          void *data)
{
    for (size_t i = 0; i < header_count; i++) {
        each(data, headers[i].name, headers[i].value);
    }
}

static once__consume_identity_t identity(const char *text)
{
    once__consume_identity_t made;
    char error[100];

    assert_int_equal(once__consume_identity_read(&made, text, error, sizeof(error)), 0);
    return made;
}

/* What the documentation says, byte by byte. Returns the length. */
static size_t expect(char *text, const unsigned char *bytes, size_t len, int several)
{
    char *at = text;

    for (size_t i = 0; i < len; i++) {
        int stays =
            bytes[i] >= ' ' && bytes[i] <= '~' && bytes[i] != '%' && (bytes[i] != ':' || !several);
        at += sprintf(at, stays ? "%c" : "%%%02X", (unsigned)bytes[i]);
    }
    return (size_t)(at - text);
}

static void check_header(const once__consume_identity_t *by_header, const unsigned char *bytes,
                         size_t len)
{
    once__broker_delivery_t delivery = {.partition = 0};
    char expected[3 * 300 + 1] = "", why[100];
    size_t expected_len = expect(expected, bytes, len, 0);
    once__consume_id_t id;
    int code;

    headers[0] = (once__broker_pair_t){{"id", 2}, {bytes, len}};
    header_count = 1;
    code = once__consume_identity_of(by_header, &delivery, &id, why, sizeof(why));
    assert_int_equal(code == 0, len > 0 && expected_len <= ONCE_KEY_MAX);
    if (code == 0) {
        assert_int_equal(id.len, expected_len);
        assert_string_equal(id.text, expected);
    }
}

/* Every byte at every place, among bytes at both ends of what stays. */
static void every_byte_at_every_place(void **state)
{
    static const unsigned char around[] = {' ', '~', 'a', '%', 0, 0x1f, 0x7f, 0x80, 0xff};
    once__consume_identity_t by_header = identity("header:id");

    for (size_t len = 0; len <= LONGEST; len++) {
        for (size_t at = 0; at < len; at++) {
            for (unsigned byte = 0; byte < 256; byte++) {
                unsigned char bytes[LONGEST];
                memset(bytes, around[(at + len) % 3], sizeof(bytes));
                bytes[at] = (unsigned char)byte;
                check_header(&by_header, bytes, len);
                /* and beside one that may stay or not: none hides the other */
                bytes[at > 0 ? at - 1 : len - 1] = around[byte % sizeof(around)];
                check_header(&by_header, bytes, len);
            }
        }
    }
    once__consume_identity_free(&by_header);
}

/* As many as a key can have, and not one more, also where some become three. */
static void as_long_as_a_key(void **state)
{
    once__consume_identity_t by_header = identity("header:id");
    unsigned char bytes[300];

    for (size_t len = ONCE_KEY_MAX - 20; len <= ONCE_KEY_MAX + 20; len++) {
        for (size_t others = 0; others < 8; others++) {
            memset(bytes, 'a', sizeof(bytes));
            memset(bytes + 100, 0x80, others);
            check_header(&by_header, bytes, len);
        }
    }
    once__consume_identity_free(&by_header);
}

/* What keeps parts apart is never part of one. */
static void parts_are_kept_apart(void **state)
{
    once__consume_identity_t by_parts = identity("json:/a+/b");

    for (size_t len = 1; len <= LONGEST; len++) {
        for (size_t at = 0; at < len; at++) {
            for (unsigned byte = 0; byte < 128; byte++) {
                unsigned char bytes[LONGEST];
                char payload[200], expected[2 * (3 * LONGEST + 1)], why[100];
                once__broker_delivery_t delivery = {.partition = 0};
                once__consume_id_t id;
                size_t n;
                memset(bytes, 'a', sizeof(bytes));
                bytes[at] = (unsigned char)byte;
                n = (size_t)snprintf(payload, sizeof(payload),
                                     "{\"a\":\"%.*s\\u%04x%.*s\",\"b\":\"some:others\"}", (int)at,
                                     (const char *)bytes, byte, (int)(len - at - 1),
                                     (const char *)bytes + at + 1);
                delivery.payload = (once_slice_t){payload, n};
                n = expect(expected, bytes, len, 1);
                strcpy(expected + n, ":some%3Aothers");
                assert_int_equal(
                    once__consume_identity_of(&by_parts, &delivery, &id, why, sizeof(why)), 0);
                assert_string_equal(id.text, expected);
                assert_int_equal(id.len, strlen(expected));
            }
        }
    }
    once__consume_identity_free(&by_parts);
}

static int id_of(const char *by, const char *const *pairs, char *text)
{
    once__consume_identity_t by_header = identity(by);
    once__broker_delivery_t delivery = {.partition = 0};
    char why[100];
    once__consume_id_t id;
    int code;

    for (header_count = 0; pairs[2 * header_count] != NULL; header_count++) {
        const char *name = pairs[2 * header_count], *value = pairs[2 * header_count + 1];
        headers[header_count] = (once__broker_pair_t){{name, strlen(name)}, {value, strlen(value)}};
    }
    code = once__consume_identity_of(&by_header, &delivery, &id, why, sizeof(why));
    strcpy(text, code == 0 ? id.text : why);
    once__consume_identity_free(&by_header);
    return code;
}

/* A header that was added on the way must not decide which message it is. */
static void one_header_says_the_id(void **state)
{
    static const struct {
        const char *by, *pairs[9], *id; /* NULL: it has none */
    } cases[] = {
        {NULL, {"a", "x", "ce_id", "1"}, "1"},
        {NULL, {"CE_ID", "1", "ce_id", "1"}, "1"},
        {NULL, {"ce_id", "1", "ce_id", "2"}, NULL},
        {NULL, {"ce_id", "1", "Ce_Id", "2"}, NULL},
        {NULL, {"ce_id", "1", "ce_id", ""}, NULL},
        {NULL, {"cloudEvents:id", "1"}, "1"},
        {NULL, {"ce_id", "1", "cloudEvents_id", "2"}, NULL},
        {NULL, {"ce-id", "1"}, NULL},
        {"header:id", {"id", "1", "ce_id", "2"}, "1"},
        {"header:id", {"id", "1", "id", "2"}, NULL},
    };
    char text[ONCE_KEY_TEXT_SIZE];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int code = id_of(cases[i].by, cases[i].pairs, text);
        assert_int_equal(code, cases[i].id != NULL ? 0 : -1);
        if (code == 0) {
            assert_string_equal(text, cases[i].id);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_at_every_place),
        cmocka_unit_test(as_long_as_a_key),
        cmocka_unit_test(parts_are_kept_apart),
        cmocka_unit_test(one_header_says_the_id),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
