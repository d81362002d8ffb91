#include "broker/subscribe.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "broker/internal.h"

#define MESSAGE_MAX (64 * 1024 * 1024)

static once__broker_delivered_t *delivered(const once__broker_delivery_t *delivery)
{
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
    once__url_t address;

    if (once__broker_url_read(&address, url, error, size) != 0) {
        once__url_free(&address);
        return NULL;
    }
    if (strcmp(address.scheme, "kafka") == 0) {
        made = once__kafka_subscription(&address, options, error, size);
    } else if (is_amqp(address.scheme)) {
        made = once__amqp_subscription(&address, options, error, size);
    } else {
        snprintf(error, size, "messages come from kafka://, amqp:// or amqps://");
    }
    if (made == NULL) {
        once__url_free(&address);
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
    if (!is_amqp(subscription->address.scheme)) {
        return once__kafka_name_wrong(name, 0);
    }
    return name[0] == '\0' || strlen(name) > 255 ? "a queue has a name of 1 to 255 bytes" : NULL;
}

int once__broker_subscription_keeps(const once__broker_subscription_t *subscription)
{
    return !is_amqp(subscription->address.scheme);
}

int once__broker_subscription_fd(const once__broker_subscription_t *subscription)
{
    return subscription->fd;
}

int once__broker_subscription_turn(once__broker_subscription_t *subscription, size_t room)
{
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
    if (!subscription->stopped) {
        subscription->stopped = 1;
        subscription->ops->stop(subscription);
    }
}

void once__broker_subscription_close(once__broker_subscription_t *subscription)
{
    if (subscription != NULL) {
        once__url_t address = subscription->address;
        subscription->ops->close(subscription);
        once__url_free(&address);
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

int once__broker_delivery_lost(const once__broker_delivery_t *delivery)
{
    const once__broker_subscription_t *from = delivered(delivery)->from;

    return from->ops->lost(from, delivery);
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

/* ------------------------------------------------------------------------------------------------- URL of a publisher */

static int encode(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        int plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    strchr("-._~", c) != NULL;
        if (plain) {
            fputc(c, out);
        } else {
            fprintf(out, "%%%02X", (unsigned)c);
        }
    }
    return ferror(out);
}

static void write_url(FILE *out, const once__url_t *address, int amqp)
{
    fprintf(out, "%s://", address->scheme);
    if (address->user != NULL) {
        encode(out, address->user);
        fputc(':', out);
        encode(out, address->password != NULL ? address->password : "");
        fputc('@', out);
    }
    fprintf(out, "%s/", address->hosts);
    if (amqp) { /* the default exchange leads to the queue that the routing key names */
        fprintf(out, "%.*s/?routing_key=%%7Btopic%%7D", (int)strcspn(address->raw_path, "/"),
                address->raw_path);
    } else { /* a message from there must fit, perhaps compressed: the broker's limit decides. The user's values come later */
        fprintf(out, "?message.max.bytes=%d&compression.codec=gzip", MESSAGE_MAX);
    }
    for (size_t i = 0; i < address->param_count; i++) {
        const char *name = address->params[i].name;
        if (strcmp(name, "group") == 0 || strcmp(name, "auto.offset.reset") == 0 ||
            strcmp(name, "heartbeat") == 0) {
            continue;
        }
        fputc('&', out);
        encode(out, name);
        fputc('=', out);
        encode(out, address->params[i].value);
    }
}

char *once__broker_publish_url(const once__url_t *address)
{
    char *url = NULL;
    size_t size;
    FILE *out = open_memstream(&url, &size);

    if (out == NULL) {
        return NULL;
    }
    write_url(out, address, is_amqp(address->scheme));
    if (fclose(out) != 0) {
        free(url);
        return NULL;
    }
    return url;
}

char *once__broker_subscription_publish_url(const once__broker_subscription_t *subscription)
{
    return once__broker_publish_url(&subscription->address);
}
