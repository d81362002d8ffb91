/*
 * Looking through a topic or a queue from its beginning to its end, once: for dead letters. Blocking, for commands.
 */
#ifndef ONCE_BROKER_BROWSE_H
#define ONCE_BROKER_BROWSE_H

#include <stddef.h>
#include <stdint.h>

#include "broker/publish.h"

#define ONCE__BROKER_BROWSE_HEADERS_MAX 272 /* what a dead letter can have, and some more */

/* A message. Lives during the call. */
typedef struct once__broker_browsed {
    once_slice_t key, payload; /* data NULL: none */
    once__broker_pair_t headers[ONCE__BROKER_BROWSE_HEADERS_MAX];
    size_t header_count;
    int32_t partition;
    int64_t offset;
} once__broker_browsed_t;

typedef enum once__broker_choice {
    ONCE__BROKER_LEAVE,  /* it stays */
    ONCE__BROKER_TAKE,   /* it is done with: see once__broker_browse */
    ONCE__BROKER_ENOUGH, /* as leave, and no more are wanted */
} once__broker_choice_t;

typedef once__broker_choice_t once__broker_browse_cb(void *data,
                                                     const once__broker_browsed_t *message);

/*
 * Shows what is there when it begins, in order. RabbitMQ: what was taken is removed, the rest stays in its place. Kafka: reading
 * begins at the committed offset of the URL's group (`once-dlq` if it names none), or at the beginning (`all`); the offset
 * moves on to the first message that was left. 0, or -1 after writing into `error` why not.
 */
int once__broker_browse(const char *url, int all, once__broker_browse_cb *each, void *data,
                        char *error, size_t size);

/*
 * Shows one message of a topic of Kafka, which may be another than the URL's. Whatever is chosen, nothing is moved. 0, or -1 after
 * writing into `error` why not: also because it is not there any more.
 */
int once__broker_browse_one(const char *url, const char *topic, int32_t partition, int64_t offset,
                            once__broker_browse_cb *each, void *data, char *error, size_t size);

/* A URL for once__broker_publisher_open: to the topic, or the queue, that a message's `topic` names, at the same broker. Malloc'd. */
char *once__broker_browse_publish_url(const char *url);

/* The name of the topic or queue that the URL names, of ONCE__BROKER_DEAD_LETTER_TOPIC_SIZE bytes. 0, or -1 after writing why not. */
int once__broker_browse_name(const char *url, char *name, char *error, size_t size);

/* The header of that name; data NULL: there is none. */
once_slice_t once__broker_browsed_header(const once__broker_browsed_t *message, const char *name);

#endif
