#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "records.h"

static void every_record_is_one_line(void **state)
{
    once_t *once = open_store("memory:export");
    size_t total = 2500; /* several steps of a scan */
    char *seen = calloc(total, 1);
    run_t r;

    assert_non_null(seen);
    for (size_t i = 0; i < total; i++) {
        char key[32];
        snprintf(key, sizeof(key), "%zu", i);
        make_pending(once, "s", key);
    }
    r = run("keys", "export", "memory:export", NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_string_equal(r.err, ""); /* progress is for terminals */
    assert_int_equal(count_lines(r.out), total);
    for (const char *line = r.out; *line != '\0'; line = strchr(line, '\n') + 1) {
        json_t *record = json_line(line, 0);
        unsigned n;
        assert_int_equal(sscanf(json_text_of(record, "key"), "%u", &n), 1);
        assert_true(n < total);
        assert_int_equal(seen[n], 0);
        seen[n] = 1;
        json_decref(record);
    }
    free(seen);
    run_free(&r);
    once_close(once, 0);
}

static void bodies_only_on_request(void **state)
{
    once_t *once = open_store("memory:bodies");
    json_t *record;
    const json_t *response;
    run_t r;

    make_completed(once, "s", "k", "secret body");
    r = run("keys", "export", "memory:bodies", NULL);
    assert_lacks(r.out, "hunter2");
    record = json_line(r.out, 0);
    response = json_object_get(record, "response");
    assert_int_equal(json_number_of(response, "body_bytes"), 11);
    assert_null(json_object_get(response, "body_base64"));
    json_decref(record);
    run_free(&r);

    r = run("keys", "export", "memory:bodies", "--headers", NULL);
    assert_has(r.out, "hunter2");
    assert_lacks(r.out, "body_base64");
    run_free(&r);

    r = run("keys", "export", "memory:bodies", "--bodies", NULL);
    record = json_line(r.out, 0);
    response = json_object_get(record, "response");
    assert_string_equal(json_text_of(response, "body_base64"), "c2VjcmV0IGJvZHk=");
    json_decref(record);
    run_free(&r);
    once_close(once, 0);
}

static void filtered(void **state)
{
    once_t *once = open_store("memory:filtered");
    run_t r;

    make_completed(once, "s", "a", "x");
    make_failed(once, "s", "b", "x");
    r = run("keys", "export", "memory:filtered", "--state", "failed", NULL);
    assert_int_equal(count_lines(r.out), 1);
    assert_has(r.out, "\"key\":\"b\"");
    run_free(&r);
    r = run("keys", "export", "memory:filtered", "--limit", "1", NULL);
    assert_int_equal(count_lines(r.out), 1);
    run_free(&r);
    once_close(once, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_record_is_one_line),
        cmocka_unit_test(bodies_only_on_request),
        cmocka_unit_test(filtered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
