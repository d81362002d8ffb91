/*
 * The inside of the publisher for RabbitMQ: the owner's side (publish.c) and the thread's (thread.c).
 */
#ifndef ONCE_BROKER_AMQP_INTERNAL_H
#define ONCE_BROKER_AMQP_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include <amqp.h>

#include "broker/amqp/dial.h"
#include "broker/publish_internal.h"

#define ONCE__AMQP_SUSPECTS 1024

typedef struct once__amqp_job {
    struct once__amqp_job *next;
    once__broker_message_t message;
    void *tag;
    char routing_key[256];
    uint64_t delivery; /* the broker's number of it on this channel */
    uint64_t sent_ms;
    int returned; /* no queue wants it */
    int said;     /* no message: a sentence for the log */
    once__broker_verdict_t verdict;
    char reason[256];
} once__amqp_job_t;

typedef struct once__amqp_list {
    once__amqp_job_t *first, **end;
    size_t count;
} once__amqp_list_t;

typedef struct once__amqp {
    once__broker_publisher_t base;
    char *vhost, *exchange; /* one allocation */
    const char *routing_key;
    once__amqp_tls_t tls;
    pthread_t thread;
    int running;
    int unpushed;
    int jobs_fd; /* wakes the thread */
    _Atomic int stop;
    _Atomic int socket; /* -1: not connected */
    pthread_mutex_t lock;
    once__amqp_list_t jobs, answers; /* under the lock */

    /* The thread's own. */
    amqp_connection_state_t connection; /* NULL: none */
    once__amqp_list_t sent;             /* in the order of delivery */
    uint64_t deliveries;
    void *suspects
        [ONCE__AMQP_SUSPECTS]; /* tags of messages that go alone: for one of them the broker closed the channel */
    size_t suspect_count;
    unsigned host; /* the next one to try */
} once__amqp_t;

void once__amqp_list_init(once__amqp_list_t *list);
void once__amqp_list_add(once__amqp_list_t *list, once__amqp_job_t *job);
once__amqp_job_t *once__amqp_list_take(once__amqp_list_t *list); /* NULL: empty */

/* Hands a job with its verdict to the owner. */
void once__amqp_answer(once__amqp_t *amqp, once__amqp_job_t *job);

void *once__amqp_thread(void *amqp);

/* amqp_connect.c: 0, or -1 after writing into `why`. */
int once__amqp_connect(once__amqp_t *amqp, char *why, size_t size);
void once__amqp_disconnect(once__amqp_t *amqp);

/* amqp_send.c: why it can never be sent on this connection; NULL: it can. */
const char *once__amqp_unfit(once__amqp_t *amqp, const once__broker_message_t *message);

/* 0, or librabbitmq's status. */
int once__amqp_send(once__amqp_t *amqp, const once__amqp_job_t *job);

#endif
