/*
 * A record for people and for programs.
 */
#ifndef ONCE_CLI_RECORD_H
#define ONCE_CLI_RECORD_H

#include <once/once.h>

#include "cli/json.h"
#include "cli/console.h"
#include "cli/units.h"

/* What is shown besides the record's own fields. */
enum once__cli_parts {
    ONCE__CLI_RESPONSE = 1, /* the stored response: status, header names, size of the body */
    ONCE__CLI_HEADERS = 2,  /* the headers' values, too */
    ONCE__CLI_BODY = 4,     /* the body as base64 (JSON only) */
    ONCE__CLI_CLAIM = 8,    /* the claim's text */
};

/* Pending with the lease over, or unknown. */
int once__cli_record_stuck(const once_record_t *record);

/* The colour of the state: red and yellow may need a decision. */
once__cli_colour_t once__cli_record_colour(const once_record_t *record);

/* "12s" or "over"; "-" when the state has no lease. */
once__cli_unit_text_t once__cli_record_lease(const once_record_t *record);

/* In ISO 8601, by the store's clock; "-": there is no such time. */
once__cli_unit_text_t once__cli_record_time(const once_record_t *record, once_time_t which);

/* "in 23h 10m", or "never". */
once__cli_unit_text_t once__cli_record_expires(const once_record_t *record);

/*
 * The record as JSON (docs/cli.md lists the members). A response that cannot be read becomes "response_error"; the return
 * value is its error, else ONCE_OK.
 */
int once__cli_record_json(const once_record_t *record, unsigned parts, once__cli_json_t *json);

/* The record as lines on standard output; the same return value. */
int once__cli_record_text(const once_record_t *record, unsigned parts);

/* Three lines: what a person must see before it is changed. */
void once__cli_record_brief(const once_record_t *record);

#endif
