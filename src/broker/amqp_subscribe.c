/*
 * The subscription of RabbitMQ: one consumer of a queue, that acknowledges each delivery by itself.
 *
 * The descriptor that others watch is an epoll of its own, which stays the same while connections come and go: in it are the
 * socket, a timer that sends heartbeats and connects again, and an eventfd for what librabbitmq has read but nobody has taken.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "broker/amqp_open.h"
#include "broker/subscription.h"

#define PAUSE_MAX 8 /* seconds between attempts to connect */

typedef struct amqp {
    once__subscription_t base;
    once__amqp_place_t place;
    amqp_connection_state_t connection; /* NULL: none at the moment */
    uint64_t generation;                /* of the connection: deliveries of earlier ones are lost */
    once__track_t track;
    int timer;
    unsigned pause, pause_left; /* seconds until the next attempt */
    int64_t lag;
    int want_lag;
    int unsent; /* something is done that was not acknowledged yet */
} amqp_t;

typedef struct amqp_delivery {
    once__delivered_t base;
    amqp_envelope_t envelope;
    uint64_t generation, number;
} amqp_delivery_t;

/* -------------------------------------------------------------------------------------------------------- connection */

static void disconnect(amqp_t *amqp, const char *why)
{
    if (amqp->connection != NULL) {
        once__amqp_close(amqp->connection); /* its socket leaves the epoll by being closed */
        amqp->connection = NULL;
        amqp->base.ready = 0;
        once__track_free(&amqp->track);
        amqp->generation++;
    }
    amqp->lag = -1;
    amqp->pause = amqp->pause == 0 ? 1 : amqp->pause * 2 > PAUSE_MAX ? PAUSE_MAX : amqp->pause * 2;
    amqp->pause_left = amqp->pause;
    once__subscription_say(&amqp->base, 1, "RabbitMQ: %s", why);
}

static int consume(amqp_t *amqp, char *why, size_t size)
{
    amqp_bytes_t queue = amqp_cstring_bytes(amqp->place.queue);
    size_t window = amqp->base.options.window;

    amqp_queue_declare(amqp->connection, 1, queue, 1, 0, 0, 0, amqp_empty_table);
    if (once__amqp_said_no(amqp_get_rpc_reply(amqp->connection), why, size) != 0) {
        return -1;
    }
    if (amqp->base.options.dead_letters != NULL &&
        once__amqp_declare(amqp->connection, amqp->base.options.dead_letters, why, size) != 0) {
        return -1;
    }
    amqp_basic_qos(amqp->connection, 1, 0, (uint16_t)(window < 65535 ? window : 65535), 0);
    if (once__amqp_said_no(amqp_get_rpc_reply(amqp->connection), why, size) != 0) {
        return -1;
    }
    amqp_basic_consume(amqp->connection, 1, queue, amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
    return once__amqp_said_no(amqp_get_rpc_reply(amqp->connection), why, size);
}

static void reconnect(amqp_t *amqp)
{
    struct epoll_event event = {.events = EPOLLIN};
    char why[300];

    amqp->connection = once__amqp_open(&amqp->base.address, amqp->place.vhost, why, sizeof(why));
    if (amqp->connection == NULL) {
        disconnect(amqp, why);
        return;
    }
    if (consume(amqp, why, sizeof(why)) != 0 ||
        epoll_ctl(amqp->base.fd, EPOLL_CTL_ADD, amqp_get_sockfd(amqp->connection), &event) != 0) {
        disconnect(amqp, why);
        return;
    }
    amqp->pause = 0;
    amqp->base.ready = 1;
    once__subscription_say(&amqp->base, 0, "consuming the queue %s", amqp->place.queue);
}

/* -------------------------------------------------------------------------------------------------------- deliveries */

static void find_key(void *data, once_slice_t name, once_slice_t value)
{
    once__delivery_t *delivery = data;

    if ((name.len == 15 && memcmp(name.data, "ce_partitionkey", 15) == 0) ||
        (name.len == 8 && memcmp(name.data, "once-key", 8) == 0)) {
        delivery->key = value;
    }
}

static void deliver(amqp_t *amqp, amqp_envelope_t *envelope)
{
    amqp_delivery_t *made = malloc(sizeof(*made));

    if (made == NULL ||
        once__track_add(&amqp->track, (int64_t)envelope->delivery_tag, &made->number) != 0) {
        free(made);
        amqp_destroy_envelope(envelope);
        disconnect(amqp, "out of memory");
        return;
    }
    made->base.from = &amqp->base;
    made->envelope = *envelope;
    made->generation = amqp->generation;
    made->base.delivery = (once__delivery_t){
        .payload = once__amqp_slice(envelope->message.body),
        .offset = (int64_t)envelope->delivery_tag,
    };
    once__amqp_headers(&made->envelope.message, find_key, &made->base.delivery);
    amqp->base.options.deliver(amqp->base.options.data, &made->base.delivery);
}

/* What comes that is no delivery. 0: go on. */
static int other_frame(amqp_t *amqp)
{
    struct timeval now = {0, 0};
    amqp_frame_t frame;
    int status = amqp_simple_wait_frame_noblock(amqp->connection, &frame, &now);

    if (status == AMQP_STATUS_TIMEOUT) {
        return 0;
    }
    if (status != AMQP_STATUS_OK) {
        disconnect(amqp, amqp_error_string2(status));
        return -1;
    }
    if (frame.frame_type == AMQP_FRAME_METHOD &&
        (frame.payload.method.id == AMQP_CHANNEL_CLOSE_METHOD ||
         frame.payload.method.id == AMQP_CONNECTION_CLOSE_METHOD)) {
        char why[300];
        once__amqp_said_no(
            (amqp_rpc_reply_t){AMQP_RESPONSE_SERVER_EXCEPTION, frame.payload.method, 0}, why,
            sizeof(why));
        disconnect(amqp, why);
        return -1;
    }
    if (frame.frame_type == AMQP_FRAME_METHOD &&
        frame.payload.method.id == AMQP_BASIC_CANCEL_METHOD) {
        disconnect(amqp, "the queue is gone");
        return -1;
    }
    return 0;
}

static int take(amqp_t *amqp)
{
    struct timeval now = {0, 0};
    amqp_envelope_t envelope;
    amqp_rpc_reply_t reply = amqp_consume_message(amqp->connection, &envelope, &now, 0);

    if (reply.reply_type == AMQP_RESPONSE_NORMAL) {
        if (amqp->base.stopped) {
            amqp_destroy_envelope(&envelope);
        } else {
            deliver(amqp, &envelope);
        }
        return 1;
    }
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
        reply.library_error == AMQP_STATUS_UNEXPECTED_STATE) {
        return other_frame(amqp) == 0;
    }
    if (reply.reply_type != AMQP_RESPONSE_LIBRARY_EXCEPTION ||
        reply.library_error != AMQP_STATUS_TIMEOUT) {
        char why[300];
        once__amqp_said_no(reply, why, sizeof(why));
        disconnect(amqp, why);
    }
    return 0;
}

static int tick(amqp_t *amqp)
{
    uint64_t count;

    if (read(amqp->timer, &count, sizeof(count)) != (ssize_t)sizeof(count)) {
        return 0;
    }
    amqp->want_lag = 1;
    if (amqp->connection == NULL && !amqp->base.stopped &&
        (amqp->pause_left == 0 || --amqp->pause_left == 0)) {
        reconnect(amqp);
    }
    return 1;
}

static int amqp_turn(once__subscription_t *base, size_t room)
{
    amqp_t *amqp = (amqp_t *)base;
    size_t count = 0;

    if (tick(amqp) && room == 0) {
        room = 1; /* heartbeats are sent and seen while reading */
    }
    while (count < room && amqp->connection != NULL && take(amqp)) {
        count++;
    }
    if (amqp->connection != NULL) {
        amqp_maybe_release_buffers(amqp->connection);
    }
    return amqp->connection != NULL && count == room && room > 0;
}

static void amqp_end(once__subscription_t *base, once__delivery_t *delivery, int done)
{
    amqp_t *amqp = (amqp_t *)base;
    amqp_delivery_t *ended = (amqp_delivery_t *)delivery;

    if (done && ended->generation == amqp->generation) {
        once__track_done(&amqp->track, ended->number);
        amqp->unsent = 1;
    }
    amqp_destroy_envelope(&ended->envelope);
    free(ended);
}

static int amqp_lost(const once__subscription_t *base, const once__delivery_t *delivery)
{
    return ((const amqp_delivery_t *)delivery)->generation != ((const amqp_t *)base)->generation;
}

static void amqp_headers(once__delivery_t *delivery,
                         void (*each)(void *data, once_slice_t name, once_slice_t value),
                         void *data)
{
    once__amqp_headers(&((amqp_delivery_t *)delivery)->envelope.message, each, data);
}

/* One acknowledgement for all up to the first that is not done, and one for each that is done behind it. */
static void amqp_flush(once__subscription_t *base)
{
    amqp_t *amqp = (amqp_t *)base;
    once__track_t *track = &amqp->track;
    int status = AMQP_STATUS_OK;

    if (amqp->connection == NULL || !amqp->unsent) {
        return;
    }
    amqp->unsent = 0;
    if (track->untold_to >=
        0) { /* the broker refuses the number of one that was acknowledged before */
        status = amqp_basic_ack(amqp->connection, 1, (uint64_t)track->untold_to, 1);
        track->untold_to = -1;
    }
    for (uint64_t n = track->first; status == AMQP_STATUS_OK && n != track->after; n++) {
        size_t at = n & (track->room - 1);
        if (track->ring[at].done && !track->ring[at].told) {
            track->ring[at].told = 1;
            status = amqp_basic_ack(amqp->connection, 1, (uint64_t)track->ring[at].offset, 0);
        }
    }
    if (status != AMQP_STATUS_OK) {
        disconnect(amqp, amqp_error_string2(status));
    }
}

static int64_t amqp_lag(once__subscription_t *base)
{
    amqp_t *amqp = (amqp_t *)base;

    if (amqp->connection != NULL && amqp->want_lag) {
        amqp_queue_declare_ok_t *answer =
            amqp_queue_declare(amqp->connection, 1, amqp_cstring_bytes(amqp->place.queue), 1, 0, 0,
                               0, amqp_empty_table);
        amqp->want_lag = 0;
        if (answer == NULL) {
            char why[300] = "";
            once__amqp_said_no(amqp_get_rpc_reply(amqp->connection), why, sizeof(why));
            disconnect(amqp, why);
        } else {
            amqp->lag =
                (int64_t)answer->message_count + (int64_t)(amqp->track.after - amqp->track.first);
        }
    }
    return amqp->lag;
}

static void amqp_stop(once__subscription_t *base)
{
}

static void amqp_close(once__subscription_t *base)
{
    amqp_t *amqp = (amqp_t *)base;

    amqp_flush(base);
    if (amqp->connection != NULL) {
        /* Waits for the broker's answer, by which it has our acknowledgements, too. */
        amqp_connection_close(amqp->connection, AMQP_REPLY_SUCCESS);
        once__amqp_close(amqp->connection);
    }
    once__track_free(&amqp->track);
    close(amqp->timer);
    close(base->fd);
    free(amqp);
}

static const once__subscription_ops_t ops = {amqp_turn,  amqp_flush, amqp_lag,  amqp_stop,
                                             amqp_close, amqp_end,   amqp_lost, amqp_headers};

static int start(amqp_t *amqp)
{
    struct itimerspec each_second = {{1, 0}, {0, 1}};
    struct epoll_event event = {.events = EPOLLIN};

    amqp->base.fd = epoll_create1(EPOLL_CLOEXEC);
    amqp->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    return amqp->base.fd < 0 || amqp->timer < 0 ||
                   timerfd_settime(amqp->timer, 0, &each_second, NULL) != 0 ||
                   epoll_ctl(amqp->base.fd, EPOLL_CTL_ADD, amqp->timer, &event) != 0
               ? -1
               : 0;
}

once__subscription_t *once__amqp_subscription(const once__address_t *address,
                                              const once__subscription_options_t *options,
                                              char *error, size_t size)
{
    amqp_t *amqp = calloc(1, sizeof(*amqp));

    if (amqp == NULL) {
        snprintf(error, size, "out of memory");
        return NULL;
    }
    amqp->base.ops = &ops;
    amqp->base.options = *options;
    amqp->base.address = *address;
    amqp->base.fd = amqp->timer = -1;
    amqp->lag = -1;
    once__track_start(&amqp->track);
    if (once__amqp_place_read(&amqp->base.address, &amqp->place, error, size) != 0) {
        free(amqp);
        return NULL;
    }
    amqp->base.topic = amqp->base.group = amqp->place.queue;
    if (start(amqp) != 0) {
        snprintf(error, size, "%s", strerror(errno));
        amqp_close(&amqp->base);
        return NULL;
    }
    return &amqp->base;
}
