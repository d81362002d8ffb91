/*
 * What librdkafka alone does: an idempotent producer with acks=all, the relay's settings, and nothing around it.
 *
 *   bench_producer SERVERS TOPIC MESSAGES SIZE     prints messages per second, by the clock and by CPU
 */
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEYS 10000

static long confirmed;

static void report(rd_kafka_t *producer, const rd_kafka_message_t *message, void *data)
{
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        fprintf(stderr, "%s\n", rd_kafka_err2str(message->err));
        exit(1);
    }
    confirmed++;
}

static double seconds(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static rd_kafka_t *make(const char *servers)
{
    static const char *const settings[][2] = {{"enable.idempotence", "true"},
                                              {"linger.ms", "1"},
                                              {"batch.num.messages", "10000"},
                                              {"queue.buffering.max.messages", "200000"},
                                              {"partitioner", "murmur2_random"}};
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char error[200];

    rd_kafka_conf_set(conf, "bootstrap.servers", servers, error, sizeof(error));
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        if (rd_kafka_conf_set(conf, settings[i][0], settings[i][1], error, sizeof(error)) !=
            RD_KAFKA_CONF_OK) {
            fprintf(stderr, "%s\n", error);
            exit(1);
        }
    }
    rd_kafka_conf_set_dr_msg_cb(conf, report);
    return rd_kafka_new(RD_KAFKA_PRODUCER, conf, error, sizeof(error));
}

int main(int argc, char **argv)
{
    long count = argc == 5 ? strtol(argv[3], NULL, 10) : 0;
    size_t size = argc == 5 ? strtoul(argv[4], NULL, 10) : 0;
    rd_kafka_t *producer = count > 0 ? make(argv[1]) : NULL;
    char key[32], *payload = calloc(1, size + 1);
    double started = seconds(CLOCK_MONOTONIC), cpu;

    if (producer == NULL || payload == NULL) {
        fprintf(stderr, "bench_producer SERVERS TOPIC MESSAGES SIZE\n");
        return 2;
    }
    memset(payload, 'x', size);
    for (long i = 0; i < count;) {
        int len = snprintf(key, sizeof(key), "key-%ld", i % KEYS);
        rd_kafka_resp_err_t error =
            rd_kafka_producev(producer, RD_KAFKA_V_TOPIC(argv[2]), RD_KAFKA_V_VALUE(payload, size),
                              RD_KAFKA_V_KEY(key, (size_t)len),
                              RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END);
        i += error == RD_KAFKA_RESP_ERR_NO_ERROR;
        rd_kafka_poll(producer, error == RD_KAFKA_RESP_ERR__QUEUE_FULL ? 10 : 0);
    }
    rd_kafka_flush(producer, 120000);
    started = seconds(CLOCK_MONOTONIC) - started;
    cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    printf("%.0f %.2f\n", (double)confirmed / started, cpu * 1e6 / (double)count);
    rd_kafka_destroy(producer);
    free(payload);
    return confirmed == count ? 0 : 1;
}
