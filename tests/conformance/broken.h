/*
 * Stores that break a rule, for the suite to find out: a table with rules of the test's choice, or with a fault of its own.
 *
 * Handles share the table as they would share a server. Its clock stands still but when the suite waits.
 */
#ifndef TESTS_CONFORMANCE_BROKEN_H
#define TESTS_CONFORMANCE_BROKEN_H

#include <once/once.h>

#include "core/rules.h"

typedef enum broken_fault {
    BROKEN_NOTHING,
    BROKEN_CHECK_THEN_PUT, /* looks for the record in one step and makes it in another */
    BROKEN_FORGETS_WRITES, /* every third completion is answered but not applied */
    BROKEN_OTHER_BYTES,    /* a stored response comes back with one bit changed */
    BROKEN_SHOWS_TWICE,    /* a scan shows its first record once more */
    BROKEN_HIDES_LAST,     /* a scan does not show the last record of a step */
    BROKEN_REAPS_LIMIT,    /* removes all that expired, whatever the limit */
    BROKEN_NEVER_REAPS,    /* says that there was nothing to remove */
    BROKEN_ONE_SCOPE,      /* keeps records by key alone */
} broken_fault_t;

typedef struct broken broken_t;

/* `rules` must outlive the store. NULL when out of memory. */
broken_t *broken_new(const once__rules_t *rules, broken_fault_t fault);
void broken_free(broken_t *broken);

/* For the suite: once_conformance_options_t's open and wait, with the store as their data. */
int broken_open(const char *url, const once_options_t *options, once_t **handle, once_error_t *err,
                void *data);
void broken_wait(uint64_t ms, void *data);

#endif
