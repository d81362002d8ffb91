/*
 * What the subscriptions have in common inside: the table of their functions, and which deliveries are done.
 */
#ifndef ONCE_BROKER_SUBSCRIBE_INTERNAL_H
#define ONCE_BROKER_SUBSCRIBE_INTERNAL_H

#include "broker/url.h"
#include "broker/subscribe.h"

typedef struct once__broker_subscription_ops {
    int (*turn)(once__broker_subscription_t *subscription, size_t room);
    void (*flush)(once__broker_subscription_t *subscription);
    int64_t (*lag)(once__broker_subscription_t *subscription);
    void (*stop)(once__broker_subscription_t *subscription);
    void (*close)(once__broker_subscription_t *subscription);
    void (*end)(once__broker_subscription_t *subscription, once__broker_delivery_t *delivery,
                int done);
    int (*lost)(const once__broker_subscription_t *subscription,
                const once__broker_delivery_t *delivery);
    void (*headers)(once__broker_delivery_t *delivery,
                    void (*each)(void *data, once_slice_t name, once_slice_t value), void *data);
} once__broker_subscription_ops_t;

/* The first member of every subscription. */
struct once__broker_subscription {
    const once__broker_subscription_ops_t *ops;
    once__broker_subscription_options_t options;
    once__url_t address;
    const char *topic, *group;
    int fd;
    int ready;
    int paused; /* nothing is read, because there was no room for long */
    int stopped;
};

/* The first member of every delivery of a subscription. */
typedef struct once__broker_delivered {
    once__broker_delivery_t delivery;
    once__broker_subscription_t *from;
} once__broker_delivered_t;

once__broker_subscription_t *
once__kafka_subscription(const once__url_t *address,
                         const once__broker_subscription_options_t *options, char *error,
                         size_t size);
once__broker_subscription_t *
once__amqp_subscription(const once__url_t *address,
                        const once__broker_subscription_options_t *options, char *error,
                        size_t size);

/* Why Kafka cannot have a topic of that name, or of any that the template gives; NULL: it can. */
const char *once__kafka_name_wrong(const char *name, int is_template);

/* The URL of a publisher to the same broker, whose messages go to the topic or queue that they name. Malloc'd. */
char *once__broker_publish_url(const once__url_t *address);

/* Says something with printf's format. */
void once__broker_subscription_say(once__broker_subscription_t *subscription, int is_trouble,
                                   const char *format, ...) __attribute__((format(printf, 3, 4)));

/*
 * Deliveries of one partition in their order, and how far all of them are done. A delivery keeps the number that it got.
 */
typedef struct once__kafka_offsets {
    struct {
        int64_t offset;
        char done;
    } * ring;
    size_t room;           /* a power of two, or 0 */
    uint64_t first, after; /* numbers of the oldest one that is kept, and after the newest */
    int64_t done_to;       /* the offset of the newest one of the finished prefix; -1: none yet */
    int moved;             /* done_to changed since the owner looked */
} once__kafka_offsets_t;

void once__kafka_offsets_start(once__kafka_offsets_t *track);
void once__kafka_offsets_free(once__kafka_offsets_t *track);

/* The next delivery. 0, or -1: out of memory. */
int once__kafka_offsets_add(once__kafka_offsets_t *track, int64_t offset, uint64_t *number);
void once__kafka_offsets_done(once__kafka_offsets_t *track, uint64_t number);

#endif
