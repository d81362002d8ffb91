/*
 * Deciding about a record that is not completed: the rules that `once keys settle` and `once ui` share.
 */
#ifndef ONCE_CLI_SETTLE_H
#define ONCE_CLI_SETTLE_H

#include <once/audit.h>

#include "cli/operator.h"

/* What is written into the record. */
typedef struct once__cli_verdict {
    int completed;
    int status; /* of a failure, for information */
    int force;  /* even while the lease is live */
    once_response_t response;
    once_header_t headers[ONCE__CLI_LIST_MAX];
} once__cli_verdict_t;

/* Reads 'Name: value'. `header` borrows from `text`. 0, or -1 if it is not that. */
int once__cli_verdict_header(const char *text, once_header_t *header);

/* Says what the store would refuse, before anything is asked. The store still has the last word. Returns once__cli_exit. */
int once__cli_settle_check(const once__cli_verdict_t *verdict, const once_record_t *record);

/*
 * Settles the record under the claim that it was read with, in the name of the operator. ONCE__CLI_OK: `*state` is what it is now;
 * otherwise the reason was said, and nothing was changed.
 */
int once__cli_settle(once_t *once, const once__cli_operator_t *operator,
                     const once__cli_verdict_t * verdict, const once_record_t *record,
                     once_state_t *state);

#endif
