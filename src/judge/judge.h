/*
 * once conformance http://...: judges an HTTP API that takes idempotency keys, from outside.
 *
 * Checks are rows of tables (key.c, replay.c, race.c, failure.c, body.c) with one function each; what an API is measured by is a
 * profile, a row of a table, too (profile.c). docs/judge.md has both tables, and a test compares them.
 */
#ifndef ONCE_JUDGE_JUDGE_H
#define ONCE_JUDGE_JUDGE_H

#include <stddef.h>
#include <stdint.h>

#include "cli/cli.h"

/* What the command line says, as it was given. */
typedef struct once__judge_options {
    const char *method, *body, *other_body, *refused_body, *failing_body, *slow_body;
    const char *key_header, *effect_url, *effect_pointer, *profile, *junit, *ca_file;
    once__cli_list_t headers, other_headers, ignored_headers;
    once__cli_number_t large, timeout, patience, deadline, requests;
    int binary, require, plan, json;
    /* shared with the suite for stores */
    const char *filter;
    uint64_t at_once; /* 0: the default */
    int stop, list;
} once__judge_options_t;

/* Judges the API at `url`. Prints on standard output. Returns an exit code of the program. */
int once__judge_run(const once__cli_command_t *command, const char *url,
                    const once__judge_options_t *options);

/* Whether a check's name is chosen by --filter: once_conformance_chooses, which the command hands in. */
extern int (*once__judge_chooses)(const char *filter, const char *name);

#endif
