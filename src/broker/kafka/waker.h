/*
 * Wakes librdkafka's reading threads: one whose queue was full checks it again only after a second, unless something arrives
 * from its broker. From librdkafka 2.2 on fetch.queue.backoff.ms sets that time, and the waker is no longer needed.
 */
#ifndef ONCE_BROKER_KAFKA_WAKER_H
#define ONCE_BROKER_KAFKA_WAKER_H

#include <librdkafka/rdkafka.h>

typedef struct once__kafka_waker once__kafka_waker_t;

/* Returns NULL if memory or threads are short; everything works without a waker, only slower. */
once__kafka_waker_t *once__kafka_waker_new(rd_kafka_t *consumer);

/* To be called before the consumer is destroyed; waits at most half a second. NULL is fine. */
void once__kafka_waker_free(once__kafka_waker_t *waker);

/* Whether it can be asked again: not while the last request is in flight, nor soon after. */
int once__kafka_waker_idle(once__kafka_waker_t *waker);

/* Wakes the threads that read these partitions. Takes the list over. */
void once__kafka_waker_wake(once__kafka_waker_t *waker, rd_kafka_topic_partition_list_t *list);

#endif
