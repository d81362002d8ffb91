/* Bodies when memory runs out: the sources are compiled into this test with an allocator that fails on demand. */
#include "support/testing.h"

#include <stdlib.h>
#include <string.h>

static int until_failure = -1; /* allocations that still succeed; -1: all */

static int fails(void)
{
    if (until_failure > 0) {
        until_failure--;
        return 0;
    }
    return until_failure == 0;
}

static void *failing_calloc(size_t count, size_t size)
{
    return fails() ? NULL : calloc(count, size);
}

static void *failing_malloc(size_t size)
{
    return fails() ? NULL : malloc(size);
}

static void *failing_realloc(void *memory, size_t size)
{
    return fails() ? NULL : realloc(memory, size);
}

#define calloc  failing_calloc
#define malloc  failing_malloc
#define realloc failing_realloc
#include "../../lib/base/buf.c"
#include "../../lib/core/body.c"
#include "../../lib/core/json.c"
#undef calloc
#undef malloc
#undef realloc

#define TYPE "multipart/form-data; boundary=b"

/* All of a body's life with the allocator as it is: a digest, or ONCE_E_NOMEM at every use from the failure on. */
static int live(once_body_mode_t mode, const char *text, size_t len, once__digest_t *digest)
{
    once_body_t *body = once_body_new(mode, once__slice(TYPE, sizeof(TYPE) - 1));
    int rc = ONCE_OK;

    if (body == NULL) {
        return ONCE_E_NOMEM;
    }
    for (size_t at = 0; at < len; at += 1000) {
        int now = once_body_add(body, text + at, len - at < 1000 ? len - at : 1000);
        assert_true(rc == ONCE_OK || now == ONCE_E_NOMEM);
        rc = now;
        if (rc != ONCE_OK) {
            until_failure = -1; /* memory is back, the lost bytes are not */
        }
    }
    int end = once__body_digest(body, digest);
    assert_true(rc == ONCE_OK || end == ONCE_E_NOMEM);
    once_body_free(body);
    return end;
}

/* Fails the first, second, third... allocation until none fails. A digest is right or it is not given. */
static void fail_each(once_body_mode_t mode, const char *text, size_t len, int at_least)
{
    once__digest_t right, digest;
    int failures = 0;

    until_failure = -1;
    assert_int_equal(live(mode, text, len, &right), ONCE_OK);
    assert_int_equal(right.mode, mode);
    for (;; failures++) {
        until_failure = failures;
        int rc = live(mode, text, len, &digest);
        if (rc == ONCE_OK) {
            break;
        }
        assert_int_equal(rc, ONCE_E_NOMEM);
    }
    assert_true(failures >= at_least);
    assert_int_equal(digest.mode, right.mode);
    assert_memory_equal(digest.sum, right.sum, sizeof(right.sum));
    until_failure = -1;
}

/* Members in falling order, so that they are sorted, and numbers that grow, so that the text does. */
static size_t write_document(char *out)
{
    char *at = out;

    *at++ = '{';
    for (int i = 999; i >= 100; i--) {
        char name[] = "\"000\":1e20,";
        name[1] = (char)('0' + i / 100);
        name[2] = (char)('0' + i / 10 % 10);
        name[3] = (char)('0' + i % 10);
        memcpy(at, name, sizeof(name) - 1);
        at += sizeof(name) - 1;
    }
    at[-1] = '}';
    return (size_t)(at - out);
}

static void a_digest_is_right_or_not_given(void **state)
{
    static char document[20000];
    size_t len = write_document(document);

    fail_each(ONCE_BODY_MODE_JSON, document, len, 10);
    fail_each(ONCE_BODY_MODE_EXACT, document, len, 1);
    fail_each(ONCE_BODY_MODE_MULTIPART, "--b\r\nx\r\n--b--", 13, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_digest_is_right_or_not_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
