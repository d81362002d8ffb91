/*
 * From words to a command, or to the one that was perhaps meant.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/text.h"

#define WORD_MAX 32 /* longer words are not typos */

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* How many letters must be added, left out, changed or swapped with their neighbour. Both are at most WORD_MAX long. */
static unsigned distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    unsigned cost[WORD_MAX + 1][WORD_MAX + 1];

    for (size_t i = 0; i <= a_len; i++) {
        for (size_t j = 0; j <= b_len; j++) {
            if (i == 0 || j == 0) {
                cost[i][j] = (unsigned)(i + j);
                continue;
            }
            cost[i][j] = cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            cost[i][j] = least(cost[i][j], cost[i - 1][j] + 1);
            cost[i][j] = least(cost[i][j], cost[i][j - 1] + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                cost[i][j] = least(cost[i][j], cost[i - 2][j - 2] + 1);
            }
        }
    }
    return cost[a_len][b_len];
}

void once__cli_nearest_start(once__cli_nearest_t *nearest, const char *word)
{
    nearest->word = word;
    nearest->best = NULL;
    nearest->best_len = 0;
    /* A third of the letters may be wrong, at least one. */
    nearest->distance = (unsigned)(strnlen(word, WORD_MAX) / 3 + 1);
    if (nearest->distance < 2) {
        nearest->distance = 2;
    }
}

void once__cli_nearest_try(once__cli_nearest_t *nearest, const char *candidate, size_t len)
{
    size_t word_len = strlen(nearest->word);
    unsigned d;

    if (word_len > WORD_MAX || len > WORD_MAX) {
        return;
    }
    d = distance(nearest->word, word_len, candidate, len);
    if (d < nearest->distance) {
        nearest->best = candidate;
        nearest->best_len = (int)len;
        nearest->distance = d;
    }
}

const char *once__cli_begins_with(const once__cli_command_t *command, const char *word)
{
    size_t len = strlen(word);

    if (strncmp(command->name, word, len) != 0) {
        return NULL;
    }
    if (command->name[len] != '\0' && command->name[len] != ' ') {
        return NULL;
    }
    return command->name + len;
}

const once__cli_command_t *once__cli_find_command(const char *const *words, size_t count,
                                                  size_t *used)
{
    for (size_t i = 0; count > 0 && i < once__cli_command_count; i++) {
        const once__cli_command_t *command = once__cli_commands[i];
        const char *rest = once__cli_begins_with(command, words[0]);
        if (rest == NULL) {
            continue;
        }
        if (*rest == '\0') {
            *used = 1;
            return command;
        }
        if (count > 1 && strcmp(rest + 1, words[1]) == 0) {
            *used = 2;
            return command;
        }
    }
    return NULL;
}

int once__cli_is_group(const char *word)
{
    for (size_t i = 0; i < once__cli_command_count; i++) {
        const char *rest = once__cli_begins_with(once__cli_commands[i], word);
        if (rest != NULL && *rest == ' ') {
            return 1;
        }
    }
    return 0;
}

static int unknown_first(const char *word)
{
    once__cli_nearest_t nearest;

    if (strchr(word, ':') != NULL) {
        return once__cli_usage(NULL, "the store URL follows the command: once stats URL");
    }
    once__cli_nearest_start(&nearest, word);
    for (size_t i = 0; i < once__cli_command_count; i++) {
        const char *name = once__cli_commands[i]->name;
        once__cli_nearest_try(&nearest, name, strcspn(name, " "));
    }
    if (nearest.best == NULL) {
        return once__cli_usage(NULL, "unknown command \"%s\"", once__cli_shown(word).text);
    }
    return once__cli_usage(NULL, "unknown command \"%s\"; did you mean \"%.*s\"?",
                           once__cli_shown(word).text, nearest.best_len, nearest.best);
}

static int unknown_second(const char *group, const char *word)
{
    once__cli_nearest_t nearest;

    once__cli_nearest_start(&nearest, word);
    for (size_t i = 0; i < once__cli_command_count; i++) {
        const char *rest = once__cli_begins_with(once__cli_commands[i], group);
        if (rest != NULL && *rest == ' ') {
            once__cli_nearest_try(&nearest, rest + 1, strlen(rest + 1));
        }
    }
    if (nearest.best == NULL) {
        return once__cli_usage(NULL, "unknown command \"%s %s\"; \"once help %s\" lists them",
                               group, once__cli_shown(word).text, group);
    }
    return once__cli_usage(NULL, "unknown command \"%s %s\"; did you mean \"%s %.*s\"?", group,
                           once__cli_shown(word).text, group, nearest.best_len, nearest.best);
}

static int missing_second(const char *group)
{
    char names[128] = "";
    size_t len = 0;

    for (size_t i = 0; i < once__cli_command_count; i++) {
        const char *rest = once__cli_begins_with(once__cli_commands[i], group);
        if (rest != NULL && *rest == ' ' && len < sizeof(names)) {
            len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s", len > 0 ? ", " : "",
                                    rest + 1);
        }
    }
    return once__cli_usage(NULL, "%s: missing subcommand: %s", group, names);
}

int once__cli_unknown_command(const char *const *words, size_t count)
{
    if (!once__cli_is_group(words[0])) {
        return unknown_first(words[0]);
    }
    if (count < 2) {
        return missing_second(words[0]);
    }
    return unknown_second(words[0], words[1]);
}
