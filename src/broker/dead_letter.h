/* The headers that a dead letter has in addition to those of its message. */
#ifndef ONCE_BROKER_DEAD_LETTER_H
#define ONCE_BROKER_DEAD_LETTER_H

#include <stdint.h>

#include <once/key.h>

#define ONCE__BROKER_DEAD_LETTER_REASON     "once-reason"
#define ONCE__BROKER_DEAD_LETTER_STATUS     "once-status"
#define ONCE__BROKER_DEAD_LETTER_DETAIL     "once-detail"
#define ONCE__BROKER_DEAD_LETTER_ID         "once-id"
#define ONCE__BROKER_DEAD_LETTER_SUBSCRIBER "once-subscriber"
#define ONCE__BROKER_DEAD_LETTER_TRIES      "once-tries"
#define ONCE__BROKER_DEAD_LETTER_SOURCE     "once-source"
#define ONCE__BROKER_DEAD_LETTER_TIME       "once-time"
#define ONCE__BROKER_DEAD_LETTER_OMITTED    "once-omitted" /* "headers", or "payload, headers" */
#define ONCE__BROKER_DEAD_LETTER_BYTES      "once-bytes"   /* of a payload that is omitted */
#define ONCE__BROKER_DEAD_LETTER_HEADERS    10             /* how many there are */

#define ONCE__BROKER_DEAD_LETTER_SOURCE_SIZE 320
#define ONCE__BROKER_DEAD_LETTER_TOPIC_SIZE  300

/* Whether it is one of the above. */
int once__broker_dead_letter_owns(once_slice_t name);

/* TOPIC/PARTITION@OFFSET: where a message came from. */
void once__broker_dead_letter_write_source(char *text, const char *topic, int32_t partition,
                                           int64_t offset);

/* Returns 0, or -1 if it is malformed. `topic` has ONCE__BROKER_DEAD_LETTER_TOPIC_SIZE bytes. */
int once__broker_dead_letter_read_source(once_slice_t source, char *topic, int32_t *partition,
                                         int64_t *offset);

#endif
