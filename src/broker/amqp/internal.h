/* RabbitMQ inside: the publisher (publish.c) and messages (message.c). */
#ifndef ONCE_BROKER_AMQP_INTERNAL_H
#define ONCE_BROKER_AMQP_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include <amqp.h>

#include "base/list.h"
#include "broker/amqp/connect.h"
#include "broker/internal.h"

#define ONCE__AMQP_SUSPECTS 1024

typedef struct once__amqp_job {
    struct once__amqp_job *next;
    once__broker_message_t message;
    void *tag;
    char routing_key[256];
    uint64_t delivery; /* its number on this channel */
    uint64_t sent_ms;
    int returned; /* there is no queue for it */
    int said;     /* not a message, but a sentence for the log */
    once__broker_verdict_t verdict;
    char reason[256];
} once__amqp_job_t;

typedef struct once__amqp_list {
    ONCE__LIST(once__amqp_job_t);
} once__amqp_list_t;

typedef struct once__amqp {
    once__broker_publisher_t base;
    once__amqp_target_t target;
    const char *routing_key;
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
        [ONCE__AMQP_SUSPECTS]; /* tags of messages that are sent alone: the broker closed the channel because of one of them */
    size_t suspect_count;
} once__amqp_t;

/* message.c: why the message can never be sent on this connection; NULL: it can */
const char *once__amqp_unfit(once__amqp_t *amqp, const once__broker_message_t *message);

/* Returns AMQP_STATUS_OK or another status of librabbitmq. */
int once__amqp_send(once__amqp_t *amqp, const once__amqp_job_t *job);

/*
 * Each header of a message that is text or a whole number, and the properties message-id, correlation-id, type and content-type.
 * All values live as long as the message.
 */
void once__amqp_headers(amqp_message_t *message,
                        void (*each)(void *data, once_slice_t name, once_slice_t value),
                        void *data);

once_slice_t once__amqp_slice(amqp_bytes_t bytes);

#endif
