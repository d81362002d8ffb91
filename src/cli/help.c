/*
 * `once help`, and every other text that is made from the table of commands.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <once/once.h>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/text.h"

#define USAGE "usage: once COMMAND [OPTION]... [URL] [OPERAND]...\n"

/* Commands by purpose, in the order of the help: whole names, or the first words of several. */
static const struct {
    const char *title;
    const char *names[9];
} sections[] = {
    {"every day",
     {"gate", "relay", "consume", "serve", "ui", "keys list", "keys settle", "stats", "health"}},
    {"records", {"keys", "trace", "audit"}},
    {"messages", {"outbox", "dlq", "secret webhook"}},
    {"stores", {"pg", "fsck", "backup", "convert", "reap", "secret rotate"}},
    {"for clients", {"call", "key"}},
    {"learn and test", {"demo", "cost", "bench", "conformance", "help", "version"}},
};

#define SECTIONS (sizeof(sections) / sizeof(sections[0]))
#define NAMES    (sizeof(sections[0].names) / sizeof(sections[0].names[0]))

static const char examples[] =
    "\nexamples:\n"
    "  once demo                              see what it does, in two seconds\n"
    "  once gate --upstream 3000              guard the backend on port 3000\n"
    "  once keys list ./once-data --stuck     list what waits for a decision\n";

static void line(FILE *out, const char *name, const char *text)
{
    fprintf(out, "  %-16s %s\n", name, text);
}

/* The place of a command in the help: the first section that has its name. */
static size_t section_of(const once__cli_command_t *command)
{
    for (size_t i = 0; i < SECTIONS; i++) {
        for (size_t k = 0; k < NAMES && sections[i].names[k] != NULL; k++) {
            if (once__cli_begins_with(command, sections[i].names[k]) != NULL) {
                return i;
            }
        }
    }
    return SECTIONS - 1;
}

static void title(FILE *out, const char *text)
{
    fprintf(out, "\n%s%s:%s\n", once__cli_colour(out, ONCE__CLI_BOLD), text,
            once__cli_colour(out, ONCE__CLI_PLAIN));
}

static void help_section(FILE *out, size_t section)
{
    title(out, sections[section].title);
    for (size_t k = 0; k < NAMES && sections[section].names[k] != NULL; k++) {
        for (size_t i = 0; i < once__cli_command_count; i++) {
            const once__cli_command_t *command = once__cli_commands[i];
            if (once__cli_begins_with(command, sections[section].names[k]) != NULL &&
                section_of(command) == section) {
                line(out, command->name, command->summary);
            }
        }
    }
}

/* The names alone, on one line. */
static void name_section(FILE *out, size_t section)
{
    const char *before = "";

    fprintf(out, "  %-16s ", sections[section].title);
    for (size_t i = 0; i < once__cli_command_count; i++) {
        if (section_of(once__cli_commands[i]) == section) {
            fprintf(out, "%s%s", before, once__cli_commands[i]->name);
            before = ", ";
        }
    }
    fputs("\n", out);
}

void once__cli_help_all(void)
{
    fputs("once makes an operation take effect exactly once.\n\n" USAGE, stdout);
    help_section(stdout, 0);
    fputs(examples, stdout);
    for (size_t i = 1; i < SECTIONS; i++) {
        help_section(stdout, i);
    }
    puts("\n"
         "URL names the store: local:PATH (or just a path: ./once-data), postgres://...,\n"
         "redis://..., memory: (lives in this process only). Options may follow it, such as\n"
         "?store_timeout=30s. Without a URL the variable ONCE_STORE is used.\n"
         "\n"
         "\"once COMMAND --help\" explains a command, \"man once\" all of them.");
}

int once__cli_help_short(void)
{
    fputs(USAGE, stderr);
    help_section(stderr, 0);
    fputs(examples, stderr);
    title(stderr, "more");
    for (size_t i = 1; i < SECTIONS; i++) {
        name_section(stderr, i);
    }
    fputs("\n\"once help\" describes all commands, \"once COMMAND --help\" explains one.\n",
          stderr);
    return ONCE__CLI_USAGE;
}

void once__cli_help_group(const char *group)
{
    printf("usage: once %s COMMAND [OPTION]... [OPERAND]...\n", group);
    title(stdout, "commands");
    for (size_t i = 0; i < once__cli_command_count; i++) {
        if (once__cli_begins_with(once__cli_commands[i], group) != NULL) {
            line(stdout, once__cli_commands[i]->name, once__cli_commands[i]->summary);
        }
    }
}

static void print_option(const once__cli_option_t *option)
{
    char form[64];
    const char *value = option->value != NULL ? option->value : "";
    const char *space = option->value != NULL ? " " : "";

    if (option->letter != 0) {
        snprintf(form, sizeof(form), "-%c, --%s%s%s", option->letter, option->name, space, value);
    } else {
        snprintf(form, sizeof(form), "--%s%s%s", option->name, space, value);
    }
    printf("  %-24s %s\n", form, option->help);
}

void once__cli_help_command(const once__cli_command_t *command)
{
    printf("usage: once %s [OPTION]...%s%s\n\n%s\n", command->name,
           command->operands[0] != '\0' ? " " : "", command->operands, command->summary);
    if (command->details != NULL) {
        printf("\n%s", command->details);
    }
    title(stdout, "options");
    for (const once__cli_option_t *o = command->options; o != NULL && o->name != NULL; o++) {
        print_option(o);
    }
    printf("  %-24s %s\n", "-h, --help", "show this text");
}

int once__cli_usage(const once__cli_command_t *command, const char *format, ...)
{
    char text[512];
    va_list values;

    va_start(values, format);
    vsnprintf(text, sizeof(text), format, values);
    va_end(values);
    if (command == NULL) {
        once__cli_say("%s", text);
        once__cli_note("\"once help\" lists the commands");
    } else {
        once__cli_say("%s: %s", command->name, text);
        once__cli_note("\"once %s --help\" explains it", command->name);
    }
    return ONCE__CLI_USAGE;
}

static int run_help(const once__cli_call_t *call)
{
    const once__cli_command_t *command;
    size_t used = 0;

    if (call->operand_count == 0) {
        once__cli_help_all();
        return ONCE__CLI_OK;
    }
    command = once__cli_find_command(call->operands, call->operand_count, &used);
    if (command != NULL && used == call->operand_count) {
        once__cli_help_command(command);
        return ONCE__CLI_OK;
    }
    if (call->operand_count == 1 && once__cli_is_group(call->operands[0])) {
        once__cli_help_group(call->operands[0]);
        return ONCE__CLI_OK;
    }
    if (command != NULL) {
        return once__cli_usage(NULL, "unknown command \"%s %s\"", call->operands[0],
                               once__cli_shown(call->operands[1]).text);
    }
    return once__cli_unknown_command(call->operands, call->operand_count);
}

static int run_version(const once__cli_call_t *call)
{
    printf("once %s\n", once_version());
    return ONCE__CLI_OK;
}

const once__cli_command_t once__cli_version = {
    .name = "version",
    .operands = "",
    .summary = "print the version",
    .run = run_version,
};

const once__cli_command_t once__cli_help = {
    .name = "help",
    .operands = "[COMMAND]",
    .summary = "list the commands, or explain one",
    .operands_max = 2,
    .run = run_help,
};
