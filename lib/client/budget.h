/*
 * How many retries the calls of one client may make: a pure function of time and of what was sent.
 *
 * A server that fails is not to get many times the requests that it fails with. Each first attempt earns a fifth of a retry, and
 * each second a sixteenth of a retry for each connection, so that calls go on after an outage however long it was. What is not used
 * is saved, up to one retry for each connection.
 */
#ifndef ONCE_CLIENT_BUDGET_H
#define ONCE_CLIENT_BUDGET_H

#include <stdint.h>

typedef struct once__client_budget {
    uint64_t left, max; /* thousandths of a retry */
    uint64_t rate;      /* retries in a second */
    uint64_t at;        /* when it was last looked at: monotonic, milliseconds */
} once__client_budget_t;

void once__client_budget_init(once__client_budget_t *budget, unsigned connections, uint64_t now);

/* A first attempt is made. */
void once__client_budget_earn(once__client_budget_t *budget);

/* 1: a retry may be made now, and is counted. 0: later. */
int once__client_budget_take(once__client_budget_t *budget, uint64_t now);

#endif
