/*
 * The client as a library: what it refuses, one descriptor, and its end. tests/call has it send.
 */
#include "support/testing.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include <once/client.h>

typedef struct seen {
    once_client_end_t end;
    int count, paused;
    char key[ONCE_KEY_TEXT_SIZE];
} seen_t;

static void note(once_client_t *client, const once_client_outcome_t *outcome, void *data)
{
    seen_t *seen = data;

    seen->end = outcome->end;
    seen->count++;
    snprintf(seen->key, sizeof(seen->key), "%s", outcome->key);
    assert_int_equal(once_client_dispatch(client), ONCE_E_REENTRANT);
}

static void note_pause(once_client_t *client, const once_client_pause_t *pause, void *data)
{
    seen_t *seen = data;

    assert_true(pause->attempts > 0 && pause->text[0] != '\0');
    seen->paused++;
}

static once_client_t *open_client(seen_t *seen)
{
    once_client_options_t options = ONCE_CLIENT_OPTIONS_INIT;
    once_client_t *client = NULL;
    once_error_t err = {0};

    options.journal = "memory:";
    options.proxy = "";
    options.pause_ms = options.pause_max_ms = 1;
    options.pausing = note_pause;
    options.data = seen;
    assert_int_equal(once_client_open(&options, &client, &err), ONCE_OK);
    return client;
}

/* Nothing listens at port 1 of loopback. */
static once_client_request_t request_named(const char *name)
{
    once_client_request_t request = ONCE_CLIENT_REQUEST_INIT;

    request.name = name;
    request.url = "http://127.0.0.1:1/";
    return request;
}

static void bad_requests_are_refused(void **state)
{
    seen_t seen = {0};
    once_client_t *client = open_client(&seen);
    once_client_request_t request = request_named("a");
    once_header_t header = {{"A B", 3}, {"", 0}};
    char name[ONCE_KEY_TEXT_SIZE + 1];
    once_error_t err;

    request.size = 0;
    assert_int_equal(once_client_call(client, &request, note, &seen, &err), ONCE_E_INVALID);
    request = request_named("a");
    assert_int_equal(once_client_call(client, &request, NULL, &seen, &err), ONCE_E_INVALID);
    request.key = "both";
    assert_int_equal(once_client_call(client, &request, note, &seen, &err), ONCE_E_INVALID);
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    request = request_named(name);
    assert_int_equal(once_client_call(client, &request, note, &seen, &err), ONCE_E_KEY);
    request = request_named("");
    assert_int_equal(once_client_call(client, &request, note, &seen, &err), ONCE_E_KEY);
    request = request_named("a");
    request.url = "file:///etc/passwd";
    assert_int_equal(once_client_call(client, &request, note, &seen, &err), ONCE_E_CONFIG);
    request = request_named("a");
    request.headers = &header;
    request.header_count = 1;
    assert_int_equal(once_client_call(client, &request, note, &seen, &err), ONCE_E_HEADER);
    assert_int_equal(once_client_check(&request, &err), ONCE_E_HEADER);
    request.header_count = 0;
    assert_int_equal(once_client_check(&request, &err), ONCE_OK);
    assert_int_equal(once_client_check(NULL, &err), ONCE_E_INVALID);
    assert_int_equal(seen.count, 0);
    once_client_close(client);
}

static void a_host_loop_watches_one_descriptor(void **state)
{
    seen_t seen = {0};
    once_client_t *client = open_client(&seen);
    once_client_request_t request = request_named("loop");
    once_error_t err = {0};

    request.attempts = 3;
    assert_int_equal(once_client_call(client, &request, note, &seen, &err), ONCE_OK);
    while (seen.count == 0) {
        struct pollfd ready = {once_client_fd(client), POLLIN, 0};
        assert_int_equal(poll(&ready, 1, 60000), 1);
        assert_int_equal(once_client_dispatch(client), ONCE_OK);
    }
    assert_int_equal(seen.end, ONCE_CLIENT_UNSENT);
    assert_int_equal(seen.paused, 2);
    once_client_close(client);
}

static void the_key_is_that_of_the_intent(void **state)
{
    seen_t seen = {0}, again = {0}, other = {0};
    once_client_t *client = open_client(&seen);
    once_client_request_t request = request_named("intent");
    once_error_t err = {0};

    request.attempts = 1;
    request.keep_request = 1;
    assert_int_equal(once_client_call_sync(client, &request, note, &seen, &err), ONCE_OK);
    assert_int_equal(once_client_call_sync(client, &request, note, &again, &err), ONCE_OK);
    assert_int_equal(strlen(seen.key), ONCE_UUID_SIZE - 1);
    assert_string_equal(seen.key, again.key);
    request.body = (once_slice_t){"x", 1};
    assert_int_equal(once_client_call_sync(client, &request, note, &again, &err), ONCE_OK);
    assert_int_equal(again.end, ONCE_CLIENT_MISMATCH);
    request.name = "other";
    assert_int_equal(once_client_call_sync(client, &request, note, &other, &err), ONCE_OK);
    assert_string_not_equal(seen.key, other.key);
    once_client_close(client);
}

static int find(once_client_t *client, const once_client_request_t *request, void *data)
{
    seen_t *seen = data;

    assert_string_equal(request->method, "PUT");
    assert_int_equal(request->body.len, 4);
    assert_int_equal(request->header_count, 1);
    assert_memory_equal(request->headers[0].value.data, "1: 2", 4);
    assert_int_equal(request->credential_count, 1);
    assert_int_equal(request->credentials[0].value.len, 0);
    assert_int_equal(request->until_ms, 5000);
    seen->count++;
    return 0;
}

static void open_calls_are_found(void **state)
{
    const once_header_t header = {{"X-A", 3}, {"1: 2", 4}}, secret = {{"X-B", 3}, {"hidden", 6}};
    seen_t seen = {0}, found = {0};
    once_client_t *client = open_client(&seen);
    once_client_request_t request = request_named("kept");
    once_error_t err = {0};

    assert_int_equal(once_client_scan_sync(client, NULL, find, &found), ONCE_E_NOT_FOUND);
    request.method = "PUT";
    request.body = (once_slice_t){"a\0b\n", 4};
    request.headers = &header;
    request.credentials = &secret;
    request.header_count = request.credential_count = 1;
    request.attempts = 1;
    request.until_ms = 5000;
    request.keep_request = 1;
    assert_int_equal(once_client_call_sync(client, &request, note, &seen, &err), ONCE_OK);
    assert_int_equal(once_client_scan_sync(client, NULL, find, &found), ONCE_OK);
    assert_int_equal(once_client_scan_sync(client, "kept", find, &found), ONCE_OK);
    assert_int_equal(once_client_scan_sync(client, "other", find, &found), ONCE_E_NOT_FOUND);
    assert_int_equal(found.count, 2);
    once_client_close(client);
}

static void closing_gives_calls_up(void **state)
{
    seen_t seen = {0};
    once_client_t *client = open_client(&seen);
    once_error_t err = {0};

    for (int i = 0; i < 20; i++) {
        char name[16];
        once_client_request_t request;
        snprintf(name, sizeof(name), "%d", i);
        request = request_named(name);
        assert_int_equal(once_client_call(client, &request, note, &seen, &err), ONCE_OK);
        if (i % 3 == 0) {
            (void)once_client_wait(client, 0);
        }
    }
    once_client_close(client);
    assert_int_equal(seen.count, 20);
    assert_int_equal(seen.end, ONCE_CLIENT_OPEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_requests_are_refused),
        cmocka_unit_test(a_host_loop_watches_one_descriptor),
        cmocka_unit_test(the_key_is_that_of_the_intent),
        cmocka_unit_test(open_calls_are_found),
        cmocka_unit_test(closing_gives_calls_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
