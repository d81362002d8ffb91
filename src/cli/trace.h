/* One operation from end to end, as JSON. */
#ifndef ONCE_CLI_TRACE_H
#define ONCE_CLI_TRACE_H

#include "cli/json.h"

/*
 * The record with these parts (once__cli_parts), what people decided about it, and what its database knows of it. Of a long audit
 * trail only the end is read: `decisions_cut` says that there is more. Returns
 * once__cli_exit: what could not be read was said, and the rest is in `json`, which is the caller's in any case.
 */
int once__cli_trace_json(const char *url, once_t *once, const once_record_t *record, unsigned parts,
                         once__cli_json_t *json);

#endif
