/*
 * Subscriptions: messages from Kafka or RabbitMQ (AMQP 0-9-1), acknowledged one by one.
 *
 * A subscription belongs to one thread and never waits for long. It gives deliveries in the order of the broker. Each must be
 * ended with once__broker_delivery_done (acknowledge) or once__broker_delivery_drop (do not). Deliveries of a partition or a
 * connection that was lost are revoked: done is then the same as drop, because the broker gives the message to another consumer.
 */
#ifndef ONCE_BROKER_SUBSCRIBE_H
#define ONCE_BROKER_SUBSCRIBE_H

#include <stddef.h>
#include <stdint.h>

#include "broker/publish.h"

typedef struct once__broker_subscription once__broker_subscription_t;

/* A message that was delivered. Valid until it is ended. */
typedef struct once__broker_delivery {
    once_slice_t payload;
    once_slice_t key; /* data NULL: none */
    int32_t partition;
    int64_t offset; /* AMQP: the delivery tag. For logs only: it does not identify the message */
    void *prepared; /* memory for options.prepare */
} once__broker_delivery_t;

/* Several deliveries, in order. */
typedef void once__broker_deliver_cb(void *data, once__broker_delivery_t *const *deliveries,
                                     size_t count);

/*
 * Called for all messages before they are delivered, by any thread, perhaps by two at once, but not after
 * once__broker_subscription_stop. It may only read them and fill in `prepared`.
 */
typedef void once__broker_prepare_cb(void *data, once__broker_delivery_t *const *deliveries,
                                     size_t count);

typedef struct once__broker_subscription_options {
    once__broker_prepare_cb *prepare;
    void *prepare_data;
    size_t prepared_size;
    once__broker_deliver_cb *deliver;
    once__broker_publish_said_cb *said; /* a sentence for the log; may be NULL */
    void *data;                         /* for these two */
    size_t window;                      /* the greatest number of open deliveries */
    const char *dead_letters; /* AMQP: a queue to be declared if it does not exist; NULL: none */
} once__broker_subscription_options_t;

/*
 * kafka://[USER:PASSWORD@]HOST[:PORT],.../TOPIC?group=GROUP[&property=value...]
 * amqp[s]://[USER:PASSWORD@]HOST[:PORT]/VHOST/QUEUE[?cacert=FILE&cert=FILE&key=FILE&heartbeat=SECONDS]
 * Does not wait for the broker. NULL after writing into `error` what is wrong, without credentials.
 */
once__broker_subscription_t *
once__broker_subscription_open(const char *url, const once__broker_subscription_options_t *options,
                               char *error, size_t size);

/* The topic or queue; and the group or queue, which is the subscriber by default. Valid as long as the subscription. */
const char *once__broker_subscription_topic(const once__broker_subscription_t *subscription);
const char *once__broker_subscription_group(const once__broker_subscription_t *subscription);

/* Why a topic or a queue cannot have that name; NULL if it can. */
const char *once__broker_subscription_name_wrong(const once__broker_subscription_t *subscription,
                                                 const char *name);

/* Whether the broker keeps a message after it is acknowledged. */
int once__broker_subscription_keeps(const once__broker_subscription_t *subscription);

/* A URL for once__broker_publisher_open, allocated with malloc: messages go to the topic or queue that their `topic` names. */
char *once__broker_subscription_publish_url(const once__broker_subscription_t *subscription);

/* Readable when once__broker_subscription_turn has something to do. */
int once__broker_subscription_fd(const once__broker_subscription_t *subscription);

/*
 * Delivers at most `room` messages. Does not wait. Returns 1 if there may be more: the caller should turn again without
 * waiting. Without room it must still be called about every second, so that the group knows that this member is alive.
 */
int once__broker_subscription_turn(once__broker_subscription_t *subscription, size_t room);

/* Sends the acknowledgements that once__broker_delivery_done collected; to be called at the end of each turn of the loop. */
void once__broker_subscription_flush(once__broker_subscription_t *subscription);

/* Messages that are not done; -1 while that is unknown. May ask the broker, and wait for it shortly. */
int64_t once__broker_subscription_lag(once__broker_subscription_t *subscription);

/* Whether the broker is connected and this member is part of the group. */
int once__broker_subscription_ready(const once__broker_subscription_t *subscription);

/* Whether reading is paused because there was no room for some time. */
int once__broker_subscription_paused(const once__broker_subscription_t *subscription);

/* Stops delivering and preparing; open deliveries can still be ended. */
void once__broker_subscription_stop(once__broker_subscription_t *subscription);

/* Acknowledges what is done, leaves the group and frees the subscription. All deliveries must have ended. NULL is fine. */
void once__broker_subscription_close(once__broker_subscription_t *subscription);

void once__broker_delivery_done(once__broker_delivery_t *delivery);
void once__broker_delivery_drop(once__broker_delivery_t *delivery);

/* Whether it can no longer be acknowledged by us. */
int once__broker_delivery_revoked(const once__broker_delivery_t *delivery);

/* Calls `each` with all headers in order. */
void once__broker_delivery_headers(once__broker_delivery_t *delivery,
                                   void (*each)(void *data, once_slice_t name, once_slice_t value),
                                   void *data);

#endif
