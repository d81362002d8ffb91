#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <once/once.h>

#include "cli/config.h"
#include "cli/text.h"

static int is_path(const char *text)
{
    return text[0] == '/' || strcmp(text, ".") == 0 || strcmp(text, "..") == 0 ||
           strncmp(text, "./", 2) == 0 || strncmp(text, "../", 3) == 0;
}

/*
 * A store's URL as people write it: a path ("./data", "/var/lib/once") stands for the local store in it. The result is `text`
 * itself, or lives until the next call.
 */
static const char *store_url(const char *text)
{
    static char url[4096];

    if (!is_path(text) || strlen(text) + sizeof("local:") > sizeof(url)) {
        return text;
    }
    snprintf(url, sizeof(url), "local:%s", text);
    return url;
}

const char *once__cli_store_option(const char *option)
{
    const char *url = option != NULL ? option : getenv("ONCE_STORE");

    return store_url(url != NULL && url[0] != '\0' ? url : "local:./once-data");
}

/* A URL has a colon, other operands have none. A path is a store unless the command needs it for something else. */
static int begins_with_url(const once__cli_call_t *call)
{
    return call->operand_count > 0 &&
           (strchr(call->operands[0], ':') != NULL ||
            (is_path(call->operands[0]) && call->operand_count > call->command->operands_min));
}

/* Takes the store URL from the operands or the environment. */
static int take_url(once__cli_call_t *call)
{
    const char *from_environment = getenv("ONCE_STORE");

    if (call->command->store == ONCE__CLI_NO_STORE) {
        return 0;
    }
    if (begins_with_url(call)) {
        call->url = store_url(call->operands[0]);
        call->operands++;
        call->operand_count--;
        return 0;
    }
    if (call->command->store == ONCE__CLI_MAY_STORE) {
        return 0;
    }
    if (from_environment != NULL && from_environment[0] != '\0') {
        call->url = store_url(from_environment);
        return 0;
    }
    if (call->operand_count > call->command->operands_max) {
        int is_memory = strcmp(call->operands[0], "memory") == 0;
        return once__cli_usage(call->command, "\"%s\" is not a store URL; did you mean %s%s%s?",
                               once__cli_shown(call->operands[0]).text,
                               is_memory ? "" : "local:", once__cli_shown(call->operands[0]).text,
                               is_memory ? ":" : "");
    }
    return once__cli_usage(
        call->command, "missing store: give its URL, such as local:./once-data, or set ONCE_STORE");
}

static int check_operands(const once__cli_call_t *call)
{
    const once__cli_command_t *command = call->command;

    if (call->operand_count < command->operands_min) {
        return once__cli_usage(command, "missing operand; usage: once %s %s", command->name,
                               command->operands);
    }
    if (call->operand_count > command->operands_max) {
        return once__cli_usage(command, "unexpected operand \"%s\"",
                               once__cli_shown(call->operands[command->operands_max]).text);
    }
    return 0;
}

static int run(const once__cli_command_t *command, once__cli_parsed_t *parsed, int argc,
               char **argv)
{
    once__cli_call_t call = {
        .command = command,
        .argc = argc,
        .argv = argv,
        .settings = parsed->settings,
        .operands = parsed->operands,
        .operand_count = parsed->operand_count,
    };
    int code = take_url(&call);

    if (code == 0) {
        code = check_operands(&call);
    }
    return code != 0 ? code : command->run(&call);
}

static int parse_and_run(const once__cli_command_t *command, int argc, char **argv)
{
    once__cli_config_t config = {0};
    once__cli_parsed_t parsed = {.config = &config};
    int code;

    parsed.settings = calloc(1, command->settings_size + 1);
    parsed.operands = calloc((size_t)argc + ONCE__CLI_CONFIG_OPERANDS, sizeof(parsed.operands[0]));
    if (parsed.settings == NULL || parsed.operands == NULL) {
        once__cli_say("out of memory");
        code = ONCE__CLI_STORE;
    } else {
        code = once__cli_parse(command, argc, argv, &parsed);
        if (code == 0 && parsed.help) {
            once__cli_help_command(command);
        } else if (code == 0) {
            code = run(command, &parsed, argc, argv);
        }
    }
    once__cli_config_free(&config);
    free(parsed.operands);
    free(parsed.settings);
    return code;
}

static int is_one_of(const char *word, const char *a, const char *b)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0;
}

static int dispatch(int argc, char **argv)
{
    const char *words[2] = {argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : ""};
    size_t count = argc > 2 ? 2 : (size_t)(argc - 1);
    const once__cli_command_t *command;
    size_t used = 0;

    command = once__cli_find_command(words, count, &used);
    if (command != NULL) {
        return parse_and_run(command, argc - 1 - (int)used, argv + 1 + used);
    }
    if (strcmp(words[0], "__complete") == 0) {
        return once__cli_complete(argc - 2, argv + 2);
    }
    if (is_one_of(words[0], "--help", "-h")) {
        once__cli_help_all();
        return ONCE__CLI_OK;
    }
    if (is_one_of(words[0], "--version", "-V")) {
        printf("once %s\n", once_version());
        return ONCE__CLI_OK;
    }
    if (words[0][0] == '-') {
        return once__cli_usage(NULL, "unknown option \"%s\"; options follow the command",
                               once__cli_shown(words[0]).text);
    }
    if (once__cli_is_group(words[0]) && is_one_of(words[1], "--help", "-h")) {
        once__cli_help_group(words[0]);
        return ONCE__CLI_OK;
    }
    return once__cli_unknown_command(words, count);
}

int once_cli_main(int argc, char **argv)
{
    int code;

    if (argc < 2) {
        return once__cli_help_short();
    }
    code = dispatch(argc, argv);
    /* A full disk behind the output must not look like success. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        clearerr(stdout);
        once__cli_say("cannot write the output");
        return ONCE__CLI_STORE;
    }
    return code;
}
