/*
 * What the two ways of browsing share.
 */
#ifndef ONCE_BROKER_BROWSE_INTERNAL_H
#define ONCE_BROKER_BROWSE_INTERNAL_H

#include "broker/url.h"
#include "broker/browse.h"

int once__kafka_browse(once__url_t *address, int all, once__broker_browse_cb *each, void *data,
                       char *error, size_t size);
int once__kafka_browse_one(once__url_t *address, const char *topic, int32_t partition,
                           int64_t offset, once__broker_browse_cb *each, void *data, char *error,
                           size_t size);
/* VHOST/QUEUE of a URL, decoded. */
typedef struct once__amqp_place {
    char vhost[256], queue[256];
} once__amqp_place_t;

/* 0, or -1 after writing into `error` what is wrong: also an unknown parameter. */
int once__amqp_place_read(once__url_t *address, once__amqp_place_t *place, char *error,
                          size_t size);

int once__amqp_browse(once__url_t *address, once__broker_browse_cb *each, void *data, char *error,
                      size_t size);

/* Adds a header, if there is room; `data` is a once__broker_browsed_t. */
void once__broker_browsed_add(void *data, once_slice_t name, once_slice_t value);

#endif
