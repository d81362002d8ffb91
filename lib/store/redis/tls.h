/*
 * TLS without a socket: bytes go in and out of memory, the link moves them. So nothing here can block, and no write can raise
 * SIGPIPE in the host.
 */
#ifndef ONCE_STORE_REDIS_TLS_H
#define ONCE_STORE_REDIS_TLS_H

#include <openssl/ssl.h>

#include "store/redis/settings.h"

/* What all connections share: trusted certificates, and our own. ONCE_E_CONFIG names the option that is wrong; ONCE_E_NOMEM. */
int once__tls_context(SSL_CTX **context, const once__redis_settings_t *settings, once_error_t *err);

/* A client's side. The server's certificate must be for `name`, a host name or an address. NULL: out of memory. */
SSL *once__tls_new(SSL_CTX *context, const char *name);

/* 1: done, 0: more bytes are needed, -1: refused. */
int once__tls_handshake(SSL *ssl);

/* Bytes from the network; and for it: how many were put into `out`. */
int once__tls_feed(SSL *ssl, const void *data, size_t len);
size_t once__tls_drain(SSL *ssl, void *out, size_t size);

/* Plain bytes to be sent: 0 or -1. Plain bytes received: how many, 0: none yet, -1: it ended or is broken. */
int once__tls_write(SSL *ssl, const void *data, size_t len);
int once__tls_read(SSL *ssl, void *out, size_t size);

/* Why a handshake was refused, in words. */
const char *once__tls_trouble(const SSL *ssl);

#endif
