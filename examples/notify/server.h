/* The HTTP side: POST /events, GET /metrics, GET /health. */
#ifndef EXAMPLES_NOTIFY_SERVER_H
#define EXAMPLES_NOTIFY_SERVER_H

#include "delivery.h"

typedef struct server server_t;

/* `address` is IP:PORT; with port 0 the system chooses one. NULL after saying what is wrong. */
server_t *server_start(const char *address, service_t *service);

/* Where it listens, as IP:PORT. */
const char *server_address(const server_t *server);

/* Takes no new events, and waits for those under way: each is answered, and ends within the time that a message may take. */
void server_stop(server_t *server);

#endif
