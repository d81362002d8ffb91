#include "support/testing.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/units.h"
#include "core/audit.h"

static const once__audit_link_t none;

static void entries_are_chained(void **state)
{
    once__audit_words_t words = {.time_ms = 1794837806123, .act = "purge", .step = "intent"};
    once__audit_link_t first, second, read;
    char line[ONCE__AUDIT_LINE_MAX + 1];
    once_slice_t json;
    size_t len;

    words.by = once__slice_of("ana@host");
    len = once__audit_write(line, &words, &none, &first);
    assert_int_equal(len, strlen(line));
    assert_int_equal(first.number, 1);
    assert_int_equal(once__audit_read(line, len, &read, &json), 0);
    assert_memory_equal(&read, &first, sizeof(read));
    assert_true(once__audit_is_whole(&read, json));
    assert_int_equal(json.len, strlen("{\"time\":\"2026-11-16T14:03:26.123Z\",\"by\":\"ana@host\","
                                      "\"act\":\"purge\",\"step\":\"intent\"}"));
    assert_non_null(strstr(line, " {\"time\":\"2026-11-16T14:03:26.123Z\",\"by\":\"ana@host\""));
    (void)once__audit_write(line, &words, &first, &second);
    assert_int_equal(second.number, 2);
    assert_memory_equal(second.prev, first.hash, sizeof(first.hash));
}

/* Any changed byte makes it unreadable, or not whole. */
static void a_changed_byte_is_noticed(void **state)
{
    once__audit_words_t words = {.act = "settle failed", .step = "intent", .from = "unknown"};
    char line[ONCE__AUDIT_LINE_MAX + 1];
    once__audit_link_t link;
    once_slice_t json;
    size_t len = once__audit_write(line, &words, &none, &link);

    for (size_t i = 0; i < len; i++) {
        char was = line[i];
        int good;
        line[i] ^= 1;
        good = once__audit_read(line, len, &link, &json) == 0 && once__audit_is_whole(&link, json);
        assert_false(good);
        line[i] = was;
    }
    for (size_t i = 0; i < len; i++) {
        assert_false(once__audit_read(line, i, &link, &json) == 0 &&
                     once__audit_is_whole(&link, json));
    }
}

/* What is not an entry has a place in the chain as well. */
static void lines_that_are_no_entries_are_followed(void **state)
{
    static const struct {
        const char *line;
        uint64_t number; /* behind entry 41 */
    } cases[] = {
        {"", 42},           {"nonsense", 42},    {"42 nonsense", 42}, {"45 nonsense", 45},
        {"7 nonsense", 42}, {"420nonsense", 42}, {"045 x", 42},       {"1000000000000000000 x", 42},
    };
    once__audit_words_t words = {.act = "purge", .step = "intent"};
    char line[ONCE__AUDIT_LINE_MAX + 1];
    uint8_t hash[ONCE__SHA256_SIZE];
    once__audit_link_t link, next;
    once__sha256_t sum;
    once_slice_t json;
    size_t len;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        link = (once__audit_link_t){.number = 41};
        len = strlen(cases[i].line);
        assert_int_equal(once__audit_follow(cases[i].line, len, &link, &json), -1);
        assert_int_equal(link.number, cases[i].number);
        assert_int_equal(json.len, len);
        once__sha256_init(&sum);
        once__sha256_add(&sum, cases[i].line, len);
        once__sha256_end(&sum, hash);
        assert_memory_equal(link.hash, hash, sizeof(hash));
        len = once__audit_write(line, &words, &link, &next);
        assert_int_equal(once__audit_follow(line, len, &link, &json), 0);
        assert_memory_equal(&link, &next, sizeof(link));
    }
}

/* The longest texts, of bytes that need the longest escapes, fit, and nothing in them ends the line or the string. */
static void hostile_texts_fit(void **state)
{
    static char by[ONCE_AUDIT_BY_MAX], note[ONCE_NOTE_MAX], object[ONCE_AUDIT_OBJECT_MAX];
    uint8_t id[ONCE_ID_SIZE] = {0};
    once__claim_ref_t claim = {.epoch = UINT32_MAX};
    char line[ONCE__AUDIT_LINE_MAX + 1];
    once__audit_link_t link;
    once_slice_t json;
    size_t len;

    memset(by, '\n', sizeof(by));
    memset(note, '\x01', sizeof(note));
    memset(object, '\x1f', sizeof(object));
    len = once__audit_write(line,
                            &(once__audit_words_t){.time_ms = UINT64_MAX,
                                                   .by = {by, sizeof(by)},
                                                   .act = "thirty-two characters, at the most",
                                                   .step = "result",
                                                   .of = UINT64_MAX,
                                                   .record = id,
                                                   .scope_hash = id,
                                                   .claim = &claim,
                                                   .from = "completed",
                                                   .to = "completed",
                                                   .object = {object, sizeof(object)},
                                                   .result = {object, 64},
                                                   .note = {note, sizeof(note)}},
                            &(once__audit_link_t){.number = 99999999999999999}, &link);
    assert_true(len < ONCE__AUDIT_LINE_MAX);
    assert_int_equal(line[len - 1], '}');
    assert_null(strchr(line, '\n'));
    assert_int_equal(once__audit_read(line, len, &link, &json), 0);
    assert_true(once__audit_is_whole(&link, json));
    memcpy(note, "\"\\ \xff\xc3\xa9", 6);
    len = once__audit_write(line, &(once__audit_words_t){.note = {note, 6}}, &none, &link);
    assert_non_null(strstr(line, "\"note\":\"\\\"\\\\ ?\xc3\xa9\"}"));
}

static void times(void **state)
{
    static const struct {
        uint64_t ms;
        const char *text;
    } cases[] = {
        {0, "1970-01-01T00:00:00.000Z"},
        {951782399999, "2000-02-28T23:59:59.999Z"},
        {951868800000, "2000-03-01T00:00:00.000Z"},
        {951782400000, "2000-02-29T00:00:00.000Z"},
        {1735689599999, "2024-12-31T23:59:59.999Z"},
        {4107542400000, "2100-03-01T00:00:00.000Z"},
        {UINT64_MAX, "9999-12-31T23:59:59.999Z"},
    };
    char text[ONCE__TIME_SIZE];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        once__time_format(text, cases[i].ms);
        assert_string_equal(text, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_are_chained),
        cmocka_unit_test(a_changed_byte_is_noticed),
        cmocka_unit_test(lines_that_are_no_entries_are_followed),
        cmocka_unit_test(hostile_texts_fit),
        cmocka_unit_test(times),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
