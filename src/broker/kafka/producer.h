/*
 * librdkafka's properties for a producer: ours, and those of the URL.
 */
#ifndef ONCE_BROKER_KAFKA_PRODUCER_H
#define ONCE_BROKER_KAFKA_PRODUCER_H

#include <librdkafka/rdkafka.h>

#include "broker/url.h"

/* Returns NULL after writing what is wrong into `error`, without a value. */
rd_kafka_conf_t *once__kafka_producer_conf(const once__url_t *address, const char *ca_file,
                                           char *error, size_t size);

#endif
