/*
 * The publisher for Kafka: librdkafka's idempotent producer.
 *
 * Messages have no timeout (message.timeout.ms=0): librdkafka repeats them in their order until the brokers took them, so that
 * a cluster that is away delays everything and reorders nothing. A fatal error of the producer ends all messages under way,
 * and a new producer takes its place.
 *
 * What a broker refuses is a batch, and it does not tell because of which message. So a refused batch is fatal for the producer
 * (enable.gapless.guarantee): nothing that was behind it overtakes it. The messages of the batch are suspects from then on,
 * and each of them is sent alone the next time.
 */
#include <errno.h>
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/buf.h"
#include "broker/kafka/conf.h"
#include "broker/internal.h"

#define TOPIC_MAX    1024 /* Kafka's own limit is 249 */
#define EVENTS       64   /* events handled in one turn */
#define BATCH        512
#define SUSPECTS_MAX 65536

typedef struct kafka {
    once__broker_publisher_t base;
    rd_kafka_t *producer; /* NULL: it could not be replaced yet */
    rd_kafka_queue_t *queue;
    rd_kafka_topic_t *topic; /* the one used last: usually there is only one */
    char topic_name[TOPIC_MAX];
    const char *template_text;
    int broken;      /* after a fatal error: no message is taken until all verdicts are given */
    void **suspects; /* tags of messages that are sent alone */
    size_t suspect_count, suspect_room;
    int alone;            /* a suspect is in flight */
    _Atomic int distrust; /* what is wrong with a broker's certificate */
} kafka_t;

/* ------------------------------------------------------------------------------------------------------- the producer */

static int verify(rd_kafka_t *producer, const char *broker, int32_t id, int *x509_error, int depth,
                  const char *bytes, size_t len, char *error, size_t size, void *opaque)
{
    return once__kafka_trusts(&((kafka_t *)opaque)->distrust, x509_error);
}

static int start(kafka_t *kafka, const once__url_t *url, char *error, size_t size)
{
    static const uint64_t one = 1;
    rd_kafka_conf_t *conf =
        once__kafka_producer_conf(url, kafka->base.options.ca_file, error, size);
    char why[300];

    if (conf == NULL) {
        return -1;
    }
    rd_kafka_conf_set_opaque(conf, kafka);
    rd_kafka_conf_set_ssl_cert_verify_cb(conf, verify);
    rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_ERROR);
    kafka->producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof(why));
    if (kafka->producer == NULL) {
        snprintf(error, size, "cannot create a Kafka producer: %s", why);
        rd_kafka_conf_destroy(conf);
        return -1;
    }
    kafka->queue = rd_kafka_queue_get_main(kafka->producer);
    rd_kafka_queue_io_event_enable(kafka->queue, kafka->base.fd, &one, sizeof(one));
    kafka->broken = 0;
    return 0;
}

static void stop(kafka_t *kafka)
{
    if (kafka->producer == NULL) {
        return;
    }
    if (kafka->topic != NULL) {
        rd_kafka_topic_destroy(kafka->topic);
        kafka->topic = NULL;
    }
    rd_kafka_queue_destroy(kafka->queue);
    rd_kafka_destroy(kafka->producer);
    kafka->producer = NULL;
}

/* ---------------------------------------------------------------------------------------------------------- sending */

static void kafka_wake(once__broker_publisher_t *base)
{
    uint64_t one = 1;

    (void)!write(base->fd, &one, sizeof(one));
}

static void add_header(void *data, once_slice_t name, once_slice_t value)
{
    rd_kafka_header_add(data, name.data, (ssize_t)name.len, value.data, (ssize_t)value.len);
}

static rd_kafka_headers_t *headers_of(const once__broker_message_t *message)
{
    rd_kafka_headers_t *headers = rd_kafka_headers_new(8 + message->header_count);
    once_slice_t type = once__broker_message_content_type(message);
    int given = 0;

    for (size_t i = 0; i < message->header_count; i++) {
        given |= message->headers[i].value.data == type.data;
    }
    once__broker_message_headers(message, "ce_", add_header, headers);
    if (!given && message->id.data != NULL) {
        add_header(headers, (once_slice_t){"content-type", 12}, type);
    }
    return headers;
}

/* Returns 0, or -1 if no topic can have that name. */
static int choose_topic(kafka_t *kafka, const once__broker_message_t *message)
{
    char name[TOPIC_MAX];

    if (once__broker_template_fill(kafka->template_text, message, 0, name, sizeof(name)) != 0) {
        return -1;
    }
    if (kafka->topic != NULL && strcmp(name, kafka->topic_name) == 0) {
        return 0;
    }
    if (kafka->topic != NULL) {
        rd_kafka_topic_destroy(kafka->topic);
    }
    memcpy(kafka->topic_name, name, sizeof(name));
    kafka->topic = rd_kafka_topic_new(kafka->producer, name, NULL);
    return kafka->topic != NULL ? 0 : -1;
}

/* --------------------------------------------------------------------------------------------------------- suspects */

static int is_suspect(const kafka_t *kafka, const void *tag)
{
    for (size_t i = 0; i < kafka->suspect_count; i++) {
        if (kafka->suspects[i] == tag) {
            return 1;
        }
    }
    return 0;
}

/* If memory is short it is not noted: it will be refused in a batch again, and come here again. */
static void suspect(kafka_t *kafka, void *tag)
{
    void **longer = once__grow(kafka->suspects, &kafka->suspect_room, kafka->suspect_count + 1,
                               sizeof(longer[0]), SUSPECTS_MAX);

    if (longer != NULL) {
        kafka->suspects = longer;
        kafka->suspects[kafka->suspect_count++] = tag;
    }
}

static void acquit(kafka_t *kafka, const void *tag)
{
    for (size_t i = 0; i < kafka->suspect_count; i++) {
        if (kafka->suspects[i] == tag) {
            kafka->suspects[i] = kafka->suspects[--kafka->suspect_count];
            return;
        }
    }
}

static int kafka_publish(once__broker_publisher_t *base, const once__broker_message_t *message,
                         void *tag)
{
    kafka_t *kafka = (kafka_t *)base;
    rd_kafka_headers_t *headers;
    rd_kafka_resp_err_t error;

    if (kafka->broken || kafka->producer == NULL || kafka->alone ||
        (is_suspect(kafka, tag) && base->pending > 0)) {
        return -1;
    }
    if (choose_topic(kafka, message) != 0) {
        return once__broker_publisher_tell_soon(base, tag, ONCE__BROKER_REFUSED,
                                                "Kafka cannot have a topic with that name");
    }
    headers = headers_of(message);
    error = rd_kafka_producev(
        kafka->producer, RD_KAFKA_V_RKT(kafka->topic), RD_KAFKA_V_PARTITION(RD_KAFKA_PARTITION_UA),
        RD_KAFKA_V_MSGFLAGS(0),
        RD_KAFKA_V_VALUE((void *)(uintptr_t)message->payload.data, message->payload.len),
        RD_KAFKA_V_KEY((void *)(uintptr_t)message->key.data, message->key.len),
        RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_OPAQUE(tag), RD_KAFKA_V_END);
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
        base->pending++;
        kafka->alone = is_suspect(kafka, tag);
        return 0;
    }
    rd_kafka_headers_destroy(headers);
    if (error == RD_KAFKA_RESP_ERR__QUEUE_FULL || error == RD_KAFKA_RESP_ERR__FATAL) {
        return -1;
    }
    return once__broker_publisher_tell_soon(
        base, tag,
        error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE ? ONCE__BROKER_REFUSED : ONCE__BROKER_FAILED,
        rd_kafka_err2str(error));
}

/* --------------------------------------------------------------------------------------------------------- verdicts */

/* Errors that a whole batch gets because of one message. */
static int is_refusal(rd_kafka_resp_err_t error)
{
    return error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE ||
           error == RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE ||
           error == RD_KAFKA_RESP_ERR_INVALID_RECORD || error == RD_KAFKA_RESP_ERR_INVALID_MSG ||
           error == RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP ||
           error == RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT;
}

static once__broker_verdict_t judge(rd_kafka_resp_err_t error)
{
    switch (error) {
    case RD_KAFKA_RESP_ERR_NO_ERROR:
        return ONCE__BROKER_PUBLISHED;
    case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION:
        return ONCE__BROKER_REFUSED;
    case RD_KAFKA_RESP_ERR__PURGE_QUEUE:
    case RD_KAFKA_RESP_ERR__PURGE_INFLIGHT:
    case RD_KAFKA_RESP_ERR__FATAL:
    case RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE:
    case RD_KAFKA_RESP_ERR__DESTROY:
    case RD_KAFKA_RESP_ERR__MSG_TIMED_OUT:
    case RD_KAFKA_RESP_ERR__TRANSPORT:
    case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
    case RD_KAFKA_RESP_ERR__TIMED_OUT:
        return ONCE__BROKER_AWAY;
    default:
        return ONCE__BROKER_FAILED;
    }
}

static void take_report(kafka_t *kafka, const rd_kafka_message_t *report)
{
    once__broker_verdict_t verdict = judge(report->err);
    void *tag = report->_private;

    if (is_refusal(report->err)) {
        verdict = kafka->alone ? ONCE__BROKER_REFUSED : ONCE__BROKER_AWAY;
    }
    if (kafka->alone && verdict != ONCE__BROKER_AWAY) {
        acquit(kafka, tag);
    } else if (is_refusal(report->err)) {
        suspect(kafka, tag);
    }
    kafka->alone = 0;
    once__broker_publisher_tell(
        &kafka->base, tag, verdict,
        verdict != ONCE__BROKER_PUBLISHED ? rd_kafka_err2str(report->err) : "", 0);
}

static void take_reports(kafka_t *kafka, rd_kafka_event_t *event)
{
    const rd_kafka_message_t *reports[BATCH];
    size_t count;

    while ((count = rd_kafka_event_message_array(event, reports, BATCH)) > 0) {
        for (size_t i = 0; i < count; i++) {
            take_report(kafka, reports[i]);
        }
    }
}

static void take_error(kafka_t *kafka, rd_kafka_event_t *event)
{
    char why[400];

    once__kafka_explain(&kafka->distrust, rd_kafka_event_error_string(event),
                        "--cacert FILE, or ssl.ca.location=FILE in the URL", why, sizeof(why));
    once__broker_publisher_say(&kafka->base, 1, "%s", why);
    /* Messages in the queue of a producer with a fatal error would wait forever. */
    if (rd_kafka_fatal_error(kafka->producer, why, sizeof(why)) != RD_KAFKA_RESP_ERR_NO_ERROR &&
        !kafka->broken) {
        kafka->broken = 1;
        rd_kafka_purge(kafka->producer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    }
}

static void begin_anew(kafka_t *kafka)
{
    char why[300];

    stop(kafka);
    if (start(kafka, &kafka->base.url, why, sizeof(why)) != 0) {
        once__broker_publisher_say(&kafka->base, 1, "%s", why);
    }
}

static void kafka_turn(once__broker_publisher_t *base)
{
    kafka_t *kafka = (kafka_t *)base;
    uint64_t count;
    rd_kafka_event_t *event;

    if (read(base->fd, &count, sizeof(count)) < 0 && errno != EAGAIN) {
        once__broker_publisher_say(base, 1, "Kafka: eventfd: %s", strerror(errno));
    }
    for (int i = 0; kafka->producer != NULL && i < EVENTS; i++) {
        event = rd_kafka_queue_poll(kafka->queue, 0);
        if (event == NULL) {
            break;
        }
        if (rd_kafka_event_type(event) == RD_KAFKA_EVENT_DR) {
            take_reports(kafka, event);
        } else if (rd_kafka_event_type(event) == RD_KAFKA_EVENT_ERROR) {
            take_error(kafka, event);
        }
        rd_kafka_event_destroy(event);
        if (i == EVENTS - 1) {
            kafka_wake(base); /* the rest in the next turn */
        }
    }
    if ((kafka->broken || kafka->producer == NULL) && base->pending == 0) {
        begin_anew(kafka);
    }
}

static void kafka_close(once__broker_publisher_t *base)
{
    kafka_t *kafka = (kafka_t *)base;

    stop(kafka);
    close(base->fd);
    free(kafka->suspects);
    free(kafka);
}

static const once__broker_publisher_ops_t ops = {kafka_publish, NULL, kafka_turn, kafka_wake,
                                                 kafka_close};

once__broker_publisher_t *once__kafka_publisher(const once__url_t *url,
                                                const once__broker_publisher_options_t *options,
                                                char *error, size_t size)
{
    kafka_t *kafka = calloc(1, sizeof(*kafka));
    const char *wrong = once__broker_template_wrong(url->path);

    if (wrong == NULL && url->path[0] != '\0') {
        wrong = once__kafka_name_wrong(url->path, 1);
    }
    if (wrong != NULL || kafka == NULL) {
        snprintf(error, size, "%s", wrong != NULL ? wrong : "out of memory");
        free(kafka);
        return NULL;
    }
    kafka->base.ops = &ops;
    kafka->base.options = *options;
    kafka->base.key_limit = kafka->base.most = SIZE_MAX;
    kafka->base.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    kafka->template_text = url->path[0] != '\0' ? url->path : "{topic}";
    kafka->base.target = kafka->template_text;
    if (kafka->base.fd < 0 || start(kafka, url, error, size) != 0) {
        if (kafka->base.fd >= 0) {
            close(kafka->base.fd);
        }
        free(kafka);
        return NULL;
    }
    return &kafka->base;
}
