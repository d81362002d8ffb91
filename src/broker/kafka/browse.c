/*
 * Browsing a topic of Kafka, partition after partition, without joining a group.
 */
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "broker/internal.h"
#include "broker/kafka/conf.h"

#define TIMEOUT_MS 15000
#define LOOK_MS    200 /* how often to check whether librdkafka has reported why nothing arrives */

typedef struct browser {
    rd_kafka_t *consumer;
    const char *topic;
    once__broker_browse_cb *each;
    void *data;
    int all, enough;
    char *error;
    size_t size;
    char why[400];        /* the last report of librdkafka about its connections */
    int hopeless;         /* it is permanent */
    _Atomic int distrust; /* what is wrong with a broker's certificate */
} browser_t;

static int failed(browser_t *browser, rd_kafka_resp_err_t code)
{
    if (browser->why[0] != '\0') {
        snprintf(browser->error, browser->size, "%s", browser->why);
    } else {
        snprintf(browser->error, browser->size, "Kafka: %s", rd_kafka_err2str(code));
    }
    return -1;
}

static void add_headers(const rd_kafka_message_t *message, once__broker_browsed_t *browsed)
{
    rd_kafka_headers_t *headers;
    const char *name;
    const void *value;
    size_t len;

    if (rd_kafka_message_headers(message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return;
    }
    for (size_t i = 0;
         rd_kafka_header_get_all(headers, i, &name, &value, &len) == RD_KAFKA_RESP_ERR_NO_ERROR;
         i++) {
        once__broker_browsed_add(browsed, (once_slice_t){name, strlen(name)},
                                 (once_slice_t){value != NULL ? value : "", len});
    }
}

static once__broker_choice_t show(browser_t *browser, const rd_kafka_message_t *message)
{
    once__broker_browsed_t browsed = {
        .key = {message->key, message->key_len},
        .payload = {message->payload != NULL ? message->payload : "", message->len},
        .partition = message->partition,
        .offset = message->offset,
    };

    add_headers(message, &browsed);
    return browser->each(browser->data, &browsed);
}

/* Reads from `at` to `end`; moves `at` behind the messages that were taken before the first that was left. Returns 0 or -1. */
static int walk(browser_t *browser, int64_t *at, int64_t end)
{
    int64_t seen = *at;
    int left = 0;
    time_t limit = time(NULL) + TIMEOUT_MS / 1000;

    while (seen < end && !browser->enough) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(browser->consumer, 200);
        rd_kafka_resp_err_t code = message != NULL ? message->err : RD_KAFKA_RESP_ERR__TIMED_OUT;
        if (code == RD_KAFKA_RESP_ERR_NO_ERROR && message->offset < end) {
            once__broker_choice_t choice = show(browser, message);
            browser->enough = choice == ONCE__BROKER_ENOUGH;
            left |= choice != ONCE__BROKER_TAKE;
            seen = message->offset + 1;
            *at = left ? *at : seen;
            limit = time(NULL) + TIMEOUT_MS / 1000;
        } else if (code == RD_KAFKA_RESP_ERR_NO_ERROR || code == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
            seen = end; /* the last offsets may belong to control records */
        }
        if (message != NULL) {
            rd_kafka_message_destroy(message);
        }
        if (seen < end && time(NULL) > limit) {
            return failed(browser, RD_KAFKA_RESP_ERR__TIMED_OUT);
        }
    }
    return 0;
}

static int browse_partition(browser_t *browser, rd_kafka_topic_partition_t *partition, int64_t low,
                            int64_t high)
{
    rd_kafka_topic_partition_list_t *one = rd_kafka_topic_partition_list_new(1);
    int64_t at = !browser->all && partition->offset > low ? partition->offset : low, begin = at;
    rd_kafka_resp_err_t code = RD_KAFKA_RESP_ERR_NO_ERROR;
    int bad = 0;

    rd_kafka_topic_partition_list_add(one, browser->topic, partition->partition)->offset = at;
    if (at < high) {
        code = rd_kafka_assign(browser->consumer, one);
        bad = code == RD_KAFKA_RESP_ERR_NO_ERROR ? walk(browser, &at, high) : 0;
        rd_kafka_assign(browser->consumer, NULL);
    }
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR && !bad && at > begin && at > partition->offset) {
        one->elems[0].offset = at;
        code = rd_kafka_commit(browser->consumer, one, 0);
    }
    rd_kafka_topic_partition_list_destroy(one);
    return code != RD_KAFKA_RESP_ERR_NO_ERROR ? failed(browser, code) : bad;
}

/* Called by librdkafka inside a poll. */
static void said(rd_kafka_t *consumer, int code, const char *reason, void *opaque)
{
    browser_t *browser = opaque;

    if (code != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN || browser->why[0] == '\0') {
        once__kafka_explain(&browser->distrust, reason, "ssl.ca.location=FILE in the URL",
                            browser->why, sizeof(browser->why));
    }
    browser->hopeless |= code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN ||
                         code == RD_KAFKA_RESP_ERR__SSL ||
                         code == RD_KAFKA_RESP_ERR__AUTHENTICATION;
}

static int verify(rd_kafka_t *consumer, const char *broker, int32_t id, int *x509_error, int depth,
                  const char *bytes, size_t len, char *error, size_t size, void *opaque)
{
    return once__kafka_trusts(&((browser_t *)opaque)->distrust, x509_error);
}

/* The first request to the broker: it shows whether there is one. */
static rd_kafka_resp_err_t find_topic(browser_t *browser, rd_kafka_topic_t *topic,
                                      const rd_kafka_metadata_t **metadata)
{
    rd_kafka_resp_err_t code = RD_KAFKA_RESP_ERR__TIMED_OUT;

    for (int ms = 0; ms < TIMEOUT_MS && !browser->hopeless &&
                     (code == RD_KAFKA_RESP_ERR__TIMED_OUT || code == RD_KAFKA_RESP_ERR__TRANSPORT);
         ms += LOOK_MS) {
        rd_kafka_message_t *message;
        code = rd_kafka_metadata(browser->consumer, 0, topic, metadata, LOOK_MS);
        message = code != RD_KAFKA_RESP_ERR_NO_ERROR ? rd_kafka_consumer_poll(browser->consumer, 0)
                                                     : NULL;
        if (message != NULL) {
            rd_kafka_message_destroy(message);
        }
    }
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR) {
        browser->why[0] = '\0'; /* another broker answered */
    }
    return code;
}

/* The partitions of the topic with their committed offsets. Returns NULL after writing the reason. */
static rd_kafka_topic_partition_list_t *find_partitions(browser_t *browser)
{
    rd_kafka_topic_t *topic = rd_kafka_topic_new(browser->consumer, browser->topic, NULL);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(8);
    const rd_kafka_metadata_t *metadata = NULL;
    rd_kafka_resp_err_t code = find_topic(browser, topic, &metadata);

    if (code == RD_KAFKA_RESP_ERR_NO_ERROR) {
        code = metadata->topics[0].err;
        for (int i = 0; i < metadata->topics[0].partition_cnt; i++) {
            rd_kafka_topic_partition_list_add(list, browser->topic,
                                              metadata->topics[0].partitions[i].id);
        }
        rd_kafka_metadata_destroy(metadata);
    }
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR) {
        code = rd_kafka_committed(browser->consumer, list, TIMEOUT_MS);
    }
    rd_kafka_topic_destroy(topic);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) {
        failed(browser, code);
        rd_kafka_topic_partition_list_destroy(list);
        return NULL;
    }
    return list;
}

/*
 * All ends are read before anything is shown: messages that a replay publishes to one partition must not be read from another.
 */
static int browse_all(browser_t *browser)
{
    rd_kafka_topic_partition_list_t *list = find_partitions(browser);
    int64_t(*ends)[2] = list != NULL ? calloc((size_t)list->cnt + 1, sizeof(*ends)) : NULL;
    rd_kafka_resp_err_t code = RD_KAFKA_RESP_ERR_NO_ERROR;
    int bad = ends == NULL ? -1 : 0;

    for (int i = 0; !bad && code == RD_KAFKA_RESP_ERR_NO_ERROR && i < list->cnt; i++) {
        code = rd_kafka_query_watermark_offsets(browser->consumer, browser->topic,
                                                list->elems[i].partition, &ends[i][0], &ends[i][1],
                                                TIMEOUT_MS);
    }
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) {
        bad = failed(browser, code);
    }
    for (int i = 0; !bad && !browser->enough && i < list->cnt; i++) {
        bad = browse_partition(browser, &list->elems[i], ends[i][0], ends[i][1]);
    }
    free(ends);
    if (list != NULL) {
        rd_kafka_topic_partition_list_destroy(list);
    }
    return bad;
}

static void no_log(const rd_kafka_t *consumer, int level, const char *facility, const char *text)
{
}

static int open_consumer(browser_t *browser, const once__url_t *url, const char *group)
{
    rd_kafka_conf_t *conf = once__kafka_consumer_conf(url, group, browser->error, browser->size);
    char why[300];

    if (conf == NULL) {
        return -1;
    }
    rd_kafka_conf_set(conf, "enable.auto.commit", "false", why, sizeof(why));
    rd_kafka_conf_set(conf, "allow.auto.create.topics", "false", why, sizeof(why));
    rd_kafka_conf_set_opaque(conf, browser);
    rd_kafka_conf_set_error_cb(conf, said);
    rd_kafka_conf_set_ssl_cert_verify_cb(conf, verify);
    rd_kafka_conf_set_log_cb(conf, no_log);
    browser->consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof(why));
    if (browser->consumer == NULL) {
        snprintf(browser->error, browser->size, "cannot create a Kafka consumer: %s", why);
        rd_kafka_conf_destroy(conf);
        return -1;
    }
    rd_kafka_poll_set_consumer(browser->consumer);
    return 0;
}

static void close_consumer(browser_t *browser)
{
    rd_kafka_consumer_close(browser->consumer);
    rd_kafka_destroy(browser->consumer);
}

int once__kafka_browse(once__url_t *url, int all, once__broker_browse_cb *each, void *data,
                       char *error, size_t size)
{
    const char *group = once__url_take(url, "group");
    browser_t browser = {
        .topic = url->path, .each = each, .data = data, .all = all, .error = error, .size = size};
    int code;

    if (once__kafka_name_wrong(url->path, 0) != NULL) {
        snprintf(error, size, "the URL must be kafka://HOST[:PORT]/TOPIC, and %s",
                 once__kafka_name_wrong(url->path, 0));
        return -1;
    }
    if (open_consumer(&browser, url, group != NULL ? group : "once-dlq") != 0) {
        return -1;
    }
    code = browse_all(&browser);
    close_consumer(&browser);
    return code;
}

int once__kafka_browse_one(once__url_t *url, const char *topic, int32_t partition, int64_t offset,
                           once__broker_browse_cb *each, void *data, char *error, size_t size)
{
    browser_t browser = {.topic = topic, .each = each, .data = data, .error = error, .size = size};
    rd_kafka_topic_partition_list_t *one;
    int64_t low = 0, high = 0, at = offset;
    rd_kafka_resp_err_t code;
    int bad = 0;

    if (open_consumer(&browser, url, "once-dlq") != 0) {
        return -1;
    }
    code = rd_kafka_query_watermark_offsets(browser.consumer, topic, partition, &low, &high,
                                            TIMEOUT_MS);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) {
        bad = failed(&browser, code);
    } else if (offset < low || offset >= high) {
        snprintf(error, size, "Kafka no longer keeps it");
        bad = -1;
    } else {
        one = rd_kafka_topic_partition_list_new(1);
        rd_kafka_topic_partition_list_add(one, topic, partition)->offset = offset;
        rd_kafka_assign(browser.consumer, one);
        bad = walk(&browser, &at, offset + 1);
        rd_kafka_topic_partition_list_destroy(one);
    }
    close_consumer(&browser);
    return bad;
}
