/*
 * In place of src/broker/kafka where ONCE_WITH_KAFKA is off: every URL of Kafka is refused.
 */
#include <stdio.h>

#include "broker/internal.h"

static const char sentence[] = "kafka:// is not in this build of once (ONCE_WITH_KAFKA is off)";

once__broker_publisher_t *once__kafka_publisher(const once__url_t *url,
                                                const once__broker_publisher_options_t *options,
                                                char *error, size_t size)
{
    snprintf(error, size, "%s", sentence);
    return NULL;
}

once__broker_subscription_t *
once__kafka_subscription(const once__url_t *url, const once__broker_subscription_options_t *options,
                         char *error, size_t size)
{
    snprintf(error, size, "%s", sentence);
    return NULL;
}

int once__kafka_browse(once__url_t *url, int all, once__broker_browse_cb *each, void *data,
                       char *error, size_t size)
{
    snprintf(error, size, "%s", sentence);
    return -1;
}

int once__kafka_browse_one(once__url_t *url, const char *topic, int32_t partition, int64_t offset,
                           once__broker_browse_cb *each, void *data, char *error, size_t size)
{
    snprintf(error, size, "%s", sentence);
    return -1;
}

const char *once__kafka_name_wrong(const char *name, int is_template)
{
    return sentence;
}
