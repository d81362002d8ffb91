/*
 * The waker without a broker that answers: it takes one wish at a time, gives up, and can be ended at any moment. That it wakes
 * librdkafka is in tests/consume/test_kafka.py.
 */
#include "support/testing.h"

#include <stdlib.h>
#include <time.h>

#include "broker/kafka/waker.h"

#define PATIENCE_S 60

static rd_kafka_t *consumer;

static void no_log(const rd_kafka_t *of, int level, const char *facility, const char *text)
{
}

static int begin(void **state)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char why[200];

    rd_kafka_conf_set(conf, "bootstrap.servers", "127.0.0.1:1", why,
                      sizeof(why)); /* no broker there */
    rd_kafka_conf_set_log_cb(conf, no_log);
    consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof(why));
    return consumer == NULL;
}

static int end(void **state)
{
    rd_kafka_destroy(consumer);
    return 0;
}

static rd_kafka_topic_partition_list_t *list(void)
{
    rd_kafka_topic_partition_list_t *made = rd_kafka_topic_partition_list_new(1);

    rd_kafka_topic_partition_list_add(made, "topic", 0);
    return made;
}

static void await_idle(once__kafka_waker_t *waker)
{
    const struct timespec moment = {0, 1000000};
    time_t until = time(NULL) + PATIENCE_S;

    while (!once__kafka_waker_idle(waker)) {
        assert_true(time(NULL) < until);
        nanosleep(&moment, NULL);
    }
}

static void it_takes_one_wish_at_a_time(void **state)
{
    once__kafka_waker_t *waker = once__kafka_waker_new(consumer);

    assert_non_null(waker);
    assert_true(once__kafka_waker_idle(waker));
    once__kafka_waker_wake(waker, list());
    assert_false(once__kafka_waker_idle(waker));
    once__kafka_waker_wake(waker, list()); /* not needed, and freed */
    await_idle(waker);
    once__kafka_waker_wake(waker, list()); /* and once more */
    assert_false(once__kafka_waker_idle(waker));
    await_idle(waker);
    once__kafka_waker_free(waker);
}

static void it_can_be_ended_at_any_moment(void **state)
{
    once__kafka_waker_free(NULL);
    once__kafka_waker_free(once__kafka_waker_new(consumer));
    for (int i = 0; i < 3; i++) {
        once__kafka_waker_t *waker = once__kafka_waker_new(consumer);
        once__kafka_waker_wake(waker, list());
        once__kafka_waker_free(waker);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_takes_one_wish_at_a_time, begin, end),
        cmocka_unit_test_setup_teardown(it_can_be_ended_at_any_moment, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
