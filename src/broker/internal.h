/*
 * What the brokers share inside this folder: the tables of functions of publishers and subscriptions, and the parts of a message.
 */
#ifndef ONCE_BROKER_INTERNAL_H
#define ONCE_BROKER_INTERNAL_H

#include "broker/browse.h"
#include "broker/publish.h"
#include "broker/subscribe.h"
#include "broker/url.h"

/* -------------------------------------------------------------------------------------------------------- publishers */

typedef struct once__broker_publisher_ops {
    int (*publish)(once__broker_publisher_t *publisher, const once__broker_message_t *message,
                   void *tag);
    void (*push)(once__broker_publisher_t *publisher); /* may be NULL */
    void (*turn)(once__broker_publisher_t *publisher);
    void (*wake)(once__broker_publisher_t *publisher);  /* makes the descriptor readable */
    void (*close)(once__broker_publisher_t *publisher); /* frees it */
} once__broker_publisher_ops_t;

/* A verdict that was known at once; it is given in the next turn. */
typedef struct once__broker_early once__broker_early_t;

/*
 * The first member of every publisher. What holds between calls (assert_publisher_state in publish.c):
 *   I-1  a message that was taken and has no verdict is counted; those with an early verdict are among them
 *   I-2  it can be waited for
 */
struct once__broker_publisher {
    const once__broker_publisher_ops_t *ops;
    once__broker_publisher_options_t options;
    once__url_t url;
    char name[256]; /* if its constructor leaves it empty: scheme, hosts and path of the URL */
    /* template of what distinguishes its destinations; the publisher's memory */
    const char *target;
    size_t most; /* messages in flight at once; SIZE_MAX: any number */
    size_t key_limit;
    size_t pending;
    int fd;
    once__broker_early_t *early;
};

once__broker_publisher_t *once__kafka_publisher(const once__url_t *url,
                                                const once__broker_publisher_options_t *options,
                                                char *error, size_t size);
once__broker_publisher_t *once__amqp_publisher(const once__url_t *url,
                                               const once__broker_publisher_options_t *options,
                                               char *error, size_t size);
once__broker_publisher_t *once__http_publisher(const once__url_t *url,
                                               const once__broker_publisher_options_t *options,
                                               char *error, size_t size);

/* Logs a sentence with printf's format. */
void once__broker_publisher_say(once__broker_publisher_t *publisher, int is_trouble,
                                const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Takes the message and gives the verdict in the next turn. Returns 0, or -1 if memory is short. */
int once__broker_publisher_tell_soon(once__broker_publisher_t *publisher, void *tag,
                                     once__broker_verdict_t verdict, const char *reason);

/* Gives the verdict. */
void once__broker_publisher_tell(once__broker_publisher_t *publisher, void *tag,
                                 once__broker_verdict_t verdict, const char *reason,
                                 uint64_t retry_after_ms);

/*
 * Fills a template ({topic}, {type}, {key}). `escape`: percent-encodes the values, for URLs. Returns 0, or -1 if the result
 * does not fit or has a zero byte.
 */
int once__broker_template_fill(const char *template_text, const once__broker_message_t *message,
                               int escape, char *out, size_t size);

/* What is wrong with a template; NULL if nothing is. */
const char *once__broker_template_wrong(const char *template_text);

/*
 * Calls `each` with the headers of a message in order: CloudEvents attributes with the prefix, then its own. A message with an
 * id has no other identity: its own headers that look like one are left out.
 */
void once__broker_message_headers(const once__broker_message_t *message, const char *prefix,
                                  void (*each)(void *data, once_slice_t name, once_slice_t value),
                                  void *data);

/*
 * Whether the name is one of the patterns, a list in lower case that ends with NULL; `x-*` matches all names that begin with
 * `x-`.
 */
int once__broker_header_is_one_of(once_slice_t name, const char *const *patterns);

/* The content type: the message's own header, or what the payload looks like. */
once_slice_t once__broker_message_content_type(const once__broker_message_t *message);

/* ----------------------------------------------------------------------------------------------------- subscriptions */

typedef struct once__broker_subscription_ops {
    int (*turn)(once__broker_subscription_t *subscription, size_t room);
    void (*flush)(once__broker_subscription_t *subscription);
    int64_t (*lag)(once__broker_subscription_t *subscription);
    void (*stop)(once__broker_subscription_t *subscription);
    void (*close)(once__broker_subscription_t *subscription);
    void (*end)(once__broker_subscription_t *subscription, once__broker_delivery_t *delivery,
                int done);
    int (*revoked)(const once__broker_subscription_t *subscription,
                   const once__broker_delivery_t *delivery);
    void (*headers)(once__broker_delivery_t *delivery,
                    void (*each)(void *data, once_slice_t name, once_slice_t value), void *data);
} once__broker_subscription_ops_t;

/*
 * The first member of every subscription. What holds between calls (assert_subscription_state in subscribe.c):
 *   I-1  it has a topic or queue, and a descriptor to wait for
 *   I-2  a delivery ends at the subscription that it came from
 */
struct once__broker_subscription {
    const once__broker_subscription_ops_t *ops;
    once__broker_subscription_options_t options;
    once__url_t url;
    const char *topic, *group;
    int fd;
    int ready;
    int paused; /* reading is paused because there was no room for some time */
    int stopped;
};

/* The first member of every delivery of a subscription. */
typedef struct once__broker_delivered {
    once__broker_delivery_t delivery;
    once__broker_subscription_t *from;
} once__broker_delivered_t;

once__broker_subscription_t *
once__kafka_subscription(const once__url_t *url, const once__broker_subscription_options_t *options,
                         char *error, size_t size);
once__broker_subscription_t *
once__amqp_subscription(const once__url_t *url, const once__broker_subscription_options_t *options,
                        char *error, size_t size);

/* Why Kafka cannot have a topic of that name, or of a name that the template gives; NULL if it can. */
const char *once__kafka_name_wrong(const char *name, int is_template);

/* Logs a sentence with printf's format. */
void once__broker_subscription_say(once__broker_subscription_t *subscription, int is_trouble,
                                   const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---------------------------------------------------------------------------------------------------------- browsing */

int once__kafka_browse(once__url_t *url, int all, once__broker_browse_cb *each, void *data,
                       char *error, size_t size);
int once__kafka_browse_one(once__url_t *url, const char *topic, int32_t partition, int64_t offset,
                           once__broker_browse_cb *each, void *data, char *error, size_t size);
int once__amqp_browse(once__url_t *url, once__broker_browse_cb *each, void *data, char *error,
                      size_t size);

/* Writes the name of the URL's queue into `name`, of 256 bytes. Returns 0, or -1 after writing the reason into `error`. */
int once__amqp_queue_name(once__url_t *url, char *name, char *error, size_t size);

/* Adds a header if there is room; `data` is a once__broker_browsed_t. */
void once__broker_browsed_add(void *data, once_slice_t name, once_slice_t value);

#endif
