/*
 * Connections to RabbitMQ. Everything here blocks, for a bounded time.
 */
#ifndef ONCE_BROKER_AMQP_CONNECT_H
#define ONCE_BROKER_AMQP_CONNECT_H

#include <amqp.h>

#include "broker/url.h"

/* Where to connect, and how. All texts that are not copied belong to the URL. */
typedef struct once__amqp_target {
    const once__url_t *url;
    char vhost[256];
    char name[256];                   /* of the queue or the exchange */
    const char *ca_file;              /* NULL: SSL_CERT_FILE, or the system's */
    const char *cert_file, *key_file; /* NULL: no client certificate; the key may be in its file */
    const char *authorities;          /* how a user names ca_file: "--cacert FILE" */
    unsigned turn;                    /* which of the URL's hosts is next */
    int connect_s, answer_s, heartbeat_s;
    /* NULL, or -1 while there is no socket that another thread could shut down */
    _Atomic int *socket;
} once__amqp_target_t;

/*
 * Reads the path [VHOST/]NAME, both percent-encoded, and the parameters cacert, cert and key. Without a vhost it is `/`. The
 * URL must stay. Returns 0, or -1 if the path is malformed or a name is too long.
 */
int once__amqp_target_read(once__amqp_target_t *target, once__url_t *url);

/*
 * For readers: the path is VHOST/QUEUE, and `heartbeat` is a parameter. Returns 0, or -1 after writing into `error` what is
 * wrong: also an unknown parameter.
 */
int once__amqp_queue_read(once__amqp_target_t *target, once__url_t *url, char *error, size_t size);

/* A connection with channel 1 open. Returns NULL after writing the reason into `error`, without credentials. */
amqp_connection_state_t once__amqp_connect(once__amqp_target_t *target, char *error, size_t size);

/* Closes the connection without the protocol's goodbye: what is not acknowledged is delivered again. NULL is fine. */
void once__amqp_disconnect(const once__amqp_target_t *target, amqp_connection_state_t connection);

/* Whether the last call succeeded. Returns 0, or -1 after writing "WHAT: REASON" into `error`. */
int once__amqp_check(amqp_rpc_reply_t reply, const char *what, char *error, size_t size);

/* Writes "WHAT: CODE TEXT" about a method that closes a channel or a connection. */
void once__amqp_describe_close(const amqp_method_t *method, const char *what, char *text,
                               size_t size);

/* Declares a durable queue on channel 1 if there is none; an existing one may be of any kind. Returns 0 or -1. */
int once__amqp_declare(amqp_connection_state_t connection, const char *queue, char *error,
                       size_t size);

#endif
