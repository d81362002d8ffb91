/* Reads a topic or a queue from its beginning to its end, once: for dead letters. Blocking, for commands. */
#ifndef ONCE_BROKER_BROWSE_H
#define ONCE_BROKER_BROWSE_H

#include <stddef.h>
#include <stdint.h>

#include "broker/publish.h"

#define ONCE__BROKER_BROWSE_HEADERS_MAX 272 /* as many as a dead letter can have, and some more */

/* A message. Valid during the call. */
typedef struct once__broker_browsed {
    once_slice_t key, payload; /* data NULL: none */
    once__broker_pair_t headers[ONCE__BROKER_BROWSE_HEADERS_MAX];
    size_t header_count;
    int32_t partition;
    int64_t offset;
} once__broker_browsed_t;

typedef enum once__broker_choice {
    ONCE__BROKER_LEAVE,  /* it stays */
    ONCE__BROKER_TAKE,   /* it is finished: see once__broker_browse */
    ONCE__BROKER_ENOUGH, /* as leave, and no more are wanted */
} once__broker_choice_t;

typedef once__broker_choice_t once__broker_browse_cb(void *data,
                                                     const once__broker_browsed_t *message);

/*
 * Shows the messages that exist when it starts, in order. RabbitMQ: those that are taken are removed, the others stay in their
 * places. Kafka: reading starts at the committed offset of the URL's group (`once-dlq` if it names none), or at the beginning
 * (`all`); the offset moves on to the first message that was left. Returns 0, or -1 after writing the reason into `error`.
 */
int once__broker_browse(const char *url, int all, once__broker_browse_cb *each, void *data,
                        char *error, size_t size);

/*
 * Shows one message of a Kafka topic, which may differ from the URL's. No offset is moved, whatever the choice. Returns 0, or
 * -1 after writing the reason into `error`: for example that Kafka no longer keeps the message.
 */
int once__broker_browse_one(const char *url, const char *topic, int32_t partition, int64_t offset,
                            once__broker_browse_cb *each, void *data, char *error, size_t size);

/*
 * A URL for once__broker_publisher_open, allocated with malloc: messages go to the topic or queue of the same broker that their
 * `topic` names.
 */
char *once__broker_browse_publish_url(const char *url);

/*
 * Writes the name of the URL's topic or queue into `name`, of ONCE__BROKER_DEAD_LETTER_TOPIC_SIZE bytes. Returns 0, or -1 after
 * writing the reason into `error`.
 */
int once__broker_browse_name(const char *url, char *name, char *error, size_t size);

/* The header of that name; data is NULL if there is none. */
once_slice_t once__broker_browsed_header(const once__broker_browsed_t *message, const char *name);

#endif
