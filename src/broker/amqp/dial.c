/*
 * librabbitmq compares the name of a certificate with names only, and tells of every failed handshake in the same words. So
 * the verification of names and addresses is left to OpenSSL, and what it finds is noted on the way.
 */
#include "broker/amqp/dial.h"

#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/tls.h"

#define SYSTEM_CA_FILE "/etc/ssl/certs/ca-certificates.crt" /* librabbitmq has no default */

static int note_error(int good, X509_STORE_CTX *store)
{
    const SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    long *noted = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));

    if (!good && noted != NULL) {
        *noted = X509_STORE_CTX_get_error(store);
    }
    return good;
}

static int expect_host(SSL_CTX *context, const char *host)
{
    X509_VERIFY_PARAM *param = SSL_CTX_get0_param(context);

    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return X509_VERIFY_PARAM_set1_ip_asc(param, host) == 1 ||
                   X509_VERIFY_PARAM_set1_host(param, host, 0) == 1
               ? 0
               : -1;
}

static amqp_socket_t *make_tls(amqp_connection_state_t connection, const char *host,
                               const once__amqp_tls_t *tls, char *why, size_t size)
{
    amqp_socket_t *made = amqp_ssl_socket_new(connection);
    SSL_CTX *context = made != NULL ? amqp_ssl_socket_get_context(made) : NULL;
    const char *ca = tls->ca_file != NULL ? tls->ca_file : getenv("SSL_CERT_FILE");
    const char *cert = tls->cert_file;
    const char *key = tls->key_file != NULL ? tls->key_file : cert;

    ca = ca != NULL ? ca : SYSTEM_CA_FILE;
    if (context == NULL || expect_host(context, host) != 0) {
        snprintf(why, size, "out of memory");
        return NULL;
    }
    amqp_ssl_socket_set_verify_peer(made, 1);
    amqp_ssl_socket_set_verify_hostname(made, 0); /* expect_host() */
    amqp_ssl_socket_set_ssl_versions(made, AMQP_TLSv1_2, AMQP_TLSvLATEST);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, note_error);
    if (amqp_ssl_socket_set_cacert(made, ca) != AMQP_STATUS_OK) {
        snprintf(why, size, "authorities cannot be read from %s", ca);
        return NULL;
    }
    if (cert != NULL && amqp_ssl_socket_set_key(made, cert, key) != AMQP_STATUS_OK) {
        snprintf(why, size, "the client certificate cannot be read from %s and %s", cert, key);
        return NULL;
    }
    return made;
}

int once__amqp_dial(amqp_connection_state_t connection, const once__url_host_t *host,
                    const once__amqp_tls_t *tls, struct timeval limit, char *why, size_t size)
{
    SSL_CTX *context = NULL;
    amqp_socket_t *made;
    long noted = X509_V_OK;
    char said[200];
    int port = host->port != 0 ? host->port : tls != NULL ? 5671 : 5672, status;

    snprintf(why, size, "out of memory");
    made = tls != NULL ? make_tls(connection, host->name, tls, why, size)
                       : amqp_tcp_socket_new(connection);
    if (made == NULL) {
        return -1;
    }
    if (tls != NULL) {
        context = amqp_ssl_socket_get_context(made);
        SSL_CTX_set_app_data(context, &noted);
    }
    status = amqp_socket_open_noblock(made, host->name, port, &limit);
    if (context != NULL) {
        SSL_CTX_set_app_data(context, NULL);
    }
    if (status == AMQP_STATUS_OK) {
        return 0;
    }
    snprintf(said, sizeof(said), "%s", amqp_error_string2(status));
    if (noted != X509_V_OK) {
        once__broker_tls_explain(noted, tls->authorities, said, sizeof(said));
    }
    snprintf(why, size, "connecting to %s:%d: %s", host->name, port, said);
    return -1;
}

void once__amqp_hint(const once__amqp_tls_t *tls, amqp_rpc_reply_t reply, char *why, size_t size)
{
    size_t len = strlen(why);

    if (tls != NULL && tls->cert_file == NULL &&
        reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION) {
        snprintf(why + len, size - len,
                 ": does it ask for a client certificate? cert=FILE&key=FILE in the URL");
    }
}
