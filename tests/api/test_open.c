/*
 * Opening: URLs, options, secrets in files, encryption. Errors name the part that is wrong and never show a secret.
 */
#include "support/testing.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"

#include <once/local.h>
#include <once/once.h>

static char directory[] = "/tmp/once-open-XXXXXX";
static char url[512], path[256];

static int make_directory(void **state)
{
    return mkdtemp(directory) == NULL ? -1 : 0;
}

static int remove_directory(void **state)
{
    char command[300];

    (void)snprintf(command, sizeof(command), "rm -rf '%s'", directory);
    return system(command);
}

static void write_file(const char *name, const char *text, mode_t mode)
{
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    (void)unlink(path);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static void bad_urls_and_options_are_named(void **state)
{
    static const struct {
        const char *url;
        int code;
        const char *says;
    } cases[] = {
        {"", ONCE_E_CONFIG, "scheme:path"},
        {"/var/lib/once", ONCE_E_CONFIG, "scheme:path"},
        {"MEMORY:", ONCE_E_CONFIG, "scheme:path"},
        {"nosuch:", ONCE_E_UNSUPPORTED, "\"nosuch\""},
        {"memory:?nosuch=1", ONCE_E_CONFIG, "\"nosuch\""},
        {"memory:?ttl", ONCE_E_CONFIG, "parameter 1"},
        {"memory:?ttl=1h&ttl=2h", ONCE_E_CONFIG, "ttl is given twice"},
        {"memory:?ttl=%zz", ONCE_E_CONFIG, "%-escape"},
        {"memory:%00", ONCE_E_CONFIG, "%-escape"},
        {"memory:?ttl=never", ONCE_E_CONFIG, "ttl"},
        {"memory:?lease=0", ONCE_E_CONFIG, "lease"},
        {"memory:?recover=maybe", ONCE_E_CONFIG, "recover"},
        {"memory:?thread=yes", ONCE_E_CONFIG, "thread"},
        {"memory:?reap=soon", ONCE_E_CONFIG, "reap"},
        {"memory:?store_timeout=0s", ONCE_E_CONFIG, "store_timeout"},
        {"memory:?compress=little", ONCE_E_CONFIG, "compress"},
        {"memory:?secrets=hunter2", ONCE_E_CONFIG, "file:PATH"},
        {"memory:?max_records=0", ONCE_E_CONFIG, "max_records"},
        {"memory:?max_records=-1", ONCE_E_CONFIG, "max_records"},
        {"memory:?max_bytes=lots", ONCE_E_CONFIG, "max_bytes"},
        {"local:/nowhere/once?max_records=0", ONCE_E_CONFIG, "a number from 1 to"},
        {"local:/nowhere/once?max_records=9999999999", ONCE_E_CONFIG, "a number from 1 to"},
        {"local:/nowhere/once?max_bytes=0", ONCE_E_CONFIG, "is not a size"},
        {"local:/nowhere/once?max_bytes=-5m", ONCE_E_CONFIG, "is not a size"},
        {"local:/nowhere/once?max_bytes=1023k", ONCE_E_CONFIG, "which takes 1024k; raise it"},
        {"local:/nowhere/once?segment=64k&max_bytes=63k", ONCE_E_CONFIG, "which takes 64k"},
        {"postgres://nowhere/d?max_records=-1", ONCE_E_CONFIG, "a number from 1 to"},
        {"postgres://nowhere/d?max_bytes=99999999999g", ONCE_E_CONFIG, "is not a size"},
        {"redis://nowhere?max_records=many", ONCE_E_CONFIG, "a number from 1 to"},
        {"redis+cluster://nowhere?max_bytes=0", ONCE_E_CONFIG, "is not a size"},
        {"local:", ONCE_E_CONFIG, "name a directory"},
        {"local:/nowhere/once?segment=1", ONCE_E_CONFIG, "segment"},
        {"local:/nowhere/once?durability=none", ONCE_E_CONFIG, "durability"},
        {"local:/nowhere/once?segmant=1m", ONCE_E_CONFIG, "\"segmant\""},
        {"postgres://u:hunter2@nowhere:x/d?connections=0", ONCE_E_CONFIG, "connections"},
        {"postgres://u:hunter2@nowhere/d?colour=red", ONCE_E_CONFIG, "\"colour\""},
        {"redis://u:hunter2@nowhere:0", ONCE_E_CONFIG, "port"},
        {"redis://u:hunter2@nowhere?prefix=%7B", ONCE_E_CONFIG, "prefix"},
        {"redis://u:hunter2@nowhere?colour=red", ONCE_E_CONFIG, "\"colour\""},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        once_error_t err;
        once_t *once = NULL;
        for (int checked = 0; checked < 2; checked++) {
            memset(&err, 'x', sizeof(err));
            assert_int_equal(checked ? once_store_check(cases[i].url, &err)
                                     : once_open(cases[i].url, NULL, &once, &err),
                             cases[i].code);
            assert_null(once);
            if (strstr(err.text, cases[i].says) == NULL || strstr(err.text, "hunter2") != NULL) {
                fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].url, err.text, cases[i].says);
            }
        }
    }
}

/* Nothing is opened: what cannot be reached or read, or does not exist, is fine. */
static void a_check_looks_at_the_url_alone(void **state)
{
    static const char *const urls[] = {
        "memory:",
        "memory:NAME?max_records=5&ttl=1h",
        "local:/proc/nowhere/once?segment=1M&durability=claims-relaxed&max_bytes=64m",
        "local:/proc/nowhere/once?secrets=file:/nowhere/s&encrypt=file:/nowhere/e&lease=30s",
        "postgres://nowhere.invalid/d?connections=3&sslmode=require&max_records=7",
        "postgresql:///d?host=/nowhere",
        "redis://nowhere.invalid/5?wait=1&store_timeout=3s",
        "rediss://u:p@nowhere.invalid?ca=/nowhere/ca",
        "redis+sentinel://a,b:1,[::1]:2/name",
        "redis+cluster://a,b?prefix=%7Bx%7D",
    };
    once_error_t err;

    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        memset(&err, 'x', sizeof(err));
        if (once_store_check(urls[i], &err) != ONCE_OK) {
            fail_msg("%s: %s", urls[i], err.text);
        }
        assert_int_equal(err.code, ONCE_OK);
        assert_string_equal(err.text, "");
        assert_int_equal(once_store_check(urls[i], NULL), ONCE_OK);
    }
    assert_int_equal(once_store_check(NULL, &err), ONCE_E_INVALID);
}

static void an_option_is_read_from_the_url(void **state)
{
    static const struct {
        const char *url, *name;
        int code;
        const char *value; /* what is written; "-": nothing */
    } cases[] = {
        {"local:/d?ttl=1h&durability=claims-relaxed", "durability", ONCE_OK, "claims-relaxed"},
        {"local:/d?tt%6c=1%68", "ttl", ONCE_OK, "1h"},
        {"memory:?ttl=", "ttl", ONCE_OK, ""},
        {"memory:?thread", "thread", ONCE_E_CONFIG, "-"},
        {"memory:", "ttl", ONCE_E_NOT_FOUND, "-"},
        {"redis://ttl=1h@h/?lease=1s", "ttl", ONCE_E_NOT_FOUND, "-"},
        {"memory:?xttl=1h&ttlx=1h", "ttl", ONCE_E_NOT_FOUND, "-"},
        {"memory:?ttl=0123456789abcde", "ttl", ONCE_OK, "0123456789abcde"},
        {"memory:?ttl=0123456789abcdef", "ttl", ONCE_E_TOO_BIG, "-"},
        {"memory:?ttl=%zz", "ttl", ONCE_E_CONFIG, "-"},
        {"memory", "ttl", ONCE_E_CONFIG, "-"},
        {NULL, "ttl", ONCE_E_INVALID, "-"},
        {"memory:", NULL, ONCE_E_INVALID, "-"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char value[16] = "-";
        int code = once_store_option(cases[i].url, cases[i].name, value, sizeof(value));
        if (code != cases[i].code || strcmp(value, cases[i].value) != 0) {
            fail_msg("%zu: %s, \"%s\"", i, once_error_name(code), value);
        }
        code = once_store_option(cases[i].url, cases[i].name, NULL, 0);
        assert_int_equal(code, cases[i].code == ONCE_E_TOO_BIG ? ONCE_OK : cases[i].code);
    }
}

static void the_directory_is_read_from_the_url(void **state)
{
    static const struct {
        const char *url;
        int code;
        const char *path;
    } cases[] = {
        {"local:/d/e?ttl=1h", ONCE_OK, "/d/e"},
        {"local:d%3fe", ONCE_OK, "d?e"},
        {"local:/0123456789abcd", ONCE_OK, "/0123456789abcd"},
        {"local:/0123456789abcde", ONCE_E_TOO_BIG, "-"},
        {"local:/%zz", ONCE_E_CONFIG, "-"},
        {"redis://u:p@h/d", ONCE_E_UNSUPPORTED, "-"},
        {NULL, ONCE_E_INVALID, "-"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char found[16] = "-";
        int code = once_local_path(cases[i].url, found, sizeof(found));
        if (code != cases[i].code || strcmp(found, cases[i].path) != 0) {
            fail_msg("%zu: %s, \"%s\"", i, once_error_name(code), found);
        }
    }
    assert_int_equal(once_local_path("local:/d", NULL, 0), ONCE_E_INVALID);
}

static void options_are_set_by_name(void **state)
{
    once_options_t *options = once_options_new();
    once_error_t err;

    assert_non_null(options);
    assert_int_equal(once_options_set(options, "ttl", "2h", &err), ONCE_OK);
    assert_int_equal(once_options_set(options, "renew", "off", &err), ONCE_OK);
    assert_int_equal(once_options_set(options, "compress", "off", &err), ONCE_OK);
    assert_int_equal(once_options_set(options, "encrypt", "off", &err), ONCE_OK);
    assert_int_equal(once_options_set(options, "speed", "11", &err), ONCE_E_CONFIG);
    assert_non_null(strstr(err.text, "\"speed\""));
    assert_int_equal(once_options_set(NULL, "ttl", "2h", NULL), ONCE_E_INVALID);
    once_options_free(options);
}

static once_t *must_open(const char *text)
{
    once_error_t err = {0, ""};
    once_t *once;

    if (once_open(text, NULL, &once, &err) != ONCE_OK) {
        fail_msg("%s", err.text);
    }
    return once;
}

static void id_of(once_t *once, uint8_t id[ONCE_ID_SIZE])
{
    assert_int_equal(once_record_id_of(once, once__slice("s", 1), once__slice("k", 1), id),
                     ONCE_OK);
}

static void a_secrets_file_is_made_private_and_used_again(void **state)
{
    uint8_t first[ONCE_ID_SIZE], second[ONCE_ID_SIZE];
    once_answer_t *answer;
    struct stat st;
    once_t *once;

    (void)snprintf(path, sizeof(path), "%s/secrets", directory);
    (void)snprintf(url, sizeof(url), "memory:?secrets=file:%s", path);
    once = must_open(url);
    id_of(once, first);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(once_secret_rotate_sync(once, 3600000, &answer), ONCE_OK);
    assert_int_equal(once_answer_count(answer), 2);
    once_answer_free(answer);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(once_close(once, -1), ONCE_OK);
    once = must_open(url);
    id_of(once, second);
    assert_memory_equal(first, second, sizeof(first)); /* the record secret is permanent */
    assert_int_equal(once_close(once, -1), ONCE_OK);
}

static void a_second_rotation_of_the_same_file_meets_the_first(void **state)
{
    once_answer_t *answer;
    once_t *one, *two;

    (void)snprintf(url, sizeof(url), "memory:?secrets=file:%s/both", directory);
    one = must_open(url);
    two = must_open(url);
    assert_int_equal(once_secret_rotate_sync(one, 3600000, NULL), ONCE_OK);
    assert_int_equal(once_secret_rotate_sync(two, 3600000, &answer), ONCE_E_CONFLICT);
    assert_int_equal(once_secret_rotate_sync(two, 3600000, &answer),
                     ONCE_OK); /* it has read the file again */
    assert_int_equal(once_answer_count(answer), 3);
    once_answer_free(answer);
    assert_int_equal(once_close(one, -1), ONCE_OK);
    assert_int_equal(once_close(two, -1), ONCE_OK);
}

static once_outcome_t outcome_of(once_t *once, const char *key, int *code)
{
    once_ask_t ask = ONCE_ASK_INIT;
    once_answer_t *answer;
    once_outcome_t outcome;

    ask.key = once__slice(key, strlen(key));
    *code = once_begin_sync(once, &ask, &answer);
    if (*code != ONCE_OK) {
        return ONCE_OUTCOME_NONE;
    }
    outcome = once_answer_outcome(answer);
    if (outcome == ONCE_OUTCOME_RUN) {
        once_response_t response = ONCE_RESPONSE_INIT;
        assert_int_equal(once_claim_complete_sync(once_answer_take_claim(answer), &response, NULL),
                         ONCE_OK);
    }
    once_answer_free(answer);
    return outcome;
}

/* New secrets would give every record another id: everything would run again. */
static void a_secrets_file_that_vanishes_is_not_made_anew(void **state)
{
    once_t *one, *two;
    int code;

    (void)snprintf(path, sizeof(path), "%s/vanishes", directory);
    (void)snprintf(url, sizeof(url), "memory:vanishes?secrets=file:%s", path);
    one = must_open(url);
    two = must_open(url);
    assert_int_equal(outcome_of(one, "old", &code), ONCE_OUTCOME_RUN);
    assert_int_equal(once_secret_rotate_sync(one, 3600000, NULL), ONCE_OK);
    assert_int_equal(outcome_of(one, "pay", &code), ONCE_OUTCOME_RUN);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(outcome_of(two, "pay", &code), ONCE_OUTCOME_NONE);
    assert_int_equal(code, ONCE_E_SECRET);
    assert_int_equal(outcome_of(two, "old", &code), ONCE_OUTCOME_REPLAY);
    assert_int_equal(outcome_of(one, "pay", &code), ONCE_OUTCOME_REPLAY);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(once_close(one, -1), ONCE_OK);
    assert_int_equal(once_close(two, -1), ONCE_OK);
}

static void a_link_to_the_secrets_is_followed(void **state)
{
    char link_url[512], name[300];
    once_answer_t *answer;
    once_t *one, *two;
    int code;

    (void)snprintf(url, sizeof(url), "memory:linked?secrets=file:%s/linked", directory);
    (void)snprintf(name, sizeof(name), "%s/link", directory);
    (void)snprintf(link_url, sizeof(link_url), "memory:linked?secrets=file:%s", name);
    one = must_open(url);
    assert_int_equal(symlink("linked", name), 0);
    two = must_open(link_url);
    assert_int_equal(once_secret_rotate_sync(two, 3600000, NULL), ONCE_OK);
    assert_int_equal(outcome_of(two, "k", &code), ONCE_OUTCOME_RUN);
    assert_int_equal(outcome_of(one, "k", &code), ONCE_OUTCOME_REPLAY);
    assert_int_equal(once_secret_rotate_sync(one, 3600000, &answer), ONCE_OK);
    assert_int_equal(once_answer_count(answer), 3);
    once_answer_free(answer);
    assert_int_equal(once_close(one, -1), ONCE_OK);
    assert_int_equal(once_close(two, -1), ONCE_OK);
}

static void bad_secrets_files_are_refused(void **state)
{
    static const struct {
        const char *text;
        mode_t mode;
        const char *says;
    } cases[] = {
        {"once-secrets 1\n", 0644, "chmod 600"},
        {"", 0600, ""},
        {"once-secrets 1\nrecord 00\n", 0600, "line 2"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        once_error_t err;
        once_t *once;
        write_file("bad", cases[i].text, cases[i].mode);
        (void)snprintf(url, sizeof(url), "memory:?secrets=file:%s", path);
        assert_int_equal(once_open(url, NULL, &once, &err), ONCE_E_SECRET);
        if (strstr(err.text, cases[i].says) == NULL) {
            fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i].says);
        }
    }
    (void)snprintf(url, sizeof(url), "memory:?secrets=file:%s", directory);
    assert_int_equal(once_open(url, NULL, &(once_t *){NULL}, NULL), ONCE_E_SECRET);
    (void)snprintf(url, sizeof(url), "memory:?secrets=file:%s/no/such/place", directory);
    assert_int_equal(once_open(url, NULL, &(once_t *){NULL}, NULL), ONCE_E_IO);
}

#define KEY_1 "1 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n"
#define KEY_2 "2 ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100\n"

static void store_answer(once_t *once, const char *key)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    once_ask_t ask = ONCE_ASK_INIT;
    once_answer_t *answer;

    ask.key = once__slice(key, strlen(key));
    assert_int_equal(once_begin_sync(once, &ask, &answer), ONCE_OK);
    response.body = once__slice("card 4242", 9);
    assert_int_equal(once_claim_complete_sync(once_answer_take_claim(answer), &response, NULL),
                     ONCE_OK);
    once_answer_free(answer);
}

static int read_answer(once_t *once, const char *key)
{
    once_ask_t ask = ONCE_ASK_INIT;
    once_response_t response = ONCE_RESPONSE_INIT;
    once_answer_t *answer;
    int code;

    ask.key = once__slice(key, strlen(key));
    assert_int_equal(once_begin_sync(once, &ask, &answer), ONCE_OK);
    assert_int_equal(once_answer_outcome(answer), ONCE_OUTCOME_REPLAY);
    code = once_record_response(once_answer_record(answer), &response);
    if (code == ONCE_OK) {
        assert_memory_equal(response.body.data, "card 4242", 9);
    }
    once_answer_free(answer);
    return code;
}

static void stored_responses_are_encrypted_and_keys_rotate(void **state)
{
    once_t *keeper = must_open("memory:sealed");
    once_t *once;

    write_file("keys", KEY_1, 0600);
    (void)snprintf(url, sizeof(url), "memory:sealed?encrypt=file:%s", path);
    once = must_open(url);
    store_answer(once, "old");
    assert_int_equal(once_close(once, -1), ONCE_OK);
    write_file("keys", KEY_1 KEY_2, 0600);
    once = must_open(url);
    store_answer(once, "new");
    assert_int_equal(read_answer(once, "old"), ONCE_OK);
    assert_int_equal(read_answer(once, "new"), ONCE_OK);
    assert_int_equal(once_close(once, -1), ONCE_OK);
    write_file("keys", KEY_2, 0600);
    once = must_open(url);
    assert_int_equal(read_answer(once, "old"), ONCE_E_SEALED);
    assert_int_equal(read_answer(once, "new"), ONCE_OK);
    assert_int_equal(once_close(once, -1), ONCE_OK);
    assert_int_equal(read_answer(keeper, "new"), ONCE_E_SEALED);
    assert_int_equal(once_close(keeper, -1), ONCE_OK);
}

/* Anyone who can write to the store could have put it there: only the operator can say that it is from before. */
static void with_keys_what_is_not_encrypted_is_not_read(void **state)
{
    once_t *keeper = must_open("memory:plain");
    once_t *once;

    store_answer(keeper, "before");
    write_file("keys", KEY_1, 0600);
    (void)snprintf(url, sizeof(url), "memory:plain?encrypt=file:%s", path);
    once = must_open(url);
    assert_int_equal(read_answer(once, "before"), ONCE_E_UNSEALED);
    assert_int_equal(once_close(once, -1), ONCE_OK);
    (void)snprintf(url, sizeof(url), "memory:plain?encrypt=file:%s&encrypt_require=off", path);
    once = must_open(url);
    assert_int_equal(read_answer(once, "before"), ONCE_OK);
    assert_int_equal(once_close(once, -1), ONCE_OK);
    assert_int_equal(once_close(keeper, -1), ONCE_OK);
}

static void a_missing_key_file_says_what_to_do(void **state)
{
    once_error_t err;
    once_t *once;

    (void)snprintf(url, sizeof(url), "memory:?encrypt=file:%s/none", directory);
    assert_int_equal(once_open(url, NULL, &once, &err), ONCE_E_SECRET);
    assert_non_null(strstr(err.text, "1 HEX64"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_urls_and_options_are_named),
        cmocka_unit_test(a_check_looks_at_the_url_alone),
        cmocka_unit_test(an_option_is_read_from_the_url),
        cmocka_unit_test(the_directory_is_read_from_the_url),
        cmocka_unit_test(options_are_set_by_name),
        cmocka_unit_test(a_secrets_file_is_made_private_and_used_again),
        cmocka_unit_test(a_second_rotation_of_the_same_file_meets_the_first),
        cmocka_unit_test(a_secrets_file_that_vanishes_is_not_made_anew),
        cmocka_unit_test(a_link_to_the_secrets_is_followed),
        cmocka_unit_test(bad_secrets_files_are_refused),
        cmocka_unit_test(stored_responses_are_encrypted_and_keys_rotate),
        cmocka_unit_test(with_keys_what_is_not_encrypted_is_not_read),
        cmocka_unit_test(a_missing_key_file_says_what_to_do),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
