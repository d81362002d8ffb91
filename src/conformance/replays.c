/*
 * Replays: what was recorded comes back byte for byte.
 */
#include "conformance/suite.h"

#include <stdio.h>
#include <string.h>

/* Completes with the response and reads it back in every way there is, through another handle. */
static void round_trip(once__test_t *t, const char *key, const once_response_t *response,
                       const char *write_options, const char *read_options)
{
    once__asked_t ask = {.key = key};
    once__peer_t *a = once__peer_open(t, write_options), *b = once__peer_open(t, read_options);

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, response));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &ask));
    SAME_RESPONSE(response, b);
    EXPECT(ONCE_OK, once__peer_get(b, &ask));
    SAME_RESPONSE(response, b);
    EXPECT(ONCE_OUTCOME_ALREADY, once__peer_complete(once__peer_as(b, a->token), NULL));
    SAME_RESPONSE(response, b);
    once__peer_close(a);
    once__peer_close(b);
}

static void binary(once__test_t *t)
{
    uint8_t bytes[256 * 5], text[256];
    size_t len = 0;
    once_header_t headers[3];
    once_response_t response = ONCE_RESPONSE_INIT;

    for (unsigned i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)(i * (1 + i / 256));
    }
    for (unsigned byte = 1; byte < 256; byte++) {
        if (byte != '\r' && byte != '\n') {
            text[len++] = (uint8_t)byte;
        }
    }
    headers[0].name = once__text("Content-Type");
    headers[0].value = once__text("application/octet-stream");
    headers[1].name = once__text("X-Every-Byte");
    headers[1].value = (once_slice_t){text, len};
    headers[2].name = once__text("x-every-byte");
    headers[2].value = once__text("");
    response.status = 207;
    response.headers = headers;
    response.header_count = 3;
    response.body = (once_slice_t){bytes, sizeof(bytes)};
    round_trip(t, "k", &response, "", "");
}

static void empty(once__test_t *t)
{
    once_response_t response = once__response(204, "");

    round_trip(t, "k", &response, "", "");
}

static void omitted(once__test_t *t)
{
    once_header_t header = {once__text("Location"), once__text("/payments/1")};
    once_response_t response = ONCE_RESPONSE_INIT;

    response.status = 201;
    response.body_omitted = 1;
    response.headers = &header;
    response.header_count = 1;
    round_trip(t, "k", &response, "", "");
}

static void statuses(once__test_t *t)
{
    static const int values[] = {200, 299, 304, 402, 404, 500, 599};
    static const int wrong[] = {0, 99, 100, 199, 600, 999, 1000, -200};
    once__asked_t ask = {.key = "wrong"};
    once__peer_t *a = once__peer_open(t, "");

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        once_response_t response = once__response(values[i], "body");
        char key[16];
        (void)snprintf(key, sizeof(key), "%d", values[i]);
        round_trip(t, key, &response, "", "");
    }
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        once_response_t response = once__response(wrong[i], "body");
        EXPECT(ONCE_E_INVALID, once_claim_complete_sync(a->claim, &response, NULL));
    }
    /* A refused completion leaves the claim where it was. */
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
}

/* A gateway writes headers out as they were recorded: a line break would let a value make headers of its own. */
static void broken_headers(once__test_t *t)
{
    static const once_header_t broken[] = {
        {{"Location", 8}, {"/\r\nSet-Cookie: a=b", 18}},
        {{"Location", 8}, {"/\n", 2}},
        {{"Location", 8}, {"\r/", 2}},
        {{"Location", 8}, {"/\0", 2}},
        {{"A: b\nLocation", 13}, {"/", 1}},
        {{"Location\r", 9}, {"/", 1}},
        {{"\0Location", 9}, {"/", 1}},
        {{"", 0}, {"/", 1}},
        {{"Set-Cookie: a", 13}, {"/", 1}},
    };
    once__asked_t ask = {.key = "k"};
    once_response_t response = once__response(201, "body");
    once_settle_t settle = ONCE_SETTLE_INIT;
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    response.header_count = 1;
    settle.response = &response;
    settle.force = 1;
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    settle.token = a->token;
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        response.headers = &broken[i];
        EXPECT(ONCE_E_HEADER, once_claim_complete_sync(a->claim, &response, NULL));
        EXPECT(ONCE_E_HEADER, once_record_settle_sync(b->once, &settle, NULL));
    }
    EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(b, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &ask));
}

static void many_headers(once__test_t *t)
{
    enum { COUNT = 500 };
    once_header_t *headers = once__test_alloc(t, COUNT * sizeof(*headers));
    char(*text)[64] = once__test_alloc(t, COUNT * sizeof(*text));
    once_response_t response = once__response(200, "body");

    for (unsigned i = 0; i < COUNT; i++) {
        (void)snprintf(text[i], sizeof(text[i]), "value %u of a header that is sent often", i);
        headers[i].name = once__text(i % 3 == 0 ? "Set-Cookie" : i % 3 == 1 ? "X-Note" : "Link");
        headers[i].value = (once_slice_t){text[i], i % 10 == 0 ? 0 : strlen(text[i])};
    }
    response.headers = headers;
    response.header_count = COUNT;
    round_trip(t, "k", &response, "", "");
}

/* A body that nothing can compress, and one that is all the same. */
static void big(once__test_t *t, size_t size, const char *write_options, const char *read_options)
{
    uint64_t random = once__test_seed(t, 0);
    once_response_t response = ONCE_RESPONSE_INIT;
    uint8_t *body = once__test_alloc(t, size);
    char key[32];

    for (size_t i = 0; i < size; i++) {
        body[i] = (uint8_t)once__test_random(&random);
    }
    response.body = (once_slice_t){body, size};
    (void)snprintf(key, sizeof(key), "noise of %zu", size);
    round_trip(t, key, &response, write_options, read_options);
    memset(body, 'x', size);
    (void)snprintf(key, sizeof(key), "silence of %zu", size);
    round_trip(t, key, &response, write_options, read_options);
}

static void one_mebibyte(once__test_t *t)
{
    big(t, 1 << 20, "", "");
}

/* Sizes around every power of two that a frame, a page or a compression threshold may have. */
static void every_size(once__test_t *t)
{
    static const size_t bases[] = {1, 16, 64, 128, 256, 512, 1024, 4096, 8192, 16384, 65536};

    for (size_t i = 0; i < sizeof(bases) / sizeof(bases[0]); i++) {
        for (size_t size = bases[i] - 1; size <= bases[i] + 1; size++) {
            if (size > 0) {
                big(t, size, "", "");
            }
        }
    }
}

static void compressed(once__test_t *t)
{
    big(t, 5000, "compress=1k", "compress=off");
    big(t, 5001, "compress=off", "compress=1k");
}

static void too_big(once__test_t *t)
{
    once__asked_t ask = {.key = "k"};
    once_header_t header = {once__text("X"), {NULL, 0}};
    once_response_t response = ONCE_RESPONSE_INIT;
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    char *bytes = once__test_alloc(t, ONCE_BODY_STORE_MAX + 1);

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    response.body = (once_slice_t){bytes, ONCE_BODY_STORE_MAX + 1};
    EXPECT(ONCE_E_TOO_BIG, once_claim_complete_sync(a->claim, &response, NULL));
    response.body.len = 0;
    header.value = (once_slice_t){bytes, ONCE_HEADERS_MAX + 1};
    response.headers = &header;
    response.header_count = 1;
    EXPECT(ONCE_E_TOO_BIG, once_claim_complete_sync(a->claim, &response, NULL));
    EXPECT(ONCE_OUTCOME_BUSY, once__peer_begin(b, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
}

const once__case_t once__replay_cases[] = {
    {"replay-binary", "every byte value in body and headers, header order and case", binary},
    {"replay-broken-headers", "line breaks and NUL in a header are refused", broken_headers},
    {"replay-empty-body", "an empty body is not an omitted one", empty},
    {"replay-omitted-body", "status and headers without the body, and says so", omitted},
    {"replay-statuses", "200 to 599; anything else is refused and costs nothing", statuses},
    {"replay-many-headers", "500 of them, repeated and empty ones too", many_headers},
    {"replay-of-one-mebibyte", "noise and silence", one_mebibyte},
    {"replay-of-every-size", "around the powers of two", every_size},
    {"replay-compressed", "by one handle, read by another that does not compress", compressed},
    {"replay-too-big", "is refused before anything is done; the caller keeps the claim", too_big},
    {0},
};
