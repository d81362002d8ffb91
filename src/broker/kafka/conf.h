/*
 * How consumers of Kafka are set up.
 */
#ifndef ONCE_BROKER_KAFKA_CONF_H
#define ONCE_BROKER_KAFKA_CONF_H

#include <librdkafka/rdkafka.h>

#include "broker/subscribe_internal.h"
#include "broker/url.h"

/* From the URL's parts and properties; `group` wins. NULL after writing into `error` what is wrong, without a value. */
rd_kafka_conf_t *once__kafka_consumer_conf(const once__url_t *address, const char *group,
                                           char *error, size_t size);

/* Sets a property. 0, or -1 and `error` names it, never its value. */
int once__kafka_set(rd_kafka_conf_t *conf, const char *name, const char *value, char *error,
                    size_t size);

/*
 * For librdkafka's callback about certificates: is it good? If not, that is noted; the callback comes on another thread. The
 * error that librdkafka tells of later is then explained by what was noted.
 */
int once__kafka_trusts(_Atomic int *distrust, const int *x509_error);
void once__kafka_explain(_Atomic int *distrust, const char *reason, const char *authorities,
                         char *text, size_t size);

#endif
