/*
 * Publishers: messages to Kafka, to RabbitMQ (AMQP 0-9-1), or to an HTTP endpoint.
 *
 * A publisher belongs to one thread. It never blocks for long, and tells what became of each message in
 * once__broker_publisher_turn(): exactly one verdict for each message that it took. Nothing counts as published before the other
 * side confirmed it: Kafka with acks=all and an idempotent producer, RabbitMQ with publisher confirms, HTTP with a 2xx.
 */
#ifndef ONCE_BROKER_PUBLISH_H
#define ONCE_BROKER_PUBLISH_H

#include <stddef.h>
#include <stdint.h>

#include <once/key.h>

typedef struct once__broker_publisher once__broker_publisher_t;

typedef enum once__broker_verdict {
    ONCE__BROKER_PUBLISHED, /* confirmed */
    ONCE__BROKER_AWAY, /* the other side is not there, or too busy: nothing against this message; it may have arrived */
    ONCE__BROKER_LATER,   /* not now; the message may be the reason, or not */
    ONCE__BROKER_FAILED,  /* this message failed; it may succeed another time */
    ONCE__BROKER_REFUSED, /* this message will never be taken */
} once__broker_verdict_t;

typedef struct once__broker_pair {
    once_slice_t name, value;
} once__broker_pair_t;

/*
 * All bytes are borrowed until the verdict. A slice with data NULL is absent. id, type, source and time make the message a
 * CloudEvent in binary mode (ce_id ... in Kafka and AMQP, ce-id ... in HTTP); without an id it is none. The id is also
 * RabbitMQ's message-id, and the Idempotency-Key and the webhook-id of HTTP.
 */
typedef struct once__broker_message {
    once_slice_t
        topic; /* Kafka: topic; AMQP: routing key; HTTP: for {topic} in the URL. After the URL's template */
    once_slice_t key; /* Kafka's key: messages of one key stay in order */
    once_slice_t payload;
    once_slice_t id, type, source, time;
    once_slice_t
        cause; /* idempotency key of the request that caused it: the extension `idempotencykey` */
    const once__broker_pair_t *
        headers; /* `content-type` is recognised; with an id, those that look like one are left out */
    size_t header_count;
} once__broker_message_t;

/* What became of a message. `reason` is a sentence for people ("" when published); both live during the call. */
typedef void once__broker_publish_cb(void *data, void *tag, once__broker_verdict_t verdict,
                                     const char *reason, uint64_t retry_after_ms);

/* Something about the other side that is worth a line in a log: connected, refused, all brokers down... */
typedef void once__broker_publish_said_cb(void *data, int is_trouble, const char *sentence);

typedef struct once__broker_publisher_options {
    once__broker_publish_cb *published;
    once__broker_publish_said_cb *said; /* may be NULL */
    void *data;                         /* for both */
    const char *secret_file;            /* HTTP: signs with what is in it; NULL: unsigned */
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

/* Is it a URL of a publisher? */
int once__broker_publisher_knows(const char *url);

/*
 * The URL without credentials and query, and for HTTP a hash instead of the path, which is often the secret: for logs and for
 * comparing destinations. Lives as long as the publisher.
 */
const char *once__broker_publisher_name(const once__broker_publisher_t *publisher);

/* How many messages of one key may be under way at once without losing their order: SIZE_MAX: any number. */
size_t once__broker_publisher_key_window(const once__broker_publisher_t *publisher);

/*
 * Where a message goes: the URL, the topic or the routing key that the template gives. One of them can fail while others do not.
 * Not for logs: the path of a webhook is often its secret. Returns the length; what is too long to be sent anywhere is "".
 */
size_t once__broker_publisher_target(const once__broker_publisher_t *publisher,
                                     const once__broker_message_t *message, char *out, size_t size);

/* How many messages it may have under way at once, and how many more it takes now. SIZE_MAX and near: any number. */
size_t once__broker_publisher_most(const once__broker_publisher_t *publisher);
size_t once__broker_publisher_room(const once__broker_publisher_t *publisher);

/* 0: taken, there will be a verdict. -1: not now, nothing was done; after a verdict there is room again. */
int once__broker_publish(once__broker_publisher_t *publisher, const once__broker_message_t *message,
                         void *tag);

/* Pushes on what once__broker_publish only queued; call it after a batch. */
void once__broker_publisher_push(once__broker_publisher_t *publisher);

/* Readable when once__broker_publisher_turn has something to do. */
int once__broker_publisher_fd(const once__broker_publisher_t *publisher);

/* Gives verdicts; does not wait. */
void once__broker_publisher_turn(once__broker_publisher_t *publisher);

/* Messages without a verdict. */
size_t once__broker_publisher_pending(const once__broker_publisher_t *publisher);

/* Messages that are still under way get no verdict, and may arrive or not. NULL is fine. */
void once__broker_publisher_close(once__broker_publisher_t *publisher);

#endif
