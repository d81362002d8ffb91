/*
 * In place of src/broker/amqp where ONCE_WITH_AMQP is off: every URL of RabbitMQ is refused.
 */
#include <stdio.h>

#include "broker/internal.h"

static const char sentence[] = "amqp:// is not in this build of once (ONCE_WITH_AMQP is off)";

once__broker_publisher_t *once__amqp_publisher(const once__url_t *url,
                                               const once__broker_publisher_options_t *options,
                                               char *error, size_t size)
{
    snprintf(error, size, "%s", sentence);
    return NULL;
}

once__broker_subscription_t *
once__amqp_subscription(const once__url_t *url, const once__broker_subscription_options_t *options,
                        char *error, size_t size)
{
    snprintf(error, size, "%s", sentence);
    return NULL;
}

int once__amqp_browse(once__url_t *url, once__broker_browse_cb *each, void *data, char *error,
                      size_t size)
{
    snprintf(error, size, "%s", sentence);
    return -1;
}

int once__amqp_queue_name(once__url_t *url, char *name, char *error, size_t size)
{
    snprintf(error, size, "%s", sentence);
    return -1;
}
