/*
 * The subscription of Kafka: a member of a consumer group.
 *
 * Offsets are stored by us, up to the first delivery of a partition that is not done, and committed by librdkafka each second, when
 * a partition is given up, and at the end. A partition that was lost keeps its struct until its last delivery has ended, so
 * that a late acknowledgement finds that it is lost, instead of the partition that came back meanwhile.
 */
#include <errno.h>
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "broker/kafka_conf.h"
#include "broker/kafka_waker.h"
#include "broker/subscription.h"

#define BATCH                                                                                      \
    128 /* in one turn: so few that what belongs to them stays in the processor's caches */
#define BEHIND_MAX     100000 /* deliveries behind one that is not done; then the partition is paused */
#define CLOSE_TURNS    200  /* of 50 ms */
#define QUEUE_LOW      1000 /* messages that are few enough not to look whether librdkafka sleeps */
#define FULL_TURNS_MAX 3    /* turns (one a second) without room, then reading is paused */

typedef struct partition {
    struct partition *next;
    int32_t number;
    int lost, paused;
    size_t open; /* deliveries that have not ended */
    once__track_t track;
} partition_t;

typedef struct kafka {
    once__subscription_t base;
    rd_kafka_t *consumer;
    rd_kafka_queue_t *queue;
    partition_t *partitions;     /* that are ours */
    partition_t *last;           /* the one used last */
    struct kafka_delivery *idle; /* deliveries that have ended, to be used again */
    once__kafka_waker_t *waker;
    size_t queue_peak; /* most messages that waited in librdkafka, since it was last woken */
    unsigned full_turns;
    int held;             /* reading is paused, because there was no room for long */
    _Atomic int distrust; /* what is wrong with a broker's certificate */
} kafka_t;

typedef struct kafka_delivery {
    once__delivered_t base;
    struct kafka_delivery *next; /* of the idle ones */
    rd_kafka_message_t *message;
    partition_t *partition;
    uint64_t number;
} kafka_delivery_t;

/* -------------------------------------------------------------------------------------------------------- partitions */

static partition_t *find(kafka_t *kafka, int32_t number)
{
    partition_t *at = kafka->last;

    if (at != NULL && at->number == number) {
        return at;
    }
    for (at = kafka->partitions; at != NULL && at->number != number; at = at->next) {
    }
    kafka->last = at;
    return at;
}

static void free_partition(partition_t *partition)
{
    once__track_free(&partition->track);
    free(partition);
}

static void add_partition(kafka_t *kafka, int32_t number)
{
    partition_t *made = find(kafka, number) == NULL ? calloc(1, sizeof(*made)) : NULL;

    if (made != NULL) {
        made->number = number;
        once__track_start(&made->track);
        made->next = kafka->partitions;
        kafka->partitions = made;
    }
}

static void lose_partition(kafka_t *kafka, int32_t number)
{
    partition_t **link = &kafka->partitions;

    while (*link != NULL && (*link)->number != number) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        partition_t *partition = *link;
        *link = partition->next;
        kafka->last = NULL;
        partition->lost = 1;
        if (partition->open == 0) {
            free_partition(partition);
        }
    }
}

static void pause_or_resume(kafka_t *kafka, partition_t *partition, int pause)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);

    rd_kafka_topic_partition_list_add(list, kafka->base.topic, partition->number);
    if (pause) {
        rd_kafka_pause_partitions(kafka->consumer, list);
    } else {
        rd_kafka_resume_partitions(kafka->consumer, list);
    }
    partition->paused = pause;
    rd_kafka_topic_partition_list_destroy(list);
}

/* Which partitions may be read: all but those that are held back by one delivery for long, or all of them. */
static void regulate(kafka_t *kafka)
{
    for (partition_t *p = kafka->partitions; p != NULL; p = p->next) {
        uint64_t behind = p->track.after - p->track.first;
        int pause = kafka->held || behind > (p->paused ? BEHIND_MAX / 2 : BEHIND_MAX);
        if (pause != p->paused) {
            pause_or_resume(kafka, p, pause);
        }
    }
}

static void store_offsets(kafka_t *kafka)
{
    rd_kafka_topic_partition_list_t *list = NULL;

    for (partition_t *p = kafka->partitions; p != NULL; p = p->next) {
        if (p->track.moved) {
            if (list == NULL) {
                list = rd_kafka_topic_partition_list_new(8);
            }
            rd_kafka_topic_partition_list_add(list, kafka->base.topic, p->number)->offset =
                p->track.done_to + 1;
            p->track.moved = 0;
        }
    }
    if (list != NULL) {
        rd_kafka_offsets_store(kafka->consumer, list);
        rd_kafka_topic_partition_list_destroy(list);
    }
}

/* librdkafka keeps the pause of a partition that it gives up: when it came back, nobody would know that it is paused. */
static void forget_pause(kafka_t *kafka, int32_t number)
{
    partition_t *partition = find(kafka, number);

    if (partition != NULL && partition->paused) {
        pause_or_resume(kafka, partition, 0);
    }
}

/* Called by librdkafka inside of a turn. It commits what was stored before it gives a partition up; a lost one cannot be. */
static void rebalance(rd_kafka_t *consumer, rd_kafka_resp_err_t event,
                      rd_kafka_topic_partition_list_t *list, void *opaque)
{
    kafka_t *kafka = opaque;
    rd_kafka_error_t *error;

    if (event == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
        for (int i = 0; i < list->cnt; i++) {
            add_partition(kafka, list->elems[i].partition);
        }
        error = rd_kafka_incremental_assign(consumer, list);
        kafka->held = kafka->base.paused = 0;
        kafka->base.ready = 1;
        once__subscription_say(&kafka->base, 0, "%d partitions of %s were assigned", list->cnt,
                               kafka->base.topic);
    } else {
        int lost = rd_kafka_assignment_lost(consumer);
        store_offsets(kafka);
        for (int i = 0; i < list->cnt; i++) {
            forget_pause(kafka, list->elems[i].partition);
            lose_partition(kafka, list->elems[i].partition);
        }
        error = rd_kafka_incremental_unassign(consumer, list);
        once__subscription_say(&kafka->base, lost, "%d partitions of %s were %s", list->cnt,
                               kafka->base.topic, lost ? "lost" : "given up");
    }
    if (error != NULL) {
        once__subscription_say(&kafka->base, 1, "Kafka: %s", rd_kafka_error_string(error));
        rd_kafka_error_destroy(error);
    }
}

/* librdkafka may have stopped reading because its queue was full; it is to go on while there still is something in it. */
static void keep_reading(kafka_t *kafka)
{
    size_t waiting = kafka->waker != NULL ? rd_kafka_queue_length(kafka->queue) : 0;
    rd_kafka_topic_partition_list_t *list;

    if (waiting >= kafka->queue_peak) {
        kafka->queue_peak = waiting;
        return;
    }
    if (kafka->queue_peak < QUEUE_LOW || waiting > kafka->queue_peak / 2 ||
        kafka->partitions == NULL || !once__kafka_waker_idle(kafka->waker)) {
        return;
    }
    kafka->queue_peak = waiting;
    list = rd_kafka_topic_partition_list_new(8);
    for (const partition_t *p = kafka->partitions; p != NULL; p = p->next) {
        rd_kafka_topic_partition_list_add(list, kafka->base.topic, p->number);
    }
    once__kafka_waker_wake(kafka->waker, list);
}

/* -------------------------------------------------------------------------------------------------------- deliveries */

static kafka_delivery_t *make_delivery(kafka_t *kafka)
{
    kafka_delivery_t *made = kafka->idle;

    if (made == NULL) {
        return malloc(sizeof(*made));
    }
    kafka->idle = made->next;
    return made;
}

static void deliver(kafka_t *kafka, rd_kafka_message_t *message)
{
    partition_t *partition = find(kafka, message->partition);
    kafka_delivery_t *made = partition != NULL ? make_delivery(kafka) : NULL;

    if (made == NULL || once__track_add(&partition->track, message->offset, &made->number) != 0) {
        /* Not ours any more. Out of memory is worse: nothing behind it can be committed, until a restart. */
        free(made);
        rd_kafka_message_destroy(message);
        return;
    }
    made->base.from = &kafka->base;
    made->base.delivery = (once__delivery_t){
        .payload = {message->payload != NULL ? message->payload : "", message->len},
        .key = {message->key, message->key_len},
        .partition = message->partition,
        .offset = message->offset,
    };
    made->message = message;
    made->partition = partition;
    partition->open++;
    kafka->base.options.deliver(kafka->base.options.data, &made->base.delivery);
}

static void take(kafka_t *kafka, rd_kafka_message_t *message)
{
    if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        deliver(kafka, message);
        return;
    }
    if (message->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        once__subscription_say(&kafka->base, 1, "Kafka: %s", rd_kafka_message_errstr(message));
    }
    rd_kafka_message_destroy(message);
}

static void drain_event(kafka_t *kafka)
{
    uint64_t count;

    if (read(kafka->base.fd, &count, sizeof(count)) < 0 && errno != EAGAIN) {
        once__subscription_say(&kafka->base, 1, "Kafka: eventfd: %s", strerror(errno));
    }
}

/*
 * Without room nothing is read, which is the ordinary way to slow a broker down. When that goes on, reading is paused, so that
 * the group can still be served: a member that does not ask is taken for dead.
 */
static int kafka_turn(once__subscription_t *base, size_t room)
{
    kafka_t *kafka = (kafka_t *)base;
    rd_kafka_message_t *messages[BATCH];
    size_t want = room < BATCH ? room : BATCH;
    ssize_t count;

    drain_event(kafka);
    if (room == 0 && !kafka->held && ++kafka->full_turns < FULL_TURNS_MAX && !base->stopped) {
        return 0;
    }
    if ((room == 0) != kafka->held && !base->stopped) {
        kafka->held = base->paused = room == 0;
        regulate(kafka);
    }
    kafka->full_turns = 0;
    count = rd_kafka_consume_batch_queue(kafka->queue, 0, messages, want != 0 ? want : 1);
    for (ssize_t i = 0; i < count; i++) {
        if (base->stopped) {
            rd_kafka_message_destroy(messages[i]);
        } else {
            take(kafka, messages[i]);
        }
    }
    keep_reading(kafka);
    return count > 0 && (size_t)count == want;
}

static void kafka_end(once__subscription_t *base, once__delivery_t *delivery, int done)
{
    kafka_delivery_t *ended = (kafka_delivery_t *)delivery;
    partition_t *partition = ended->partition;

    if (done && !partition->lost) {
        once__track_done(&partition->track, ended->number);
    }
    rd_kafka_message_destroy(ended->message);
    partition->open--;
    if (partition->lost && partition->open == 0) {
        free_partition(partition);
    }
    ended->next = ((kafka_t *)base)->idle;
    ((kafka_t *)base)->idle = ended;
}

static int kafka_lost(const once__subscription_t *base, const once__delivery_t *delivery)
{
    return ((const kafka_delivery_t *)delivery)->partition->lost;
}

static void kafka_headers(once__delivery_t *delivery,
                          void (*each)(void *data, once_slice_t name, once_slice_t value),
                          void *data)
{
    rd_kafka_headers_t *headers;
    const char *name;
    const void *value;
    size_t len;

    if (rd_kafka_message_headers(((kafka_delivery_t *)delivery)->message, &headers) !=
        RD_KAFKA_RESP_ERR_NO_ERROR) {
        return;
    }
    for (size_t i = 0;
         rd_kafka_header_get_all(headers, i, &name, &value, &len) == RD_KAFKA_RESP_ERR_NO_ERROR;
         i++) {
        each(data, (once_slice_t){name, strlen(name)},
             (once_slice_t){value != NULL ? value : "", len});
    }
}

/* --------------------------------------------------------------------------------------------------------- the group */

static void kafka_flush(once__subscription_t *base)
{
    kafka_t *kafka = (kafka_t *)base;

    store_offsets(kafka);
    regulate(kafka);
}

static int64_t kafka_lag(once__subscription_t *base)
{
    kafka_t *kafka = (kafka_t *)base;
    int64_t lag = 0, low, high;

    for (partition_t *p = kafka->partitions; p != NULL; p = p->next) {
        if (rd_kafka_get_watermark_offsets(kafka->consumer, base->topic, p->number, &low, &high) !=
                RD_KAFKA_RESP_ERR_NO_ERROR ||
            high < 0) {
            return -1;
        }
        if (p->track.done_to >= 0) {
            lag += high - (p->track.done_to + 1);
        } else if (p->track.first != p->track.after) {
            lag += high - p->track.ring[p->track.first & (p->track.room - 1)].offset;
        }
    }
    return base->ready ? lag : -1;
}

static void kafka_stop(once__subscription_t *base)
{
    kafka_t *kafka = (kafka_t *)base;

    kafka->held = 1;
    regulate(kafka);
}

/* Commits, and leaves the group; does not wait for ever for a broker that is away. */
static void leave(kafka_t *kafka)
{
    rd_kafka_error_t *error = rd_kafka_consumer_close_queue(kafka->consumer, kafka->queue);
    rd_kafka_message_t *message;

    if (error != NULL) {
        rd_kafka_error_destroy(error);
        return;
    }
    for (int i = 0; i < CLOSE_TURNS && !rd_kafka_consumer_closed(kafka->consumer); i++) {
        if (rd_kafka_consume_batch_queue(kafka->queue, 50, &message, 1) > 0) {
            rd_kafka_message_destroy(message);
        }
    }
}

static void kafka_close(once__subscription_t *base)
{
    kafka_t *kafka = (kafka_t *)base;

    store_offsets(kafka);
    once__kafka_waker_free(kafka->waker);
    leave(kafka);
    while (kafka->partitions != NULL) {
        lose_partition(kafka, kafka->partitions->number);
    }
    while (kafka->idle != NULL) {
        kafka_delivery_t *ended = kafka->idle;
        kafka->idle = ended->next;
        free(ended);
    }
    rd_kafka_queue_destroy(kafka->queue);
    rd_kafka_destroy_flags(kafka->consumer, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    close(base->fd);
    free(kafka);
}

static void said(rd_kafka_t *consumer, int code, const char *reason, void *opaque)
{
    kafka_t *kafka = opaque;
    char text[400];

    once__kafka_explain(&kafka->distrust, reason, "ssl.ca.location=FILE in the URL", text,
                        sizeof(text));
    once__subscription_say(&kafka->base, 1, "%s", text);
}

static int verify(rd_kafka_t *consumer, const char *broker, int32_t id, int *x509_error, int depth,
                  const char *bytes, size_t len, char *error, size_t size, void *opaque)
{
    return once__kafka_trusts(&((kafka_t *)opaque)->distrust, x509_error);
}

static void no_log(const rd_kafka_t *consumer, int level, const char *facility, const char *text)
{
}

static const once__subscription_ops_t ops = {kafka_turn,  kafka_flush, kafka_lag,  kafka_stop,
                                             kafka_close, kafka_end,   kafka_lost, kafka_headers};

static int start(kafka_t *kafka, const once__address_t *address, char *error, size_t size)
{
    static const uint64_t one = 1;
    rd_kafka_topic_partition_list_t *topics;
    rd_kafka_conf_t *conf = once__kafka_consumer_conf(address, kafka->base.group, error, size);
    char why[300];

    if (conf == NULL) {
        return -1;
    }
    rd_kafka_conf_set_opaque(conf, kafka);
    rd_kafka_conf_set_rebalance_cb(conf, rebalance);
    rd_kafka_conf_set_error_cb(conf, said);
    rd_kafka_conf_set_ssl_cert_verify_cb(conf, verify);
    rd_kafka_conf_set_log_cb(conf, no_log);
    kafka->consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof(why));
    if (kafka->consumer == NULL) {
        snprintf(error, size, "Kafka's consumer cannot be made: %s", why);
        rd_kafka_conf_destroy(conf);
        return -1;
    }
    rd_kafka_poll_set_consumer(kafka->consumer);
    kafka->queue = rd_kafka_queue_get_consumer(kafka->consumer);
    rd_kafka_queue_io_event_enable(kafka->queue, kafka->base.fd, &one, sizeof(one));
    topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, kafka->base.topic, RD_KAFKA_PARTITION_UA);
    rd_kafka_subscribe(kafka->consumer, topics);
    rd_kafka_topic_partition_list_destroy(topics);
    kafka->waker = once__kafka_waker_new(kafka->consumer);
    return 0;
}

once__subscription_t *once__kafka_subscription(const once__address_t *address,
                                               const once__subscription_options_t *options,
                                               char *error, size_t size)
{
    kafka_t *kafka = calloc(1, sizeof(*kafka));
    once__address_t known = *address;
    const char *group = once__address_param(&known, "group");

    if (kafka == NULL || address->path[0] == '\0' || group == NULL || group[0] == '\0' ||
        once__kafka_name_wrong(address->path, 0) != NULL) {
        snprintf(error, size, "%s",
                 kafka == NULL ? "out of memory"
                 : address->path[0] == '\0' || group == NULL || group[0] == '\0'
                     ? "it is kafka://HOST[:PORT]/TOPIC?group=GROUP"
                     : once__kafka_name_wrong(address->path, 0));
        free(kafka);
        return NULL;
    }
    kafka->base.ops = &ops;
    kafka->base.options = *options;
    kafka->base.address = *address;
    kafka->base.topic = address->path;
    kafka->base.group = group;
    kafka->base.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (kafka->base.fd < 0 || start(kafka, address, error, size) != 0) {
        if (kafka->base.fd >= 0) {
            close(kafka->base.fd);
        }
        free(kafka);
        return NULL;
    }
    return &kafka->base;
}
