/*
 * Publishers: messages to Kafka, to RabbitMQ (AMQP 0-9-1), or to an HTTP endpoint.
 *
 * A publisher belongs to one thread. It never blocks for long, and tells what became of each message in
 * once__publisher_turn(): exactly one verdict for each message that it took. Nothing counts as published before the other
 * side confirmed it: Kafka with acks=all and an idempotent producer, RabbitMQ with publisher confirms, HTTP with a 2xx.
 */
#ifndef ONCE_BROKER_PUBLISH_H
#define ONCE_BROKER_PUBLISH_H

#include <stddef.h>
#include <stdint.h>

#include <once/key.h>

typedef struct once__publisher once__publisher_t;

typedef enum once__verdict {
    ONCE__PUBLISHED, /* confirmed */
    ONCE__AWAY, /* the other side is not there, or too busy: nothing against this message; it may have arrived */
    ONCE__LATER,   /* not now; the message may be the reason, or not */
    ONCE__FAILED,  /* this message failed; it may succeed another time */
    ONCE__REFUSED, /* this message will never be taken */
} once__verdict_t;

typedef struct once__pair {
    once_slice_t name, value;
} once__pair_t;

/*
 * All bytes are borrowed until the verdict. A slice with data NULL is absent. id, type, source and time make the message a
 * CloudEvent in binary mode (ce_id ... in Kafka and AMQP, ce-id ... in HTTP); without an id it is none. The id is also
 * RabbitMQ's message-id, and the Idempotency-Key and the webhook-id of HTTP.
 */
typedef struct once__message {
    once_slice_t
        topic; /* Kafka: topic; AMQP: routing key; HTTP: for {topic} in the URL. After the URL's template */
    once_slice_t key; /* Kafka's key: messages of one key stay in order */
    once_slice_t payload;
    once_slice_t id, type, source, time;
    once_slice_t
        cause; /* idempotency key of the request that caused it: the extension `idempotencykey` */
    const once__pair_t *
        headers; /* `content-type` is recognised; with an id, those that look like one are left out */
    size_t header_count;
} once__message_t;

/* What became of a message. `reason` is a sentence for people ("" when published); both live during the call. */
typedef void once__publish_cb(void *data, void *tag, once__verdict_t verdict, const char *reason,
                              uint64_t retry_after_ms);

/* Something about the other side that is worth a line in a log: connected, refused, all brokers down... */
typedef void once__publish_said_cb(void *data, int is_trouble, const char *sentence);

typedef struct once__publisher_options {
    once__publish_cb *published;
    once__publish_said_cb *said; /* may be NULL */
    void *data;                  /* for both */
    const char *secret_file;     /* HTTP: signs with what is in it; NULL: unsigned */
    const char *ca_file;         /* authorities for TLS; NULL: the system's */
    uint64_t timeout_ms;         /* HTTP, AMQP: of one attempt; 0: 30 s */
    unsigned connections;        /* HTTP: requests at once; 0: 16 */
} once__publisher_options_t;

/*
 * kafka://[USER:PASSWORD@]HOST[:PORT],...[/TEMPLATE][?property=value&...]
 * amqp[s]://[USER:PASSWORD@]HOST[:PORT][/VHOST]/EXCHANGE[?routing_key=TEMPLATE&cacert=FILE&...]
 * http[s]://HOST[:PORT]/PATH-TEMPLATE
 * A template has {topic}, {type} and {key}. docs/relay.md explains. Does not wait for the other side. NULL after writing
 * into `error` what is wrong, without credentials.
 */
once__publisher_t *once__publisher_open(const char *url, const once__publisher_options_t *options,
                                        char *error, size_t size);

/* Is it a URL of a publisher? */
int once__publisher_knows(const char *url);

/*
 * The URL without credentials and query, and for HTTP a hash instead of the path, which is often the secret: for logs and for
 * comparing destinations. Lives as long as the publisher.
 */
const char *once__publisher_name(const once__publisher_t *publisher);

/* How many messages of one key may be under way at once without losing their order: SIZE_MAX: any number. */
size_t once__publisher_key_window(const once__publisher_t *publisher);

/*
 * Where a message goes: the URL, the topic or the routing key that the template gives. One of them can fail while others do not.
 * Not for logs: the path of a webhook is often its secret. Returns the length; what is too long to be sent anywhere is "".
 */
size_t once__publisher_target(const once__publisher_t *publisher, const once__message_t *message,
                              char *out, size_t size);

/* How many messages it may have under way at once, and how many more it takes now. SIZE_MAX and near: any number. */
size_t once__publisher_most(const once__publisher_t *publisher);
size_t once__publisher_room(const once__publisher_t *publisher);

/* 0: taken, there will be a verdict. -1: not now, nothing was done; after a verdict there is room again. */
int once__publish(once__publisher_t *publisher, const once__message_t *message, void *tag);

/* Pushes on what once__publish only queued; call it after a batch. */
void once__publisher_push(once__publisher_t *publisher);

/* Readable when once__publisher_turn has something to do. */
int once__publisher_fd(const once__publisher_t *publisher);

/* Gives verdicts; does not wait. */
void once__publisher_turn(once__publisher_t *publisher);

/* Messages without a verdict. */
size_t once__publisher_pending(const once__publisher_t *publisher);

/* Messages that are still under way get no verdict, and may arrive or not. NULL is fine. */
void once__publisher_close(once__publisher_t *publisher);

#endif
