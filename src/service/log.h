/*
 * The log of a long-running program: JSON, one object per line.
 *
 * The members are `time`, `level`, `program` and `message`, then those of the caller. Never log a payload, a credential or a
 * URL with a password.
 */
#ifndef ONCE_SERVICE_LOG_H
#define ONCE_SERVICE_LOG_H

#include <stddef.h>
#include <stdint.h>

#include <once/key.h>

typedef enum once__service_log_level {
    ONCE__SERVICE_LOG_DEBUG,
    ONCE__SERVICE_LOG_INFO,
    ONCE__SERVICE_LOG_WARN,
    ONCE__SERVICE_LOG_ERROR,
} once__service_log_level_t;

typedef struct once__service_log {
    const char *program;
    once__service_log_level_t level; /* lower levels are left out */
    int fd;
} once__service_log_t;

typedef struct once__service_field {
    const char *name; /* NULL ends a list */
    int is_number;
    int64_t number;
    once_slice_t text; /* data NULL: the member is left out */
} once__service_field_t;

#define ONCE__SERVICE_FIELDS(...) ((const once__service_field_t[]){__VA_ARGS__, {0}})

once__service_field_t once__service_field_text(const char *name,
                                               const char *text); /* NULL: left out */
once__service_field_t once__service_field_slice(const char *name, once_slice_t text);
once__service_field_t once__service_field_number(const char *name, int64_t number);

#define ONCE__SERVICE_LOG_LINE                                                                     \
    8192 /* bytes of a line at most; longer members are cut, one by one */

/* Puts one line, with its line break, into `line`. Returns its length. `fields` may be NULL. */
size_t once__service_log_line(char line[ONCE__SERVICE_LOG_LINE], const char *program,
                              once__service_log_level_t level, const char *message,
                              const once__service_field_t *fields);

/* Writes one line in one piece; invalid UTF-8 becomes U+FFFD. `fields` may be NULL. */
void once__service_log(const once__service_log_t *log, once__service_log_level_t level,
                       const char *message, const once__service_field_t *fields);

/* Reads "debug", "info", "warn" or "error". Returns 0, or -1 if it is none of them. */
int once__service_log_level_read(const char *text, once__service_log_level_t *level);

#endif
