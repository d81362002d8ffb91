#include "support/testing.h"

#include <stdio.h>
#include <string.h>

#include "base/url.h"

static void without_an_authority(void **state)
{
    once__url_t url;

    assert_int_equal(once__url_parse(&url, "URL", "local:/a%20b/c?x=1&y=%26&z=", 0, NULL), ONCE_OK);
    assert_string_equal(url.scheme, "local");
    assert_string_equal(url.path, "/a b/c");
    assert_string_equal(url.raw, "local:/a%20b/c");
    assert_string_equal(url.raw_query, "x=1&y=%26&z=");
    assert_int_equal(url.param_count, 3);
    assert_string_equal(once__url_take(&url, "y"), "&");
    assert_string_equal(once__url_take(&url, "x"), "1");
    assert_null(once__url_take(&url, "w"));
    assert_string_equal(once__url_untaken(&url), "z");
    assert_string_equal(once__url_take(&url, "z"), "");
    assert_null(once__url_untaken(&url));
    assert_int_equal(once__url_authority(&url, NULL), ONCE_E_CONFIG);
    once__url_free(&url);
    once__url_free(&url);
    assert_int_equal(once__url_parse(&url, "URL", "memory:", 0, NULL), ONCE_OK);
    assert_string_equal(url.path, "");
    assert_null(url.raw_query);
    once__url_free(&url);
}

static void with_an_authority(void **state)
{
    once__url_t url;

    assert_int_equal(
        once__url_parse(&url, "URL",
                        "amqps://us%40er:p%3Ass@h:1,[::1],[fe80::2]:65535/%2F/x%20y?k=v", 0, NULL),
        ONCE_OK);
    assert_string_equal(url.path, "//us@er:p:ss@h:1,[::1],[fe80::2]:65535///x y");
    assert_int_equal(once__url_authority(&url, NULL), ONCE_OK);
    assert_string_equal(url.user, "us@er");
    assert_string_equal(url.password, "p:ss");
    assert_string_equal(url.hosts, "h:1,[::1],[fe80::2]:65535");
    assert_int_equal(url.host_count, 3);
    assert_string_equal(url.host[0].name, "h");
    assert_int_equal(url.host[0].port, 1);
    assert_string_equal(url.host[1].name, "::1");
    assert_int_equal(url.host[1].port, 0);
    assert_string_equal(url.host[2].name, "fe80::2");
    assert_int_equal(url.host[2].port, 65535);
    assert_string_equal(url.raw_path, "%2F/x%20y");
    assert_string_equal(url.path, "//x y");
    assert_string_equal(once__url_take(&url, "k"), "v");
    once__url_free(&url);
}

static void parts_may_be_missing(void **state)
{
    static const struct {
        const char *text, *user, *password, *path;
    } cases[] = {
        {"redis://h", NULL, NULL, ""},
        {"redis://h/", NULL, NULL, ""},
        {"redis://u@h/p", "u", NULL, "p"},
        {"redis://:s@h", "", "s", ""},
        {"redis://u:@h", "u", "", ""},
        {"redis://u:a@b:c@h/x@y", "u", "a@b:c", "x@y"}, /* the last @ of the authority counts */
    };
    once__url_t url;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(once__url_parse(&url, "URL", cases[i].text, 0, NULL), ONCE_OK);
        assert_int_equal(once__url_authority(&url, NULL), ONCE_OK);
        assert_int_equal(once__url_authority(&url, NULL), ONCE_OK); /* the same again */
        assert_int_equal(url.host_count, 1);
        assert_int_equal(url.user != NULL, cases[i].user != NULL);
        assert_int_equal(url.password != NULL, cases[i].password != NULL);
        assert_true(url.user == NULL || strcmp(url.user, cases[i].user) == 0);
        assert_true(url.password == NULL || strcmp(url.password, cases[i].password) == 0);
        assert_string_equal(url.hosts, "h");
        assert_string_equal(url.path, cases[i].path);
        once__url_free(&url);
    }
}

static void the_query_of_http_is_the_endpoints(void **state)
{
    once__url_t url;

    assert_int_equal(once__url_parse(&url, "URL", "https://h/p?anything&goes=%zz", 0, NULL),
                     ONCE_OK);
    assert_string_equal(url.raw_query, "anything&goes=%zz");
    assert_int_equal(url.param_count, 0);
    once__url_free(&url);
}

static void repetition_is_asked_for(void **state)
{
    once__url_t url;

    assert_int_equal(once__url_parse(&url, "URL", "x:?a=1&a=2", 0, NULL), ONCE_E_CONFIG);
    assert_int_equal(once__url_parse(&url, "URL", "x:?a=1&a=2", ONCE__URL_REPEAT, NULL), ONCE_OK);
    assert_int_equal(url.param_count, 2);
    assert_string_equal(once__url_take(&url, "a"), "1");
    assert_string_equal(url.params[1].value, "2");
    once__url_free(&url);
}

/* Errors say what the caller calls the URL and what is wrong with it, never what is in it. */
static void errors_show_nothing_of_the_url(void **state)
{
    static const char *const cases[][2] = {
        {"hunter2", "scheme:path"},
        {":hunter2", "scheme:path"},
        {"Hunter2://h", "scheme:path"},
        {"a b://hunter2", "scheme:path"},
        {"x://u:hunter2%zz@h", "%-escape"},
        {"x://u:hunter2%00@h", "%-escape"},
        {"x://h/%4", "%-escape"},
        {"x://h/?hunter2", "parameter 1"},
        {"x://h/?a=1&=hunter2", "parameter 2"},
        {"x://h/?a=hunter2%", "parameter 1"},
        {"x:/hunter2", "x://HOST"},
        {"x://", "host 1 is missing"},
        {"x:///hunter2", "host 1 is missing"},
        {"x://u:hunter2@", "host 1 is missing"},
        {"x://a,,b", "host 2 is missing"},
        {"x://a,", "host 2 is missing"},
        {"x://:5", "host 1 is missing"},
        {"x://[]:5", "host 1 is missing"},
        {"x://[::1", "host 1 has \"[\" without \"]\""},
        {"x://[::1]5", "host 1 has something between"},
        {"x://a:", "port"},
        {"x://a:0", "port"},
        {"x://a:65536", "port"},
        {"x://a:+1", "port"},
        {"x://a:1x", "port"},
        {"x://[::1]:", "port"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        once_error_t err = {0};
        once__url_t url;
        int code = once__url_parse(&url, "the address", cases[i][0], 0, &err);
        if (code == ONCE_OK) {
            code = once__url_authority(&url, &err);
            once__url_free(&url);
        }
        assert_int_equal(code, ONCE_E_CONFIG);
        if (strstr(err.text, cases[i][1]) == NULL || strncmp(err.text, "the address: ", 13) != 0) {
            fail_msg("%s: %s", cases[i][0], err.text);
        }
        assert_null(strstr(err.text, "unter2"));
    }
}

static void amounts_are_bounded(void **state)
{
    char text[1024];
    once__url_t url;
    size_t len;

    for (size_t count = 32; count <= 33; count++) {
        len = (size_t)snprintf(text, sizeof(text), "x://a");
        for (size_t i = 1; i < count; i++) {
            len += (size_t)snprintf(text + len, sizeof(text) - len, ",a");
        }
        for (size_t i = 0; i < 32; i++) {
            len +=
                (size_t)snprintf(text + len, sizeof(text) - len, "%cp%zu=1", i == 0 ? '?' : '&', i);
        }
        assert_int_equal(once__url_parse(&url, "URL", text, 0, NULL), ONCE_OK);
        assert_int_equal(once__url_authority(&url, NULL), count == 32 ? ONCE_OK : ONCE_E_CONFIG);
        once__url_free(&url);
        snprintf(text + len, sizeof(text) - len, "&q=1");
        assert_int_equal(once__url_parse(&url, "URL", text, 0, NULL), ONCE_E_CONFIG);
    }
    for (size_t name = 255; name <= 256; name++) {
        snprintf(text, sizeof(text), "x://%0*d:1", (int)name, 0);
        assert_int_equal(once__url_parse(&url, "URL", text, 0, NULL), ONCE_OK);
        assert_int_equal(once__url_authority(&url, NULL), name == 255 ? ONCE_OK : ONCE_E_CONFIG);
        once__url_free(&url);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_an_authority),
        cmocka_unit_test(with_an_authority),
        cmocka_unit_test(parts_may_be_missing),
        cmocka_unit_test(the_query_of_http_is_the_endpoints),
        cmocka_unit_test(repetition_is_asked_for),
        cmocka_unit_test(errors_show_nothing_of_the_url),
        cmocka_unit_test(amounts_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
