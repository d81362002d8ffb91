#include "conformance/suite.h"

#include <string.h>

once_slice_t once__text(const char *text)
{
    once_slice_t slice = {text, strlen(text)};
    return slice;
}

once_response_t once__response(int status, const char *body)
{
    once_response_t response = ONCE_RESPONSE_INIT;

    response.status = status;
    response.body = once__text(body);
    return response;
}

static int same(once_slice_t a, once_slice_t b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

void once__test_same_response(once__test_t *t, const char *file, int line,
                              const once_response_t *want, const once__peer_t *peer)
{
    once_response_t got = ONCE_RESPONSE_INIT;
    int code = once_record_response(once__peer_record(peer), &got);

    once__test_expect(t, file, line, "once_record_response", ONCE_OK, code);
    if (got.status != want->status || once_record_status(peer->record) != want->status) {
        once__test_fail(t, file, line, "status %d, not %d", got.status, want->status);
    }
    if (got.body_omitted != want->body_omitted) {
        once__test_fail(t, file, line, "the body is %s", got.body_omitted ? "omitted" : "there");
    }
    if (!same(got.body, want->body)) {
        once__test_fail(t, file, line, "the body of %zu bytes is not the one of %zu bytes",
                        got.body.len, want->body.len);
    }
    if (got.header_count != want->header_count) {
        once__test_fail(t, file, line, "%zu headers, not %zu", got.header_count,
                        want->header_count);
    }
    for (size_t i = 0; i < got.header_count; i++) {
        if (!same(got.headers[i].name, want->headers[i].name) ||
            !same(got.headers[i].value, want->headers[i].value)) {
            once__test_fail(t, file, line, "header %zu is not the same", i);
        }
    }
}
