#include "broker/subscribe.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "broker/internal.h"

static void assert_subscription_state(const once__broker_subscription_t *subscription)
{
    assert(subscription->topic != NULL && subscription->fd >= 0); /* I-1 */
}

static once__broker_delivered_t *delivered(const once__broker_delivery_t *delivery)
{
    assert(((const once__broker_delivered_t *)(const void *)delivery)->from != NULL); /* I-2 */
    return (once__broker_delivered_t *)(uintptr_t)delivery;
}

static int is_amqp(const char *scheme)
{
    return strcmp(scheme, "amqp") == 0 || strcmp(scheme, "amqps") == 0;
}

once__broker_subscription_t *
once__broker_subscription_open(const char *url, const once__broker_subscription_options_t *options,
                               char *error, size_t size)
{
    once__broker_subscription_t *made = NULL;
    once__url_t parsed;

    if (once__broker_url_read(&parsed, url, error, size) != 0) {
        once__url_free(&parsed);
        return NULL;
    }
    if (strcmp(parsed.scheme, "kafka") == 0) {
        made = once__kafka_subscription(&parsed, options, error, size);
    } else if (is_amqp(parsed.scheme)) {
        made = once__amqp_subscription(&parsed, options, error, size);
    } else {
        snprintf(error, size, "the URL must be kafka://, amqp:// or amqps://");
    }
    if (made == NULL) {
        once__url_free(&parsed);
    }
    return made;
}

const char *once__broker_subscription_topic(const once__broker_subscription_t *subscription)
{
    return subscription->topic;
}

const char *once__broker_subscription_group(const once__broker_subscription_t *subscription)
{
    return subscription->group;
}

const char *once__broker_subscription_name_wrong(const once__broker_subscription_t *subscription,
                                                 const char *name)
{
    if (!is_amqp(subscription->url.scheme)) {
        return once__kafka_name_wrong(name, 0);
    }
    return name[0] == '\0' || strlen(name) > 255 ? "the name of a queue must have 1 to 255 bytes"
                                                 : NULL;
}

int once__broker_subscription_keeps(const once__broker_subscription_t *subscription)
{
    return !is_amqp(subscription->url.scheme);
}

int once__broker_subscription_fd(const once__broker_subscription_t *subscription)
{
    return subscription->fd;
}

int once__broker_subscription_turn(once__broker_subscription_t *subscription, size_t room)
{
    assert_subscription_state(subscription);
    return subscription->ops->turn(subscription, subscription->stopped ? 0 : room);
}

void once__broker_subscription_flush(once__broker_subscription_t *subscription)
{
    subscription->ops->flush(subscription);
}

int64_t once__broker_subscription_lag(once__broker_subscription_t *subscription)
{
    return subscription->ops->lag(subscription);
}

int once__broker_subscription_ready(const once__broker_subscription_t *subscription)
{
    return subscription->ready;
}

int once__broker_subscription_paused(const once__broker_subscription_t *subscription)
{
    return subscription->paused;
}

void once__broker_subscription_stop(once__broker_subscription_t *subscription)
{
    assert_subscription_state(subscription);
    if (!subscription->stopped) {
        subscription->stopped = 1;
        subscription->ops->stop(subscription);
    }
}

void once__broker_subscription_close(once__broker_subscription_t *subscription)
{
    if (subscription != NULL) {
        once__url_t parsed = subscription->url;
        subscription->ops->close(subscription);
        once__url_free(&parsed);
    }
}

void once__broker_delivery_done(once__broker_delivery_t *delivery)
{
    once__broker_subscription_t *from = delivered(delivery)->from;

    from->ops->end(from, delivery, 1);
}

void once__broker_delivery_drop(once__broker_delivery_t *delivery)
{
    once__broker_subscription_t *from = delivered(delivery)->from;

    from->ops->end(from, delivery, 0);
}

int once__broker_delivery_revoked(const once__broker_delivery_t *delivery)
{
    const once__broker_subscription_t *from = delivered(delivery)->from;

    return from->ops->revoked(from, delivery);
}

void once__broker_delivery_headers(once__broker_delivery_t *delivery,
                                   void (*each)(void *data, once_slice_t name, once_slice_t value),
                                   void *data)
{
    delivered(delivery)->from->ops->headers(delivery, each, data);
}

void once__broker_subscription_say(once__broker_subscription_t *subscription, int is_trouble,
                                   const char *format, ...)
{
    char sentence[400];
    va_list values;

    va_start(values, format);
    vsnprintf(sentence, sizeof(sentence), format, values);
    va_end(values);
    if (subscription->options.said != NULL) {
        subscription->options.said(subscription->options.data, is_trouble, sentence);
    }
}

char *once__broker_subscription_publish_url(const once__broker_subscription_t *subscription)
{
    return once__broker_publish_url(&subscription->url);
}
