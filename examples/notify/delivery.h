/* One event, all its notifications: who gets what by which channel, and what became of each. */
#ifndef EXAMPLES_NOTIFY_DELIVERY_H
#define EXAMPLES_NOTIFY_DELIVERY_H

#include <jansson.h>

#include "event.h"
#include "metrics.h"
#include "problem.h"
#include "records.h"
#include "templates.h"
#include "transport.h"

/* What the service is made of; the same for all threads, and nothing in it changes after the start. */
typedef struct service {
    templates_t templates;
    json_t *users; /* an object */
    transport_t transport;
    records_t records;
    metrics_t *metrics;
} service_t;

/*
 * Nothing is sent unless all of it can be: a bad event has no effect at all. Then each notification goes its own way: those that
 * were sent before are not sent again, one that fails does not keep the others from being sent. Logs each.
 * 0: all were sent, now or before; `*results` is an array of objects for the answer. -1: the problem, and if it may be tried again
 * (status 503) after how many seconds.
 */
int deliver(service_t *service, const event_t *event, json_t **results, problem_t *problem,
            unsigned *retry_after);

#endif
