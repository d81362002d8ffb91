#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void nothing_asked_is_an_error(void **state)
{
    run_t r = run(NULL, NULL);

    assert_run(r, ONCE__CLI_USAGE);
    assert_string_equal(r.out, "");
    assert_has(r.err, "usage: once COMMAND");
    assert_has(r.err, "\nevery day:\n  gate  ");
    assert_has(r.err, "  once demo  ");
    assert_has(r.err, "keys show, keys release");
    assert_has(r.err, "once help");
    run_free(&r);
}

static void version_and_help(void **state)
{
    run_t version = run("--version", NULL);
    run_t command = run("version", NULL);
    run_t help = run("--help", NULL);
    run_t same = run("help", NULL);

    assert_run(version, ONCE__CLI_OK);
    assert_string_equal(version.out, "once 0.2.0\n");
    assert_run(command, ONCE__CLI_OK);
    assert_string_equal(command.out, version.out);
    run_free(&command);
    assert_has(help.out, "\nevery day:\n  gate  ");
    assert_has(help.out, "\nrecords:\n  keys find  ");
    assert_has(help.out, "  once gate --upstream 3000  ");
    assert_run(help, ONCE__CLI_OK);
    assert_run(same, ONCE__CLI_OK);
    assert_string_equal(help.out, same.out);
    run_free(&version);
    run_free(&help);
    run_free(&same);
}

/* Splits "keys list" into its words. */
static run_t run_command(const char *name, const char *option)
{
    char words[64];
    char *second;

    snprintf(words, sizeof(words), "%s", name);
    second = strchr(words, ' ');
    if (second == NULL) {
        return run(words, option, NULL);
    }
    *second++ = '\0';
    return run(words, second, option, NULL);
}

static void every_command_has_help(void **state)
{
    run_t overview = run("help", NULL);

    for (size_t i = 0; i < once__cli_command_count; i++) {
        const once__cli_command_t *command = once__cli_commands[i];
        run_t r = run_command(command->name, "--help");
        assert_run(r, ONCE__CLI_OK);
        assert_string_equal(r.err, "");
        assert_has(r.out, command->name);
        assert_has(overview.out, command->name);
        for (const once__cli_option_t *o = command->options; o != NULL && o->name != NULL; o++) {
            char option[64];
            snprintf(option, sizeof(option), "--%s", o->name);
            assert_has(r.out, option);
        }
        run_free(&r);
    }
    run_free(&overview);
}

/* The last --help wins over anything wrong that follows it, and no command touches a store. */
static void help_of_groups_and_by_name(void **state)
{
    run_t group = run("help", "keys", NULL);
    run_t same = run("keys", "--help", NULL);
    run_t command = run("help", "keys", "list", NULL);
    run_t unknown = run("help", "keys", "lisst", NULL);
    run_t extra = run("help", "stats", "more", NULL);

    assert_run(group, ONCE__CLI_OK);
    assert_string_equal(group.out, same.out);
    assert_has(group.out, "keys purge");
    assert_lacks(group.out, "key new");
    assert_run(command, ONCE__CLI_OK);
    assert_has(command.out, "--older AGE");
    assert_run(unknown, ONCE__CLI_USAGE);
    assert_has(unknown.err, "did you mean \"keys list\"");
    assert_run(extra, ONCE__CLI_USAGE);
    run_free(&group);
    run_free(&same);
    run_free(&command);
    run_free(&unknown);
    run_free(&extra);
}

typedef struct mistake {
    const char *arguments[6];
    const char *expected; /* part of what is said */
} mistake_t;

static const mistake_t mistakes[] = {
    {{"keys"}, "keys: missing subcommand: list, find, show"},
    {{"keys", "lst"}, "did you mean \"keys list\"?"},
    {{"kyes", "list"}, "did you mean \"keys\"?"},
    {{"statz"}, "did you mean \"stats\"?"},
    {{"quantum"}, "unknown command \"quantum\""},
    {{""}, "unknown command \"\""},
    {{"--json", "stats"}, "options follow the command"},
    {{"stats", "memory:", "--jsn"}, "did you mean --json?"},
    {{"stats", "memory:", "--quantum"}, "unknown option \"--quantum\""},
    {{"stats", "memory:", "-q"}, "unknown option \"-q\""},
    {{"stats", "memory:", "--json=yes"}, "--json takes no value"},
    {{"stats", "memory:", "--max-stuck"}, "--max-stuck needs a value: --max-stuck N"},
    {{"stats", "memory:", "--max-stuck", "-1"}, "needs a whole number, not \"-1\""},
    {{"stats", "memory:", "--max-stuck", "99999999999999999999"}, "needs a whole number"},
    {{"stats", "memory:", "--max-stuck="}, "needs a whole number, not \"\""},
    {{"stats", "memory:", "extra"}, "unexpected operand \"extra\""},
    {{"stats"}, "missing store"},
    {{"stats", "abc"}, "\"abc\" is not a store URL"},
    {{"stats", "data"}, "did you mean local:data?"},
    {{"stats", "memory"}, "did you mean memory:?"},
    {{"stats", "nowhere:"}, "cannot open the store"},
    {{"keys", "list", "memory:", "--older", "1y"}, "needs a duration such as"},
    {{"keys", "list", "memory:", "--state", "done"}, "--state needs a list of pending"},
    {{"keys", "list", "memory:", "--state", "pending,"}, "--state needs a list of pending"},
    {{"keys", "list", "memory:", "--scope-hash", "abc"}, "--scope-hash needs 2 to 32 hex digits"},
    {{"keys", "list", "memory:", "--scope-hash", "zz"}, "--scope-hash needs 2 to 32 hex digits"},
    {{"keys", "list", "memory:", "--younger", "0"}, "--younger must be greater than 0"},
    {{"keys", "show", "memory:"}, "missing record"},
    {{"keys", "show", "memory:", "--key", "k"}, "--key needs the scope"},
    {{"keys", "show", "memory:", "--scope", "s"}, "missing record"},
    {{"keys", "settle", "memory:", "12345678"}, "missing decision"},
    {{"keys", "settle", "memory:", "12345678", "--completed"},
     "--completed needs the response's status"},
    {{"keys", "purge", "memory:"}, "missing records"},
    {{"keys", "purge", "memory:", "--all", "--stuck"}, "missing records"},
    {{"keys", "purge", "memory:", "--limit", "5"}, "missing records"},
    {{"keys", "purge", "memory:", "--all", "--claim", "x"}, "--claim needs one record"},
    {{"keys", "purge", "memory:", "12345678", "--stuck"}, "one record is named"},
    {{"key", "new", "-n", "0"}, "--count must be between 1 and"},
    {{"key", "derive", "--parent", "a"}, "both are needed"},
    {{"key", "compose"}, "missing operand"},
    {{"health"}, "missing operand"},
    {{"health", "127.0.0.1:9090"}, "give http://HOST:PORT/PATH or unix:/PATH"},
    {{"health", "file:///etc/passwd"}, "give http://HOST:PORT/PATH or unix:/PATH"},
    {{"health", "http://127.0.0.1/", "--timeout", "0"}, "--timeout must be between"},
    {{"bench", "store"}, "missing store"},
    {{"bench", "store", "memory:", "--inflight", "0"}, "--inflight must be between 1 and"},
    {{"conformance"}, "missing store"},
};

static void mistakes_are_named(void **state)
{
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        const char *const *a = mistakes[i].arguments;
        run_t r = run(a[0], a[1], a[2], a[3], a[4], a[5], NULL);
        assert_has(r.err, mistakes[i].expected);
        assert_run(r, ONCE__CLI_USAGE);
        assert_string_equal(r.out, "");
        run_free(&r);
    }
}

static void passwords_are_never_printed(void **state)
{
    const char *const url = "redis://user:hunter2@host/0?x=hunter2";
    run_t runs[] = {
        run(url, NULL),
        run("stats", url, NULL),
        run("stats", "memory:", url, NULL),
        run("stats", "memory:", "--max-stuck", url, NULL),
        run("keys", url, NULL),
        run("help", url, NULL),
        run("demo", url, NULL),
        run("conformance", url, NULL),
        run("bench", "store", url, NULL),
        run("--redis://user:hunter2@host", NULL),
    };

    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        assert_int_not_equal(runs[i].code, ONCE__CLI_OK);
        assert_lacks(runs[i].out, "hunter2");
        assert_lacks(runs[i].err, "hunter2");
        run_free(&runs[i]);
    }
}

static void control_bytes_do_not_reach_the_terminal(void **state)
{
    const char *const evil = "\033[2J\033]0;gone\007\n\x9b\xff";
    run_t runs[] = {
        run(evil, NULL),
        run("keys", evil, NULL),
        run("stats", evil, NULL),
        run("stats", "memory:", evil, NULL),
        run("stats", "memory:", "--\033[2J", NULL),
        run("stats", "memory:", "--max-stuck", evil, NULL),
        run("keys", "show", "memory:", evil, NULL),
        run("keys", "list", "memory:", "--state", evil, NULL),
        run("keys", "settle", "memory:", "12345678", "--completed", "--status", "200", "--header",
            evil, NULL),
        run("key", "check", evil, NULL),
        run("key", "compose", evil, NULL),
        run("key", "hash", "--principal", "a", "--action", "b", "--at", evil, NULL),
        run("key", "hash", "--principal", "a", "--action", "b", "--payload-file", evil, NULL),
        run("stats", "memory:?\033[2J=1", NULL),
        run("stats", "\033[2J:", NULL),
    };

    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        assert_int_not_equal(runs[i].code, ONCE__CLI_OK);
        assert_true(is_harmless(runs[i].out));
        assert_true(is_harmless(runs[i].err));
        run_free(&runs[i]);
    }
}

static void huge_arguments_are_harmless(void **state)
{
    size_t size = 1 << 20;
    char *huge = malloc(size + 1);
    run_t runs[8];

    assert_non_null(huge);
    memset(huge, 'a', size);
    huge[size] = '\0';
    runs[0] = run(huge, NULL);
    runs[1] = run("keys", huge, NULL);
    runs[2] = run("stats", "memory:", huge, NULL);
    runs[3] = run("keys", "show", "memory:", huge, NULL);
    runs[4] = run("keys", "show", "memory:", "--scope", huge, "--key", huge, NULL);
    runs[5] = run("key", "check", huge, NULL);
    runs[6] = run("key", "compose", huge, NULL);
    memcpy(huge, "memory:?", 8);
    runs[7] = run("stats", huge, NULL);
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        assert_int_not_equal(runs[i].code, ONCE__CLI_OK);
        assert_true(strlen(runs[i].err) < 2000);
        run_free(&runs[i]);
    }
    free(huge);
}

static void store_from_the_environment(void **state)
{
    run_t r;

    setenv("ONCE_STORE", "memory:", 1);
    r = run("stats", NULL);
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    r = run("keys", "show", "1234567812345678", NULL);
    assert_run(r, ONCE__CLI_NOT_FOUND);
    run_free(&r);
    r = run("stats", "extra", NULL);
    assert_run(r, ONCE__CLI_USAGE);
    assert_has(r.err, "unexpected operand");
    run_free(&r);

    setenv("ONCE_STORE", "nowhere:", 1);
    r = run("stats", "memory:", NULL); /* what is given wins */
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
    r = run("bench", "store", NULL); /* never by accident */
    assert_run(r, ONCE__CLI_USAGE);
    run_free(&r);
    unsetenv("ONCE_STORE");
}

static void a_full_disk_is_not_success(void **state)
{
    FILE *saved = stdout;
    char *arguments[] = {(char[]){"once"}, (char[]){"help"}, NULL};

    stdout = fopen("/dev/full", "w");
    assert_non_null(stdout);
    assert_int_equal(once_cli_main(2, arguments), ONCE__CLI_STORE);
    fclose(stdout);
    stdout = saved;
}

static void options_may_stand_anywhere(void **state)
{
    run_t before = run("stats", "--json", "memory:", NULL);
    run_t after = run("stats", "memory:", "--json", NULL);
    run_t ended = run("key", "check", "--", "--strict", NULL);

    assert_run(before, ONCE__CLI_OK);
    assert_string_equal(before.out, after.out);
    assert_run(ended, ONCE__CLI_OK);
    assert_string_equal(ended.out, "--strict\n");
    run_free(&before);
    run_free(&after);
    run_free(&ended);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_asked_is_an_error),
        cmocka_unit_test(version_and_help),
        cmocka_unit_test(every_command_has_help),
        cmocka_unit_test(help_of_groups_and_by_name),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(passwords_are_never_printed),
        cmocka_unit_test(control_bytes_do_not_reach_the_terminal),
        cmocka_unit_test(huge_arguments_are_harmless),
        cmocka_unit_test(store_from_the_environment),
        cmocka_unit_test(a_full_disk_is_not_success),
        cmocka_unit_test(options_may_stand_anywhere),
    };

    unsetenv("ONCE_STORE");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
