/*
 * An event as once consume posts it: CloudEvents in headers (ce-id and ce-type; ce_id and ce_type as Kafka spells them) or in the
 * body (application/cloudevents+json), or a payload that names itself (`event_id` or `id`, and `type`).
 */
#ifndef EXAMPLES_NOTIFY_EVENT_H
#define EXAMPLES_NOTIFY_EVENT_H

#include <jansson.h>
#include <once/key.h>
#include <stddef.h>

#include "problem.h"

#define EVENT_BODY_MAX (256 * 1024)

typedef struct event {
    json_t *document;        /* the body */
    json_t *payload;         /* part of it, or all */
    const char *id, *type;   /* "" when there is none, or none that can be used */
    const char *traceparent; /* "" when there is none, or none that can be used */
    once_key_t key;          /* of the header Idempotency-Key, for logs; may be empty */
    const char *body;
    size_t body_len;
} event_t;

/* Where headers come from; NULL when there is no such header. */
typedef const char *event_header_t(void *data, const char *name);

/* Borrows headers and body. 0, or -1 and the problem. To be freed in both cases. */
int event_read(event_t *event, event_header_t *header, void *data, const char *body, size_t len,
               problem_t *problem);
void event_free(event_t *event);

#endif
