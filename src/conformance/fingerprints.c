/*
 * What a record is known by: scope and key, and the fingerprint of what was asked.
 */
#include "conformance/suite.h"

#include <string.h>

/* Asks for something else under the same key: a mismatch, and nothing changes. */
static void check_mismatch(once__test_t *t, once__peer_t *peer, const once__asked_t *asked)
{
    once__asked_t other = *asked;

    other.bytes = once__text("{\"amount\":11}");
    STAYS(ONCE_OUTCOME_MISMATCH, once__peer_begin(peer, &other), peer, asked);
}

static void in_every_state(once__test_t *t)
{
    static const char *const policies[] = {SHORT "recover=retry", SHORT "recover=hold"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    for (unsigned i = 0; i < 2; i++) {
        once__asked_t ask = {.policy = policies[i]};

        ask.key = i == 0 ? "pending" : "pending, hold";
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        once__peer_wait_lease(b, &ask);
        check_mismatch(t, b, &ask);

        ask.key = i == 0 ? "unknown" : "unknown, hold";
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
        check_mismatch(t, b, &ask);
        once__peer_wait_lease(b, &ask);
        check_mismatch(t, b, &ask);

        ask.key = i == 0 ? "completed" : "completed, hold";
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
        check_mismatch(t, b, &ask);
    }
}

static void before_busy(once__test_t *t)
{
    static const uint8_t id[ONCE_CLAIM_ID_SIZE] = "my own claim id";
    once__asked_t ask = {.key = "pending", .claim_id = id};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    check_mismatch(t, b, &ask); /* also for the holder itself: the claim id is the same */
    ask.claim_id = NULL;
    check_mismatch(t, b, &ask);
    ask.key = "unknown";
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    check_mismatch(t, b, &ask);
}

static void failed_keeps_it(once__test_t *t)
{
    once__asked_t ask = {.key = "released"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(a, 0, ""));
    check_mismatch(t, b, &ask);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &ask));
    CHECK_EQ(2, once__peer_epoch(b));
    check_mismatch(t, a, &ask);

    ask.key = "settled";
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_settle(b, a->token, NULL, 1));
    check_mismatch(t, b, &ask);
}

static void every_part_counts(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .target = "/a?b=1", .bytes = {"body", 4}};
    once__asked_t method = ask, target = ask, query = ask, body = ask, longer = ask, none = ask;
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    method.method = "PATCH";
    target.target = "/b?b=1";
    query.target = "/a?b=2";
    body.bytes = once__text("Body");
    longer.bytes = once__text("body ");
    none.bytes = once__text("");
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_MISMATCH, once__peer_begin(b, &method));
    EXPECT(ONCE_OUTCOME_MISMATCH, once__peer_begin(b, &target));
    EXPECT(ONCE_OUTCOME_MISMATCH, once__peer_begin(b, &query));
    EXPECT(ONCE_OUTCOME_MISMATCH, once__peer_begin(b, &body));
    EXPECT(ONCE_OUTCOME_MISMATCH, once__peer_begin(b, &longer));
    EXPECT(ONCE_OUTCOME_MISMATCH, once__peer_begin(b, &none));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &ask));
}

/* The parts are not simply joined: what moves from one to the next makes another request. */
static void parts_do_not_run_together(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .method = "POST", .target = "/ab", .bytes = {"c", 1}};
    once__asked_t moved = ask, method = ask;
    once__peer_t *a = once__peer_open(t, "");

    moved.target = "/a";
    moved.bytes = once__text("bc");
    method.method = "POST/a";
    method.target = "b";
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_MISMATCH, once__peer_begin(a, &moved));
    EXPECT(ONCE_OUTCOME_MISMATCH, once__peer_begin(a, &method));
}

/* ------------------------------------------------------------------------------------------------------------- bodies */

static once_body_t *body_of(once__test_t *t, once_body_mode_t mode, const char *type,
                            const char *text, size_t piece)
{
    once_body_t *body = once_body_new(mode, once__text(type));
    size_t len = strlen(text);

    CHECK(body != NULL);
    for (size_t at = 0; at < len; at += piece) {
        int code = once_body_add(body, text + at, len - at < piece ? len - at : piece);
        if (code != ONCE_OK) {
            once_body_free(body);
            EXPECT(ONCE_OK, code);
        }
    }
    return body;
}

static int begin_with(once__test_t *t, once__peer_t *peer, const char *key, once_body_mode_t mode,
                      const char *type, const char *text)
{
    once_body_t *body = body_of(t, mode, type, text, 3);
    once__asked_t ask = {.key = key, .body = body};
    int outcome = once__peer_begin(peer, &ask);

    once_body_free(body);
    return outcome;
}

static void streamed_is_whole(once__test_t *t)
{
    once__asked_t whole = {.key = "k", .bytes = {"the whole body", 14}};
    once__peer_t *a = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &whole));
    EXPECT(ONCE_OUTCOME_BUSY, begin_with(t, a, "k", ONCE_BODY_MODE_EXACT, "", "the whole body"));
    EXPECT(ONCE_OUTCOME_MISMATCH,
           begin_with(t, a, "k", ONCE_BODY_MODE_EXACT, "", "the whole bodies"));
}

static void body_modes(once__test_t *t)
{
    static const char one[] =
        "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--x--\r\n";
    static const char two[] =
        "--yy\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--yy--\r\n";
    static const char other[] =
        "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n2\r\n--x--\r\n";
    static const char type_one[] = "multipart/form-data; boundary=x";
    static const char type_two[] = "multipart/form-data; boundary=yy";
    once__peer_t *a = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, begin_with(t, a, "none", ONCE_BODY_MODE_NONE, "", "a"));
    EXPECT(ONCE_OUTCOME_BUSY, begin_with(t, a, "none", ONCE_BODY_MODE_NONE, "", "b"));

    EXPECT(ONCE_OUTCOME_RUN,
           begin_with(t, a, "json", ONCE_BODY_MODE_JSON, "", "{\"a\":1,\"b\":[2.0]}"));
    EXPECT(ONCE_OUTCOME_BUSY,
           begin_with(t, a, "json", ONCE_BODY_MODE_JSON, "", "{ \"b\": [2], \"a\": 1e0 }"));
    EXPECT(ONCE_OUTCOME_MISMATCH,
           begin_with(t, a, "json", ONCE_BODY_MODE_JSON, "", "{\"a\":1,\"b\":[3]}"));

    EXPECT(ONCE_OUTCOME_RUN,
           begin_with(t, a, "exact", ONCE_BODY_MODE_EXACT, "", "{\"a\":1,\"b\":2}"));
    EXPECT(ONCE_OUTCOME_MISMATCH,
           begin_with(t, a, "exact", ONCE_BODY_MODE_EXACT, "", "{\"b\":2,\"a\":1}"));

    EXPECT(ONCE_OUTCOME_RUN, begin_with(t, a, "parts", ONCE_BODY_MODE_MULTIPART, type_one, one));
    EXPECT(ONCE_OUTCOME_BUSY, begin_with(t, a, "parts", ONCE_BODY_MODE_MULTIPART, type_two, two));
    EXPECT(ONCE_OUTCOME_MISMATCH,
           begin_with(t, a, "parts", ONCE_BODY_MODE_MULTIPART, type_one, other));
}

/* The mode is a part of the fingerprint: changing it must not make two requests the same. */
static void modes_do_not_mix(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, begin_with(t, a, "k", ONCE_BODY_MODE_EXACT, "", "{\"a\":1}"));
    EXPECT(ONCE_OUTCOME_MISMATCH, begin_with(t, a, "k", ONCE_BODY_MODE_JSON, "", "{\"a\":1}"));
    EXPECT(ONCE_OUTCOME_MISMATCH, begin_with(t, a, "k", ONCE_BODY_MODE_NONE, "", "{\"a\":1}"));
    /* What is not JSON counts byte for byte, in both modes. */
    EXPECT(ONCE_OUTCOME_RUN, begin_with(t, a, "not json", ONCE_BODY_MODE_JSON, "", "{\"a\":"));
    EXPECT(ONCE_OUTCOME_BUSY, begin_with(t, a, "not json", ONCE_BODY_MODE_EXACT, "", "{\"a\":"));
    EXPECT(ONCE_OUTCOME_MISMATCH,
           begin_with(t, a, "not json", ONCE_BODY_MODE_JSON, "", "{\"a\": "));
}

/* ---------------------------------------------------------------------------------------------------- scopes and keys */

static void scopes(once__test_t *t)
{
    once__asked_t ours = {.key = "k"}, theirs = {.scope = "b", .key = "k"};
    once__asked_t ab_c = {.scope = "ab", .key = "c"}, a_bc = {.scope = "a", .key = "bc"};
    once_response_t response = once__response(200, "ours alone");
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ours));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, &response));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &theirs));
    CHECK_EQ(1, once__peer_epoch(b));
    CHECK(memcmp(once_record_id(a->record), once_record_id(b->record), ONCE_ID_SIZE) != 0);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_release(b, 0, ""));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(a, &ours));
    SAME_RESPONSE(&response, a);

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ab_c));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(b, &a_bc));
}

static void other_key(once__test_t *t)
{
    once__asked_t one = {.key = "1"}, two = {.key = "2"};
    once__peer_t *a = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &one));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &two));
    CHECK_EQ(1, once__peer_epoch(a));
}

static void long_keys(once__test_t *t)
{
    char one[ONCE_KEY_MAX + 2], two[ONCE_KEY_MAX + 2];
    once__asked_t ask = {.key = one}, other = {.key = two};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    once_slice_t kept;

    memset(one, 'k', sizeof(one));
    one[ONCE_KEY_MAX] = one[ONCE_KEY_MAX + 1] = '\0';
    memcpy(two, one, sizeof(two));
    two[ONCE_KEY_MAX - 1] = 'K';
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &other));
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(b, &ask));
    kept = once_record_key(b->record);
    CHECK(kept.len == ONCE_KEY_MAX && memcmp(kept.data, one, ONCE_KEY_MAX) == 0);

    one[ONCE_KEY_MAX] = 'k';
    EXPECT(ONCE_E_KEY, once__peer_begin(a, &ask));
    ask.key = "";
    EXPECT(ONCE_E_KEY, once__peer_begin(a, &ask));
}

/* Every byte that a key may have is kept as it is: spaces, quotes, wildcards, upper and lower case. */
static void odd_keys(once__test_t *t)
{
    static const char *const keys[] = {"a b",  " a",    "a ",  "\"a\"",  "'a'",  "a'; --",
                                       "%s%n", "\\x00", "a:b", "{a}",    "*",    "?",
                                       "a",    "A",     "~",   "a/../b", "NULL", "$1"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        once__asked_t ask = {.key = keys[i]};
        once_slice_t kept;
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        EXPECT(ONCE_OK, once__peer_get(b, &ask));
        kept = once_record_key(b->record);
        CHECK(kept.len == strlen(keys[i]) && memcmp(kept.data, keys[i], kept.len) == 0);
    }
}

const once__case_t once__fingerprint_cases[] = {
    {"mismatch-in-every-state", "another body under the same key changes nothing", in_every_state},
    {"mismatch-before-busy", "comes first, also while the lease is live", before_busy},
    {"mismatch-after-failure", "a failed record keeps its fingerprint", failed_keeps_it},
    {"fingerprint-every-part-counts", "method, path, query and body", every_part_counts},
    {"fingerprint-parts-are-kept-apart", "what moves between them makes another request",
     parts_do_not_run_together},
    {"fingerprint-streamed-is-whole", "a body in pieces is the same body", streamed_is_whole},
    {"fingerprint-body-modes", "none, exact, json and multipart", body_modes},
    {"fingerprint-modes-do-not-mix", "the mode is a part of it", modes_do_not_mix},
    {"scope-separates", "the same key in two scopes is two records", scopes},
    {"key-separates", "the same request under another key is no conflict", other_key},
    {"key-of-255-bytes", "is the longest; the last byte counts", long_keys},
    {"key-bytes-are-kept", "quotes, spaces, wildcards, upper and lower case", odd_keys},
    {0},
};
