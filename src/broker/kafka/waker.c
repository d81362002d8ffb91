/*
 * Any answer from a broker wakes the thread that reads from it, so each broker is asked for the ends of its partitions, one
 * small request. librdkafka blocks until the answers are there, hence a thread.
 */
#include "broker/kafka/waker.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define PATIENCE_MS 500
#define PAUSE_US    5000 /* after each request: at most 200 requests a second for a broker */

struct once__kafka_waker {
    rd_kafka_t *consumer;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    rd_kafka_topic_partition_list_t *wish; /* NULL: none */
    int stop;
};

static void ask(once__kafka_waker_t *waker, rd_kafka_topic_partition_list_t *list)
{
    const struct timespec pause = {0, PAUSE_US * 1000};

    for (int i = 0; i < list->cnt; i++) {
        list->elems[i].offset = RD_KAFKA_OFFSET_END;
    }
    /* The answer itself does not matter. */
    (void)rd_kafka_offsets_for_times(waker->consumer, list, PATIENCE_MS);
    (void)nanosleep(&pause, NULL);
}

static void *run(void *data)
{
    once__kafka_waker_t *waker = data;

    pthread_mutex_lock(&waker->lock);
    while (!waker->stop) {
        rd_kafka_topic_partition_list_t *wish = waker->wish;
        if (wish == NULL) {
            pthread_cond_wait(&waker->changed, &waker->lock);
            continue;
        }
        pthread_mutex_unlock(&waker->lock);
        ask(waker, wish);
        pthread_mutex_lock(&waker->lock);
        rd_kafka_topic_partition_list_destroy(wish);
        waker->wish = NULL;
    }
    pthread_mutex_unlock(&waker->lock);
    return NULL;
}

once__kafka_waker_t *once__kafka_waker_new(rd_kafka_t *consumer)
{
    once__kafka_waker_t *waker = calloc(1, sizeof(*waker));

    if (waker == NULL) {
        return NULL;
    }
    waker->consumer = consumer;
    pthread_mutex_init(&waker->lock, NULL);
    pthread_cond_init(&waker->changed, NULL);
    if (pthread_create(&waker->thread, NULL, run, waker) != 0) {
        pthread_cond_destroy(&waker->changed);
        pthread_mutex_destroy(&waker->lock);
        free(waker);
        return NULL;
    }
    return waker;
}

void once__kafka_waker_free(once__kafka_waker_t *waker)
{
    if (waker == NULL) {
        return;
    }
    pthread_mutex_lock(&waker->lock);
    waker->stop = 1;
    pthread_cond_signal(&waker->changed);
    pthread_mutex_unlock(&waker->lock);
    pthread_join(waker->thread, NULL);
    if (waker->wish != NULL) {
        rd_kafka_topic_partition_list_destroy(waker->wish);
    }
    pthread_cond_destroy(&waker->changed);
    pthread_mutex_destroy(&waker->lock);
    free(waker);
}

int once__kafka_waker_idle(once__kafka_waker_t *waker)
{
    int idle;

    pthread_mutex_lock(&waker->lock);
    idle = waker->wish == NULL;
    pthread_mutex_unlock(&waker->lock);
    return idle;
}

void once__kafka_waker_wake(once__kafka_waker_t *waker, rd_kafka_topic_partition_list_t *list)
{
    pthread_mutex_lock(&waker->lock);
    if (waker->wish == NULL) {
        waker->wish = list;
        pthread_cond_signal(&waker->changed);
        list = NULL;
    }
    pthread_mutex_unlock(&waker->lock);
    if (list != NULL) {
        rd_kafka_topic_partition_list_destroy(list);
    }
}
