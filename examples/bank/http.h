/*
 * The HTTP side: a thread for each connection, up to a limit, and requests as the rest of the bank sees them.
 */
#ifndef EXAMPLES_BANK_HTTP_H
#define EXAMPLES_BANK_HTTP_H

#include <stdint.h>

#include "bank.h"

typedef struct http http_t;

/* Listens on IP:PORT (0: the system chooses). NULL after saying what is wrong. */
http_t *http_start(const char *address, unsigned connections, bank_t *bank);

/* The address that it listens on: IP:PORT. */
const char *http_address(const http_t *http);

/* Takes no more requests, waits for those that are being worked on, at most that long, and ends. Returns how many were left. */
unsigned http_stop(http_t *http, unsigned timeout_s);

#endif
