/*
 * The program `once`: commands as data.
 *
 * Every command is one constant of once__cli_command_t beside the function that runs it; commands.c lists them. Help, errors
 * and suggestions come from these constants, and tests compare the man page, docs/cli.md and the completion with them.
 */
#ifndef ONCE_CLI_CLI_H
#define ONCE_CLI_CLI_H

#include <stddef.h>

#include "cli/options.h"

/* What the program returns. Documented in once(1): never renumber. */
enum once__cli_exit {
    ONCE__CLI_OK = 0,
    ONCE__CLI_NO = 1,        /* the answer is no: a check failed */
    ONCE__CLI_USAGE = 2,     /* the command line is wrong, or a question could not be asked */
    ONCE__CLI_STORE = 3,     /* the store or a file could not be used */
    ONCE__CLI_NOT_FOUND = 4, /* there is no such record */
    /* the record is not as it was judged, or the person said no; nothing was changed */
    ONCE__CLI_REFUSED = 5,
    /* of `once call` */
    ONCE__CLI_SERVER = 6,      /* the final answer is 5xx */
    ONCE__CLI_UNKNOWN = 7,     /* the server does not know whether it took effect */
    ONCE__CLI_OPEN = 8,        /* given up for now; it may have taken effect */
    ONCE__CLI_LATE = 9,        /* its time is over; it may have taken effect */
    ONCE__CLI_UNSENT = 10,     /* nothing was sent */
    ONCE__CLI_DENIED = 11,     /* 401, 403 or 407: this attempt did nothing */
    ONCE__CLI_REDIRECTED = 12, /* 3xx: another URL has the answer, or is to get the request */
};

typedef enum once__cli_store {
    ONCE__CLI_NO_STORE,
    ONCE__CLI_NEEDS_STORE, /* the URL is the first operand, or ONCE_STORE */
    ONCE__CLI_MAY_STORE,   /* only when it is the first operand */
} once__cli_store_t;

/* One run of a command. Everything is borrowed from the caller of `run`. */
typedef struct once__cli_call {
    const struct once__cli_command *command;
    const void *settings;  /* the command's own struct, filled in by its options */
    const char *url;       /* NULL: none */
    const char **operands; /* without the URL */
    size_t operand_count;
    int argc; /* the arguments behind the command's name, for a command that reads them again */
    char **argv;
} once__cli_call_t;

typedef struct once__cli_command {
    const char *name;     /* "keys list" */
    const char *operands; /* for the usage line: "[URL] [ID]" */
    const char *summary;  /* one line */
    const char *details;  /* paragraphs for --help, lines ended by \n; may be NULL */
    once__cli_store_t store;
    size_t operands_min, operands_max; /* without the URL */
    const once__cli_option_t *options; /* ends with a nameless one; may be NULL */
    size_t settings_size;
    int (*run)(const once__cli_call_t *call); /* returns once__cli_exit */
} once__cli_command_t;

/* All commands, in the order of the help. */
extern const once__cli_command_t *const once__cli_commands[];
extern const size_t once__cli_command_count;

/* The URL of --store (NULL: not given), of ONCE_STORE, or of a local store in the current directory. */
const char *once__cli_store_option(const char *option);

/* The whole program: argv[0] is its name. Writes to stdout and stderr, returns the exit code, ends no process. */
int once_cli_main(int argc, char **argv);

/* The help of everything, of a group ("keys"), or of one command; on standard output. */
void once__cli_help_all(void);
int once__cli_help_short(void); /* the usage, on standard error; returns ONCE__CLI_USAGE */
void once__cli_help_group(const char *group);
void once__cli_help_command(const once__cli_command_t *command);

/* The command whose name is these words, or NULL. `used` becomes the number of words that it took. */
const once__cli_command_t *once__cli_find_command(const char *const *words, size_t count,
                                                  size_t *used);

/* Is `word` the command's name, or its first word? What follows it then: "" or " second"; otherwise NULL. */
const char *once__cli_begins_with(const once__cli_command_t *command, const char *word);

/* Is the word the first one of two-word commands? */
int once__cli_is_group(const char *word);

/* Says what is wrong with the command words and what was perhaps meant. Returns ONCE__CLI_USAGE. */
int once__cli_unknown_command(const char *const *words, size_t count);

/* For the completion of shells: what the last of these words can become (complete.c). Returns ONCE__CLI_OK. */
int once__cli_complete(int count, char **words);

/* "once NAME: ..." on stderr and where help is. Returns ONCE__CLI_USAGE. `command` may be NULL: "once: ...". */
int once__cli_usage(const once__cli_command_t *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* "Did you mean": the known word nearest to a mistyped one. */
typedef struct once__cli_nearest {
    const char *word; /* what was typed */
    const char *best; /* the nearest so far, not terminated; NULL: none is near enough */
    int best_len;
    unsigned distance;
} once__cli_nearest_t;

void once__cli_nearest_start(once__cli_nearest_t *nearest, const char *word);
void once__cli_nearest_try(once__cli_nearest_t *nearest, const char *candidate, size_t len);

#endif
