/* The configuration of Kafka's consumers and producers. */
#ifndef ONCE_BROKER_KAFKA_CONF_H
#define ONCE_BROKER_KAFKA_CONF_H

#include <librdkafka/rdkafka.h>

#include "broker/internal.h"
#include "broker/url.h"

/*
 * From the URL's parts and properties; `group` takes precedence. Returns NULL after writing what is wrong into `error`, without
 * a value.
 */
rd_kafka_conf_t *once__kafka_consumer_conf(const once__url_t *url, const char *group, char *error,
                                           size_t size);

/* The same for a producer; `ca_file` may be NULL. */
rd_kafka_conf_t *once__kafka_producer_conf(const once__url_t *url, const char *ca_file, char *error,
                                           size_t size);

/*
 * For librdkafka's callback about certificates, which runs on another thread: returns whether the certificate is good, and
 * notes if not. The error that librdkafka reports later is explained by that note.
 */
int once__kafka_trusts(_Atomic int *distrust, const int *x509_error);
void once__kafka_explain(_Atomic int *distrust, const char *reason, const char *authorities,
                         char *text, size_t size);

#endif
