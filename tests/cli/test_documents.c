/*
 * What is written about the commands says what they are: the manual, docs/cli.md and the completion, compared with the table
 * of commands in both directions.
 */
#include "harness.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/file.h"

#define SHARED_NAMING   ".Ss Naming a record\n"
#define SHARED_CHOOSING ".Ss Choosing records\n"

static char *read_document(const char *path)
{
    char whole[512];
    once__cli_bytes_t bytes;

    snprintf(whole, sizeof(whole), SOURCE_DIR "/%s", path);
    assert_int_equal(once__cli_read_file(whole, 1 << 20, &bytes), ONCE__CLI_OK);
    return bytes.data;
}

/* From a heading to the next one, which begins with one of two marks; a copy. */
static char *section(const char *text, const char *heading, const char *mark, const char *other)
{
    const char *begin = strstr(text, heading);
    const char *stop, *sooner;

    if (begin == NULL) {
        print_error("no section %s", heading);
    }
    assert_non_null(begin);
    begin += strlen(heading);
    stop = strstr(begin, mark);
    sooner = strstr(begin, other);
    stop = stop == NULL || (sooner != NULL && sooner < stop) ? sooner : stop;
    return stop != NULL ? strndup(begin, (size_t)(stop - begin)) : strdup(begin);
}

/* Does `text` have `prefix` and then `name`, and then no further letter of a name? */
static int mentions(const char *text, const char *prefix, const char *name)
{
    char wanted[80];

    snprintf(wanted, sizeof(wanted), "%s%s", prefix, name);
    for (const char *at = strstr(text, wanted); at != NULL; at = strstr(at + 1, wanted)) {
        char next = at[strlen(wanted)];
        if (!isalnum((unsigned char)next) && next != '-') {
            return 1;
        }
    }
    return 0;
}

static int has_option(const once__cli_command_t *command, const char *name, size_t len)
{
    if (len == 4 && strncmp(name, "help", 4) == 0) {
        return 1;
    }
    for (const once__cli_option_t *o = command->options; o != NULL && o->name != NULL; o++) {
        if (strlen(o->name) == len && strncmp(o->name, name, len) == 0) {
            return 1;
        }
    }
    return 0;
}

static size_t name_length(const char *text)
{
    return strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-");
}

/* Every item of the section's option list is an option of the command. */
static void check_items(const once__cli_command_t *command, const char *text)
{
    for (const char *line = strstr(text, "\n.It Fl"); line != NULL;
         line = strstr(line + 1, "\n.It Fl")) {
        const char *end = strchr(line + 1, '\n');
        const char *name = strstr(line, "Fl -");
        assert_non_null(name);
        assert_true(name < end);
        name += strlen("Fl -");
        if (!has_option(command, name, name_length(name))) {
            print_error("the manual has %s --%.12s, which does not exist\n", command->name, name);
        }
        assert_true(has_option(command, name, name_length(name)));
    }
}

static void the_manual_is_complete(void **state)
{
    char *manual = read_document("man/once.1");
    char *naming = section(manual, SHARED_NAMING, "\n.Ss ", "\n.Sh ");
    char *choosing = section(manual, SHARED_CHOOSING, "\n.Ss ", "\n.Sh ");

    for (size_t i = 0; i < once__cli_command_count; i++) {
        const once__cli_command_t *command = once__cli_commands[i];
        char heading[64];
        char *text;
        snprintf(heading, sizeof(heading), ".Ss %s\n", command->name);
        text = section(manual, heading, "\n.Ss ", "\n.Sh ");
        check_items(command, text);
        for (const once__cli_option_t *o = command->options; o != NULL && o->name != NULL; o++) {
            int found = mentions(text, ".It Fl -", o->name) || mentions(text, ", Fl -", o->name);
            found |= strstr(text, "Naming a record") != NULL && mentions(naming, "Fl -", o->name);
            found |=
                strstr(text, "Choosing records") != NULL && mentions(choosing, "Fl -", o->name);
            if (!found) {
                print_error("%s --%s is not in the manual\n", command->name, o->name);
            }
            assert_true(found);
        }
        free(text);
    }
    free(naming);
    free(choosing);
    free(manual);
}

static void the_manual_has_every_exit_code(void **state)
{
    char *manual = read_document("man/once.1");
    char *text = section(manual, ".Sh EXIT STATUS\n", "\n.Sh ", "\n.Sh ");

    for (int code = ONCE__CLI_OK; code <= ONCE__CLI_REDIRECTED; code++) {
        char item[16];
        snprintf(item, sizeof(item), ".It %d\n", code);
        assert_has(text, item);
    }
    assert_null(strstr(text, ".It 13"));
    free(text);
    free(manual);
}

/* docs/cli.md: a heading for each command, its own options below it, or those of a filter in `keys list`. */
static void the_guide_is_complete(void **state)
{
    char *guide = read_document("docs/cli.md");

    for (size_t i = 0; i < once__cli_command_count; i++) {
        const once__cli_command_t *command = once__cli_commands[i];
        char heading[64];
        char *text;
        snprintf(heading, sizeof(heading), "### once %s\n", command->name);
        text = section(guide, heading, "\n## ", "\n### ");
        for (const once__cli_option_t *o = command->options; o != NULL && o->name != NULL; o++) {
            if (!mentions(guide, "--", o->name)) {
                print_error("--%s is not in the guide\n", o->name);
            }
            assert_true(mentions(guide, "--", o->name));
        }
        free(text);
    }
    free(guide);
}

static int any_command_has(const char *name, size_t len)
{
    for (size_t i = 0; i < once__cli_command_count; i++) {
        if (has_option(once__cli_commands[i], name, len)) {
            return 1;
        }
    }
    return len == 7 && strncmp(name, "version", 7) == 0;
}

/* No document tells of an option that does not exist. */
static void nothing_is_made_up(void **state)
{
    static const char *const documents[] = {"docs/cli.md", "docs/operations.md"};

    for (size_t i = 0; i < sizeof(documents) / sizeof(documents[0]); i++) {
        char *text = read_document(documents[i]);
        for (const char *at = strstr(text, "--"); at != NULL; at = strstr(at + 2, "--")) {
            size_t len = name_length(at + 2);
            int alone = at != text && strchr(" `[(", at[-1]) != NULL;
            if (!alone || len == 0 || !isalnum((unsigned char)at[2])) {
                continue; /* a dash, a table, or `--` itself */
            }
            if (!any_command_has(at + 2, len)) {
                print_error("%s: --%.*s does not exist\n", documents[i], (int)len, at + 2);
            }
            assert_true(any_command_has(at + 2, len));
        }
        free(text);
    }
}

/* How to ask each shell what it would offer after $WORDS, one on each line. Its script runs the `once` of PATH. */
static const char *const shells[][2] = {
    {"bash", "PATH=" PROGRAM_DIR ":$PATH bash --norc -c '. " SOURCE_DIR "/completion/once.bash; "
             "eval \"COMP_WORDS=($WORDS)\"; COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _once; "
             "printf \"%s\\n\" \"${COMPREPLY[@]}\"'"},
    /* The functions of the completion system, which needs a terminal, are replaced. */
    {"zsh", "PATH=" PROGRAM_DIR ":$PATH zsh -f -c '_files() { print -l *(N); }; "
            "_describe() { print -rl -- ${${(P)3}%%:*}; }; "
            "eval \"words=($WORDS)\"; CURRENT=${#words}; . " SOURCE_DIR "/completion/_once'"},
    {"fish",
     "PATH=" PROGRAM_DIR ":$PATH fish --no-config -c 'source " SOURCE_DIR
     "/completion/once.fish; complete -C \"$WORDS\" | string replace -r \"\\t.*\" \"\"; true'"},
};

/* What the shell offers, in a text with a line end before and after. */
static void complete_in(size_t shell, const char *words, char *out, size_t size)
{
    FILE *pipe;
    size_t len;

    setenv("WORDS", words, 1);
    pipe = popen(shells[shell][1], "r");
    assert_non_null(pipe);
    out[0] = '\n';
    len = fread(out + 1, 1, size - 2, pipe);
    out[len + 1] = '\0';
    assert_int_equal(pclose(pipe), 0);
}

static void complete(const char *words, char *out, size_t size)
{
    complete_in(0, words, out, size);
}

static void assert_offered(const char *offered, const char *prefix, const char *word)
{
    char line[80];

    snprintf(line, sizeof(line), "\n%s%s\n", prefix, word);
    assert_has(offered, line);
}

/* What the program offers after up to two words, as the shells ask for it: each line is a word, a tab and its meaning. */
static void offer_after(const char *words, const char *current, char *out, size_t size)
{
    char first[32], second[32] = "";
    run_t r;
    int count = sscanf(words, "%31s %31s", first, second);

    r = count == 2   ? run("__complete", first, second, current, NULL)
        : count == 1 ? run("__complete", first, current, NULL)
                     : run("__complete", current, NULL);
    assert_run(r, ONCE__CLI_OK);
    snprintf(out, size, "\n%s", r.out);
    run_free(&r);
}

static void assert_line(const char *offered, const char *prefix, const char *word,
                        const char *meaning)
{
    char line[200];

    snprintf(line, sizeof(line), "\n%s%s\t%s\n", prefix, word, meaning);
    assert_has(offered, line);
}

static void completion_offers_exactly_the_options(void **state)
{
    for (size_t i = 0; i < once__cli_command_count; i++) {
        const once__cli_command_t *command = once__cli_commands[i];
        char offered[4096];
        size_t count = 1; /* --help */
        if (strcmp(command->name, "help") == 0) {
            continue;
        }
        offer_after(command->name, "--", offered, sizeof(offered));
        for (const once__cli_option_t *o = command->options; o != NULL && o->name != NULL; o++) {
            assert_line(offered, "--", o->name, o->help);
            count++;
        }
        assert_has(offered, "\n--help\t");
        assert_int_equal(count_lines(offered) - 1, count);
    }
}

static void completion_offers_every_command(void **state)
{
    char all[4096];

    offer_after("", "", all, sizeof(all));
    for (size_t i = 0; i < once__cli_command_count; i++) {
        const once__cli_command_t *command = once__cli_commands[i];
        const char *second = strchr(command->name, ' ');
        char first[32], offered[4096];
        snprintf(first, sizeof(first), "%.*s", (int)strcspn(command->name, " "), command->name);
        assert_line(all, "", first, second != NULL ? "several commands" : command->summary);
        if (second != NULL) {
            offer_after(first, "", offered, sizeof(offered));
            assert_line(offered, "", second + 1, command->summary);
        }
    }
}

static void completion_knows_values(void **state)
{
    char offered[4096];

    complete("once keys list --state \"\"", offered, sizeof(offered));
    assert_string_equal(offered, "\npending\ncompleted\nfailed\nunknown\n");
    complete("once consume --order p", offered, sizeof(offered));
    assert_string_equal(offered, "\npartition\n");
    complete("once keys list --limit \"\"", offered, sizeof(offered));
    assert_lacks(offered, "--");
    complete("once help keys \"\"", offered, sizeof(offered));
    assert_offered(offered, "", "purge");
    complete("once gate --tls-cert " SOURCE_DIR "/READ", offered, sizeof(offered));
    assert_string_equal(offered, "\n" SOURCE_DIR "/README.md\n");
}

/* They have the same source: a few lines show that the scripts of all shells use it. */
static void completion_works_in_every_shell(void **state)
{
    for (size_t shell = 0; shell < sizeof(shells) / sizeof(shells[0]); shell++) {
        char offered[4096];
        snprintf(offered, sizeof(offered), "command -v %s >/dev/null", shells[shell][0]);
        if (system(offered) != 0) {
            skip_without(shells[shell][0]);
        }
        complete_in(shell, "once k", offered, sizeof(offered));
        assert_offered(offered, "", "keys");
        assert_offered(offered, "", "key");
        assert_int_equal(count_lines(offered) - 1, 2);
        complete_in(shell, "once keys list --s", offered, sizeof(offered));
        assert_offered(offered, "--", "state");
        assert_offered(offered, "--", "scope-hash");
        assert_lacks(offered, "--json");
        complete_in(shell, "once keys list --state u", offered, sizeof(offered));
        assert_string_equal(offered, "\nunknown\n");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_manual_is_complete),
        cmocka_unit_test(the_manual_has_every_exit_code),
        cmocka_unit_test(the_guide_is_complete),
        cmocka_unit_test(nothing_is_made_up),
        cmocka_unit_test(completion_offers_exactly_the_options),
        cmocka_unit_test(completion_offers_every_command),
        cmocka_unit_test(completion_knows_values),
        cmocka_unit_test(completion_works_in_every_shell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
