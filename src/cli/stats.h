/* The counts of a store as JSON. */
#ifndef ONCE_CLI_STATS_H
#define ONCE_CLI_STATS_H

#include "cli/json.h"

void once__cli_stats_json(const once_stats_t *stats, once__cli_json_t *json);

#endif
