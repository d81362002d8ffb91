/*
 * Connecting to RabbitMQ. Blocks, for a bounded time.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "broker/amqp/internal.h"

#define CONNECT_S   10
#define HEARTBEAT_S 20
#define FRAME_MAX   131072

static int is_tls(const once__amqp_t *amqp)
{
    return strcmp(amqp->base.address.scheme, "amqps") == 0;
}

static int complain(amqp_rpc_reply_t reply, const char *what, char *why, size_t size)
{
    const amqp_connection_close_t *close = reply.reply.decoded;

    if (reply.reply_type == AMQP_RESPONSE_NORMAL) {
        return 0;
    }
    if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION &&
        reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD) {
        snprintf(why, size, "%s: RabbitMQ says %d %.*s", what, close->reply_code,
                 (int)close->reply_text.len, (const char *)close->reply_text.bytes);
    } else {
        snprintf(why, size, "%s: %s", what,
                 reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION
                     ? amqp_error_string2(reply.library_error)
                     : "RabbitMQ refuses");
    }
    return -1;
}

static int open_channel(once__amqp_t *amqp, char *why, size_t size)
{
    const once__url_t *address = &amqp->base.address;
    amqp_rpc_reply_t reply =
        amqp_login(amqp->connection, amqp->vhost, 0, FRAME_MAX, HEARTBEAT_S, AMQP_SASL_METHOD_PLAIN,
                   address->user != NULL ? address->user : "guest",
                   address->password != NULL ? address->password : "guest");

    if (complain(reply, "logging in", why, size) != 0) {
        once__amqp_hint(is_tls(amqp) ? &amqp->tls : NULL, reply, why, size);
        return -1;
    }
    amqp_channel_open(amqp->connection, 1);
    if (complain(amqp_get_rpc_reply(amqp->connection), "opening a channel", why, size) != 0) {
        return -1;
    }
    amqp_confirm_select(amqp->connection, 1);
    return complain(amqp_get_rpc_reply(amqp->connection), "asking for confirms", why, size);
}

int once__amqp_connect(once__amqp_t *amqp, char *why, size_t size)
{
    struct timeval limit = {.tv_sec = CONNECT_S};
    const once__url_t *url = &amqp->base.address;
    const once__url_host_t *host = &url->host[amqp->host++ % url->host_count];
    int on = 1;

    amqp->connection = amqp_new_connection();
    if (amqp->connection == NULL) {
        snprintf(why, size, "out of memory");
        return -1;
    }
    amqp_set_handshake_timeout(amqp->connection, &limit);
    amqp_set_rpc_timeout(amqp->connection, &limit);
    if (once__amqp_dial(amqp->connection, host, is_tls(amqp) ? &amqp->tls : NULL, limit, why,
                        size) != 0) {
        once__amqp_disconnect(amqp);
        return -1;
    }
    (void)setsockopt(amqp_get_sockfd(amqp->connection), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    atomic_store(&amqp->socket, amqp_get_sockfd(amqp->connection));
    if (open_channel(amqp, why, size) != 0) {
        once__amqp_disconnect(amqp);
        return -1;
    }
    amqp->deliveries = 0;
    return 0;
}

void once__amqp_disconnect(once__amqp_t *amqp)
{
    atomic_store(&amqp->socket, -1);
    if (amqp->connection != NULL) {
        amqp_destroy_connection(amqp->connection);
        amqp->connection = NULL;
    }
}
