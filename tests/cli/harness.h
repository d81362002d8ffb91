/*
 * Commands run in this process, with what they wrote.
 */
#ifndef TESTS_CLI_HARNESS_H
#define TESTS_CLI_HARNESS_H

#include "support/testing.h"

#include <string.h>

#include <jansson.h>

#include "cli/cli.h"

typedef struct run {
    int code;
    char *out; /* terminated */
    size_t out_len;
    char *err;
} run_t;

/* Runs `once ARGUMENT...`, standard input empty. The list ends with NULL. */
run_t run(const char *first, ...) __attribute__((sentinel));

/* The same with something on standard input. */
run_t run_with_input(const char *input, size_t input_len, const char *first, ...)
    __attribute__((sentinel));

void run_free(run_t *result);

/* Runs, expects this exit code, and tells what was written when it differs. */
#define assert_run(result, expected)                                                               \
    do {                                                                                           \
        if ((result).code != (expected)) {                                                         \
            print_error("out: %s\nerr: %s\n", (result).out, (result).err);                         \
        }                                                                                          \
        assert_int_equal((result).code, (expected));                                               \
    } while (0)

#define assert_has(text, part)                                                                     \
    do {                                                                                           \
        if (strstr((text), (part)) == NULL) {                                                      \
            print_error("\"%s\" is not in:\n%s\n", (part), (text));                                \
        }                                                                                          \
        assert_non_null(strstr((text), (part)));                                                   \
    } while (0)

#define assert_lacks(text, part)                                                                   \
    do {                                                                                           \
        if (strstr((text), (part)) != NULL) {                                                      \
            print_error("\"%s\" is in:\n%s\n", (part), (text));                                    \
        }                                                                                          \
        assert_null(strstr((text), (part)));                                                       \
    } while (0)

/* Only printable ASCII and line ends? */
int is_harmless(const char *text);

/* How many lines the text has. */
size_t count_lines(const char *text);

/* The n-th line (from 0) as JSON; fails the test when it is not an object. Free with json_decref. */
json_t *json_line(const char *text, size_t n);

/* A member of an object; fails the test when there is none of that kind. */
const char *json_text_of(const json_t *object, const char *name);
long long json_number_of(const json_t *object, const char *name);

#endif
