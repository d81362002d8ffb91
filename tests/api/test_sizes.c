/*
 * Structs that grow: a program that was built against another version of the headers. Its struct is longer or shorter than the
 * library's; the library reads and writes no byte beyond the `size` that the program says.
 */
#include "support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <once/experimental.h>
#include <once/local.h>
#include <once/postgres.h>

#include "base/bytes.h"
#include "core/sized.h"

#define ADDED  48   /* bytes that a newer header has at the end */
#define MARK   0xa5 /* what is not to be touched */
#define ROOM   1024
#define CALLER ((size_t)64) /* bytes of the caller's behind the struct */

/* ------------------------------------------------------------------------------------------------------- the helper */

/* A struct in its second version, and as it was in its first. */
typedef struct second {
    size_t size;
    uint64_t old;
    uint64_t added;
} second_t;

typedef struct first {
    size_t size;
    uint64_t old;
    uint8_t behind[CALLER]; /* not the struct's */
} first_t;

#define FIRST_SIZE ONCE__SIZE_V1(second_t, old)

static void an_older_struct_is_read_and_the_rest_is_zero(void **state)
{
    first_t theirs = {.size = FIRST_SIZE, .old = 7};
    second_t ours = {.added = 1};

    memset(theirs.behind, MARK, sizeof(theirs.behind));
    assert_int_equal(once__sized_read(&ours, sizeof(ours), FIRST_SIZE, &theirs), ONCE_OK);
    assert_int_equal(ours.size, sizeof(ours));
    assert_int_equal(ours.old, 7);
    assert_int_equal(ours.added, 0);
}

static void an_older_struct_is_filled_to_its_end(void **state)
{
    second_t ours = {.size = sizeof(ours), .old = 7, .added = 8};
    first_t theirs = {.size = FIRST_SIZE};

    memset(theirs.behind, MARK, sizeof(theirs.behind));
    assert_int_equal(once__sized_write(&theirs, FIRST_SIZE, &ours, sizeof(ours)), ONCE_OK);
    assert_int_equal(theirs.size, FIRST_SIZE);
    assert_int_equal(theirs.old, 7);
    for (size_t i = 0; i < sizeof(theirs.behind); i++) {
        assert_int_equal(theirs.behind[i], MARK);
    }
}

/* A member that is added into padding would not change `size`. */
static void no_struct_ends_in_padding(void **state)
{
    assert_int_equal(ONCE__ASK_V1, sizeof(once_ask_t));
    assert_int_equal(ONCE__RESPONSE_V1, sizeof(once_response_t));
    assert_int_equal(ONCE__ATTEMPT_V1, sizeof(once_attempt_t));
    assert_int_equal(ONCE__SETTLE_V1, sizeof(once_settle_t));
    assert_int_equal(ONCE__FILTER_V1, sizeof(once_filter_t));
    assert_int_equal(ONCE__USAGE_V1, sizeof(once_usage_t));
    assert_int_equal(ONCE__KEY_PARTS_V1, sizeof(once_key_parts_t));
    assert_int_equal(ONCE__LOCAL_FSCK_OPTIONS_V1, sizeof(once_local_fsck_options_t));
    assert_int_equal(ONCE__LOCAL_FSCK_REPORT_V1, sizeof(once_local_fsck_report_t));
    assert_int_equal(ONCE__LOCAL_BACKUP_OPTIONS_V1, sizeof(once_local_backup_options_t));
    assert_int_equal(ONCE__LOCAL_BACKUP_REPORT_V1, sizeof(once_local_backup_report_t));
    assert_int_equal(ONCE__PG_EVENT_V1, sizeof(once_pg_event_t));
}

/* ---------------------------------------------------------------------------------------------------- every function */

typedef struct place {
    once_t *once;
    once_answer_t *answer;       /* with the record: */
    const once_record_t *record; /* completed */
    const char *token;           /* of one that is pending */
    char url[64];                /* of a local store */
    char root[32];
} place_t;

/* Hands the struct to one function; the size that the struct says is right or wrong. */
typedef int (*call_t)(place_t *place, void *given);

typedef struct sized_case {
    const char *name;
    const void *init; /* the struct as it is set up */
    size_t len;       /* of it, in the library's version */
    int is_filled;    /* by the library */
    call_t call;
} sized_case_t;

static once_slice_t text(const char *string)
{
    return once__slice(string, strlen(string));
}

static void ignore(once_t *once, once_answer_t *answer, void *data)
{
}

static int show(once_t *once, const once_record_t *record, void *data)
{
    return 0;
}

static int call_begin(place_t *place, void *given)
{
    once_ask_t *ask = given;
    once_answer_t *answer = NULL;
    int code;

    ask->key = text("begun");
    code = once_begin_sync(place->once, ask, &answer);
    once_answer_free(answer);
    return code;
}

static int call_begin_digested(place_t *place, void *given)
{
    uint8_t digest[ONCE_DIGEST_SIZE] = {1};
    once_ask_t *ask = given;
    int code;

    ask->key = text("digested");
    code = once_begin_digested(place->once, ask, digest, ignore, NULL);
    while (code == ONCE_OK && once_dispatch(place->once) == 0) {
    }
    return code;
}

/* Two of them, one after the other, as the caller's compiler lays out an array. */
static int call_recall(place_t *place, void *given)
{
    once_ask_t *ask = given;
    unsigned char found[2] = {9, 9};
    char *both = calloc(2, ask->size + sizeof(*ask));
    int code;

    ask->key = text("recalled");
    memcpy(both, ask, ask->size > sizeof(*ask) ? ask->size : sizeof(*ask));
    memcpy(both + ask->size, ask, ask->size > sizeof(*ask) ? ask->size : sizeof(*ask));
    code = once_recall(place->once, (once_ask_t *)(void *)both, NULL, 2, found);
    free(both);
    return code;
}

static int call_complete(place_t *place, void *given)
{
    once_ask_t ask = ONCE_ASK_INIT;
    once_claim_t *claim;
    once_answer_t *answer;
    char key[32];
    static int number;
    int code;

    (void)snprintf(key, sizeof(key), "complete-%d", number++);
    ask.key = text(key);
    assert_int_equal(once_begin_sync(place->once, &ask, &answer), ONCE_OK);
    claim = once_answer_take_claim(answer);
    once_answer_free(answer);
    code = once_claim_complete_sync(claim, given, NULL);
    if (code != ONCE_OK) {
        once_claim_drop(claim);
    }
    return code;
}

static int call_settle(place_t *place, void *given)
{
    once_settle_t *settle = given;

    settle->token = place->token;
    return once_record_settle_sync(place->once, settle, NULL);
}

static int call_settle_response(place_t *place, void *given)
{
    once_settle_t settle = ONCE_SETTLE_INIT;

    settle.token = place->token;
    settle.response = given;
    return once_record_settle_sync(place->once, &settle, NULL);
}

static int call_scan(place_t *place, void *given)
{
    return once_record_scan_sync(place->once, given, show, NULL, NULL);
}

static int call_response(place_t *place, void *given)
{
    return once_record_response(place->record, given);
}

static int call_usage(place_t *place, void *given)
{
    return once_store_usage(place->once, given);
}

static int call_key(place_t *place, void *given)
{
    once_key_parts_t *parts = given;
    once_key_t key;

    parts->principal = text("p");
    parts->action = text("a");
    return once_key_deterministic(parts, &key, NULL);
}

static int call_fsck(place_t *place, void *given)
{
    once_local_fsck_report_t report = ONCE_LOCAL_FSCK_REPORT_INIT;

    return once_local_fsck(place->url, given, &report, NULL);
}

static int call_fsck_report(place_t *place, void *given)
{
    once_local_fsck_options_t options = ONCE_LOCAL_FSCK_OPTIONS_INIT;

    return once_local_fsck(place->url, &options, given, NULL);
}

static int backup(place_t *place, const once_local_backup_options_t *options,
                  once_local_backup_report_t *report)
{
    static int number;
    char copy[64];

    (void)snprintf(copy, sizeof(copy), "%s/copy-%d", place->root, number++);
    return once_local_backup(place->url, copy, options, report, NULL);
}

static int call_backup(place_t *place, void *given)
{
    return backup(place, given, NULL);
}

static int call_backup_report(place_t *place, void *given)
{
    return backup(place, NULL, given);
}

/* There is no connection: what is not refused as invalid gets as far as that. */
static int without_connection(int code)
{
    return code == ONCE_E_INVALID ? code : ONCE_OK;
}

static int call_pg_claim(place_t *place, void *given)
{
    once_ask_t *ask = given;
    once_pg_answer_t *answer;

    ask->key = text("k");
    return without_connection(once_pg_claim(NULL, ask, 0, &answer, NULL));
}

static int call_pg_complete(place_t *place, void *given)
{
    return without_connection(once_pg_complete(NULL, place->token, given, NULL));
}

static int call_pg_emit(place_t *place, void *given)
{
    once_pg_event_t *event = given;

    event->topic = event->type = "t";
    return without_connection(once_pg_emit(NULL, event, NULL, NULL));
}

static const once_ask_t ask_init = ONCE_ASK_INIT;
static const once_response_t response_init = ONCE_RESPONSE_INIT;
static const once_settle_t settle_init = ONCE_SETTLE_INIT;
static const once_filter_t filter_init = ONCE_FILTER_INIT;
static const once_usage_t usage_init = ONCE_USAGE_INIT;
static const once_key_parts_t key_parts_init = ONCE_KEY_PARTS_INIT;
static const once_local_fsck_options_t fsck_init = ONCE_LOCAL_FSCK_OPTIONS_INIT;
static const once_local_fsck_report_t fsck_report_init = ONCE_LOCAL_FSCK_REPORT_INIT;
static const once_local_backup_options_t backup_init = ONCE_LOCAL_BACKUP_OPTIONS_INIT;
static const once_local_backup_report_t backup_report_init = ONCE_LOCAL_BACKUP_REPORT_INIT;
static const once_pg_event_t event_init = ONCE_PG_EVENT_INIT;

static const sized_case_t cases[] = {
    {"once_begin", &ask_init, sizeof(ask_init), 0, call_begin},
    {"once_begin_digested", &ask_init, sizeof(ask_init), 0, call_begin_digested},
    {"once_recall", &ask_init, sizeof(ask_init), 0, call_recall},
    {"once_claim_complete", &response_init, sizeof(response_init), 0, call_complete},
    {"once_record_settle", &settle_init, sizeof(settle_init), 0, call_settle},
    {"once_settle_t.response", &response_init, sizeof(response_init), 0, call_settle_response},
    {"once_record_scan", &filter_init, sizeof(filter_init), 0, call_scan},
    {"once_record_response", &response_init, sizeof(response_init), 1, call_response},
    {"once_store_usage", &usage_init, sizeof(usage_init), 1, call_usage},
    {"once_key_deterministic", &key_parts_init, sizeof(key_parts_init), 0, call_key},
    {"once_local_fsck: options", &fsck_init, sizeof(fsck_init), 0, call_fsck},
    {"once_local_fsck: report", &fsck_report_init, sizeof(fsck_report_init), 1, call_fsck_report},
    {"once_local_backup: options", &backup_init, sizeof(backup_init), 0, call_backup},
    {"once_local_backup: report", &backup_report_init, sizeof(backup_report_init), 1,
     call_backup_report},
    {"once_pg_claim", &ask_init, sizeof(ask_init), 0, call_pg_claim},
    {"once_pg_complete", &response_init, sizeof(response_init), 0, call_pg_complete},
    {"once_pg_emit", &event_init, sizeof(event_init), 0, call_pg_emit},
};

/* Calls with a struct that says `size`; what lies behind it stays as it is, and what was filled beyond our version is zero. */
static void check(place_t *place, const sized_case_t *test, size_t size, int expected)
{
    union {
        unsigned char bytes[ROOM];
        max_align_t aligned;
    } given;
    int code;

    assert_true(test->len + ADDED + CALLER < ROOM);
    memset(&given, MARK, sizeof(given));
    memcpy(given.bytes, test->init, test->len);
    memcpy(given.bytes, &size, sizeof(size));
    code = test->call(place, given.bytes);
    if (code != expected) {
        fail_msg("%s with a size of %zu: %s", test->name, size, once_error_name(code));
    }
    assert_int_equal(once__sized(given.bytes), size);
    for (size_t i = test->len; i < ROOM; i++) {
        int filled = test->is_filled && i < size;
        if (given.bytes[i] != (filled ? 0 : MARK)) {
            fail_msg("%s with a size of %zu: byte %zu became %d", test->name, size, i,
                     given.bytes[i]);
        }
    }
}

static void every_size_from_the_first_version_on_is_accepted(void **state)
{
    place_t *place = *state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        check(place, &cases[i], cases[i].len, ONCE_OK);
        check(place, &cases[i], cases[i].len + ADDED, ONCE_OK);
        check(place, &cases[i], cases[i].len + 1, ONCE_OK);
    }
}

static void a_smaller_size_is_refused(void **state)
{
    place_t *place = *state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        check(place, &cases[i], 0, ONCE_E_INVALID);
        check(place, &cases[i], sizeof(size_t), ONCE_E_INVALID);
        check(place, &cases[i], cases[i].len - 1, ONCE_E_INVALID);
    }
}

/* ------------------------------------------------------------------------------------------------------------- setup */

static once_answer_t *ask(once_t *once, const char *key)
{
    once_ask_t asked = ONCE_ASK_INIT;
    once_answer_t *answer;

    asked.key = text(key);
    assert_int_equal(once_begin_sync(once, &asked, &answer), ONCE_OK);
    return answer;
}

static int set_up(void **state)
{
    static char token[ONCE_TOKEN_SIZE];
    static place_t place;
    once_response_t response = ONCE_RESPONSE_INIT;
    once_answer_t *answer;
    once_claim_t *claim;
    once_t *local;

    (void)snprintf(place.root, sizeof(place.root), "/tmp/once-sizes-XXXXXX");
    assert_non_null(mkdtemp(place.root));
    (void)snprintf(place.url, sizeof(place.url), "local:%s/store", place.root);
    assert_int_equal(once_open(place.url, NULL, &local, NULL), ONCE_OK);
    assert_int_equal(once_close(local, -1), ONCE_OK);

    assert_int_equal(once_open("memory:", NULL, &place.once, NULL), ONCE_OK);
    answer = ask(place.once, "completed");
    claim = once_answer_take_claim(answer);
    assert_int_equal(once_claim_complete_sync(claim, &response, NULL), ONCE_OK);
    once_answer_free(answer);
    place.answer = ask(place.once, "completed");
    place.record = once_answer_record(place.answer);
    answer = ask(place.once, "pending");
    once_claim_token(once_answer_take_claim(answer), token);
    once_answer_free(answer);
    place.token = token;
    *state = &place;
    return 0;
}

static int tear_down(void **state)
{
    place_t *place = *state;
    char command[64];

    once_answer_free(place->answer);
    (void)once_close(place->once, 0);
    (void)snprintf(command, sizeof(command), "rm -rf %s", place->root);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_older_struct_is_read_and_the_rest_is_zero),
        cmocka_unit_test(an_older_struct_is_filled_to_its_end),
        cmocka_unit_test(no_struct_ends_in_padding),
        cmocka_unit_test(every_size_from_the_first_version_on_is_accepted),
        cmocka_unit_test(a_smaller_size_is_refused),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
