/*
 * Subscriptions: messages from Kafka, or from RabbitMQ (AMQP 0-9-1), one by one acknowledged.
 *
 * A subscription belongs to one thread and never waits for long. It gives deliveries in the order of the broker; whoever got one
 * ends it with once__broker_delivery_done (acknowledge) or once__broker_delivery_drop (do not). What was delivered before a partition was
 * lost, or before the connection was cut, is lost: done is then the same as drop, because the broker gives it to somebody else.
 */
#ifndef ONCE_BROKER_SUBSCRIBE_H
#define ONCE_BROKER_SUBSCRIBE_H

#include <stddef.h>
#include <stdint.h>

#include "broker/publish.h"

typedef struct once__broker_subscription once__broker_subscription_t;

/* A message that was delivered. Everything lives until it is ended. */
typedef struct once__broker_delivery {
    once_slice_t payload;
    once_slice_t key; /* data NULL: none */
    int32_t partition;
    int64_t offset; /* AMQP: the delivery tag. For people: it is no identity */
    void *prepared; /* memory for options.prepare */
} once__broker_delivery_t;

/* Some of them, in their order. */
typedef void once__broker_deliver_cb(void *data, once__broker_delivery_t *const *deliveries,
                                     size_t count);

/*
 * Called for all before they are delivered, by any thread, and by two at a time, but not after once__broker_subscription_stop: it may only
 * look at them, and fill in `prepared`.
 */
typedef void once__broker_prepare_cb(void *data, once__broker_delivery_t *const *deliveries,
                                     size_t count);

typedef struct once__broker_subscription_options {
    once__broker_prepare_cb *prepare;
    void *prepare_data;
    size_t prepared_size;
    once__broker_deliver_cb *deliver;
    once__broker_publish_said_cb *said; /* something worth a line in a log; may be NULL */
    void *data;                         /* for these two */
    size_t window;                      /* so many deliveries are open at most */
    const char *dead_letters; /* AMQP: a queue that is declared if there is none; NULL: none is */
} once__broker_subscription_options_t;

/*
 * kafka://[USER:PASSWORD@]HOST[:PORT],.../TOPIC?group=GROUP[&property=value...]
 * amqp[s]://[USER:PASSWORD@]HOST[:PORT]/VHOST/QUEUE[?cacert=FILE&cert=FILE&key=FILE&heartbeat=SECONDS]
 * Does not wait for the broker. NULL after writing into `error` what is wrong, without credentials.
 */
once__broker_subscription_t *
once__broker_subscription_open(const char *url, const once__broker_subscription_options_t *options,
                               char *error, size_t size);

/* The topic or queue, and the group or queue: the subscriber if nobody names another. They live as long as the subscription. */
const char *once__broker_subscription_topic(const once__broker_subscription_t *subscription);
const char *once__broker_subscription_group(const once__broker_subscription_t *subscription);

/* Why there cannot be a topic, or a queue, of that name; NULL: there can. */
const char *once__broker_subscription_name_wrong(const once__broker_subscription_t *subscription,
                                                 const char *name);

/* Does a message stay where it is when it is acknowledged? */
int once__broker_subscription_keeps(const once__broker_subscription_t *subscription);

/* A URL for once__broker_publisher_open whose messages go to the topic, or to the queue, that their `topic` names. Malloc'd. */
char *once__broker_subscription_publish_url(const once__broker_subscription_t *subscription);

/* Readable when once__broker_subscription_turn has something to do. */
int once__broker_subscription_fd(const once__broker_subscription_t *subscription);

/*
 * Delivers at most `room` messages; does not wait. Returns 1 when there may be more: turn again without waiting. With no room
 * it still has to be called now and then (each second): the group is told that this member lives.
 */
int once__broker_subscription_turn(once__broker_subscription_t *subscription, size_t room);

/* Sends on what once__broker_delivery_done collected; call it at the end of a turn of the loop. */
void once__broker_subscription_flush(once__broker_subscription_t *subscription);

/* Messages that are not done; -1: not known yet. May ask the broker, shortly. */
int64_t once__broker_subscription_lag(once__broker_subscription_t *subscription);

/* Is the broker there, and is this member part of the group? */
int once__broker_subscription_ready(const once__broker_subscription_t *subscription);

/* Is nothing read at the moment, because there was no room for long? */
int once__broker_subscription_paused(const once__broker_subscription_t *subscription);

/* No more deliveries, and nothing is prepared any more; what is open can still be ended. */
void once__broker_subscription_stop(once__broker_subscription_t *subscription);

/* Acknowledges what is done, leaves, and frees it. All deliveries are ended by then. NULL is fine. */
void once__broker_subscription_close(once__broker_subscription_t *subscription);

void once__broker_delivery_done(once__broker_delivery_t *delivery);
void once__broker_delivery_drop(once__broker_delivery_t *delivery);

/* Is it no longer ours to acknowledge? */
int once__broker_delivery_lost(const once__broker_delivery_t *delivery);

/* All headers: calls `each` in order. */
void once__broker_delivery_headers(once__broker_delivery_t *delivery,
                                   void (*each)(void *data, once_slice_t name, once_slice_t value),
                                   void *data);

#endif
