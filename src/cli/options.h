/*
 * Options of a command: a table that fills in a struct.
 *
 * Long options are `--name value`, `--name=value` or, for flags, `--name`; they are never abbreviated, so that a script means
 * tomorrow what it means today. Options and operands may be mixed; `--` ends the options.
 */
#ifndef ONCE_CLI_OPTIONS_H
#define ONCE_CLI_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

struct once__cli_command;
struct once__cli_call;

typedef enum once__cli_kind {
    ONCE__CLI_FLAG,     /* int: 1 when given */
    ONCE__CLI_TEXT,     /* const char *: NULL when not given */
    ONCE__CLI_NUMBER,   /* once__cli_number_t */
    ONCE__CLI_DURATION, /* once__cli_number_t, in milliseconds */
    ONCE__CLI_SIZE,     /* once__cli_number_t, in bytes */
    ONCE__CLI_LIST,     /* once__cli_list_t: may be given several times */
} once__cli_kind_t;

typedef struct once__cli_number {
    uint64_t value;
    int given;
} once__cli_number_t;

#define ONCE__CLI_LIST_MAX 64

typedef struct once__cli_list {
    const char *items[ONCE__CLI_LIST_MAX];
    size_t count;
} once__cli_list_t;

typedef struct once__cli_option {
    const char *name; /* without dashes; NULL ends a table */
    char letter;      /* of the short form; 0: none */
    once__cli_kind_t kind;
    const char *value; /* what the help calls its value; NULL with flags */
    const char *help;
    size_t offset; /* of the field in the command's settings */
} once__cli_option_t;

/* What parsing found. `operands` is the caller's array of `argc` places and ONCE__CLI_CONFIG_OPERANDS more. */
typedef struct once__cli_parsed {
    void *settings; /* zeroed by the caller */
    const char **operands;
    size_t operand_count;
    int help; /* --help or -h was there: nothing else counts */
    struct once__cli_config
        *config; /* zeroed by the caller: what --config read, which the settings point into */
} once__cli_parsed_t;

/* Returns 0, or an exit code after an error message. What the file of --config says comes before the command line, which wins. */
int once__cli_parse(const struct once__cli_command *command, int argc, char **argv,
                    once__cli_parsed_t *parsed);

/*
 * All options of a call: texts are not empty and have no control characters, numbers have 32 bits, durations are 30 days at most.
 * Returns ONCE__CLI_OK, or ONCE__CLI_USAGE after an error message.
 */
int once__cli_check_values(const struct once__cli_call *call);

/* Can the file that an option names be read? NULL is fine. */
int once__cli_check_file(const struct once__cli_call *call, const char *option, const char *path);

#endif
