/*
 * The audit trail of a local store: what the commands write, what they say about it, and what verify finds.
 */
#include "harness.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "local.h"
#include "records.h"

#include <once/audit.h>

static char *read_trail(const place_t *place, size_t *len)
{
    FILE *file = fopen(inside(place, "audit"), "rb");
    char *text = calloc(1, 1 << 16);

    assert_non_null(file);
    assert_non_null(text);
    *len = fread(text, 1, (1 << 16) - 1, file);
    fclose(file);
    return text;
}

static void write_trail(const place_t *place, const char *text, size_t len)
{
    FILE *file = fopen(inside(place, "audit"), "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, len, file), len);
    fclose(file);
}

/* Its lease is long: on a busy disk a short one is over before it is granted. */
static void make_doubtful(once_t *once, const char *key)
{
    once_claim_t *held = claim(once, "s", key, LONG_LEASE " recover=hold");

    assert_int_equal(once_claim_doubt_sync(held, (once_slice_t){"timeout", 7}, NULL), ONCE_OK);
}

/* A store with three decisions: six entries. */
static void fill(place_t *place)
{
    once_t *once;
    run_t r;

    place_make(place, "");
    once = open_store(place->url);
    make_doubtful(once, "one");
    make_doubtful(once, "two");
    make_completed(once, "s", "three", "x");
    once_close(once, 0);
    r = run("keys", "release", place->url, "--scope", "s", "--key", "one", "--yes", "--force",
            "--note", "checked", "--as", "ana", NULL);
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    r = run("keys", "settle", place->url, "--scope", "s", "--key", "two", "--completed", "--status",
            "200", "--yes", "--force", "--note", "paid", "--as", "ben", NULL);
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    r = run("keys", "purge", place->url, "--scope", "s", "--key", "three", "--yes", "--note",
            "gone", NULL);
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
}

static void decisions_are_listed(void **state)
{
    place_t place;
    json_t *entry;
    size_t len;
    char *text;
    run_t r;

    fill(&place);
    r = run("audit", "list", place.url, NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_int_equal(count_lines(r.out), 7);
    assert_has(r.out, "ana");
    assert_has(r.out, "checked");
    assert_has(r.out, "result of 3");
    assert_true(is_harmless(r.out));
    run_free(&r);
    r = run("audit", "list", place.url, "--json", NULL);
    assert_run(r, ONCE__CLI_OK);
    entry = json_line(r.out, 2);
    assert_int_equal(json_number_of(entry, "number"), 3);
    assert_string_equal(json_text_of(entry, "by"), "ben");
    assert_string_equal(json_text_of(entry, "act"), "settle completed");
    assert_string_equal(json_text_of(entry, "step"), "intent");
    assert_string_equal(json_text_of(entry, "from"), "unknown");
    assert_string_equal(json_text_of(entry, "note"), "paid");
    assert_int_equal(strlen(json_text_of(entry, "record")), 64);
    assert_int_equal(strlen(json_text_of(entry, "scope")), 32);
    assert_int_equal(strlen(json_text_of(entry, "claim")), 32);
    assert_int_equal(json_number_of(entry, "epoch"), 1);
    assert_string_equal(json_text_of(entry, "check"), "fine");
    json_decref(entry);
    entry = json_line(r.out, 4); /* who: this user */
    assert_non_null(strchr(json_text_of(entry, "by"), '@'));
    json_decref(entry);
    entry = json_line(r.out, 5);
    assert_int_equal(json_number_of(entry, "of"), 5);
    assert_string_equal(json_text_of(entry, "to"), "none");
    assert_string_equal(json_text_of(entry, "result"), "done");
    json_decref(entry);
    /* Neither the key nor the response is in the trail. */
    assert_lacks(r.out, "three");
    run_free(&r);
    r = run("audit", "list", place.url, "--since", "1h", NULL);
    assert_int_equal(count_lines(r.out), 7);
    run_free(&r);
    text = read_trail(&place, &len);
    memcpy(strstr(text, "\"time\":\"") + 8, "1999", 4);
    write_trail(&place, text, len);
    r = run("audit", "list", place.url, "--since", "1h", NULL);
    assert_run(r, ONCE__CLI_NO); /* it was changed */
    assert_int_equal(count_lines(r.out), 6);
    assert_has(r.err, "not whole");
    run_free(&r);
    free(text);
    place_remove(&place);
}

/* A record says by itself who settled it, and why. */
static void a_note_is_required(void **state)
{
    static const char *const commands[][4] = {{"keys", "release"}, {"keys", "purge"}};
    place_t place;

    fill(&place);
    for (size_t i = 0; i < 2; i++) {
        run_t r = run(commands[i][0], commands[i][1], place.url, "--scope", "s", "--key", "one",
                      "--yes", NULL);
        assert_run(r, ONCE__CLI_USAGE);
        assert_has(r.err, "missing --note TEXT: why?");
        run_free(&r);
    }
    place_remove(&place);
}

/* What verify says about a trail of which this was made. `head` NULL: none is compared. */
static void assert_verify(const place_t *place, const char *head, int code, const char *text)
{
    run_t r = run("audit", "verify", place->url, head != NULL ? "--head" : NULL, head, NULL);

    assert_run(r, code);
    assert_has(r.out, text);
    run_free(&r);
}

static void verify_finds_what_was_changed(void **state)
{
    char head[65] = "", *lines[8], *text, *at, *copy, *now;
    size_t len, now_len, count = 0;
    place_t place;
    run_t r;

    fill(&place);
    r = run("audit", "verify", place.url, NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "6 entries, whole\nhead ");
    snprintf(head, sizeof(head), "%s", strstr(r.out, "head ") + 5);
    run_free(&r);
    text = read_trail(&place, &len);
    for (at = text; count < 6; at = strchr(at, '\n') + 1) {
        lines[count++] = at;
    }
    lines[6] = at;
    assert_ptr_equal(at, text + len);
    copy = malloc(len + 3000);
    assert_non_null(copy);

    /* any byte, but those of line ends, one in seven of the rest */
    for (size_t i = 0; i < len; i += 7) {
        if (text[i] != '\n') {
            memcpy(copy, text, len);
            copy[i] ^= 1;
            write_trail(&place, copy, len);
            r = run("audit", "verify", place.url, NULL);
            assert_run(r, ONCE__CLI_NO);
            assert_has(r.out, "not whole");
            run_free(&r);
        }
    }
    /* an entry that is removed, first or in the middle */
    write_trail(&place, lines[1], (size_t)(lines[6] - lines[1]));
    assert_verify(&place, NULL, ONCE__CLI_NO, "entry 2 does not follow the one before it");
    memcpy(copy, text, (size_t)(lines[2] - text));
    memcpy(copy + (lines[2] - text), lines[3], (size_t)(lines[6] - lines[3]));
    write_trail(&place, copy, len - (size_t)(lines[3] - lines[2]));
    assert_verify(&place, NULL, ONCE__CLI_NO, "entry 4 does not follow the one before it");
    /* the end: only the head of before shows it */
    write_trail(&place, text, (size_t)(lines[4] - text));
    assert_verify(&place, NULL, ONCE__CLI_OK, "4 entries, whole");
    assert_verify(&place, head, ONCE__CLI_NO, "no entry has the hash of --head");
    /* an end in the middle of an entry is not counted, and the next entry takes its place, however long it was */
    memcpy(copy, text, len);
    memset(copy + (lines[5] - text), 'x', 3000);
    write_trail(&place, copy, (size_t)(lines[5] - text) + 3000);
    assert_verify(&place, NULL, ONCE__CLI_OK, "entry 5 is an intent without a result");
    r = run("keys", "purge", place.url, "--scope", "s", "--key", "one", "--yes", "--note", "x",
            NULL);
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    assert_verify(&place, NULL, ONCE__CLI_OK, "7 entries, whole");
    now = read_trail(&place, &now_len);
    assert_int_equal(now[now_len - 1], '\n');
    assert_null(strstr(now, "xxx"));
    free(now);
    write_trail(&place, text, len);
    assert_verify(&place, head, ONCE__CLI_OK, "6 entries, whole");
    free(copy);
    free(text);
    place_remove(&place);
}

/* Entries behind a trail that ends with what is not an entry: decisions go on, and verify goes on naming it. */
static void decide_behind(const place_t *place, const char *text, size_t len, const char *fault,
                          const char *counts)
{
    run_t r;

    write_trail(place, text, len);
    for (int i = 0; i < 2; i++) {
        once_t *once = open_store(place->url);
        make_completed(once, "s", "night", "x");
        once_close(once, 0);
        r = run("keys", "purge", place->url, "--scope", "s", "--key", "night", "--yes", "--note",
                "x", NULL);
        assert_run(r, ONCE__CLI_OK);
        run_free(&r);
    }
    assert_verify(place, NULL, ONCE__CLI_NO, fault);
    r = run("audit", "verify", place->url, "--json", NULL);
    assert_run(r, ONCE__CLI_NO);
    assert_has(r.out, counts);
    run_free(&r);
}

static void a_damaged_end_keeps_nobody_from_deciding(void **state)
{
    /* Bytes of "6 PREV HASH {...}", from 1 on: the number, a space, PREV, HASH, the brace; 0: the last one. */
    static const size_t damaged[] = {1, 2, 3, 67, 68, 131, 133, 0};
    const size_t garbage = 300000; /* more than is read at once */
    size_t len, last, kept;
    char *text, *copy;
    place_t place;

    fill(&place);
    text = read_trail(&place, &len);
    copy = malloc(len + garbage);
    assert_non_null(copy);
    for (last = len - 1; text[last - 1] != '\n'; last--) {
    }
    for (size_t i = 0; i < sizeof(damaged) / sizeof(damaged[0]); i++) {
        memcpy(copy, text, len);
        copy[damaged[i] > 0 ? last + damaged[i] - 1 : len - 2] = 'x';
        decide_behind(&place, copy, len, "entry 6 is not an entry", "\"entries\":10,\"faults\":1");
    }
    /* bytes of any length, as a filesystem may leave them */
    memcpy(copy, text, last);
    memset(copy + last, 0, garbage);
    copy[last + garbage - 1] = '\n';
    decide_behind(&place, copy, last + garbage, "entry 6 is not an entry",
                  "\"entries\":10,\"faults\":1");
    /* without an end they are not a line: the next entry takes their place */
    memset(copy + last, 0, garbage);
    write_trail(&place, copy, last + garbage);
    kept = (size_t)(strchr(text, '\n') - text) + 1;
    assert_verify(&place, NULL, ONCE__CLI_OK, "5 entries, whole");
    decide_behind(&place, "nonsense\n", 9, "entry 1 is not an entry", "\"entries\":5,\"faults\":1");
    memcpy(copy, text, kept);
    memcpy(copy + kept, "\n\n", 2);
    decide_behind(&place, copy, kept + 2, "entry 3 is not an entry", "\"entries\":7,\"faults\":2");
    free(copy);
    free(text);
    place_remove(&place);
}

static int decide_until_killed(void *data)
{
    const place_t *place = data;
    once_t *once = open_store(place->url);
    once_act_t act = ONCE_ACT_INIT;

    act.name = "test";
    act.result = (once_slice_t){"done", 4};
    assert_int_equal(once_audit_as(once, (once_slice_t){"x", 1}, (once_slice_t){"y", 1}), ONCE_OK);
    for (;;) {
        if (once_audit_add_sync(once, &act, NULL) != ONCE_OK) {
            return 1;
        }
    }
}

/* Writers that are killed at any moment leave a whole trail. */
static void killed_writers_leave_a_whole_trail(void **state)
{
    place_t place;
    struct stat st;

    fill(&place);
    for (int i = 0; i < 10; i++) {
        pid_t writers[2];
        off_t before = stat(inside(&place, "audit"), &st) == 0 ? st.st_size : 0;
        for (int k = 0; k < 2; k++) {
            writers[k] = fork();
            assert_true(writers[k] >= 0);
            if (writers[k] == 0) {
                _exit(decide_until_killed(&place));
            }
        }
        do { /* both have begun by then, or the first is well ahead: any moment will do */
            assert_int_equal(stat(inside(&place, "audit"), &st), 0);
        } while (st.st_size < before + 3000);
        for (int k = 0; k < 2; k++) {
            int status;
            assert_int_equal(kill(writers[k], SIGKILL), 0);
            assert_int_equal(waitpid(writers[k], &status, 0), writers[k]);
            assert_true(WIFSIGNALED(status));
        }
        assert_verify(&place, NULL, ONCE__CLI_OK, " entries, whole");
    }
    place_remove(&place);
}

/* A copy has the trail as well. */
static void a_backup_has_the_trail(void **state)
{
    char copy[128], url[160];
    place_t place;
    run_t r;

    fill(&place);
    snprintf(copy, sizeof(copy), "%s/copy", place.top);
    r = run("backup", place.url, copy, NULL);
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    snprintf(url, sizeof(url), "local:%s", copy);
    r = run("audit", "verify", url, NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "6 entries, whole");
    run_free(&r);
    place_remove(&place);
}

/* Without a database a trace is the record, and what was decided about it. */
static void a_trace_has_the_decisions(void **state)
{
    place_t place;
    json_t *trace;
    run_t r;

    fill(&place);
    r = run("trace", place.url, "two", NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "settle completed by ben, intent:");
    assert_has(r.out, "paid");
    assert_has(r.out, "settle completed by ben, result done");
    assert_has(r.out, "events are known in PostgreSQL only");
    assert_lacks(r.out, "ana");
    run_free(&r);
    r = run("trace", place.url, "--scope", "s", "--key", "two", "--json", NULL);
    assert_run(r, ONCE__CLI_OK);
    trace = json_line(r.out, 0);
    assert_int_equal(json_array_size(json_object_get(trace, "decisions")), 2);
    assert_string_equal(json_text_of(json_object_get(trace, "record"), "key"), "two");
    json_decref(trace);
    run_free(&r);
    r = run("trace", place.url, "none", NULL);
    assert_run(r, ONCE__CLI_NOT_FOUND);
    run_free(&r);
    place_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decisions_are_listed),
        cmocka_unit_test(a_note_is_required),
        cmocka_unit_test(verify_finds_what_was_changed),
        cmocka_unit_test(a_damaged_end_keeps_nobody_from_deciding),
        cmocka_unit_test(killed_writers_leave_a_whole_trail),
        cmocka_unit_test(a_backup_has_the_trail),
        cmocka_unit_test(a_trace_has_the_decisions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
