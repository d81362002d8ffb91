/*
 * The subscription to Kafka: a member of a consumer group.
 *
 * We store offsets, up to the first delivery of a partition that is not done; librdkafka commits them every second, when a
 * partition is given up, and at the end. When many messages arrive at once, another thread prepares them.
 */
#include <errno.h>
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "broker/kafka/headers.h"
#include "broker/kafka/conf.h"
#include "broker/kafka/partitions.h"
#include "broker/kafka/waker.h"
#include "broker/kafka/preparer.h"

#define BATCH 256 /* messages in one turn: few enough to stay in the caches of the processor */
#define FEW   32  /* up to these many messages are not worth another thread */
#define TAKEN_BYTES                                                                                \
    ((size_t)8 << 20)      /* of payloads, approximately, in one turn and while they are prepared */
#define CLOSE_TURNS    200 /* of 50 ms */
#define QUEUE_LOW      1000 /* with no more messages than these, librdkafka is not woken */
#define LINE           64   /* bytes of a cache line */
#define AHEAD          8    /* messages whose memory is prefetched */
#define FULL_TURNS_MAX 3    /* turns (one a second) without room before reading is paused */

typedef struct kafka {
    once__broker_subscription_t base;
    rd_kafka_t *consumer;
    rd_kafka_queue_t *queue;
    once__kafka_partitions_t partitions;
    struct kafka_delivery *idle;      /* deliveries that have ended, to be used again */
    once__kafka_preparer_t *preparer; /* NULL: there is no other thread */
    size_t preparing_bytes;           /* bytes of payloads that are in memory here */
    size_t usual_bytes;               /* average size of the last payloads */
    once__kafka_waker_t *waker;
    /* greatest number of messages waiting in librdkafka since it was last woken */
    size_t queue_peak;
    unsigned full_turns;
    _Atomic int distrust; /* what is wrong with a broker's certificate */
} kafka_t;

typedef struct kafka_delivery {
    once__broker_delivered_t base;
    struct kafka_delivery *next; /* of the idle ones */
    rd_kafka_message_t *message;
    once__kafka_partition_t *partition;
    uint64_t number;
    once__kafka_headers_t headers;
    int broken; /* it could not be prepared */
    max_align_t prepared[];
} kafka_delivery_t;

/* Called by librdkafka inside a turn. It commits stored offsets before it gives a partition up; for a lost one it cannot. */
static void rebalance(rd_kafka_t *consumer, rd_kafka_resp_err_t event,
                      rd_kafka_topic_partition_list_t *list, void *opaque)
{
    kafka_t *kafka = opaque;
    rd_kafka_error_t *error;

    if (event == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
        for (int i = 0; i < list->cnt; i++) {
            once__kafka_partition_add(&kafka->partitions, list->elems[i].partition);
        }
        error = rd_kafka_incremental_assign(consumer, list);
        kafka->partitions.all_paused = kafka->base.paused = 0;
        kafka->base.ready = 1;
        once__broker_subscription_say(&kafka->base, 0, "%d partitions of %s were assigned",
                                      list->cnt, kafka->base.topic);
    } else {
        int lost = rd_kafka_assignment_lost(consumer);
        once__kafka_partitions_store(&kafka->partitions);
        for (int i = 0; i < list->cnt; i++) {
            once__kafka_partition_resume(&kafka->partitions, list->elems[i].partition);
            once__kafka_partition_revoke(&kafka->partitions, list->elems[i].partition);
        }
        error = rd_kafka_incremental_unassign(consumer, list);
        once__broker_subscription_say(&kafka->base, lost, "%d partitions of %s were %s", list->cnt,
                                      kafka->base.topic, lost ? "lost" : "given up");
    }
    if (error != NULL) {
        once__broker_subscription_say(&kafka->base, 1, "Kafka: %s", rd_kafka_error_string(error));
        rd_kafka_error_destroy(error);
    }
}

/* librdkafka may have stopped reading because its queue was full; it should resume before the queue is empty. */
static void keep_reading(kafka_t *kafka)
{
    size_t waiting = kafka->waker != NULL ? rd_kafka_queue_length(kafka->queue) : 0;

    if (waiting >= kafka->queue_peak) {
        kafka->queue_peak = waiting;
    } else if (kafka->queue_peak >= QUEUE_LOW && waiting <= kafka->queue_peak / 2 &&
               kafka->partitions.first != NULL && once__kafka_waker_idle(kafka->waker)) {
        kafka->queue_peak = waiting;
        once__kafka_waker_wake(kafka->waker, once__kafka_partitions_list(&kafka->partitions));
    }
}

/* -------------------------------------------------------------------------------------------------------- deliveries */

static void free_delivery(kafka_delivery_t *delivery)
{
    if (delivery != NULL) {
        once__kafka_headers_free(&delivery->headers);
        free(delivery);
    }
}

static kafka_delivery_t *make_delivery(kafka_t *kafka)
{
    kafka_delivery_t *made = kafka->idle;

    if (made != NULL) {
        kafka->idle = made->next;
        return made;
    }
    made = aligned_alloc(LINE, (sizeof(*made) + kafka->base.options.prepared_size + LINE - 1) /
                                   LINE * LINE);
    if (made != NULL) {
        made->headers = (once__kafka_headers_t){.buf = {.len = 0}};
    }
    return made;
}

/*
 * Returns NULL if the partition is no longer ours. If memory is short, nothing behind the message can be committed until a
 * restart.
 */
static kafka_delivery_t *receive(kafka_t *kafka, rd_kafka_message_t *message)
{
    once__kafka_partition_t *partition =
        once__kafka_partition_find(&kafka->partitions, message->partition);
    kafka_delivery_t *made = partition != NULL ? make_delivery(kafka) : NULL;

    if (partition != NULL) {
        once__kafka_partition_reads(partition, message->offset);
    }
    if (made == NULL ||
        once__kafka_offsets_add(&partition->offsets, message->offset, &made->number) != 0) {
        free_delivery(made);
        rd_kafka_message_destroy(message);
        return NULL;
    }
    made->base.from = &kafka->base;
    made->base.delivery = (once__broker_delivery_t){
        .payload = {message->payload != NULL ? message->payload : "", message->len},
        .key = {message->key, message->key_len},
        .partition = message->partition,
        .offset = message->offset,
        .prepared = made->prepared,
    };
    made->message = message;
    made->partition = partition;
    partition->open++;
    return made;
}

/*
 * A message was last touched by a thread on another processor: librdkafka's, or one of ours. Prefetching all of it before it is
 * needed is faster than waiting for one cache line after the other. Only a hint: it does not depend on librdkafka's layout.
 */
static void fetch_delivery(void *const *deliveries, size_t place, size_t count)
{
    if (place < count) {
        const char *delivery = deliveries[place];
        __builtin_prefetch(delivery);
        __builtin_prefetch(delivery + LINE);
        __builtin_prefetch(delivery + 2 * LINE);
    }
}

static void fetch_message(void *const *deliveries, size_t place, size_t count)
{
    if (place < count) {
        const kafka_delivery_t *delivery = deliveries[place];
        const char *message = (const char *)delivery->message;
        __builtin_prefetch(message - LINE);
        __builtin_prefetch(message);
        __builtin_prefetch(message + LINE);
        __builtin_prefetch(message + 2 * LINE);
    }
}

/* The headers are behind the payload. */
static void fetch_headers(void *const *deliveries, size_t place, size_t count)
{
    if (place < count) {
        const once__broker_delivery_t *delivery = deliveries[place];
        const char *end = (const char *)delivery->payload.data + delivery->payload.len;
        __builtin_prefetch(end);
        __builtin_prefetch(end + LINE);
    }
}

/*
 * Copies the headers. librdkafka allocates a list with memory for each; freeing it soon, by the thread that made it, costs much
 * less. Returns 0, or -1 if memory is short.
 */
static int copy_headers(kafka_delivery_t *delivery)
{
    rd_kafka_headers_t *list;
    const char *name;
    const void *value;
    size_t len;
    int bad = 0;

    if (rd_kafka_message_detach_headers(delivery->message, &list) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return 0;
    }
    for (size_t i = 0; !bad && rd_kafka_header_get_all(list, i, &name, &value, &len) ==
                                   RD_KAFKA_RESP_ERR_NO_ERROR;
         i++) {
        bad = once__kafka_headers_add(&delivery->headers, (once_slice_t){name, strlen(name)},
                                      (once_slice_t){value, len});
    }
    rd_kafka_headers_destroy(list);
    return bad;
}

/* Runs in the other thread, or in ours. A message whose headers could not be copied has no identity: it is dropped. */
static void prepare(void *data, void *const *things, size_t count)
{
    const kafka_t *kafka = data;
    once__broker_delivery_t *deliveries[BATCH];

    for (size_t i = 0; i < count; i++) {
        kafka_delivery_t *delivery = things[i];
        fetch_delivery(things, i + 2 * AHEAD, count);
        fetch_message(things, i + AHEAD, count);
        fetch_headers(things, i + AHEAD, count);
        delivery->broken = copy_headers(delivery);
        deliveries[i] = &delivery->base.delivery;
    }
    kafka->base.options.prepare(kafka->base.options.prepare_data, deliveries, count);
}

static void deliver(kafka_t *kafka, void *const *deliveries, size_t count)
{
    once__broker_delivery_t *ready[BATCH];
    size_t fine = 0;

    for (size_t i = 0; i < count; i++) {
        kafka_delivery_t *delivery = deliveries[i];
        fetch_delivery(deliveries, i + 2 * AHEAD, count);
        fetch_message(deliveries, i + AHEAD, count);
        if (delivery->broken) { /* as in receive() */
            once__broker_delivery_drop(&delivery->base.delivery);
        } else {
            ready[fine++] = &delivery->base.delivery;
        }
    }
    if (fine > 0) {
        kafka->base.options.deliver(kafka->base.options.data, ready, fine);
    }
}

static size_t payload_bytes(void *const *deliveries, size_t count)
{
    size_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        bytes += ((const kafka_delivery_t *)deliveries[i])->base.delivery.payload.len;
    }
    return bytes;
}

static void prepare_and_deliver(kafka_t *kafka, void **deliveries, size_t count)
{
    size_t bytes = payload_bytes(deliveries, count);

    kafka->usual_bytes = count > 0 ? bytes / count : kafka->usual_bytes;
    if (kafka->preparer != NULL &&
        (count > FEW || once__kafka_preparer_open(kafka->preparer) > 0)) {
        kafka->preparing_bytes += bytes;
        once__kafka_preparer_give(kafka->preparer, deliveries, count);
        return;
    }
    prepare(kafka, deliveries, count);
    deliver(kafka, deliveries, count);
}

static void take(kafka_t *kafka, rd_kafka_message_t **messages, size_t count)
{
    void *deliveries[BATCH];
    size_t taken = 0;

    for (size_t i = 0; i < count; i++) {
        rd_kafka_message_t *message = messages[i];
        if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR && !kafka->base.stopped) {
            deliveries[taken] = receive(kafka, message);
            taken += deliveries[taken] != NULL;
            continue;
        }
        if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
            once__kafka_partition_ends(&kafka->partitions, message->partition, message->offset);
        } else if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
            once__broker_subscription_say(&kafka->base, 1, "Kafka: %s",
                                          rd_kafka_message_errstr(message));
        }
        rd_kafka_message_destroy(message);
    }
    prepare_and_deliver(kafka, deliveries, taken);
}

/* Delivers at most one batch, so that the other thread soon gets more to do. Returns the number of messages. */
static size_t deliver_prepared(kafka_t *kafka)
{
    void *deliveries[BATCH];
    size_t count =
        kafka->preparer != NULL ? once__kafka_preparer_take(kafka->preparer, deliveries, BATCH) : 0;

    kafka->preparing_bytes -= payload_bytes(deliveries, count);
    if (!kafka->base.stopped) {
        deliver(kafka, deliveries, count);
        return count;
    }
    for (size_t i = 0; i < count; i++) {
        once__broker_delivery_drop(deliveries[i]);
    }
    return count;
}

static void drain_event(kafka_t *kafka)
{
    uint64_t count;

    if (read(kafka->base.fd, &count, sizeof(count)) < 0 && errno != EAGAIN) {
        once__broker_subscription_say(&kafka->base, 1, "Kafka: eventfd: %s", strerror(errno));
    }
}

/*
 * The number of messages that may be taken now. Those being prepared will need room, too, and so may one that arrives unasked.
 */
static size_t appetite(const kafka_t *kafka, size_t room)
{
    size_t preparing = kafka->preparer != NULL ? once__kafka_preparer_open(kafka->preparer) : 0;
    size_t most = TAKEN_BYTES / (kafka->usual_bytes + 1) + 1;

    if (room <= preparing || preparing + 2 * BATCH > ONCE__KAFKA_PREPARER_ROOM ||
        kafka->preparing_bytes >= TAKEN_BYTES) {
        return 0;
    }
    most = most < BATCH ? most : BATCH;
    return room - preparing < most ? room - preparing : most;
}

/*
 * Without room nothing is read, which is the ordinary back-pressure. If that lasts, reading is paused so that the consumer can
 * still be polled: a member that does not poll is considered dead. New messages are taken before prepared ones are delivered,
 * so that both threads have work.
 */
static int kafka_turn(once__broker_subscription_t *base, size_t room)
{
    kafka_t *kafka = (kafka_t *)base;
    rd_kafka_message_t *messages[BATCH];
    size_t want = room != 0 ? appetite(kafka, room) : 1;
    size_t delivered = 0;
    ssize_t count = 0;

    drain_event(kafka);
    if (room == 0 && !kafka->partitions.all_paused && ++kafka->full_turns < FULL_TURNS_MAX &&
        !base->stopped) {
        return 0;
    }
    if ((room == 0) != kafka->partitions.all_paused && !base->stopped) {
        kafka->partitions.all_paused = base->paused = room == 0;
        once__kafka_partitions_regulate(&kafka->partitions);
    }
    kafka->full_turns = 0;
    if (want > 0) {
        count = rd_kafka_consume_batch_queue(kafka->queue, 0, messages, want);
        count = count > 0 ? count : 0;
        take(kafka, messages, (size_t)count);
        keep_reading(kafka);
    }
    if (room > 0 || base->stopped) {
        delivered = deliver_prepared(kafka);
        if (delivered == 0 && kafka->preparer != NULL &&
            once__kafka_preparer_help(kafka->preparer) > 0) {
            return 1;
        }
    }
    /* librdkafka signals only once that it has messages: those left there because there was no room are asked for again. */
    return delivered == BATCH || (want > 0 ? (size_t)count == want : delivered > 0);
}

static void kafka_end(once__broker_subscription_t *base, once__broker_delivery_t *delivery,
                      int done)
{
    kafka_delivery_t *ended = (kafka_delivery_t *)delivery;
    once__kafka_partition_t *partition = ended->partition;

    if (done && !partition->revoked) {
        once__kafka_offsets_done(&partition->offsets, ended->number);
    }
    rd_kafka_message_destroy(ended->message);
    once__kafka_headers_clear(&ended->headers);
    once__kafka_partition_ended(partition);
    ended->next = ((kafka_t *)base)->idle;
    ((kafka_t *)base)->idle = ended;
}

static int kafka_revoked(const once__broker_subscription_t *base,
                         const once__broker_delivery_t *delivery)
{
    return ((const kafka_delivery_t *)delivery)->partition->revoked;
}

static void kafka_headers(once__broker_delivery_t *delivery,
                          void (*each)(void *data, once_slice_t name, once_slice_t value),
                          void *data)
{
    once__kafka_headers_each(&((kafka_delivery_t *)delivery)->headers, each, data);
}

/* --------------------------------------------------------------------------------------------------------- the group */

static void kafka_flush(once__broker_subscription_t *base)
{
    kafka_t *kafka = (kafka_t *)base;

    once__kafka_partitions_store(&kafka->partitions);
    once__kafka_partitions_regulate(&kafka->partitions);
}

static int64_t kafka_lag(once__broker_subscription_t *base)
{
    return base->ready ? once__kafka_partitions_lag(&((kafka_t *)base)->partitions) : -1;
}

static void kafka_stop(once__broker_subscription_t *base)
{
    kafka_t *kafka = (kafka_t *)base;

    once__kafka_preparer_stop(kafka->preparer);
    kafka->partitions.all_paused = 1;
    once__kafka_partitions_regulate(&kafka->partitions);
}

/* Commits and leaves the group; does not wait forever for a broker that is down. */
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

static void kafka_close(once__broker_subscription_t *base)
{
    kafka_t *kafka = (kafka_t *)base;

    once__broker_subscription_stop(base);
    while (deliver_prepared(kafka) > 0) {
    }
    once__kafka_preparer_free(kafka->preparer);
    once__kafka_partitions_store(&kafka->partitions);
    once__kafka_waker_free(kafka->waker);
    leave(kafka);
    while (kafka->partitions.first != NULL) {
        once__kafka_partition_revoke(&kafka->partitions, kafka->partitions.first->number);
    }
    while (kafka->idle != NULL) {
        kafka_delivery_t *ended = kafka->idle;
        kafka->idle = ended->next;
        free_delivery(ended);
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
    once__broker_subscription_say(&kafka->base, 1, "%s", text);
}

static int verify(rd_kafka_t *consumer, const char *broker, int32_t id, int *x509_error, int depth,
                  const char *bytes, size_t len, char *error, size_t size, void *opaque)
{
    return once__kafka_trusts(&((kafka_t *)opaque)->distrust, x509_error);
}

static void no_log(const rd_kafka_t *consumer, int level, const char *facility, const char *text)
{
}

static const once__broker_subscription_ops_t ops = {kafka_turn,    kafka_flush,  kafka_lag,
                                                    kafka_stop,    kafka_close,  kafka_end,
                                                    kafka_revoked, kafka_headers};

static int start(kafka_t *kafka, const once__url_t *url, char *error, size_t size)
{
    static const uint64_t one = 1;
    rd_kafka_topic_partition_list_t *topics;
    rd_kafka_conf_t *conf = once__kafka_consumer_conf(url, kafka->base.group, error, size);
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
        snprintf(error, size, "cannot create a Kafka consumer: %s", why);
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
    kafka->partitions.consumer = kafka->consumer;
    kafka->partitions.topic = kafka->base.topic;
    kafka->waker = once__kafka_waker_new(kafka->consumer);
    kafka->preparer = once__kafka_preparer_new(prepare, kafka, kafka->base.fd);
    return 0;
}

once__broker_subscription_t *
once__kafka_subscription(const once__url_t *url, const once__broker_subscription_options_t *options,
                         char *error, size_t size)
{
    kafka_t *kafka = calloc(1, sizeof(*kafka));
    once__url_t known = *url;
    const char *group = once__url_take(&known, "group");

    if (kafka == NULL || url->path[0] == '\0' || group == NULL || group[0] == '\0' ||
        once__kafka_name_wrong(url->path, 0) != NULL) {
        snprintf(error, size, "%s",
                 kafka == NULL ? "out of memory"
                 : url->path[0] == '\0' || group == NULL || group[0] == '\0'
                     ? "the URL must be kafka://HOST[:PORT]/TOPIC?group=GROUP"
                     : once__kafka_name_wrong(url->path, 0));
        free(kafka);
        return NULL;
    }
    kafka->base.ops = &ops;
    kafka->base.options = *options;
    kafka->base.url = *url;
    kafka->base.topic = url->path;
    kafka->base.group = group;
    kafka->base.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (kafka->base.fd < 0 || start(kafka, url, error, size) != 0) {
        if (kafka->base.fd >= 0) {
            close(kafka->base.fd);
        }
        free(kafka);
        return NULL;
    }
    return &kafka->base;
}
