/*
 * TLS without a socket: bytes go in and out of memory, and the connection moves them. So nothing here blocks, and no write raises
 * SIGPIPE in the host.
 */
#ifndef ONCE_STORE_REDIS_TLS_H
#define ONCE_STORE_REDIS_TLS_H

#include <openssl/ssl.h>

#include "store/redis/settings.h"

/*
 * What all connections share: trusted certificates and the client's own. Returns ONCE_OK, ONCE_E_CONFIG, with the option that
 * is wrong in `err`, or ONCE_E_NOMEM.
 */
int once__redis_tls_context(SSL_CTX **context, const once__redis_settings_t *settings,
                            once_error_t *err);

/* The client's side. The server's certificate must be for `name`, a host name or an address. NULL: out of memory. */
SSL *once__redis_tls_new(SSL_CTX *context, const char *name);

/* Returns 1 when done, 0 if more bytes are needed, -1 if refused. */
int once__redis_tls_handshake(SSL *ssl);

/* Bytes from the network, 0 or -1; and bytes for it: returns how many were put into `out`. */
int once__redis_tls_feed(SSL *ssl, const void *data, size_t len);
size_t once__redis_tls_drain(SSL *ssl, void *out, size_t size);

/* Plain bytes to send: returns 0 or -1. Plain bytes received: returns how many, 0 if none yet, -1 if it ended or is broken. */
int once__redis_tls_write(SSL *ssl, const void *data, size_t len);
int once__redis_tls_read(SSL *ssl, void *out, size_t size);

/* Why a handshake was refused, in words. */
const char *once__redis_tls_trouble(const SSL *ssl);

#endif
