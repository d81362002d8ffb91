/*
 * Completion of command lines: `once __complete WORD...` prints what the last word can become, given the words before it. The
 * scripts in completion/ ask for it, so that every shell offers what the tables of options have.
 *
 * Each line is a word, a tab and what it means. The line ":files" stands for names of files.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

/* Options whose values are known, in all commands. */
static const struct {
    const char *option;
    const char *values[6];
} known[] = {
    {"fingerprint", {"exact", "json", "none"}},
    {"log", {"debug", "info", "warn", "error"}},
    {"order", {"key", "partition", "none"}},
    {"profile", {"draft07", "stripe"}},
    {"recover", {"retry", "hold", "transactional"}},
    {"state", {"pending", "completed", "failed", "unknown"}},
};

#define KNOWN  (sizeof(known) / sizeof(known[0]))
#define VALUES (sizeof(known[0].values) / sizeof(known[0].values[0]))

static void offer(const char *current, const char *dashes, const char *word, const char *meaning)
{
    char whole[80];

    snprintf(whole, sizeof(whole), "%s%s", dashes, word);
    if (strncmp(whole, current, strlen(current)) == 0) {
        printf("%s\t%s\n", whole, meaning);
    }
}

/* Does an earlier command begin with the same word? */
static int is_repeated(size_t command, const char *first)
{
    for (size_t i = 0; i < command; i++) {
        if (once__cli_begins_with(once__cli_commands[i], first) != NULL) {
            return 1;
        }
    }
    return 0;
}

/* The first words of all commands, or the second ones of a group. */
static void offer_commands(const char *current, const char *group)
{
    for (size_t i = 0; i < once__cli_command_count; i++) {
        const once__cli_command_t *command = once__cli_commands[i];
        const char *rest = group != NULL ? once__cli_begins_with(command, group) : NULL;
        char first[32];

        snprintf(first, sizeof(first), "%.*s", (int)strcspn(command->name, " "), command->name);
        if (group == NULL && !is_repeated(i, first)) {
            offer(current, "", first,
                  once__cli_is_group(first) ? "several commands" : command->summary);
        } else if (rest != NULL && rest[0] == ' ') {
            offer(current, "", rest + 1, command->summary);
        }
    }
}

static const once__cli_option_t *find_option(const once__cli_command_t *command, const char *word)
{
    for (const once__cli_option_t *o = command->options; o != NULL && o->name != NULL; o++) {
        if (strncmp(word, "--", 2) == 0 && strcmp(word + 2, o->name) == 0) {
            return o;
        }
    }
    return NULL;
}

static void offer_values(const char *current, const once__cli_option_t *option)
{
    if (strcmp(option->value, "FILE") == 0) {
        puts(":files");
    }
    for (size_t i = 0; i < KNOWN; i++) {
        for (size_t k = 0; k < VALUES && known[i].values[k] != NULL; k++) {
            if (strcmp(known[i].option, option->name) == 0) {
                offer(current, "", known[i].values[k], "");
            }
        }
    }
}

/* A store may be a path; the operand of `backup` is one. */
static int may_be_path(const once__cli_command_t *command, const char *current)
{
    return current[0] == '.' || current[0] == '/' ||
           (current[0] != '-' && strstr(command->operands, "DIRECTORY") != NULL);
}

/* The command and its words are complete: its options, and their values. */
static void offer_rest(const once__cli_command_t *command, const char *previous,
                       const char *current)
{
    const once__cli_option_t *option = find_option(command, previous);

    if (option != NULL && option->kind != ONCE__CLI_FLAG) {
        offer_values(current, option);
    } else if (may_be_path(command, current)) {
        puts(":files");
    } else {
        for (const once__cli_option_t *o = command->options; o != NULL && o->name != NULL; o++) {
            offer(current, "--", o->name, o->help);
        }
        offer(current, "--", "help", "explain the command");
    }
}

int once__cli_complete(int count, char **words)
{
    const once__cli_command_t *command = NULL;
    const char *names[2] = {"", ""};
    size_t used = 0;

    if (count > 1 && strcmp(words[0], "help") == 0) {
        words++;
        count--;
    }
    if (count < 2) {
        const char *current = count == 1 ? words[0] : "";

        offer_commands(current, NULL);
        offer(current, "--", "help", "list the commands");
        offer(current, "--", "version", "print the version");
        return ONCE__CLI_OK;
    }
    names[0] = words[0];
    names[1] = count > 2 ? words[1] : "";
    command = once__cli_find_command(names, count > 2 ? 2 : 1, &used);
    if (command != NULL) {
        offer_rest(command, words[count - 2], words[count - 1]);
    } else if (count == 2) {
        offer_commands(words[1], words[0]);
        offer(words[1], "--", "help", "list these commands");
    }
    return ONCE__CLI_OK;
}
