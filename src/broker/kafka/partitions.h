/*
 * The partitions of a topic that are ours, and how far each of them is done.
 *
 * A partition that was lost keeps its struct until its last delivery has ended, so that a late acknowledgement finds that it is
 * lost, instead of the partition that came back meanwhile.
 */
#ifndef ONCE_BROKER_KAFKA_PARTITIONS_H
#define ONCE_BROKER_KAFKA_PARTITIONS_H

#include <librdkafka/rdkafka.h>

#include "broker/subscribe_internal.h"

typedef struct once__kafka_partition {
    struct once__kafka_partition *next;
    int32_t number;
    int lost, paused;
    int went_back;    /* to an offset that librdkafka would not commit */
    size_t open;      /* deliveries that have not ended */
    int64_t position; /* offset behind the last one read */
    int64_t
        end; /* offset up to which there was nothing more to read: behind control records, too */
    once__kafka_offsets_t track;
} once__kafka_partition_t;

typedef struct once__kafka_partitions {
    rd_kafka_t *consumer;
    const char *topic;
    once__kafka_partition_t *first;
    once__kafka_partition_t *last; /* the one used last */
    int held;                      /* reading is paused, because there was no room for long */
} once__kafka_partitions_t;

/* NULL: it is not ours. */
once__kafka_partition_t *once__kafka_partition_find(once__kafka_partitions_t *all, int32_t number);
void once__kafka_partition_add(once__kafka_partitions_t *all, int32_t number);
/* librdkafka keeps the pause of a partition that it gives up: when it came back, nobody would know that it is paused. */
void once__kafka_partition_resume(once__kafka_partitions_t *all, int32_t number);
void once__kafka_partition_lose(once__kafka_partitions_t *all, int32_t number);

/* This offset was read. One that was behind: the topic was made anew, or offsets were reset. */
void once__kafka_partition_reads(once__kafka_partition_t *partition, int64_t offset);
/* Everything before this offset was read. */
void once__kafka_partition_ends(once__kafka_partitions_t *all, int32_t number, int64_t offset);

/* A delivery of it has ended. */
void once__kafka_partition_ended(once__kafka_partition_t *partition);

/* Which partitions may be read: all but those that are held back by one delivery for long, or none while `held`. */
void once__kafka_partitions_regulate(once__kafka_partitions_t *all);

/* Up to the first delivery of each that is not done; librdkafka commits it. */
void once__kafka_partitions_store(once__kafka_partitions_t *all);

/* Messages that are not done; -1: not known yet. */
int64_t once__kafka_partitions_lag(once__kafka_partitions_t *all);

/* All of them, malloc'd. */
rd_kafka_topic_partition_list_t *once__kafka_partitions_list(const once__kafka_partitions_t *all);

#endif
