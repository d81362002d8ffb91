/*
 * The commands on a local store that another process has open, as a gateway does.
 */
#include "harness.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "local.h"
#include "records.h"

/* Has records of each kind, and goes on with them when it is stopped. */
static int gateway(int ready, int until, void *data)
{
    const place_t *place = data;
    once_t *once = open_store(place->url);
    once_claim_t *held = claim(once, "s", "under-way", LONG_LEASE);
    once_response_t response = ONCE_RESPONSE_INIT;
    char byte;

    make_completed(once, "s", "done", "body");
    make_unknown(once, "s", "doubtful", "hold");
    if (once_claim_release_sync(claim(once, "s", "short", "ttl=1s"), 0, slice(""), NULL) !=
            ONCE_OK ||
        write(ready, "", 1) != 1 || read(until, &byte, 1) != 1) {
        return 1;
    }
    /* What the commands did is seen here, and what is under way can be ended. */
    if (state_of(once, "s", "doubtful") != ONCE_STATE_FAILED ||
        state_of(once, "s", "done") != ONCE_STATE_NONE ||
        once_claim_complete_sync(held, &response, NULL) != ONCE_OK) {
        return 2;
    }
    once_close(once, -1);
    return 0;
}

static void check_stats(const place_t *place)
{
    run_t r = run("stats", place->url, "--json", NULL);
    json_t *stats;

    assert_run(r, ONCE__CLI_OK);
    stats = json_line(r.out, 0);
    assert_int_equal(json_number_of(stats, "pending"), 1);
    assert_int_equal(json_number_of(stats, "completed"), 1);
    assert_int_equal(json_number_of(stats, "unknown"), 1);
    assert_int_equal(json_number_of(stats, "stuck"), 1);
    assert_int_equal(json_number_of(stats, "segments"), 1);
    assert_int_equal(json_number_of(stats, "bytes"), 64 * 1024);
    assert_true(json_number_of(stats, "index_bytes") > 100000);
    assert_int_equal(json_number_of(stats, "quarantined"), 0);
    json_decref(stats);
    run_free(&r);
    r = run("stats", place->url, NULL);
    assert_has(r.out, "size         64.0 KiB");
    assert_has(r.out, "segments            1\n");
    assert_has(r.out, "index ");
    assert_lacks(r.out, "quarantine");
    run_free(&r);
}

static void check_keys(const place_t *place)
{
    run_t r = run("keys", "list", place->url, "--stuck", NULL);

    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "doubtful");
    assert_lacks(r.out, "under-way");
    run_free(&r);
    r = run("keys", "show", place->url, "--scope", "s", "--key", "done", "--body", NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_string_equal(r.out, "body");
    run_free(&r);
    r = run("keys", "release", place->url, "--scope", "s", "--key", "under-way", "--yes", "--note",
            "test", NULL);
    assert_run(r, ONCE__CLI_REFUSED); /* its lease is live */
    run_free(&r);
    r = run("keys", "release", place->url, "--scope", "s", "--key", "doubtful", "--yes", "--note",
            "test", NULL);
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    r = run("keys", "purge", place->url, "--scope", "s", "--key", "done", "--yes", "--note", "test",
            NULL);
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    r = run("keys", "export", place->url, NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "\"under-way\"");
    run_free(&r);
}

static long long count(const place_t *place, const char *member)
{
    run_t r = run("stats", place->url, "--json", NULL);
    long long number;
    json_t *stats;

    assert_run(r, ONCE__CLI_OK);
    stats = json_line(r.out, 0);
    number = json_number_of(stats, member);
    json_decref(stats);
    run_free(&r);
    return number;
}

static void beside_a_gateway(void **state)
{
    companion_t companion;
    place_t place;
    run_t r;

    place_make(&place, "?segment=64k");
    companion_start(&companion, gateway, &place);
    check_stats(&place);
    check_keys(&place);
    while (count(&place, "expired") != 1) {
        continue; /* until the short one is over */
    }
    r = run("reap", place.url, NULL);
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    assert_int_equal(count(&place, "expired"), 0);
    companion_stop(&companion);
    r = run("fsck", place.url, NULL);
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    place_remove(&place);
}

static void looking_makes_no_store(void **state)
{
    static const char *const commands[][2] = {
        {"stats", NULL},  {"reap", NULL},    {"keys", "list"},    {"keys", "export"},
        {"keys", "show"}, {"keys", "purge"}, {"secret", "rotate"}};
    place_t place;

    place_make(&place, "");
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        run_t r =
            commands[i][1] == NULL
                ? run(commands[i][0], place.url, NULL)
                : run(commands[i][0], commands[i][1], place.url,
                      strcmp(commands[i][1], "purge") == 0 ? "--all" : NULL, "--note=test", NULL);
        assert_run(r, ONCE__CLI_STORE);
        assert_has(r.err, "there is no");
        run_free(&r);
        assert_int_equal(count_names(place.top), 0);
    }
    place_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beside_a_gateway),
        cmocka_unit_test(looking_makes_no_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
