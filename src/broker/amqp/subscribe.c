/*
 * The subscription to RabbitMQ: one consumer of a queue, which acknowledges each delivery separately.
 *
 * The descriptor that the owner watches is that of a loop, which stays the same while connections come and go. It watches the
 * socket, and has a timer for heartbeats and reconnecting. Frames that librabbitmq has already read do not make it readable.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>

#include "base/hash.h"
#include "broker/amqp/internal.h"
#include "broker/internal.h"
#include "loop/loop.h"

#define PAUSE_MAX 8 /* seconds between attempts to connect */

typedef struct amqp {
    once__broker_subscription_t base;
    once__amqp_target_t target;
    amqp_connection_state_t connection; /* NULL: none at the moment */
    uint64_t generation;                /* of the connection: deliveries of earlier ones are lost */
    struct amqp_delivery *oldest, *newest; /* deliveries of this connection that have not ended */
    size_t open;                           /* their number */
    struct amqp_delivery *done;            /* ended, to be acknowledged by the next flush */
    int gap; /* a delivery was dropped: those before an acknowledged one are not all done */
    once__loop_t *loop;
    once__source_t socket;
    once__timer_t second_timer;
    int second_passed;          /* in this turn */
    unsigned pause, pause_left; /* seconds until the next attempt */
    int64_t lag;
    int want_lag;
} amqp_t;

typedef struct amqp_delivery {
    once__broker_delivered_t base;
    struct amqp_delivery *older,
        *newer; /* among the open ones; `newer` also links those that are done */
    amqp_envelope_t envelope;
    uint64_t generation;
} amqp_delivery_t;

/* -------------------------------------------------------------------------------------------------------- connection */

static void forget_done(amqp_t *amqp)
{
    while (amqp->done != NULL) {
        amqp_delivery_t *delivery = amqp->done;
        amqp->done = delivery->newer;
        free(delivery);
    }
}

/* Open deliveries stay with their owner; from now on they are of an earlier generation. */
static void disconnect(amqp_t *amqp, const char *why)
{
    if (amqp->connection != NULL) {
        (void)once__source_set(amqp->loop, &amqp->socket, amqp_get_sockfd(amqp->connection), 0);
        once__amqp_disconnect(&amqp->target, amqp->connection);
        amqp->connection = NULL;
        amqp->base.ready = 0;
        forget_done(amqp);
        amqp->oldest = amqp->newest = NULL;
        amqp->open = 0;
        amqp->gap = 0;
        amqp->generation++;
    }
    amqp->lag = -1;
    amqp->pause = amqp->pause == 0 ? 1 : amqp->pause * 2 > PAUSE_MAX ? PAUSE_MAX : amqp->pause * 2;
    amqp->pause_left = amqp->pause;
    once__broker_subscription_say(&amqp->base, 1, "RabbitMQ: %s", why);
}

static int consume(amqp_t *amqp, char *why, size_t size)
{
    amqp_bytes_t queue = amqp_cstring_bytes(amqp->target.name);
    /* twice: the second half is for messages of crowded keys */
    size_t window = 2 * amqp->base.options.window;

    amqp_queue_declare(amqp->connection, 1, queue, 1, 0, 0, 0, amqp_empty_table);
    if (once__amqp_check(amqp_get_rpc_reply(amqp->connection), "looking for the queue", why,
                         size) != 0) {
        return -1;
    }
    if (amqp->base.options.dead_letters != NULL &&
        once__amqp_declare(amqp->connection, amqp->base.options.dead_letters, why, size) != 0) {
        return -1;
    }
    amqp_basic_qos(amqp->connection, 1, 0, (uint16_t)(window < 65535 ? window : 65535), 0);
    if (once__amqp_check(amqp_get_rpc_reply(amqp->connection), "setting the prefetch count", why,
                         size) != 0) {
        return -1;
    }
    amqp_basic_consume(amqp->connection, 1, queue, amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
    return once__amqp_check(amqp_get_rpc_reply(amqp->connection), "consuming", why, size);
}

static void reconnect(amqp_t *amqp)
{
    char why[300] = "its socket cannot be watched";

    amqp->connection = once__amqp_connect(&amqp->target, why, sizeof(why));
    if (amqp->connection == NULL) {
        disconnect(amqp, why);
        return;
    }
    if (consume(amqp, why, sizeof(why)) != 0 ||
        once__source_set(amqp->loop, &amqp->socket, amqp_get_sockfd(amqp->connection), EPOLLIN) !=
            0) {
        disconnect(amqp, why);
        return;
    }
    amqp->pause = 0;
    amqp->base.ready = 1;
    once__broker_subscription_say(&amqp->base, 0, "consuming the queue %s", amqp->target.name);
}

/* -------------------------------------------------------------------------------------------------------- deliveries */

static void find_key(void *data, once_slice_t name, once_slice_t value)
{
    once__broker_delivery_t *delivery = data;

    if ((name.len == 15 && memcmp(name.data, "ce_partitionkey", 15) == 0) ||
        (name.len == 8 && memcmp(name.data, "once-key", 8) == 0)) {
        delivery->key = value;
    }
}

static void deliver(amqp_t *amqp, amqp_envelope_t *envelope)
{
    amqp_delivery_t *made = malloc(sizeof(*made) + amqp->base.options.prepared_size);
    once__broker_delivery_t *delivery;

    if (made == NULL) {
        amqp_destroy_envelope(envelope);
        disconnect(amqp, "out of memory");
        return;
    }
    delivery = &made->base.delivery;
    made->base.from = &amqp->base;
    made->envelope = *envelope;
    made->generation = amqp->generation;
    made->base.delivery = (once__broker_delivery_t){
        .payload = once__amqp_slice(envelope->message.body),
        .offset = (int64_t)envelope->delivery_tag,
        .prepared = made + 1,
    };
    once__amqp_headers(&made->envelope.message, find_key, &made->base.delivery);
    made->newer = NULL;
    made->older = amqp->newest;
    if (amqp->newest != NULL) {
        amqp->newest->newer = made;
    } else {
        amqp->oldest = made;
    }
    amqp->newest = made;
    amqp->open++;
    amqp->base.options.prepare(amqp->base.options.prepare_data, &delivery, 1);
    amqp->base.options.deliver(amqp->base.options.data, &delivery, 1);
}

/* Handles a frame that is not a delivery. Returns 0 if the connection is still usable. */
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
        once__amqp_describe_close(&frame.payload.method, "closed by the server", why, sizeof(why));
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
        once__amqp_check(reply, "reading a message", why, sizeof(why));
        disconnect(amqp, why);
    }
    return 0;
}

static void on_second(once__timer_t *timer)
{
    amqp_t *amqp = ONCE__CONTAINER(timer, amqp_t, second_timer);

    once__timer_set(amqp->loop, timer, once__loop_now(amqp->loop) + 1000);
    amqp->second_passed = 1;
    amqp->want_lag = 1;
    if (amqp->connection == NULL && !amqp->base.stopped &&
        (amqp->pause_left == 0 || --amqp->pause_left == 0)) {
        reconnect(amqp);
    }
}

/* take() reads it. */
static void on_socket(once__source_t *source, uint32_t events)
{
}

static int amqp_turn(once__broker_subscription_t *base, size_t room)
{
    amqp_t *amqp = (amqp_t *)base;
    size_t count = 0;

    amqp->second_passed = 0;
    once__loop_enter(amqp->loop);
    (void)once__loop_run(amqp->loop);
    once__loop_leave(amqp->loop);
    if (amqp->second_passed && room == 0) {
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

static void unlink_open(amqp_t *amqp, amqp_delivery_t *ended)
{
    if (ended->older != NULL) {
        ended->older->newer = ended->newer;
    } else {
        amqp->oldest = ended->newer;
    }
    if (ended->newer != NULL) {
        ended->newer->older = ended->older;
    } else {
        amqp->newest = ended->older;
    }
    amqp->open--;
}

static void amqp_end(once__broker_subscription_t *base, once__broker_delivery_t *delivery, int done)
{
    amqp_t *amqp = (amqp_t *)base;
    amqp_delivery_t *ended = (amqp_delivery_t *)delivery;
    int ours = ended->generation == amqp->generation;

    amqp_destroy_envelope(&ended->envelope);
    if (ours) {
        unlink_open(amqp, ended);
        amqp->gap |= !done;
    }
    if (ours && done) {
        ended->newer = amqp->done;
        amqp->done = ended;
    } else {
        free(ended);
    }
}

static int amqp_revoked(const once__broker_subscription_t *base,
                        const once__broker_delivery_t *delivery)
{
    return ((const amqp_delivery_t *)delivery)->generation != ((const amqp_t *)base)->generation;
}

static void amqp_headers(once__broker_delivery_t *delivery,
                         void (*each)(void *data, once_slice_t name, once_slice_t value),
                         void *data)
{
    once__amqp_headers(&((amqp_delivery_t *)delivery)->envelope.message, each, data);
}

static uint64_t tag_of(const amqp_delivery_t *delivery)
{
    return (uint64_t)delivery->base.delivery.offset;
}

/* The newest delivery that is done before the oldest open one; 0 if there is none. Never one that was acknowledged before. */
static uint64_t done_to(const amqp_t *amqp)
{
    uint64_t end = amqp->oldest != NULL ? tag_of(amqp->oldest) : UINT64_MAX, found = 0;

    for (const amqp_delivery_t *at = amqp->done; at != NULL && !amqp->gap; at = at->newer) {
        if (tag_of(at) < end && tag_of(at) > found) {
            found = tag_of(at);
        }
    }
    return found;
}

/* Sends one acknowledgement for everything before the first open delivery, and one for each that is done behind it. */
static void amqp_flush(once__broker_subscription_t *base)
{
    amqp_t *amqp = (amqp_t *)base;
    uint64_t to;
    int status = AMQP_STATUS_OK;

    if (amqp->connection == NULL || amqp->done == NULL) {
        return;
    }
    to = done_to(amqp);
    if (to > 0) {
        status = amqp_basic_ack(amqp->connection, 1, to, 1);
    }
    for (const amqp_delivery_t *at = amqp->done; status == AMQP_STATUS_OK && at != NULL;
         at = at->newer) {
        if (tag_of(at) > to) {
            status = amqp_basic_ack(amqp->connection, 1, tag_of(at), 0);
        }
    }
    forget_done(amqp);
    if (status != AMQP_STATUS_OK) {
        disconnect(amqp, amqp_error_string2(status));
    }
}

static int64_t amqp_lag(once__broker_subscription_t *base)
{
    amqp_t *amqp = (amqp_t *)base;

    if (amqp->connection != NULL && amqp->want_lag) {
        amqp_queue_declare_ok_t *answer =
            amqp_queue_declare(amqp->connection, 1, amqp_cstring_bytes(amqp->target.name), 1, 0, 0,
                               0, amqp_empty_table);
        amqp->want_lag = 0;
        if (answer == NULL) {
            char why[300] = "";
            once__amqp_check(amqp_get_rpc_reply(amqp->connection), "counting messages", why,
                             sizeof(why));
            disconnect(amqp, why);
        } else {
            amqp->lag = (int64_t)answer->message_count + (int64_t)amqp->open;
        }
    }
    return amqp->lag;
}

static void amqp_stop(once__broker_subscription_t *base)
{
}

static void amqp_close(once__broker_subscription_t *base)
{
    amqp_t *amqp = (amqp_t *)base;

    amqp_flush(base);
    if (amqp->connection != NULL) {
        /* Waits for the broker's answer: then it has our acknowledgements, too. */
        amqp_connection_close(amqp->connection, AMQP_REPLY_SUCCESS);
        once__amqp_disconnect(&amqp->target, amqp->connection);
    }
    forget_done(amqp);
    once__loop_free(amqp->loop);
    free(amqp);
}

static const once__broker_subscription_ops_t ops = {
    amqp_turn, amqp_flush, amqp_lag, amqp_stop, amqp_close, amqp_end, amqp_revoked, amqp_headers};

static int start(amqp_t *amqp)
{
    int code;

    amqp->loop = once__loop_new(&once__real_env, &code);
    if (amqp->loop == NULL || once__timers_reserve(amqp->loop) != 0) {
        return -1;
    }
    amqp->base.fd = once__loop_fd(amqp->loop);
    amqp->socket.ready = on_socket;
    amqp->second_timer.fire = on_second;
    once__timer_set(amqp->loop, &amqp->second_timer, once__loop_now(amqp->loop));
    return 0;
}

once__broker_subscription_t *
once__amqp_subscription(const once__url_t *url, const once__broker_subscription_options_t *options,
                        char *error, size_t size)
{
    amqp_t *amqp = calloc(1, sizeof(*amqp));

    if (amqp == NULL) {
        snprintf(error, size, "out of memory");
        return NULL;
    }
    amqp->base.ops = &ops;
    amqp->base.options = *options;
    amqp->base.url = *url;
    amqp->base.fd = -1;
    amqp->lag = -1;
    if (once__amqp_queue_read(&amqp->target, &amqp->base.url, error, size) != 0) {
        free(amqp);
        return NULL;
    }
    amqp->base.topic = amqp->base.group = amqp->target.name;
    if (start(amqp) != 0) {
        snprintf(error, size, "out of memory or of descriptors");
        amqp_close(&amqp->base);
        return NULL;
    }
    return &amqp->base;
}
