/*
 * The partitions of a topic that are assigned to us, and how far each of them is done.
 *
 * A revoked partition keeps its struct until its last delivery has ended, so that a late acknowledgement meets the revoked
 * partition and not the one that was assigned again since.
 */
#ifndef ONCE_BROKER_KAFKA_PARTITIONS_H
#define ONCE_BROKER_KAFKA_PARTITIONS_H

#include <librdkafka/rdkafka.h>

#include "broker/internal.h"

/* The deliveries of one partition in order, and how far they are done without a gap. A delivery is known by its number. */
typedef struct once__kafka_offsets {
    struct {
        int64_t offset;
        char done;
    } * ring;
    size_t room;           /* a power of two, or 0 */
    uint64_t first, after; /* numbers of the oldest one in the ring, and behind the newest */
    int64_t done_to;       /* the offset up to which all are done; -1: none yet */
    int moved;             /* done_to has changed since the owner stored it */
} once__kafka_offsets_t;
/* Adds the next delivery. Returns 0, or -1 if memory is short. */
int once__kafka_offsets_add(once__kafka_offsets_t *offsets, int64_t offset, uint64_t *number);
void once__kafka_offsets_done(once__kafka_offsets_t *offsets, uint64_t number);

typedef struct once__kafka_partition {
    struct once__kafka_partition *next;
    int32_t number;
    int revoked, paused;
    int went_back;    /* to a smaller offset, which librdkafka would not commit by itself */
    size_t open;      /* deliveries that have not ended */
    int64_t position; /* offset behind the last one read */
    int64_t end;      /* offset before which nothing is left to read, control records included */
    once__kafka_offsets_t offsets;
} once__kafka_partition_t;

typedef struct once__kafka_partitions {
    rd_kafka_t *consumer;
    const char *topic;
    once__kafka_partition_t *first;
    once__kafka_partition_t *last; /* the one used last */
    int all_paused;                /* reading is paused because there was no room for some time */
} once__kafka_partitions_t;

/* NULL if it is not assigned to us. */
once__kafka_partition_t *once__kafka_partition_find(once__kafka_partitions_t *all, int32_t number);
void once__kafka_partition_add(once__kafka_partitions_t *all, int32_t number);
/* Before a partition is given up: librdkafka keeps its pause, and would not read it when it is assigned again. */
void once__kafka_partition_resume(once__kafka_partitions_t *all, int32_t number);
void once__kafka_partition_revoke(once__kafka_partitions_t *all, int32_t number);

/* This offset was read. If it is smaller than the last, the topic was created again, or its offsets were reset. */
void once__kafka_partition_reads(once__kafka_partition_t *partition, int64_t offset);
/* Everything before this offset was read. */
void once__kafka_partition_ends(once__kafka_partitions_t *all, int32_t number, int64_t offset);

/* A delivery of the partition has ended. */
void once__kafka_partition_ended(once__kafka_partition_t *partition);

/* Pauses partitions with too many deliveries behind an open one, or all while `all_paused`; resumes the others. */
void once__kafka_partitions_regulate(once__kafka_partitions_t *all);

/* Stores the offset of the first delivery of each partition that is not done; librdkafka commits it. */
void once__kafka_partitions_store(once__kafka_partitions_t *all);

/* Messages that are not done; -1 while that is unknown. */
int64_t once__kafka_partitions_lag(once__kafka_partitions_t *all);

/* All of them as a list that the caller destroys. */
rd_kafka_topic_partition_list_t *once__kafka_partitions_list(const once__kafka_partitions_t *all);

#endif
