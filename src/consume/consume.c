#include "consume/consume.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "consume/internal.h"
#include "service/signals.h"

#define SUBSCRIBER_MAX 255
#define OPEN_BYTES_MAX (64u * 1024 * 1024)
#define CROWDED_MAX    4 /* windows in memory, when keys have more messages than their share */

/* ---------------------------------------------------------------------------------------------------------- the loop */

/* What a key has beyond its share does not count: those of other keys are behind it, and can go on while it waits. */
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

static void on_source(void *data, uint32_t events)
{
    once__consume_t *consumer = data;

    consumer->more = once__broker_subscription_turn(consumer->source, room(consumer));
}

static void on_once(void *data, uint32_t events)
{
    once_dispatch(((once__consume_t *)data)->once);
}

static void on_letters(void *data, uint32_t events)
{
    once__broker_publisher_turn(((once__consume_t *)data)->letters);
}

static void drop_all(once__consume_t *consumer, once__consume_stage_t stage)
{
    while (consumer->stages[stage].first != NULL) {
        once__consume_item_drop(consumer->stages[stage].first);
    }
}

static void stop(once__consume_t *consumer)
{
    if (consumer->stopping) {
        consumer->aborted = 1;
        return;
    }
    once__consume_say_about(consumer, 0, "stopping: what runs is finished");
    consumer->stopping = 1;
    consumer->stop_at = once__consume_poller_now() + consumer->settings->shutdown_ms;
    once__broker_subscription_stop(consumer->source);
    drop_all(consumer, ONCE__CONSUME_QUEUED);
    drop_all(consumer, ONCE__CONSUME_READY);
    drop_all(consumer, ONCE__CONSUME_PAUSED);
    drop_all(consumer, ONCE__CONSUME_PARKED);
    while (consumer->stages[ONCE__CONSUME_GRANTED].first != NULL) {
        once__consume_end_release_early(consumer->stages[ONCE__CONSUME_GRANTED].first,
                                        ONCE__CONSUME_NEXT_DROP);
    }
}

static void on_signal(void *data, uint32_t events)
{
    once__consume_t *consumer = data;
    int number;

    while ((number = once__service_signals_take(consumer->signals_watch.fd)) != 0) {
        if (number != SIGHUP) {
            stop(consumer);
        }
    }
}

static void on_second(void *data)
{
    once__consume_t *consumer = data;
    once__consume_counters_t *counters = &consumer->counters;

    if (room(consumer) == 0) {
        once__broker_subscription_turn(consumer->source, 0);
    }
    if (!consumer->stopping) {
        int64_t lag = once__broker_subscription_lag(consumer->source);
        once__service_metric_set(counters->lag, lag >= 0 ? lag : ONCE__SERVICE_METRIC_UNKNOWN);
    }
    consumer->more = 1; /* both may have taken the only sign that there is something */
    once__service_metrics_health(counters->metrics,
                                 once__broker_subscription_ready(consumer->source) &&
                                     !consumer->store_trouble);
    once__consume_counters_second(counters, consumer->log);
    once__consume_poller_set(consumer->poller, &consumer->second_timer, 1000);
}

static void show_stages(once__consume_t *consumer)
{
    once__consume_counters_t *counters = &consumer->counters;

    once__service_metric_set(counters->running,
                             (int64_t)consumer->stages[ONCE__CONSUME_RUNNING].count);
    once__service_metric_set(counters->waiting, (int64_t)consumer->open);
    once__service_metric_set(counters->parked, (int64_t)consumer->parked);
    once__service_metric_set(counters->paused, once__broker_subscription_paused(consumer->source));
}

static void turn(once__consume_t *consumer)
{
    size_t had = room(consumer);

    once__consume_poller_watch(consumer->poller, &consumer->source_watch, had > 0 ? EPOLLIN : 0);
    once__consume_poller_turn(consumer->poller, consumer->more && had > 0);
    if (consumer->more && room(consumer) > 0) {
        on_source(consumer, 0);
    }
    once__consume_send_granted(consumer);
    once__consume_ask_ready(consumer);
    once__broker_subscription_flush(consumer->source);
    once__broker_publisher_push(consumer->letters);
    once__consume_handler_turn_over(consumer->handler);
    show_stages(consumer);
}

static int run(once__consume_t *consumer)
{
    while (!consumer->aborted && (!consumer->stopping || consumer->open > 0)) {
        turn(consumer);
        if (consumer->stopping && once__consume_poller_now() >= consumer->stop_at) {
            consumer->aborted = 1;
        }
    }
    return consumer->open > 0 ? ONCE__CONSUME_ABORTED : ONCE__CONSUME_ENDED;
}

/* --------------------------------------------------------------------------------------------------------- beginning */

static void said(void *data, int is_trouble, const char *sentence)
{
    once__consume_say_about(data, is_trouble, sentence);
}

/* What would be refused with every message is refused now. */
static int check_names(const once__consume_t *consumer, char *error, size_t size)
{
    const once__consume_settings_t *set = consumer->settings;
    const char *topic = once__broker_subscription_topic(consumer->source);
    const char *wrong =
        once__broker_subscription_name_wrong(consumer->source, consumer->dead_letter);
    size_t longest = strlen(set->dead_letter != NULL ? set->dead_letter : topic) + 4;

    if (strlen(consumer->subscriber) > SUBSCRIBER_MAX) {
        snprintf(error, size,
                 "--subscriber (where not given, the group or the queue) has at most "
                 "%d bytes",
                 SUBSCRIBER_MAX);
    } else if (wrong != NULL || longest > sizeof(consumer->dead_letter_name)) {
        snprintf(error, size, "--dead-letter: %s", wrong != NULL ? wrong : "it is too long");
    } else if (strcmp(consumer->dead_letter, topic) == 0) {
        snprintf(error, size, "--dead-letter: %s is where the messages come from", topic);
    } else {
        return 0;
    }
    return -1;
}

static int open_brokers(once__consume_t *consumer, char *error, size_t size)
{
    const once__consume_settings_t *set = consumer->settings;
    once__broker_subscription_options_t from = {.prepare = once__consume_arrivals_prepare,
                                                .prepare_data = consumer,
                                                .prepared_size = sizeof(once__consume_arrival_t),
                                                .deliver = once__consume_arrivals,
                                                .said = said,
                                                .data = consumer,
                                                .window = set->window};
    once__broker_publisher_options_t to = {
        .published = once__consume_dead_letter_sent, .said = said, .data = consumer};
    char *url;

    from.dead_letters = consumer->dead_letter_name;
    consumer->source = once__broker_subscription_open(set->from, &from, error, size);
    if (consumer->source == NULL) {
        return -1;
    }
    consumer->subscriber = set->subscriber != NULL
                               ? set->subscriber
                               : once__broker_subscription_group(consumer->source);
    /* The subscription looks at the name when it connects, which is in a turn. */
    snprintf(consumer->dead_letter_name, sizeof(consumer->dead_letter_name), "%s%s",
             set->dead_letter != NULL ? set->dead_letter
                                      : once__broker_subscription_topic(consumer->source),
             set->dead_letter != NULL ? "" : ".dlq");
    consumer->dead_letter = consumer->dead_letter_name;
    if (check_names(consumer, error, size) != 0) {
        return -1;
    }
    url = once__broker_subscription_publish_url(consumer->source);
    consumer->letters = url != NULL ? once__broker_publisher_open(url, &to, error, size) : NULL;
    free(url);
    return consumer->letters != NULL ? 0 : -1;
}

static int make_queues(once__consume_t *consumer)
{
    size_t count = 1024;

    while (count < 2 * consumer->settings->window) {
        count *= 2;
    }
    consumer->bucket_mask = count - 1;
    consumer->buckets = calloc(count, sizeof(once__consume_queue_t *));
    return consumer->buckets != NULL ? 0 : -1;
}

static int watch_all(once__consume_t *consumer)
{
    once__consume_poller_t *poller = consumer->poller;

    consumer->once_watch = (once__consume_watch_t){on_once, consumer, once_fd(consumer->once), 0};
    consumer->source_watch = (once__consume_watch_t){
        on_source, consumer, once__broker_subscription_fd(consumer->source), 0};
    consumer->letters_watch = (once__consume_watch_t){
        on_letters, consumer, once__broker_publisher_fd(consumer->letters), 0};
    consumer->signals_watch =
        (once__consume_watch_t){on_signal, consumer, consumer->settings->signals, 0};
    consumer->second_timer = (once__consume_due_t){.fire = on_second, .data = consumer};
    return once__consume_poller_watch(poller, &consumer->once_watch, EPOLLIN) != 0 ||
                   once__consume_poller_watch(poller, &consumer->letters_watch, EPOLLIN) != 0 ||
                   once__consume_poller_watch(poller, &consumer->signals_watch, EPOLLIN) != 0 ||
                   once__consume_poller_set(poller, &consumer->second_timer, 0) != 0
               ? -1
               : 0;
}

static int start(once__consume_t *consumer, char *error, size_t size)
{
    const once__consume_settings_t *set = consumer->settings;
    once__consume_handler_options_t handler = {set->to, set->ca_file, set->concurrency,
                                               set->timeout_ms};

    consumer->poller = once__consume_poller_new();
    if (consumer->poller == NULL || make_queues(consumer) != 0 ||
        once__consume_counters_start(&consumer->counters) != 0) {
        snprintf(error, size, "out of memory or of descriptors");
        return ONCE__CONSUME_FAILED;
    }
    if (once__consume_identity_read(&consumer->identity, set->id, error, size) != 0) {
        return ONCE__CONSUME_WRONG;
    }
    consumer->handler = once__consume_handler_new(consumer->poller, &handler, error, size);
    if (consumer->handler == NULL || open_brokers(consumer, error, size) != 0) {
        return ONCE__CONSUME_WRONG;
    }
    if (set->metrics != NULL &&
        once__service_metrics_serve(consumer->counters.metrics, set->metrics, error, size) != 0) {
        return ONCE__CONSUME_FAILED;
    }
    if (watch_all(consumer) != 0) {
        snprintf(error, size, "the loop cannot be set up");
        return ONCE__CONSUME_FAILED;
    }
    return ONCE__CONSUME_ENDED;
}

/* As if we had died: what runs is in nobody's hands any more. */
static void drop_claims(once__consume_t *consumer)
{
    for (size_t i = 0; i <= ONCE__CONSUME_PARKED; i++) {
        for (once__consume_item_t *item = consumer->stages[i].first; item != NULL;
             item = item->after) {
            once_claim_drop(item->claim);
            item->claim = NULL;
        }
    }
}

/* Callbacks of the store can still come: their items live until the handle is closed. */
static void finish(once__consume_t *consumer, int end)
{
    if (end == ONCE__CONSUME_ABORTED) {
        once__consume_say_about(consumer, 1,
                                "not everything that ran was finished; it will be delivered again");
    }
    consumer->stopping = 1;
    if (consumer->source != NULL) {
        once__broker_subscription_stop(
            consumer->source); /* no thread of it looks at the store any more */
    }
    once__broker_publisher_close(consumer->letters);
    consumer->letters = NULL;
    once__consume_handler_free(consumer->handler);
    drop_claims(consumer);
    once_close(consumer->once, end == ONCE__CONSUME_ABORTED ? 0 : 5000);
    once__consume_items_free(consumer);
    once__broker_subscription_close(consumer->source);
    once__service_metrics_free(consumer->counters.metrics);
    once__consume_identity_free(&consumer->identity);
    once__consume_poller_free(consumer->poller);
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
        once__consume_say_about(consumer, 0, "started");
        end = run(consumer);
    }
    finish(consumer, end);
    free(consumer);
    return end;
}
