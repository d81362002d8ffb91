/*
 * Publishers: messages to Kafka, to RabbitMQ (AMQP 0-9-1), or to an HTTP endpoint.
 *
 * A publisher belongs to one thread and never blocks for long. It gives exactly one verdict on each message that it took,
 * inside once__broker_publisher_turn(). A message counts as published only when the other side has confirmed it: Kafka with
 * acks=all and an idempotent producer, RabbitMQ with publisher confirms, HTTP with a 2xx.
 */
#ifndef ONCE_BROKER_PUBLISH_H
#define ONCE_BROKER_PUBLISH_H

#include <stddef.h>
#include <stdint.h>

#include <once/key.h>

typedef struct once__broker_publisher once__broker_publisher_t;

typedef enum once__broker_verdict {
    ONCE__BROKER_PUBLISHED, /* confirmed */
    ONCE__BROKER_AWAY, /* the other side is down or too busy, whatever the message; it may have arrived */
    ONCE__BROKER_LATER,   /* not now; the message may be the reason */
    ONCE__BROKER_FAILED,  /* this message failed; it may succeed another time */
    ONCE__BROKER_REFUSED, /* this message will never be accepted */
} once__broker_verdict_t;

typedef struct once__broker_pair {
    once_slice_t name, value;
} once__broker_pair_t;

/*
 * All bytes are borrowed until the verdict. A slice with data NULL is absent. id, type, source and time make the message a
 * CloudEvent in binary mode (ce_id ... in Kafka and AMQP, ce-id ... in HTTP); without an id it is not one. The id is also
 * RabbitMQ's message-id, and the Idempotency-Key and webhook-id of HTTP.
 */
typedef struct once__broker_message {
    /* Kafka: topic; AMQP: routing key; HTTP: for {topic} in the URL. After the URL's template */
    once_slice_t topic;
    once_slice_t key; /* Kafka's key: messages of one key stay in order */
    once_slice_t payload;
    once_slice_t id, type, source, time;
    /* idempotency key of the request that caused it: the extension `idempotencykey` */
    once_slice_t cause;
    /* `content-type` is recognised; with an id, those that look like one are left out */
    const once__broker_pair_t *headers;
    size_t header_count;
} once__broker_message_t;

/* The verdict on a message. `reason` is a sentence for people ("" when published), valid during the call. */
typedef void once__broker_publish_cb(void *data, void *tag, once__broker_verdict_t verdict,
                                     const char *reason, uint64_t retry_after_ms);

/* A sentence about the other side for the log: connected, refused, all brokers down... */
typedef void once__broker_publish_said_cb(void *data, int is_trouble, const char *sentence);

typedef struct once__broker_publisher_options {
    once__broker_publish_cb *published;
    once__broker_publish_said_cb *said; /* may be NULL */
    void *data;                         /* for both */
    const char *secret_file;            /* HTTP: the secrets to sign with; NULL: unsigned */
    const char *ca_file;                /* authorities for TLS; NULL: the system's */
    uint64_t timeout_ms;                /* HTTP, AMQP: of one attempt; 0: 30 s */
    unsigned connections;               /* HTTP: requests at once; 0: 16 */
} once__broker_publisher_options_t;

/*
 * kafka://[USER:PASSWORD@]HOST[:PORT],...[/TEMPLATE][?property=value&...]
 * amqp[s]://[USER:PASSWORD@]HOST[:PORT][/VHOST]/EXCHANGE[?routing_key=TEMPLATE&cacert=FILE&...]
 * http[s]://HOST[:PORT]/PATH-TEMPLATE
 * A template has {topic}, {type} and {key}. docs/relay.md explains. Does not wait for the other side. NULL after writing
 * into `error` what is wrong, without credentials.
 */
once__broker_publisher_t *
once__broker_publisher_open(const char *url, const once__broker_publisher_options_t *options,
                            char *error, size_t size);

/* Whether it is a URL of a publisher. */
int once__broker_publisher_knows(const char *url);

/*
 * The URL without credentials and query, and for HTTP with a hash instead of the path, which is often a secret: for logs and
 * for comparing destinations. Valid as long as the publisher.
 */
const char *once__broker_publisher_name(const once__broker_publisher_t *publisher);

/* How many messages of one key may be in flight at once without losing their order; SIZE_MAX: any number. */
size_t once__broker_publisher_key_limit(const once__broker_publisher_t *publisher);

/*
 * The destination of a message: the URL, topic or routing key that the template gives. One of them can fail while others do
 * not. Not for logs: the path of a webhook is often a secret. Returns the length; a destination that is too long is "".
 */
size_t once__broker_publisher_target(const once__broker_publisher_t *publisher,
                                     const once__broker_message_t *message, char *out, size_t size);

/* How many messages it may have in flight at once, and how many more it takes now. SIZE_MAX or nearly so: any number. */
size_t once__broker_publisher_most(const once__broker_publisher_t *publisher);
size_t once__broker_publisher_room(const once__broker_publisher_t *publisher);

/*
 * Returns 0 if the message was taken: there will be a verdict. Returns -1 if there is no room; after a verdict there is again.
 */
int once__broker_publish(once__broker_publisher_t *publisher, const once__broker_message_t *message,
                         void *tag);

/* Sends what once__broker_publish only queued; to be called after a batch. */
void once__broker_publisher_push(once__broker_publisher_t *publisher);

/* Readable when once__broker_publisher_turn has something to do. */
int once__broker_publisher_fd(const once__broker_publisher_t *publisher);

/* Gives verdicts. Does not wait. */
void once__broker_publisher_turn(once__broker_publisher_t *publisher);

/* Messages in flight get no verdict and may or may not arrive. NULL is fine. */
void once__broker_publisher_close(once__broker_publisher_t *publisher);

#endif
