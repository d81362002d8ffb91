/*
 * Connections to RabbitMQ for those who read from it.
 */
#ifndef ONCE_BROKER_AMQP_OPEN_H
#define ONCE_BROKER_AMQP_OPEN_H

#include <amqp.h>

#include <once/key.h>

#include "broker/browse_internal.h"
#include "broker/url.h"

/* A connection with channel 1 open, in at most some seconds. NULL after writing into `error` why not, without credentials. */
amqp_connection_state_t once__amqp_open(once__url_t *address, const char *vhost, char *error,
                                        size_t size);

/* Ends it without a word: what is not acknowledged is delivered again. NULL is fine. */
void once__amqp_close(amqp_connection_state_t connection);

/* 0 when the last call was answered as it should be, else -1 after writing into `error` what the broker said. */
int once__amqp_said_no(amqp_rpc_reply_t reply, char *error, size_t size);

/* Declares a durable queue on channel 1 if there is none, whatever an existing one is like. 0 or -1. */
int once__amqp_declare(amqp_connection_state_t connection, const char *queue, char *error,
                       size_t size);

/*
 * Each header of a message that is text or a whole number, and the properties message-id, correlation-id, type, content-type.
 * All values live as long as the message.
 */
void once__amqp_headers(amqp_message_t *message,
                        void (*each)(void *data, once_slice_t name, once_slice_t value),
                        void *data);

once_slice_t once__amqp_slice(amqp_bytes_t bytes);

#endif
