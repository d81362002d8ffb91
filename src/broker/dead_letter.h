/*
 * The headers that a dead letter has besides those of its message.
 */
#ifndef ONCE_BROKER_DEAD_LETTER_H
#define ONCE_BROKER_DEAD_LETTER_H

#include <stdint.h>

#include <once/key.h>

#define ONCE__LETTER_REASON     "once-reason"
#define ONCE__LETTER_STATUS     "once-status"
#define ONCE__LETTER_DETAIL     "once-detail"
#define ONCE__LETTER_ID         "once-id"
#define ONCE__LETTER_SUBSCRIBER "once-subscriber"
#define ONCE__LETTER_TRIES      "once-tries"
#define ONCE__LETTER_SOURCE     "once-source"
#define ONCE__LETTER_TIME       "once-time"
#define ONCE__LETTER_OMITTED    "once-omitted" /* "headers", or "payload, headers" */
#define ONCE__LETTER_BYTES      "once-bytes"   /* of a payload that is omitted */
#define ONCE__LETTER_HEADERS    10             /* so many are these */

#define ONCE__LETTER_SOURCE_SIZE 320
#define ONCE__LETTER_TOPIC_SIZE  300

/* Is it one of the above? */
int once__letter_owns(once_slice_t name);

/* TOPIC/PARTITION@OFFSET: where a message came from. */
void once__letter_write_source(char *text, const char *topic, int32_t partition, int64_t offset);

/* 0, or -1: it is none. `topic` has ONCE__LETTER_TOPIC_SIZE bytes. */
int once__letter_read_source(once_slice_t source, char *topic, int32_t *partition, int64_t *offset);

#endif
