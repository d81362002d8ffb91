/*
 * What a person meets first: colours on a terminal, a path in place of a store URL, a key in place of an id.
 */
#include "terminal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "local.h"
#include "records.h"

#define URL "memory:contact"

#define RED    "\033[1;31m"
#define GREEN  "\033[32m"
#define YELLOW "\033[33m"
#define PLAIN  "\033[0m"

static int fill(void **state)
{
    once_t *once = open_store(URL);

    unsetenv("NO_COLOR");
    setenv("TERM", "xterm", 1);
    make_stuck(once, "shop", "stuck-1", "hold");
    make_unknown(once, "shop", "unknown-1", "hold");
    make_completed(once, "shop", "completed-1", "body");
    make_completed(once, "shop", "shared", "body");
    make_completed(once, "bank", "shared", "body");
    make_pending(once, "bank", "pending-1");
    *state = once;
    return 0;
}

static int empty(void **state)
{
    once_close(*state, 0);
    return 0;
}

#define ON_TERMINAL(result, ...)                                                                   \
    run_on_terminal(result, NULL, NULL, NULL, (const char *const[]){__VA_ARGS__, NULL})

static void states_have_colours(void **state)
{
    terminal_run_t list, stats, show;

    ON_TERMINAL(&list, "keys", "list", URL);
    assert_int_equal(list.code, ONCE__CLI_OK);
    assert_has(list.text, RED "unknown  " PLAIN);
    assert_has(list.text, YELLOW "pending  " PLAIN);
    assert_has(list.text, "  pending    ");
    assert_has(list.text, GREEN "completed" PLAIN);
    ON_TERMINAL(&stats, "stats", URL);
    assert_has(stats.text, RED "stuck               2" PLAIN "  pending");
    assert_lacks(stats.text, RED "damaged");
    ON_TERMINAL(&show, "keys", "show", URL, "unknown-1");
    assert_has(show.text, RED "unknown" PLAIN " (may or may not");
}

static void errors_are_red_and_notes_are_not(void **state)
{
    terminal_run_t r, note;

    ON_TERMINAL(&r, "statz");
    assert_has(r.text, RED "once:" PLAIN " unknown command");
    assert_has(r.text, PLAIN "once:" PLAIN " \"once help\"");
    ON_TERMINAL(&note, "keys", "list", URL, "--limit", "1");
    assert_has(note.text, PLAIN "once:" PLAIN " there are more");
    assert_lacks(note.text, RED "once:");
}

static void colours_can_be_refused(void **state)
{
    terminal_run_t refused, dumb, empty_value;
    run_t piped = run("keys", "list", URL, NULL);

    assert_null(strchr(piped.out, '\033'));
    run_free(&piped);
    setenv("NO_COLOR", "1", 1);
    ON_TERMINAL(&refused, "keys", "list", URL);
    assert_null(strchr(refused.text, '\033'));
    setenv("NO_COLOR", "", 1); /* the convention: only a value that is not empty counts */
    ON_TERMINAL(&empty_value, "keys", "list", URL);
    assert_non_null(strchr(empty_value.text, '\033'));
    unsetenv("NO_COLOR");
    setenv("TERM", "dumb", 1);
    ON_TERMINAL(&dumb, "keys", "list", URL);
    assert_null(strchr(dumb.text, '\033'));
    setenv("TERM", "xterm", 1);
}

static void a_key_names_its_record(void **state)
{
    run_t found = run("keys", "show", URL, "stuck-1", NULL);
    run_t shared = run("keys", "show", URL, "shared", NULL);
    run_t none = run("keys", "show", URL, "nobody", NULL);
    run_t scoped = run("keys", "show", URL, "--scope", "bank", "--key", "shared", NULL);
    record_id_t id;

    assert_run(found, ONCE__CLI_OK);
    assert_has(found.out, id_of(*state, "shop", "stuck-1").hex);
    assert_run(shared, ONCE__CLI_USAGE);
    assert_has(shared.err, "2 scopes have a record with the key \"shared\"");
    id = id_of(*state, "bank", "shared");
    id.hex[8] = '\0';
    assert_has(shared.err, id.hex);
    assert_has(shared.err, "scope hash ");
    assert_run(none, ONCE__CLI_NOT_FOUND);
    assert_has(none.err, "no record has the key \"nobody\"");
    assert_run(scoped, ONCE__CLI_OK);
    run_free(&found);
    run_free(&shared);
    run_free(&none);
    run_free(&scoped);
}

/* A path is a local store wherever a URL may stand; the directory of a copy stays one. */
static void a_path_is_a_local_store(void **state)
{
    char copy[96];
    place_t place;
    once_t *once;
    run_t r;

    place_make(&place, "");
    once = open_store(place.url);
    make_completed(once, "shop", "k", "body");
    once_close(once, 0);
    r = run("keys", "show", place.store, "k", NULL);
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    setenv("ONCE_STORE", place.store, 1);
    snprintf(copy, sizeof(copy), "%s/copy", place.top);
    r = run("backup", copy, NULL);
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    unsetenv("ONCE_STORE");
    r = run("backup", place.store, copy, NULL);
    assert_run(r, ONCE__CLI_USAGE);
    assert_has(r.err, "copy");
    run_free(&r);
    r = run("stats", copy, NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "completed           1");
    run_free(&r);
    place_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_have_colours),
        cmocka_unit_test(errors_are_red_and_notes_are_not),
        cmocka_unit_test(colours_can_be_refused),
        cmocka_unit_test(a_key_names_its_record),
        cmocka_unit_test(a_path_is_a_local_store),
    };

    unsetenv("ONCE_STORE");
    return cmocka_run_group_tests(tests, fill, empty);
}
