#include "cli/options.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"
#include "cli/cli.h"
#include "cli/config.h"
#include "cli/text.h"

/* The state of parsing. */
typedef struct walk {
    const once__cli_command_t *command;
    int argc;
    char **argv;
    int at;
    once__cli_parsed_t *parsed;
} walk_t;

static const char *const what_is_expected[] = {
    [ONCE__CLI_NUMBER] = "a whole number",
    [ONCE__CLI_DURATION] = "a duration such as 500ms, 30s, 5m, 24h or 7d",
    [ONCE__CLI_SIZE] = "a size such as 512, 64k, 16m or 1g",
};

static int bad_value(const walk_t *walk, const once__cli_option_t *option, const char *value)
{
    return once__cli_usage(walk->command, "--%s needs %s, not \"%s\"", option->name,
                           what_is_expected[option->kind], once__cli_shown(value).text);
}

static int read_number(const once__cli_option_t *option, const char *value, uint64_t *number)
{
    switch (option->kind) {
    case ONCE__CLI_NUMBER:
        return once__number_parse(value, strlen(value), number);
    case ONCE__CLI_DURATION:
        return once__duration_parse(value, number);
    default:
        assert(option->kind == ONCE__CLI_SIZE);
        return once__size_parse(value, number);
    }
}

/* Puts the value where the table says. The fields have the types that options.h names. */
static int store(const walk_t *walk, const once__cli_option_t *option, const char *value)
{
    void *field = (char *)walk->parsed->settings + option->offset;

    if (option->kind == ONCE__CLI_FLAG) {
        *(int *)field = 1;
    } else if (option->kind == ONCE__CLI_TEXT) {
        *(const char **)field = value;
    } else if (option->kind == ONCE__CLI_LIST) {
        once__cli_list_t *list = field;
        if (list->count == ONCE__CLI_LIST_MAX) {
            return once__cli_usage(walk->command, "--%s can be given at most %d times",
                                   option->name, ONCE__CLI_LIST_MAX);
        }
        list->items[list->count++] = value;
    } else {
        once__cli_number_t *number = field;
        if (read_number(option, value, &number->value) != 0) {
            return bad_value(walk, option, value);
        }
        number->given = 1;
    }
    return 0;
}

/* The value is in the same argument (`attached`), or the next one. */
static int take_value(walk_t *walk, const once__cli_option_t *option, const char *attached)
{
    if (attached != NULL) {
        return store(walk, option, attached);
    }
    if (walk->at + 1 >= walk->argc) {
        return once__cli_usage(walk->command, "--%s needs a value: --%s %s", option->name,
                               option->name, option->value);
    }
    walk->at++;
    return store(walk, option, walk->argv[walk->at]);
}

/* A value in the same argument is not shown: it may be a secret. */
static int unknown_option(const walk_t *walk, const char *argument, const char *name)
{
    once__cli_nearest_t nearest;
    char word[80], given[80];

    snprintf(word, sizeof(word), "%.*s", (int)strcspn(name, "="), name);
    snprintf(given, sizeof(given), "%.*s", (int)strcspn(argument, "="), argument);
    once__cli_nearest_start(&nearest, word);
    once__cli_nearest_try(&nearest, "help", 4);
    for (const once__cli_option_t *o = walk->command->options; o != NULL && o->name != NULL; o++) {
        once__cli_nearest_try(&nearest, o->name, strlen(o->name));
    }
    if (nearest.best != NULL && argument[1] == '-') {
        return once__cli_usage(walk->command, "unknown option \"%s\"; did you mean --%.*s?",
                               once__cli_shown(given).text, nearest.best_len, nearest.best);
    }
    return once__cli_usage(walk->command, "unknown option \"%s\"", once__cli_shown(given).text);
}

static int take_long(walk_t *walk, const char *argument)
{
    const char *name = argument + 2;
    const char *equals = strchr(name, '=');
    size_t len = equals != NULL ? (size_t)(equals - name) : strlen(name);

    for (const once__cli_option_t *o = walk->command->options; o != NULL && o->name != NULL; o++) {
        if (strlen(o->name) != len || strncmp(o->name, name, len) != 0) {
            continue;
        }
        if (o->kind != ONCE__CLI_FLAG) {
            return take_value(walk, o, equals != NULL ? equals + 1 : NULL);
        }
        if (equals != NULL) {
            return once__cli_usage(walk->command, "--%s takes no value", o->name);
        }
        return store(walk, o, NULL);
    }
    return unknown_option(walk, argument, name);
}

static int take_short(walk_t *walk, const char *argument)
{
    for (const once__cli_option_t *o = walk->command->options; o != NULL && o->name != NULL; o++) {
        if (o->letter == 0 || o->letter != argument[1]) {
            continue;
        }
        if (o->kind != ONCE__CLI_FLAG) {
            return take_value(walk, o, argument[2] != '\0' ? argument + 2 : NULL);
        }
        if (argument[2] == '\0') {
            return store(walk, o, NULL);
        }
    }
    return unknown_option(walk, argument, argument + 1);
}

static int is_help(const char *argument)
{
    return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;
}

/*
 * What every table of options keeps:
 *   I-1  an option has a name, a description and a kind that the parser knows
 *   I-2  it names its value, unless it is a flag: messages and help show it
 *   I-3  -h and --help are those of the parser
 */
static void assert_options(const once__cli_option_t *options)
{
    for (const once__cli_option_t *o = options; o != NULL && o->name != NULL; o++) {
        assert(o->name[0] != '\0' && o->help != NULL); /* I-1 */
        assert(o->kind == ONCE__CLI_FLAG || o->kind == ONCE__CLI_TEXT ||
               o->kind == ONCE__CLI_LIST || what_is_expected[o->kind] != NULL);
        assert((o->kind == ONCE__CLI_FLAG) == (o->value == NULL)); /* I-2 */
        assert(o->letter != 'h' && strcmp(o->name, "help") != 0);  /* I-3 */
    }
}

/* The options of a file, as if they came first on the command line. */
static int take_config(const once__cli_command_t *command, const char *path,
                       once__cli_parsed_t *parsed)
{
    once__cli_config_t *config = parsed->config;
    walk_t walk = {command, 0, NULL, 0, parsed};
    int code = once__cli_config_read(command, path, config);

    for (size_t i = 0; code == 0 && i < config->count; i++) {
        code = take_long(&walk, config->words[i].text);
        if (code != 0) {
            once__cli_say("that is line %u of %s", config->words[i].line,
                          once__cli_shown(path).text);
        }
    }
    return code;
}

/* Operands of the file count if the command line has none. */
static void take_operands(const once__cli_config_t *config, once__cli_parsed_t *parsed)
{
    for (size_t i = 0; i < ONCE__CLI_CONFIG_OPERANDS && config->operands[i] != NULL; i++) {
        parsed->operands[parsed->operand_count++] = config->operands[i];
    }
}

static int wants_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (is_help(argv[i])) {
            return 1;
        }
    }
    return 0;
}

int once__cli_parse(const once__cli_command_t *command, int argc, char **argv,
                    once__cli_parsed_t *parsed)
{
    walk_t walk = {command, argc, argv, 0, parsed};
    const char *path = once__cli_config_named(command, argc, argv);
    int only_operands = 0;

    assert_options(command->options);
    if (path != NULL && !wants_help(argc, argv)) {
        int code = take_config(command, path, parsed);
        if (code != 0) {
            return code;
        }
    }
    for (; walk.at < argc; walk.at++) {
        const char *argument = argv[walk.at];
        int code = 0;
        if (only_operands || argument[0] != '-' || argument[1] == '\0') {
            parsed->operands[parsed->operand_count++] = argument;
        } else if (strcmp(argument, "--") == 0) {
            only_operands = 1;
        } else if (is_help(argument)) {
            parsed->help = 1;
            return 0;
        } else if (argument[1] == '-') {
            code = take_long(&walk, argument);
        } else {
            code = take_short(&walk, argument);
        }
        if (code != 0) {
            return code;
        }
    }
    if (path != NULL && parsed->operand_count == 0) {
        take_operands(parsed->config, parsed);
    }
    return 0;
}

/* -------------------------------------------------------------------------------------- values that no command can use */

#define DURATION_MAX (30ull * 86400 * 1000)

static int check_text(const once__cli_call_t *call, const char *option, const char *text)
{
    if (text == NULL) {
        return ONCE__CLI_OK;
    }
    if (text[0] == '\0') {
        return once__cli_usage(call->command, "--%s must not be empty", option);
    }
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++) {
        if (*at < 0x20 || *at == 0x7f) {
            return once__cli_usage(call->command, "--%s must not have control characters", option);
        }
    }
    return ONCE__CLI_OK;
}

static int check_list(const once__cli_call_t *call, const char *option,
                      const once__cli_list_t *list)
{
    int code = ONCE__CLI_OK;

    for (size_t i = 0; code == ONCE__CLI_OK && i < list->count; i++) {
        code = check_text(call, option, list->items[i]);
    }
    return code;
}

static int check_number(const once__cli_call_t *call, const once__cli_option_t *option,
                        const once__cli_number_t *number)
{
    if (option->kind == ONCE__CLI_NUMBER && number->value > UINT32_MAX) {
        return once__cli_usage(call->command, "--%s is too large", option->name);
    }
    if (option->kind == ONCE__CLI_DURATION && number->value > DURATION_MAX) {
        return once__cli_usage(call->command, "--%s must be at most 30d", option->name);
    }
    return ONCE__CLI_OK;
}

int once__cli_check_values(const once__cli_call_t *call)
{
    int code = ONCE__CLI_OK;

    for (const once__cli_option_t *o = call->command->options;
         code == ONCE__CLI_OK && o != NULL && o->name != NULL; o++) {
        const void *field = (const char *)call->settings + o->offset;
        if (o->kind == ONCE__CLI_TEXT) {
            code = check_text(call, o->name, *(const char *const *)field);
        } else if (o->kind == ONCE__CLI_LIST) {
            code = check_list(call, o->name, field);
        } else if (o->kind != ONCE__CLI_FLAG) {
            code = check_number(call, o, field);
        }
    }
    return code;
}

int once__cli_check_file(const once__cli_call_t *call, const char *option, const char *path)
{
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (path != NULL && fd < 0) {
        return once__cli_usage(call->command, "--%s: cannot read %s: %s", option,
                               once__cli_shown(path).text, strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    return ONCE__CLI_OK;
}
