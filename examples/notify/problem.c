#include "problem.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int problem_set(problem_t *problem, int status, const char *name, const char *format, ...)
{
    va_list args;

    problem->status = status;
    problem->name = name;
    va_start(args, format);
    vsnprintf(problem->detail, sizeof(problem->detail), format, args);
    va_end(args);
    return -1;
}

static const char *title(const char *name)
{
    return strcmp(name, PROBLEM_BAD_EVENT) == 0 ? "The event cannot be made into notifications"
           : strcmp(name, PROBLEM_REFUSED) == 0 ? "A channel refused the notification"
           : strcmp(name, PROBLEM_HELD) == 0    ? "Nobody knows whether a mail was sent"
           : strcmp(name, PROBLEM_FAILED) == 0  ? "A channel did not deliver"
                                                : "The service is being stopped";
}

char *problem_json(const problem_t *problem)
{
    json_t *object = json_pack("{s:o, s:s, s:i, s:b}", "type",
                               json_sprintf("urn:once:problem:notify-%s", problem->name), "title",
                               title(problem->name), "status", problem->status, "retryable",
                               problem->status >= 500);
    char *text;

    /* A detail that was cut in the middle of a character is no JSON: then it is left out. */
    json_object_set_new(object, "detail", json_string(problem->detail));
    text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    return text;
}
