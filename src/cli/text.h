/*
 * Text for people: escaped, so that nothing read from a store or a command line can control the terminal.
 */
#ifndef ONCE_CLI_TEXT_H
#define ONCE_CLI_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include <once/key.h>

/*
 * Printable ASCII stays, a backslash is doubled, every other byte becomes \xNN. At most `size` - 1 characters and the
 * terminator are written; what does not fit is cut and ends in "...". Returns the length.
 */
size_t once__cli_escape(char *out, size_t size, once_slice_t bytes);

/* Room for the escaped form of `len` bytes and the terminator. */
#define ONCE__CLI_ESCAPED_SIZE(len) (4 * (len) + 1)

typedef struct once__cli_shown {
    char text[72];
} once__cli_shown_t;

/* An argument for an error message: escaped, shortened, and of a URL the scheme only, because it may hold a password. */
once__cli_shown_t once__cli_shown(const char *argument);

/* A store's URL: its scheme, hosts and database. Neither credentials nor parameters. */
once__cli_shown_t once__cli_shown_url(const char *url);

/* "once: ..." on stderr, control bytes escaped. An error; a note is advice that does not belong to the output. */
void once__cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void once__cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * What this thread says from now on is kept in `text` instead, the last message only, without "once: ": for a program that answers
 * something other than its terminal. NULL: on stderr again.
 */
void once__cli_hear(char *text, size_t size);

#endif
