/*
 * The loop of `once consume`: it reads messages while there is room, sends those whose claims are granted, asks for the records of
 * those that are ready, and pushes out what was queued on the way. One thread; item.c has what happens to a message.
 */
#include "consume/consume.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "consume/internal.h"
#include "service/notify.h"
#include "service/signals.h"

#define SUBSCRIBER_MAX 255
#define OPEN_BYTES_MAX (64u * 1024 * 1024)
#define CROWDED_MAX    4 /* windows in memory, if keys have more messages than their share */

/* ---------------------------------------------------------------------------------------------------------- the loop */

/* What a key has beyond its share of the window does not count: messages of other keys behind it can go on while it waits. */
static size_t room(const once__consume_t *consumer)
{
    size_t window = consumer->settings->window;
    size_t counted = consumer->open - consumer->crowd, left;

    if (consumer->stopping || counted >= window || consumer->open >= CROWDED_MAX * window ||
        consumer->open_bytes > OPEN_BYTES_MAX) {
        return 0;
    }
    left = CROWDED_MAX * window - consumer->open;
    return window - counted < left ? window - counted : left;
}

static void read_messages(once__consume_t *consumer)
{
    consumer->has_more = once__broker_subscription_turn(consumer->subscription, room(consumer));
}

static void on_subscription(once__source_t *source, uint32_t events)
{
    read_messages(ONCE__CONTAINER(source, once__consume_t, subscription_source));
}

static void on_once(once__source_t *source, uint32_t events)
{
    once_dispatch(ONCE__CONTAINER(source, once__consume_t, once_source)->once);
}

static void on_dead_letters(once__source_t *source, uint32_t events)
{
    once__broker_publisher_turn(
        ONCE__CONTAINER(source, once__consume_t, dead_letters_source)->dead_letters);
}

static void stop(once__consume_t *consumer)
{
    if (consumer->stopping) {
        consumer->aborted = 1;
        return;
    }
    once__consume_report(consumer, 0, "stopping: requests in flight are finished");
    consumer->stopping = 1;
    once__service_notify_stopping();
    consumer->stop_at = once__loop_now(consumer->loop) + consumer->settings->shutdown_ms;
    once__broker_subscription_stop(consumer->subscription);
    once__consume_items_stop(consumer);
}

static void on_signal(once__source_t *source, uint32_t events)
{
    once__consume_t *consumer = ONCE__CONTAINER(source, once__consume_t, signals_source);
    int number;

    while ((number = once__service_signals_take(source->fd)) != 0) {
        if (number != SIGHUP) {
            stop(consumer);
        }
    }
}

static void on_second(once__timer_t *timer)
{
    once__consume_t *consumer = ONCE__CONTAINER(timer, once__consume_t, second_timer);
    once__consume_counters_t *counters = &consumer->counters;
    once_usage_t usage = ONCE_USAGE_INIT;

    (void)once__service_notify_turn();
    if (room(consumer) == 0) {
        once__broker_subscription_turn(consumer->subscription, 0);
    }
    if (!consumer->stopping) {
        int64_t lag = once__broker_subscription_lag(consumer->subscription);
        once__service_metric_set(counters->lag, lag >= 0 ? lag : ONCE__SERVICE_METRIC_UNKNOWN);
    }
    consumer->has_more = 1; /* both calls may have consumed the only sign that there is more */
    once__service_metrics_health(counters->metrics,
                                 once__broker_subscription_ready(consumer->subscription) &&
                                     !consumer->store_failed);
    if (once_store_usage(consumer->once, &usage) == ONCE_OK) {
        once__service_metric_set(counters->behind, (int64_t)usage.behind_ms);
        once__service_metric_set(counters->messages_behind, (int64_t)usage.messages_behind_ms);
    }
    once__consume_counters_second(counters, consumer->log);
    once__timer_set(consumer->loop, timer, once__loop_now(consumer->loop) + 1000);
}

static void show_stages(once__consume_t *consumer)
{
    once__consume_counters_t *counters = &consumer->counters;

    once__service_metric_set(counters->running,
                             (int64_t)consumer->stages[ONCE__CONSUME_RUNNING].count);
    once__service_metric_set(counters->waiting, (int64_t)consumer->open);
    once__service_metric_set(counters->parked, (int64_t)consumer->parked);
    once__service_metric_set(counters->paused,
                             once__broker_subscription_paused(consumer->subscription));
}

static void watch_subscription(once__consume_t *consumer, int is_reading)
{
    if (is_reading != consumer->is_reading) {
        consumer->is_reading = is_reading;
        (void)once__source_set(consumer->loop, &consumer->subscription_source,
                               once__broker_subscription_fd(consumer->subscription),
                               is_reading ? (uint32_t)EPOLLIN : 0);
    }
}

static void turn(once__consume_t *consumer)
{
    int has_room = room(consumer) > 0;

    watch_subscription(consumer, has_room);
    once__loop_turn(consumer->loop, consumer->has_more && has_room ? 0 : -1);
    if (consumer->has_more && room(consumer) > 0) {
        read_messages(consumer);
    }
    once__consume_items_send(consumer);
    once__consume_items_ask(consumer);
    once__broker_subscription_flush(consumer->subscription);
    once__broker_publisher_push(consumer->dead_letters);
    once__consume_handler_turn_over(consumer->handler);
    show_stages(consumer);
}

static int run(once__consume_t *consumer)
{
    while (!consumer->aborted && (!consumer->stopping || consumer->open > 0)) {
        turn(consumer);
        if (consumer->stopping && once__loop_now(consumer->loop) >= consumer->stop_at) {
            consumer->aborted = 1;
        }
    }
    return consumer->open > 0 ? ONCE__CONSUME_ABORTED : ONCE__CONSUME_ENDED;
}

/* ------------------------------------------------------------------------------------------------------------- start */

static void said(void *data, int is_trouble, const char *sentence)
{
    once__consume_report(data, is_trouble, sentence);
}

/* Refuses at the start what would make every message fail. */
static int check_names(const once__consume_t *consumer, char *error, size_t size)
{
    const once__consume_settings_t *set = consumer->settings;
    const char *topic = once__broker_subscription_topic(consumer->subscription);
    const char *wrong =
        once__broker_subscription_name_wrong(consumer->subscription, consumer->dead_letter_topic);
    size_t longest = strlen(set->dead_letter != NULL ? set->dead_letter : topic) + 4;

    if (strlen(consumer->subscriber) > SUBSCRIBER_MAX) {
        snprintf(error, size,
                 "--subscriber (by default the group or the queue) must have at most "
                 "%d bytes",
                 SUBSCRIBER_MAX);
    } else if (wrong != NULL || longest > sizeof(consumer->dead_letter_topic)) {
        snprintf(error, size, "--dead-letter: %s", wrong != NULL ? wrong : "it is too long");
    } else if (strcmp(consumer->dead_letter_topic, topic) == 0) {
        snprintf(error, size, "--dead-letter: %s is where the messages come from", topic);
    } else {
        return 0;
    }
    return -1;
}

static int open_brokers(once__consume_t *consumer, char *error, size_t size)
{
    const once__consume_settings_t *set = consumer->settings;
    once__broker_subscription_options_t from = {.prepare = once__consume_prepare,
                                                .prepare_data = consumer,
                                                .prepared_size = sizeof(once__consume_arrival_t),
                                                .deliver = once__consume_deliver,
                                                .said = said,
                                                .data = consumer,
                                                .window = set->window};
    once__broker_publisher_options_t to = {
        .published = once__consume_dead_letter_sent, .said = said, .data = consumer};
    char *url;

    from.dead_letters = consumer->dead_letter_topic;
    consumer->subscription = once__broker_subscription_open(set->from, &from, error, size);
    if (consumer->subscription == NULL) {
        return -1;
    }
    consumer->subscriber = set->subscriber != NULL
                               ? set->subscriber
                               : once__broker_subscription_group(consumer->subscription);
    /* The subscription reads the name when it connects, in a later turn. */
    snprintf(consumer->dead_letter_topic, sizeof(consumer->dead_letter_topic), "%s%s",
             set->dead_letter != NULL ? set->dead_letter
                                      : once__broker_subscription_topic(consumer->subscription),
             set->dead_letter != NULL ? "" : ".dlq");
    if (check_names(consumer, error, size) != 0) {
        return -1;
    }
    url = once__broker_subscription_publish_url(consumer->subscription);
    consumer->dead_letters =
        url != NULL ? once__broker_publisher_open(url, &to, error, size) : NULL;
    free(url);
    return consumer->dead_letters != NULL ? 0 : -1;
}

static int watch(once__consume_t *consumer, once__source_t *source, int fd,
                 void (*ready)(once__source_t *source, uint32_t events))
{
    source->ready = ready;
    return once__source_set(consumer->loop, source, fd, EPOLLIN);
}

static int watch_all(once__consume_t *consumer)
{
    consumer->subscription_source.ready = on_subscription;
    consumer->second_timer.fire = on_second;
    if (watch(consumer, &consumer->once_source, once_fd(consumer->once), on_once) != 0 ||
        watch(consumer, &consumer->dead_letters_source,
              once__broker_publisher_fd(consumer->dead_letters), on_dead_letters) != 0 ||
        watch(consumer, &consumer->signals_source, consumer->settings->signals, on_signal) != 0) {
        return -1;
    }
    once__timer_set(consumer->loop, &consumer->second_timer, once__loop_now(consumer->loop));
    return 0;
}

/*
 * Returns 0, or -1 if memory, descriptors or random bytes are short. The loop is entered for good: only once__loop_turn() runs
 * it.
 */
static int make_parts(once__consume_t *consumer)
{
    const once__env_t *env = &once__real_env;
    int code;

    consumer->loop = once__loop_new(env, &code);
    if (consumer->loop == NULL) {
        return -1;
    }
    once__loop_enter(consumer->loop);
    return once__timers_reserve(consumer->loop) != 0 ||
                   once__hash_init(&consumer->queues, SIZE_MAX) != 0 ||
                   env->random(env->data, &consumer->seed, sizeof(consumer->seed)) != 0 ||
                   once__consume_counters_start(&consumer->counters) != 0
               ? -1
               : 0;
}

static int start(once__consume_t *consumer, char *error, size_t size)
{
    const once__consume_settings_t *set = consumer->settings;
    once__consume_handler_options_t handler = {set->to, set->ca_file, set->concurrency,
                                               set->timeout_ms};

    if (make_parts(consumer) != 0) {
        snprintf(error, size, "out of memory or of descriptors");
        return ONCE__CONSUME_FAILED;
    }
    if (once__consume_identity_read(&consumer->identity, set->id, error, size) != 0) {
        return ONCE__CONSUME_WRONG;
    }
    consumer->handler = once__consume_handler_new(consumer->loop, &handler, error, size);
    if (consumer->handler == NULL || open_brokers(consumer, error, size) != 0) {
        return ONCE__CONSUME_WRONG;
    }
    if (set->metrics != NULL &&
        once__service_metrics_serve(consumer->counters.metrics, set->metrics, error, size) != 0) {
        return ONCE__CONSUME_FAILED;
    }
    if (watch_all(consumer) != 0) {
        snprintf(error, size, "the event loop cannot be set up");
        return ONCE__CONSUME_FAILED;
    }
    return ONCE__CONSUME_ENDED;
}

/* As if this process had died: the leases of requests in flight run out. */
static void drop_claims(once__consume_t *consumer)
{
    for (int i = 0; i < ONCE__CONSUME_STAGES; i++) {
        for (once__consume_item_t *item = consumer->stages[i].first; item != NULL;
             item = item->after) {
            once_claim_drop(item->claim);
            item->claim = NULL;
        }
    }
}

/* The store may call back until the handle is closed: items live until then. */
static void finish(once__consume_t *consumer, int end)
{
    if (end == ONCE__CONSUME_ABORTED) {
        once__consume_report(
            consumer, 1,
            "some requests in flight were not finished; their messages will be delivered "
            "again");
    }
    consumer->stopping = 1;
    if (consumer->subscription != NULL) {
        /* its threads no longer use the handle */
        once__broker_subscription_stop(consumer->subscription);
    }
    once__broker_publisher_close(consumer->dead_letters);
    consumer->dead_letters = NULL;
    once__consume_handler_free(consumer->handler);
    drop_claims(consumer);
    once_close(consumer->once, end == ONCE__CONSUME_ABORTED ? 0 : 5000);
    once__consume_items_free(consumer);
    once__consume_queues_free(consumer);
    once__broker_subscription_close(consumer->subscription);
    once__service_metrics_free(consumer->counters.metrics);
    once__consume_identity_free(&consumer->identity);
    once__loop_free(consumer->loop);
}

int once__consume_run(const once__consume_settings_t *settings, once_t *once,
                      const once_policy_t *policy, const once__service_log_t *log, char *error,
                      size_t size)
{
    once__consume_t *consumer = calloc(1, sizeof(*consumer));
    int end;

    if (consumer == NULL) {
        snprintf(error, size, "out of memory");
        once_close(once, 0);
        return ONCE__CONSUME_FAILED;
    }
    consumer->settings = settings;
    consumer->once = once;
    consumer->policy = policy;
    consumer->log = log;
    srandom((unsigned)getpid() ^ (unsigned)time(NULL));
    end = start(consumer, error, size);
    if (end == ONCE__CONSUME_ENDED) {
        once__consume_report(consumer, 0, "started");
        end = run(consumer);
    }
    finish(consumer, end);
    free(consumer);
    return end;
}
