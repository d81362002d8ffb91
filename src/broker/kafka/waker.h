/*
 * Wakes librdkafka's threads that read: one whose queue was full looks at it again only after a second, unless something comes
 * from its broker. (fetch.queue.backoff.ms is for this from librdkafka 2.2 on: then there is no need of a waker.)
 */
#ifndef ONCE_BROKER_KAFKA_WAKER_H
#define ONCE_BROKER_KAFKA_WAKER_H

#include <librdkafka/rdkafka.h>

typedef struct once__kafka_waker once__kafka_waker_t;

/* NULL: out of memory or of threads; everything works without, but slower. */
once__kafka_waker_t *once__kafka_waker_new(rd_kafka_t *consumer);

/* Before the consumer is destroyed; waits for half a second at most. NULL is fine. */
void once__kafka_waker_free(once__kafka_waker_t *waker);

/* Tells whether it is free for another wish: not while the last one is under way, and not soon after it. */
int once__kafka_waker_idle(once__kafka_waker_t *waker);

/* Wakes those that read these partitions. Takes the list over. */
void once__kafka_waker_wake(once__kafka_waker_t *waker, rd_kafka_topic_partition_list_t *list);

#endif
