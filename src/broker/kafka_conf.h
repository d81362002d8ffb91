/*
 * How consumers of Kafka are set up.
 */
#ifndef ONCE_BROKER_KAFKA_CONF_H
#define ONCE_BROKER_KAFKA_CONF_H

#include <librdkafka/rdkafka.h>

#include "broker/address.h"

/* From the URL's parts and properties; `group` wins. NULL after writing into `error` what is wrong, without a value. */
rd_kafka_conf_t *once__kafka_consumer_conf(const once__address_t *address, const char *group,
                                           char *error, size_t size);

/* Sets a property. 0, or -1 and `error` names it, never its value. */
int once__kafka_set(rd_kafka_conf_t *conf, const char *name, const char *value, char *error,
                    size_t size);

#endif
