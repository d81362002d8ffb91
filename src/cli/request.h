/*
 * Requests of `once call`: from words of the command line, and what became of them, for people and for programs.
 */
#ifndef ONCE_CLI_REQUEST_H
#define ONCE_CLI_REQUEST_H

#include <stdio.h>

#include <once/client.h>

#include "base/buf.h"
#include "cli/json.h"

#define ONCE__CLI_BODY_MAX ((size_t)256 * 1024 * 1024)

typedef struct once__cli_headers {
    once_header_t *items; /* their texts are owned */
    size_t count, room;
} once__cli_headers_t;

/* A request in the making. Zero it, and give its body a limit: ONCE__CLI_REQUEST_INIT. */
typedef struct once__cli_request {
    once__cli_headers_t headers, credentials;
    once__buf_t body;
} once__cli_request_t;

#define ONCE__CLI_REQUEST_INIT                                                                     \
    {                                                                                              \
        .body = {.max = ONCE__CLI_BODY_MAX }                                                       \
    }

void once__cli_request_free(once__cli_request_t *request);

/*
 * These add headers and return ONCE__CLI_OK, or an exit code after an error message. `line` is "Name: value", "Name;" for one
 * without a value, or @FILE for the lines of a file. Those of a file or of the environment, and those whose name says so, are
 * credentials.
 */
int once__cli_request_header(once__cli_request_t *request, const char *line);

/* The same with {{NAME}} replaced by variables of the environment; always a credential. */
int once__cli_request_expand(once__cli_request_t *request, const char *line);

/* The same of a name and a value, which must be valid. */
int once__cli_request_add(once__cli_request_t *request, once_slice_t name, once_slice_t value);

/* Adds "Name: value" unless there is a header of that name. */
int once__cli_request_default(once__cli_request_t *request, const char *name, const char *value);

/* Adds the headers of `common`, except those whose names are there already. */
int once__cli_request_join(once__cli_request_t *request, const once__cli_request_t *common);

/* Is it a credential, as far as its name tells? */
int once__cli_is_credential(const char *name, size_t len);

/* Adds to the body. `text` is data, or @FILE; `is_form`: pieces are joined with &, and line ends of files are left out. */
int once__cli_request_data(once__cli_request_t *request, const char *text, int is_form);

/* The exit code that an outcome has: once__cli_exit. */
int once__cli_outcome_exit(const once_client_outcome_t *outcome);

/* The outcome as JSON (docs/call.md lists the members). */
void once__cli_outcome_json(once__cli_json_t *json, const once_client_outcome_t *outcome);

/* `once call --batch` (docs/call.md#batches). */
typedef struct once__cli_batch_options {
    once_client_request_t defaults;    /* URL, method, times */
    const once__cli_request_t *common; /* headers for every line */
    unsigned parallel;
    int silent;
    FILE *out;      /* results */
    int is_emptied; /* when the file is found to be good */
} once__cli_batch_options_t;

/* Makes the calls of FILE. Returns an exit code. */
int once__cli_batch(once_client_t *client, const char *path,
                    const once__cli_batch_options_t *options);

/* Of several outcomes: the exit code that needs attention first. */
int once__cli_worse_exit(int a, int b);

#endif
