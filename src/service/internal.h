/*
 * The HTTP server of the metrics: libmicrohttpd with one thread.
 */
#ifndef ONCE_SERVICE_INTERNAL_H
#define ONCE_SERVICE_INTERNAL_H

#include "service/metrics.h"

typedef struct once__service_metrics_server once__service_metrics_server_t;

once__service_metrics_server_t *once__service_metrics_server_start(once__service_metrics_t *metrics,
                                                                   const char *address, char *error,
                                                                   size_t size);
void once__service_metrics_server_stop(once__service_metrics_server_t *server); /* NULL is fine */

/* What /health answers. */
int once__service_metrics_good(once__service_metrics_t *metrics);

#endif
