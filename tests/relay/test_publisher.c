/*
 * The publisher for Kafka against librdkafka's mock cluster: errors that a real broker cannot be made to show at will.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <poll.h>
#include <time.h>

#include "broker/internal.h"
#include "broker/publish.h"

#define MESSAGES 20
#define PRODUCE  0 /* its number in Kafka's protocol */

typedef struct world {
    rd_kafka_t *owner; /* of the cluster */
    rd_kafka_mock_cluster_t *cluster;
    once__broker_publisher_t *publisher;
    once__broker_verdict_t verdicts[MESSAGES];
    int told[MESSAGES]; /* how many verdicts */
    int order[MESSAGES * 2], count;
    char reason[200];
} world_t;

static void published(void *data, void *tag, once__broker_verdict_t verdict, const char *reason,
                      uint64_t retry_after_ms)
{
    world_t *world = data;
    int i = (int)(intptr_t)tag;

    world->verdicts[i] = verdict;
    world->told[i]++;
    if (world->count < (int)(sizeof(world->order) / sizeof(world->order[0]))) {
        world->order[world->count++] = i;
    }
    if (verdict != ONCE__BROKER_PUBLISHED) {
        snprintf(world->reason, sizeof(world->reason), "%s", reason);
    }
}

static int begin(void **state)
{
    static world_t world;
    char error[200], url[300];
    once__broker_publisher_options_t options = {.published = published, .data = &world};

    memset(&world, 0, sizeof(world));
    world.owner = rd_kafka_new(RD_KAFKA_PRODUCER, rd_kafka_conf_new(), error, sizeof(error));
    world.cluster = rd_kafka_mock_cluster_new(world.owner, 1);
    rd_kafka_mock_topic_create(world.cluster, "orders", 1, 1);
    /* Nothing goes before a hundred milliseconds: what is sent together is one batch. */
    snprintf(url, sizeof(url), "kafka://%s/{topic}?linger.ms=100&retry.backoff.ms=20&log_level=0",
             rd_kafka_mock_cluster_bootstraps(world.cluster));
    world.publisher = once__broker_publisher_open(url, &options, error, sizeof(error));
    assert_non_null(world.publisher);
    *state = &world;
    return 0;
}

static int end(void **state)
{
    world_t *world = *state;

    once__broker_publisher_close(world->publisher);
    rd_kafka_mock_cluster_destroy(world->cluster);
    rd_kafka_destroy(world->owner);
    return 0;
}

static int send_one(world_t *world, int i)
{
    once__broker_message_t message = {.topic = {"orders", 6},
                                      .key = {"k", 1},
                                      .payload = {"payload", 7},
                                      .id = {"an-id", 5},
                                      .type = {"placed", 6}};

    return once__broker_publish(world->publisher, &message, (void *)(intptr_t)i);
}

static void until_told(world_t *world)
{
    time_t limit = time(NULL) + 60;

    while (world->publisher->pending > 0) {
        struct pollfd poll_fd = {.fd = once__broker_publisher_fd(world->publisher),
                                 .events = POLLIN};
        assert_true(time(NULL) < limit);
        poll(&poll_fd, 1, 1000);
        once__broker_publisher_turn(world->publisher);
    }
    once__broker_publisher_turn(world->publisher);
}

static void send_all(world_t *world)
{
    for (int i = 0; i < MESSAGES; i++) {
        assert_int_equal(send_one(world, i), 0);
    }
    until_told(world);
}

static void all_are(const world_t *world, once__broker_verdict_t verdict)
{
    for (int i = 0; i < MESSAGES; i++) {
        assert_int_equal(world->told[i], 1);
        assert_int_equal(world->verdicts[i], verdict);
    }
}

static void what_passes_is_not_told_at_all(void **state)
{
    world_t *world = *state;

    rd_kafka_mock_push_request_errors(
        world->cluster, PRODUCE, 4, RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
        RD_KAFKA_RESP_ERR__TRANSPORT);
    send_all(world);
    all_are(world, ONCE__BROKER_PUBLISHED);
    for (int i = 0; i < MESSAGES; i++) {
        assert_int_equal(world->order[i], i);
    }
}

/* One message of the batch is bad, the broker does not say which: no message is dead before it was sent alone. */
static void a_refused_batch_is_tried_one_by_one(void **state)
{
    world_t *world = *state;

    rd_kafka_mock_push_request_errors(world->cluster, PRODUCE, 1, RD_KAFKA_RESP_ERR_INVALID_RECORD);
    send_all(world);
    all_are(world, ONCE__BROKER_AWAY);
    for (int i = 0; i < MESSAGES; i++) {
        world->told[i] = 0;
        if (i == 7) {
            rd_kafka_mock_push_request_errors(world->cluster, PRODUCE, 1,
                                              RD_KAFKA_RESP_ERR_INVALID_RECORD);
        }
        assert_int_equal(send_one(world, i), 0);
        assert_int_equal(send_one(world, (i + 1) % MESSAGES), -1); /* it goes alone */
        until_told(world);
        assert_int_equal(world->verdicts[i],
                         i == 7 ? ONCE__BROKER_REFUSED : ONCE__BROKER_PUBLISHED);
    }
    memset(world->told, 0, sizeof(world->told));
    send_all(world); /* all are acquitted: together again */
    all_are(world, ONCE__BROKER_PUBLISHED);
}

static void a_right_that_is_missing_fails_the_message(void **state)
{
    world_t *world = *state;

    rd_kafka_mock_push_request_errors(world->cluster, PRODUCE, 1,
                                      RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
    send_all(world);
    assert_non_null(strstr(world->reason, "authorization"));
    assert_int_equal(world->verdicts[0], ONCE__BROKER_FAILED);
    memset(world->told, 0, sizeof(world->told));
    send_all(world); /* another producer took its place, if need be */
    all_are(world, ONCE__BROKER_PUBLISHED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_passes_is_not_told_at_all, begin, end),
        cmocka_unit_test_setup_teardown(a_refused_batch_is_tried_one_by_one, begin, end),
        cmocka_unit_test_setup_teardown(a_right_that_is_missing_fails_the_message, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
