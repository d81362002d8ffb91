/*
 * What `once consume` is measured beside: a consumer of librdkafka that only counts, and one that posts every message with the
 * same HTTP client but remembers nothing.
 *
 *   plain BROKERS TOPIC GROUP COUNT [read | URL CONCURRENCY]
 *
 * `read`: takes messages one by one and looks at their id, as a consumer that recognises messages has to.
 *
 * Prints messages, seconds and CPU seconds from the first message to the last.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <librdkafka/rdkafka.h>

#include "consume/handler.h"

#define BATCH 1000

typedef struct plain {
    rd_kafka_t *consumer;
    rd_kafka_queue_t *queue;
    once__loop_t *loop;
    once__consume_handler_t *handler;
    size_t wanted, seen, done, running, concurrency;
    size_t id_bytes; /* of all ids, where they are read */
    int reads;
} plain_t;

typedef struct job {
    plain_t *plain;
    rd_kafka_message_t *message;
} job_t;

static double seconds(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void replied(void *data, const once__consume_reply_t *reply)
{
    job_t *job = data;

    job->plain->running--;
    job->plain->done += reply->status == 204;
    rd_kafka_message_destroy(job->message);
    free(job);
}

static void post(plain_t *plain, rd_kafka_message_t *message)
{
    once__consume_handler_headers_t *headers = once__consume_handler_headers_new();
    once_slice_t payload = {message->payload, message->len};
    job_t *job = malloc(sizeof(*job));

    once__consume_handler_headers_add(headers, "Expect:");
    once__consume_handler_headers_add(headers, "Content-Type: application/json");
    *job = (job_t){plain, message};
    plain->running++;
    if (once__consume_handler_post(plain->handler, headers, payload, replied, job) != 0) {
        abort();
    }
}

static void take(plain_t *plain, rd_kafka_message_t *message)
{
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        rd_kafka_message_destroy(message);
        return;
    }
    plain->seen++;
    if (plain->handler == NULL) {
        plain->done++;
        rd_kafka_message_destroy(message);
    } else {
        post(plain, message);
    }
}

static void read_one(plain_t *plain)
{
    rd_kafka_message_t *message = rd_kafka_consumer_poll(plain->consumer, 100);
    rd_kafka_headers_t *headers;
    const void *value;
    size_t len;

    if (message == NULL) {
        return;
    }
    if (rd_kafka_message_headers(message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR &&
        rd_kafka_header_get_last(headers, "ce_id", &value, &len) == RD_KAFKA_RESP_ERR_NO_ERROR) {
        plain->id_bytes += len;
    }
    take(plain, message);
}

static void turn(plain_t *plain)
{
    rd_kafka_message_t *messages[BATCH];
    size_t room = plain->handler != NULL ? plain->concurrency - plain->running : BATCH;
    ssize_t count = 0;

    if (room > 0) {
        count = rd_kafka_consume_batch_queue(plain->queue, plain->running > 0 ? 0 : 100, messages,
                                             room);
    }
    for (ssize_t i = 0; i < count; i++) {
        take(plain, messages[i]);
    }
    if (plain->handler != NULL && plain->running > 0) {
        once__loop_turn(plain->loop, -1);
        once__consume_handler_turn_over(plain->handler);
    }
}

static void step(plain_t *plain)
{
    if (plain->reads) {
        read_one(plain);
    } else {
        turn(plain);
    }
}

static rd_kafka_t *subscribe(char **argv)
{
    const char *const settings[][2] = {{"bootstrap.servers", argv[1]},
                                       {"group.id", argv[3]},
                                       {"auto.offset.reset", "earliest"},
                                       {"fetch.wait.max.ms", "100"},
                                       {"queued.max.messages.kbytes", "16384"}};
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_t *consumer;
    char why[300];

    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        rd_kafka_conf_set(conf, settings[i][0], settings[i][1], why, sizeof(why));
    }
    consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof(why));
    if (consumer == NULL) {
        fprintf(stderr, "%s\n", why);
        exit(1);
    }
    rd_kafka_poll_set_consumer(consumer);
    rd_kafka_topic_partition_list_add(topics, argv[2], RD_KAFKA_PARTITION_UA);
    rd_kafka_subscribe(consumer, topics);
    rd_kafka_topic_partition_list_destroy(topics);
    return consumer;
}

int main(int argc, char **argv)
{
    plain_t plain = {0};
    double wall, processor;
    char error[300];
    int code;

    if (argc < 5 || argc > 7) {
        fprintf(stderr, "usage: plain BROKERS TOPIC GROUP COUNT [read | URL CONCURRENCY]\n");
        return 2;
    }
    plain.consumer = subscribe(argv);
    plain.queue = rd_kafka_queue_get_consumer(plain.consumer);
    plain.wanted = strtoul(argv[4], NULL, 10);
    if (argc == 7) {
        once__consume_handler_options_t options = {argv[5], NULL, strtoul(argv[6], NULL, 10),
                                                   30000};
        plain.concurrency = options.concurrency;
        plain.loop = once__loop_new(&once__real_env, &code);
        if (plain.loop == NULL) {
            return 1;
        }
        once__loop_enter(plain.loop);
        plain.handler = once__consume_handler_new(plain.loop, &options, error, sizeof(error));
    }
    plain.reads = argc == 6;
    while (plain.seen == 0) {
        step(&plain);
    }
    wall = seconds(CLOCK_MONOTONIC);
    processor = seconds(CLOCK_PROCESS_CPUTIME_ID);
    while (plain.done < plain.wanted) {
        step(&plain);
    }
    printf("%zu %.4f %.4f\n", plain.done, seconds(CLOCK_MONOTONIC) - wall,
           seconds(CLOCK_PROCESS_CPUTIME_ID) - processor);
    fflush(stdout);
    _Exit(0);
}
