/*
 * The log of a program that runs for long: JSON, one object on each line.
 *
 * Members `time`, `level`, `program`, `message`, then those of the caller. Never write a payload, a credential or a URL with
 * a password to it.
 */
#ifndef ONCE_SERVICE_LOG_H
#define ONCE_SERVICE_LOG_H

#include <stddef.h>
#include <stdint.h>

#include <once/key.h>

typedef enum once__log_level {
    ONCE__LOG_DEBUG,
    ONCE__LOG_INFO,
    ONCE__LOG_WARN,
    ONCE__LOG_ERROR,
} once__log_level_t;

typedef struct once__log {
    const char *program;
    once__log_level_t level; /* what is below it is left out */
    int fd;
} once__log_t;

typedef struct once__field {
    const char *name; /* NULL ends a list */
    int is_number;
    int64_t number;
    once_slice_t text; /* data NULL: the member is left out */
} once__field_t;

#define ONCE__FIELDS(...) ((const once__field_t[]){__VA_ARGS__, {0}})

once__field_t once__field_text(const char *name, const char *text); /* NULL: left out */
once__field_t once__field_slice(const char *name, once_slice_t text);
once__field_t once__field_number(const char *name, int64_t number);

/* One line, written at once; what is not UTF-8 becomes U+FFFD. `fields` may be NULL. */
void once__log(const once__log_t *log, once__log_level_t level, const char *message,
               const once__field_t *fields);

/* "debug", "info", "warn", "error"; 0, or -1 when it is none of them. */
int once__log_level_read(const char *text, once__log_level_t *level);

#endif
