/*
 * Sockets to RabbitMQ, plain or with TLS.
 */
#ifndef ONCE_BROKER_AMQP_DIAL_H
#define ONCE_BROKER_AMQP_DIAL_H

#include <sys/time.h>

#include <amqp.h>

#include "base/url.h"

typedef struct once__amqp_tls {
    const char *ca_file;              /* NULL: SSL_CERT_FILE, or the system's */
    const char *cert_file, *key_file; /* NULL: no client certificate; the key may be in its file */
    const char *authorities;          /* how a user names ca_file: "--cacert FILE" */
} once__amqp_tls_t;

/* Opens the socket of a connection, at port 5672, or 5671 with TLS, unless the host has one. `tls` NULL: plain. 0, or -1 after writing into `why`. */
int once__amqp_dial(amqp_connection_state_t connection, const once__url_host_t *host,
                    const once__amqp_tls_t *tls, struct timeval limit, char *why, size_t size);

/* A missing client certificate is refused after the handshake (TLS 1.3), by hanging up: adds that to `why`. */
void once__amqp_hint(const once__amqp_tls_t *tls, amqp_rpc_reply_t reply, char *why, size_t size);

#endif
