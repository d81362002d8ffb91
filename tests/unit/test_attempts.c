#include "support/testing.h"

#include <string.h>

#include "base/bytes.h"
#include "core/about.h"
#include "core/attempts.h"

/* A record that says why, with a holder. */
typedef struct told {
    once__record_t record;
    uint8_t about[ONCE__ABOUT_MAX], why[2][ONCE__WHY_MAX];
    int turn;
} told_t;

static void say(told_t *told, const char *holder, uint8_t state, const char *cause)
{
    once__about_t about = {.holder = once__slice_of(holder)};

    told->record.about = once__slice(told->about, once__about_write(told->about, &about));
    told->record.head.state = state;
    told->record.cause =
        once__attempts_after(told->why[told->turn ^= 1], &told->record, 0, once__slice_of(cause));
}

static void grant(told_t *told)
{
    told->record.cause =
        once__attempts_after(told->why[told->turn ^= 1], &told->record,
                             told->record.head.claim.epoch > 0, once__slice_of(""));
    told->record.head.claim.epoch++;
}

static void assert_attempt(const told_t *told, unsigned n, once_state_t state, const char *cause,
                           const char *holder)
{
    once_attempt_t attempt;

    assert_true(once__attempts_read(&attempt, &told->record, n));
    assert_int_equal(attempt.epoch, told->record.head.claim.epoch - 1 - n);
    assert_int_equal(attempt.state, state);
    assert_int_equal(attempt.cause.len, strlen(cause));
    assert_memory_equal(attempt.cause.data, cause, attempt.cause.len);
    assert_int_equal(attempt.holder.len, strlen(holder));
    assert_memory_equal(attempt.holder.data, holder, attempt.holder.len);
}

static unsigned count(const told_t *told)
{
    once_attempt_t attempt;
    unsigned n = 0;

    while (once__attempts_read(&attempt, &told->record, n)) {
        n++;
    }
    return n;
}

/* One attempt has no bytes. SQL and Lua write these bytes: their form is part of the contract. */
static void as_bytes(void **state)
{
    told_t told = {.record.head = {.changed = 0x010203040506, .lease_until = 7}};

    grant(&told);
    assert_int_equal(told.record.cause.len, 0);
    say(&told, "h:1", ONCE_STATE_UNKNOWN, "timeout");
    assert_int_equal(told.record.cause.len, 7);
    grant(&told);
    assert_int_equal(told.record.cause.len, 19);
    assert_memory_equal(told.record.cause.data, "\0\x11\x83\1\2\3\4\5\6h:1timeout", 19);
    say(&told, "", ONCE_STATE_COMPLETED, "settled");
    assert_int_equal(told.record.cause.len, 26);
    assert_memory_equal(told.record.cause.data, "settled\0\x11\x83\1\2\3\4\5\6h:1timeout", 26);
    assert_int_equal(once__attempts_cause(told.record.cause).len, 7);
}

static void how_each_ended(void **state)
{
    told_t told = {.record.head = {.changed = 5, .lease_until = 7}};
    once_attempt_t attempt;

    grant(&told);
    say(&told, "a:1", ONCE_STATE_PENDING, "");
    grant(&told);
    say(&told, "b:2", ONCE_STATE_FAILED, "");
    told.record.payload = (once__payload_t){ONCE__PAYLOAD_NOTE, 503, (const uint8_t *)"no", 2};
    grant(&told);
    told.record.payload = (once__payload_t){0};
    say(&told, "c:3", ONCE_STATE_UNKNOWN, "");
    told.record.head.flags = ONCE__BY_LEASE;
    grant(&told);
    told.record.head.flags = 0;
    say(&told, "", ONCE_STATE_UNKNOWN, "reset");
    grant(&told);
    assert_int_equal(count(&told), 4);
    assert_attempt(&told, 0, ONCE_STATE_UNKNOWN, "reset", "");
    assert_attempt(&told, 1, ONCE_STATE_UNKNOWN, "lease over", "c:3");
    assert_attempt(&told, 2, ONCE_STATE_FAILED, "no", "b:2");
    assert_attempt(&told, 3, ONCE_STATE_UNKNOWN, "lease over", "a:1");
    assert_true(once__attempts_read(&attempt, &told.record, 3));
    assert_int_equal(attempt.ended, 7);
    assert_true(once__attempts_read(&attempt, &told.record, 2));
    assert_int_equal(attempt.ended, 5);
}

/* The oldest go first, whole, when there is no room. */
static void bounded(void **state)
{
    char text[ONCE_CAUSE_MAX + 1], holder[ONCE__HOLDER_MAX + 1];
    told_t told = {.record.key_len = 1};

    for (unsigned i = 0; i < 20; i++) {
        grant(&told);
        say(&told, "h", ONCE_STATE_UNKNOWN, "");
        assert_int_equal(count(&told), i < ONCE__ATTEMPTS_MAX ? i : ONCE__ATTEMPTS_MAX);
    }
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    say(&told, "h", ONCE_STATE_UNKNOWN, text);
    assert_int_equal(told.record.cause.len, ONCE_CAUSE_MAX + 1 + 8 * 9);
    memset(holder, 'h', sizeof(holder) - 1);
    holder[sizeof(holder) - 1] = '\0';
    say(&told, holder, ONCE_STATE_UNKNOWN, text);
    grant(&told);
    text[ONCE__ATTEMPT_TEXT_MAX] = '\0';
    assert_attempt(&told, 0, ONCE_STATE_UNKNOWN, text, ""); /* its holder is too long */
    holder[ONCE__ATTEMPT_HOLDER_MAX] = '\0';
    for (unsigned i = 0; i < 4; i++) {
        say(&told, holder, ONCE_STATE_UNKNOWN, text);
        grant(&told);
    }
    assert_int_equal(count(&told), 2);
    assert_attempt(&told, 1, ONCE_STATE_UNKNOWN, text, holder);
}

/* A cut within a character does not cost the text; what no terminal should see does. */
static void clean(void **state)
{
    told_t told = {.record.key_len = 1};

    grant(&told);
    say(&told, "h:1", ONCE_STATE_UNKNOWN, "123456789012345678901234567890123456789\xc3\xa4");
    grant(&told);
    assert_attempt(&told, 0, ONCE_STATE_UNKNOWN, "123456789012345678901234567890123456789", "h:1");
    say(&told, "h:1", ONCE_STATE_UNKNOWN, "a\033[2Jbcdef");
    grant(&told);
    assert_attempt(&told, 0, ONCE_STATE_UNKNOWN, "", "h:1");
}

static void hostile(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
    } fields[] = {
        {"", 0},
        {"\0", 1},
        {"x\0\x07", 3},
        {"\0\x07\0\0\0\0\0\0", 8},        /* one byte short */
        {"\0\x06\0\0\0\0\0\0", 8},        /* too short for one */
        {"\0\x07\x01\0\0\0\0\0\0", 9},    /* its holder ends behind it */
        {"\0\x07\xc0\0\0\0\0\0\0", 9},    /* ended in no known way */
        {"\0\xff\0\0\0\0\0\0\0\0\0", 11}, /* ends behind the field */
    };
    uint8_t out[ONCE__WHY_MAX];

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        told_t told = {.record.head.claim.epoch = 9};
        told.record.cause = once__slice(fields[i].bytes, fields[i].len);
        assert_int_equal(count(&told), 0);
        (void)once__attempts_after(out, &told.record, 1, once__slice_of("why"));
    }
}

/* Never more than the epoch says that there were. */
static void belongs_to_the_epoch(void **state)
{
    told_t told = {.record.key_len = 1};

    for (unsigned i = 0; i < 3; i++) {
        grant(&told);
        say(&told, "h", ONCE_STATE_UNKNOWN, "");
    }
    assert_int_equal(count(&told), 2);
    told.record.head.claim.epoch = 2;
    assert_int_equal(count(&told), 1);
    told.record.head.claim.epoch = 1;
    assert_int_equal(count(&told), 0);
    told.record.head.claim.epoch = 0;
    assert_int_equal(count(&told), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_bytes), cmocka_unit_test(how_each_ended),
        cmocka_unit_test(bounded),  cmocka_unit_test(clean),
        cmocka_unit_test(hostile),  cmocka_unit_test(belongs_to_the_epoch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
