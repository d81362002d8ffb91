/*
 * `once help`, and every other text that is made from the table of commands.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <once/once.h>

#include "cli/commands.h"
#include "cli/text.h"

#define USAGE "usage: once COMMAND [OPTION]... [URL] [OPERAND]...\n"

/* Commands by what somebody is about to do: first words, in the order of the help. */
static const struct {
    const char *title;
    const char *words[6];
} sections[] = {
    {"serve", {"gate", "relay", "consume"}},
    {"look and settle", {"keys", "stats", "outbox", "dlq"}},
    {"keep a store well", {"reap", "fsck", "backup", "secret", "pg"}},
    {"make keys", {"key"}},
    {"learn and test", {"demo", "bench", "conformance", "help", "version"}},
};

static void line(const char *name, const char *text)
{
    printf("  %-16s %s\n", name, text);
}

static void help_word(const char *word)
{
    size_t len = strlen(word);

    for (size_t i = 0; i < once__cli_command_count; i++) {
        const once__cli_command_t *command = once__cli_commands[i];
        if (strncmp(command->name, word, len) == 0 &&
            (command->name[len] == '\0' || command->name[len] == ' ')) {
            line(command->name, command->summary);
        }
    }
}

void once__cli_help_all(void)
{
    puts("once makes an operation take effect exactly once.\n"
         "\n" USAGE "\n"
         "  once demo                                       what it does, in two seconds\n"
         "  once gate --upstream http://127.0.0.1:3000      in front of a backend\n"
         "  once keys list local:./once-data --stuck        what waits for a decision");
    for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
        printf("\n%s:\n", sections[i].title);
        for (size_t k = 0; k < 6 && sections[i].words[k] != NULL; k++) {
            help_word(sections[i].words[k]);
        }
    }
    puts(
        "\n"
        "URL names the store: memory: or memory:NAME (they live inside this process only), and,\n"
        "where built in, local:PATH, redis://..., postgres://... Options of the handle may follow\n"
        "it: ?store_timeout=30s. Where it is left out, the variable ONCE_STORE is used.\n"
        "\n"
        "once COMMAND --help tells more, once version which version this is.");
}

int once__cli_help_short(void)
{
    fputs(USAGE "\n"
                "  once demo        shows what it does, in two seconds\n"
                "  once gate        runs the gateway in front of a backend\n"
                "  once relay       publishes the events of an outbox\n"
                "  once consume     hands messages to a handler, each once\n"
                "  once keys list   lists what a store remembers\n"
                "  once stats       counts it\n"
                "\n"
                "\"once help\" lists all commands, \"once COMMAND --help\" tells about one.\n",
          stderr);
    return ONCE__CLI_USAGE;
}

void once__cli_help_group(const char *group)
{
    size_t len = strlen(group);

    printf("usage: once %s COMMAND [OPTION]... [OPERAND]...\n\ncommands:\n", group);
    for (size_t i = 0; i < once__cli_command_count; i++) {
        const once__cli_command_t *command = once__cli_commands[i];
        if (strncmp(command->name, group, len) == 0 && command->name[len] == ' ') {
            line(command->name, command->summary);
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
    puts("\noptions:");
    for (const once__cli_option_t *o = command->options; o != NULL && o->name != NULL; o++) {
        print_option(o);
    }
    printf("  %-24s %s\n", "-h, --help", "this text");
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
        once__cli_say("\"once help\" lists the commands");
    } else {
        once__cli_say("%s: %s", command->name, text);
        once__cli_say("\"once %s --help\" tells more", command->name);
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
        return once__cli_usage(NULL, "there is no command \"%s %s\"", call->operands[0],
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
    .summary = "prints the version",
    .run = run_version,
};

const once__cli_command_t once__cli_help = {
    .name = "help",
    .operands = "[COMMAND]",
    .summary = "tells what the commands are and how each is used",
    .operands_max = 2,
    .run = run_help,
};
