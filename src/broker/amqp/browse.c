/*
 * Browsing a queue of RabbitMQ: every message is fetched, and those that were not taken return to their places when the channel
 * is closed. In the meantime no other consumer sees them.
 */
#include <stdio.h>
#include <string.h>

#include "broker/amqp/internal.h"
#include "broker/internal.h"

static int show(amqp_connection_state_t connection, uint64_t tag, amqp_message_t *message,
                once__broker_browse_cb *each, void *data)
{
    once__broker_browsed_t browsed = {.payload = once__amqp_slice(message->body),
                                      .offset = (int64_t)tag};
    once__broker_choice_t choice;

    once__amqp_headers(message, once__broker_browsed_add, &browsed);
    choice = each(data, &browsed);
    if (choice == ONCE__BROKER_TAKE) {
        amqp_basic_ack(connection, 1, tag, 0);
    }
    return choice != ONCE__BROKER_ENOUGH;
}

/* Returns 1 if a message was shown and more are wanted, 0 at the end, -1 on an error. */
static int next(amqp_connection_state_t connection, const char *queue, once__broker_browse_cb *each,
                void *data, char *error, size_t size)
{
    amqp_rpc_reply_t reply = amqp_basic_get(connection, 1, amqp_cstring_bytes(queue), 0);
    amqp_message_t message;
    uint64_t tag;
    int more;

    if (once__amqp_check(reply, "fetching a message", error, size) != 0) {
        return -1;
    }
    if (reply.reply.id != AMQP_BASIC_GET_OK_METHOD) {
        return 0;
    }
    tag = ((const amqp_basic_get_ok_t *)reply.reply.decoded)->delivery_tag;
    if (once__amqp_check(amqp_read_message(connection, 1, &message, 0), "reading a message", error,
                         size) != 0) {
        return -1;
    }
    more = show(connection, tag, &message, each, data);
    amqp_destroy_message(&message);
    amqp_maybe_release_buffers(connection);
    return more;
}

int once__amqp_browse(once__url_t *url, once__broker_browse_cb *each, void *data, char *error,
                      size_t size)
{
    once__amqp_target_t target;
    amqp_connection_state_t connection;
    amqp_queue_declare_ok_t *queue;
    int more = 1;

    if (once__amqp_queue_read(&target, url, error, size) != 0) {
        return -1;
    }
    connection = once__amqp_connect(&target, error, size);
    if (connection == NULL) {
        return -1;
    }
    queue = amqp_queue_declare(connection, 1, amqp_cstring_bytes(target.name), 1, 0, 0, 0,
                               amqp_empty_table);
    if (queue == NULL) {
        once__amqp_check(amqp_get_rpc_reply(connection), "looking for the queue", error, size);
        more = -1;
    } else { /* what comes later is not shown: a replay could feed itself forever */
        for (uint32_t left = queue->message_count; left > 0 && more > 0; left--) {
            more = next(connection, target.name, each, data, error, size);
        }
    }
    if (more >= 0) {
        amqp_connection_close(connection, AMQP_REPLY_SUCCESS); /* it has our acknowledgements */
    }
    once__amqp_disconnect(&target, connection);
    return more < 0 ? -1 : 0;
}
