/* The events of the outbox that `once outbox` and `once ui` list and decide about. Not without PostgreSQL. */
#ifndef ONCE_CLI_OUTBOX_H
#define ONCE_CLI_OUTBOX_H

#include "cli/json.h"
#include "cli/operator.h"

/* At most `limit` events, dead or waiting, oldest first; `*events` is the caller's. Returns once__cli_exit after saying why not. */
int once__cli_outbox_json(const char *url, int waiting, uint64_t limit, json_t **events);

/* Requeues, or drops for good, dead events by their whole ids. `*changed`: how many there still were. */
int once__cli_outbox_decide(const char *url, int drop, const char *const *ids, size_t count,
                            const once__cli_operator_t *operator, int64_t * changed);

/* The same without changing anything: how many of them are dead. */
int once__cli_outbox_count(const char *url, const char *const *ids, size_t count, int64_t *found);

#endif
