#include "harness.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARGUMENTS_MAX 400

typedef struct arguments {
    int count;
    char *list[ARGUMENTS_MAX + 2];
} arguments_t;

static void collect(arguments_t *arguments, const char *first, va_list rest)
{
    memset(arguments, 0, sizeof(*arguments));
    arguments->list[arguments->count++] = strdup("once");
    for (const char *at = first; at != NULL; at = va_arg(rest, const char *)) {
        assert_true(arguments->count <= ARGUMENTS_MAX);
        arguments->list[arguments->count++] = strdup(at);
    }
}

static void free_arguments(arguments_t *arguments)
{
    for (int i = 0; i < arguments->count; i++) {
        free(arguments->list[i]);
    }
}

/* A file without a name that holds `data`, read from its beginning. */
static int temporary(const char *data, size_t len)
{
    char path[] = "/tmp/once-cli-XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(write(fd, data, len), (ssize_t)len);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

/* Puts `fd` in the place of `target` and returns what was there. */
static int replace(int target, int fd)
{
    int saved = dup(target);

    assert_true(saved >= 0);
    assert_true(dup2(fd, target) >= 0);
    return saved;
}

static void restore(int target, int saved)
{
    assert_true(dup2(saved, target) >= 0);
    close(saved);
}

static char *contents(int fd, size_t *len)
{
    off_t end = lseek(fd, 0, SEEK_END);
    char *text = malloc((size_t)end + 1);

    assert_non_null(text);
    assert_int_equal(pread(fd, text, (size_t)end, 0), end);
    text[end] = '\0';
    *len = (size_t)end;
    close(fd);
    return text;
}

static run_t run_arguments(arguments_t *arguments, const char *input, size_t input_len)
{
    run_t result;
    size_t err_len;
    int in = temporary(input, input_len);
    int out = temporary("", 0);
    int err = temporary("", 0);
    int saved_in, saved_out, saved_err;

    fflush(stdout);
    fflush(stderr);
    saved_in = replace(STDIN_FILENO, in);
    saved_out = replace(STDOUT_FILENO, out);
    saved_err = replace(STDERR_FILENO, err);
    result.code = once_cli_main(arguments->count, arguments->list);
    fflush(stdout);
    fflush(stderr);
    restore(STDIN_FILENO, saved_in);
    restore(STDOUT_FILENO, saved_out);
    restore(STDERR_FILENO, saved_err);
    close(in);
    result.out = contents(out, &result.out_len);
    result.err = contents(err, &err_len);
    free_arguments(arguments);
    return result;
}

run_t run(const char *first, ...)
{
    arguments_t arguments;
    va_list rest;

    va_start(rest, first);
    collect(&arguments, first, rest);
    va_end(rest);
    return run_arguments(&arguments, "", 0);
}

run_t run_with_input(const char *input, size_t input_len, const char *first, ...)
{
    arguments_t arguments;
    va_list rest;

    va_start(rest, first);
    collect(&arguments, first, rest);
    va_end(rest);
    return run_arguments(&arguments, input, input_len);
}

void run_free(run_t *result)
{
    free(result->out);
    free(result->err);
}

int is_harmless(const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte != '\n' && (byte < 0x20 || byte > 0x7e)) {
            return 0;
        }
    }
    return 1;
}

size_t count_lines(const char *text)
{
    size_t count = 0;

    for (; *text != '\0'; text++) {
        count += *text == '\n';
    }
    return count;
}

json_t *json_line(const char *text, size_t n)
{
    json_error_t error;
    json_t *object;

    for (size_t i = 0; i < n; i++) {
        text = strchr(text, '\n');
        assert_non_null(text);
        text++;
    }
    object = json_loadb(text, strcspn(text, "\n"), JSON_REJECT_DUPLICATES, &error);
    if (object == NULL) {
        print_error("%s in: %s\n", error.text, text);
    }
    assert_true(json_is_object(object));
    return object;
}

const char *json_text_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);

    assert_true(json_is_string(value));
    return json_string_value(value);
}

long long json_number_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);

    assert_true(json_is_integer(value));
    return json_integer_value(value);
}
