/*
 * Kafka commits one offset for each partition: everything before it is done. Deliveries are done in any order, so each
 * partition keeps those that came after the first one that is not done, in a ring.
 *
 * Invariants, which assert_offsets_state() checks whenever a ring has changed:
 *
 *   I-1  The ring holds the deliveries from `first` up to, but not including, `after`; its room is 0 or a power of two.
 *   I-2  The oldest delivery that it holds is not done: `done_to` is the offset of the one before it.
 *   I-3  A delivery that is done for the first time is in the ring.
 */
#include "broker/kafka/partitions.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BEHIND_MAX                                                                                 \
    100000 /* deliveries behind one that is not done; beyond, the partition is paused */

/* ----------------------------------------------------------------------------------------------------------- offsets */

static void offsets_start(once__kafka_offsets_t *offsets)
{
    memset(offsets, 0, sizeof(*offsets));
    offsets->done_to = -1;
}

static void offsets_free(once__kafka_offsets_t *offsets)
{
    free(offsets->ring);
    offsets_start(offsets);
}

static void assert_offsets_state(const once__kafka_offsets_t *offsets)
{
    uint64_t count = offsets->after - offsets->first;

    assert(offsets->first <= offsets->after && count <= offsets->room); /* I-1 */
    assert((offsets->room & (offsets->room - 1)) == 0);
    assert(count == 0 || !offsets->ring[offsets->first & (offsets->room - 1)].done); /* I-2 */
}

static int grow(once__kafka_offsets_t *offsets)
{
    once__kafka_offsets_t bigger = *offsets;

    bigger.room = offsets->room != 0 ? 2 * offsets->room : 256;
    bigger.ring = calloc(bigger.room, sizeof(*bigger.ring));
    if (bigger.ring == NULL) {
        return -1;
    }
    for (uint64_t n = offsets->first; n != offsets->after; n++) {
        bigger.ring[n & (bigger.room - 1)] = offsets->ring[n & (offsets->room - 1)];
    }
    free(offsets->ring);
    *offsets = bigger;
    return 0;
}

int once__kafka_offsets_add(once__kafka_offsets_t *offsets, int64_t offset, uint64_t *number)
{
    if (offsets->after - offsets->first == offsets->room && grow(offsets) != 0) {
        return -1;
    }
    *number = offsets->after++;
    offsets->ring[*number & (offsets->room - 1)].offset = offset;
    offsets->ring[*number & (offsets->room - 1)].done = 0;
    assert_offsets_state(offsets);
    return 0;
}

void once__kafka_offsets_done(once__kafka_offsets_t *offsets, uint64_t number)
{
    assert(number >= offsets->first && number < offsets->after); /* I-3 */
    offsets->ring[number & (offsets->room - 1)].done = 1;
    while (offsets->first != offsets->after &&
           offsets->ring[offsets->first & (offsets->room - 1)].done) {
        offsets->done_to = offsets->ring[offsets->first & (offsets->room - 1)].offset;
        offsets->moved = 1;
        offsets->first++;
    }
    assert_offsets_state(offsets);
}

/* -------------------------------------------------------------------------------------------------------- partitions */

once__kafka_partition_t *once__kafka_partition_find(once__kafka_partitions_t *all, int32_t number)
{
    once__kafka_partition_t *at = all->last;

    if (at != NULL && at->number == number) {
        return at;
    }
    for (at = all->first; at != NULL && at->number != number; at = at->next) {
    }
    all->last = at;
    return at;
}

static void free_partition(once__kafka_partition_t *partition)
{
    offsets_free(&partition->offsets);
    free(partition);
}

void once__kafka_partition_add(once__kafka_partitions_t *all, int32_t number)
{
    once__kafka_partition_t *made =
        once__kafka_partition_find(all, number) == NULL ? calloc(1, sizeof(*made)) : NULL;

    if (made != NULL) {
        made->number = number;
        offsets_start(&made->offsets);
        made->next = all->first;
        all->first = made;
    }
}

void once__kafka_partition_revoke(once__kafka_partitions_t *all, int32_t number)
{
    once__kafka_partition_t **link = &all->first;

    while (*link != NULL && (*link)->number != number) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        once__kafka_partition_t *partition = *link;
        *link = partition->next;
        all->last = NULL;
        partition->revoked = 1;
        if (partition->open == 0) {
            free_partition(partition);
        }
    }
}

static void pause_or_resume(const once__kafka_partitions_t *all, once__kafka_partition_t *partition,
                            int pause)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);

    rd_kafka_topic_partition_list_add(list, all->topic, partition->number);
    if (pause) {
        rd_kafka_pause_partitions(all->consumer, list);
    } else {
        rd_kafka_resume_partitions(all->consumer, list);
    }
    partition->paused = pause;
    rd_kafka_topic_partition_list_destroy(list);
}

void once__kafka_partition_resume(once__kafka_partitions_t *all, int32_t number)
{
    once__kafka_partition_t *partition = once__kafka_partition_find(all, number);

    if (partition != NULL && partition->paused) {
        pause_or_resume(all, partition, 0);
    }
}

void once__kafka_partition_reads(once__kafka_partition_t *partition, int64_t offset)
{
    if (offset < partition->position) {
        partition->went_back = 1;
        partition->end = 0;
    }
    partition->position = offset + 1;
}

void once__kafka_partition_ends(once__kafka_partitions_t *all, int32_t number, int64_t offset)
{
    once__kafka_partition_t *partition = once__kafka_partition_find(all, number);

    if (partition != NULL) {
        partition->end = offset;
    }
}

void once__kafka_partition_ended(once__kafka_partition_t *partition)
{
    partition->open--;
    if (partition->revoked && partition->open == 0) {
        free_partition(partition);
    }
}

void once__kafka_partitions_regulate(once__kafka_partitions_t *all)
{
    for (once__kafka_partition_t *p = all->first; p != NULL; p = p->next) {
        uint64_t behind = p->offsets.after - p->offsets.first;
        int pause = all->all_paused || behind > (p->paused ? BEHIND_MAX / 2 : BEHIND_MAX);
        if (pause != p->paused) {
            pause_or_resume(all, p, pause);
        }
    }
}

static rd_kafka_topic_partition_list_t *add_done(rd_kafka_topic_partition_list_t *list,
                                                 const once__kafka_partitions_t *all,
                                                 const once__kafka_partition_t *partition)
{
    list = list != NULL ? list : rd_kafka_topic_partition_list_new(8);
    rd_kafka_topic_partition_list_add(list, all->topic, partition->number)->offset =
        partition->offsets.done_to + 1;
    return list;
}

/*
 * librdkafka commits by itself an offset that is greater than the committed one it knows of; an offset that went back is committed
 * explicitly. Only then: commits right after each assignment made a group read messages again after a rebalance.
 */
void once__kafka_partitions_store(once__kafka_partitions_t *all)
{
    rd_kafka_topic_partition_list_t *list = NULL, *back = NULL;

    for (once__kafka_partition_t *p = all->first; p != NULL; p = p->next) {
        if (p->offsets.moved) {
            list = add_done(list, all, p);
            back = p->went_back ? add_done(back, all, p) : back;
            p->offsets.moved = p->went_back = 0;
        }
    }
    if (list != NULL) {
        rd_kafka_offsets_store(all->consumer, list);
        rd_kafka_topic_partition_list_destroy(list);
    }
    if (back != NULL) {
        rd_kafka_commit(all->consumer, back, 1);
        rd_kafka_topic_partition_list_destroy(back);
    }
}

/* The offset before which everything is done. Behind the last message there may be control records of transactions. */
static int64_t done_before(const once__kafka_partition_t *partition)
{
    const once__kafka_offsets_t *offsets = &partition->offsets;

    if (offsets->first != offsets->after) {
        return offsets->ring[offsets->first & (offsets->room - 1)].offset;
    }
    return offsets->done_to + 1 > partition->end ? offsets->done_to + 1 : partition->end;
}

int64_t once__kafka_partitions_lag(once__kafka_partitions_t *all)
{
    int64_t lag = 0, low, high;

    for (const once__kafka_partition_t *p = all->first; p != NULL; p = p->next) {
        if (rd_kafka_get_watermark_offsets(all->consumer, all->topic, p->number, &low, &high) !=
                RD_KAFKA_RESP_ERR_NO_ERROR ||
            high < 0) {
            return -1;
        }
        if (p->position > 0 || p->end > 0) { /* something was read */
            lag += high > done_before(p) ? high - done_before(p) : 0;
        }
    }
    return lag;
}

rd_kafka_topic_partition_list_t *once__kafka_partitions_list(const once__kafka_partitions_t *all)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(8);

    for (const once__kafka_partition_t *p = all->first; p != NULL; p = p->next) {
        rd_kafka_topic_partition_list_add(list, all->topic, p->number);
    }
    return list;
}
