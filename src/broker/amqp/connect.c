/*
 * Connecting to RabbitMQ: the next host of the URL, a socket, TLS, the login, a channel.
 *
 * librabbitmq compares the name of a certificate with names only, not with addresses, and reports every failed handshake in
 * the same words. So OpenSSL verifies names and addresses, and its reason is noted on the way.
 */
#include "broker/amqp/connect.h"

#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/text.h"
#include "broker/internal.h"
#include "broker/tls.h"

#define READER_CONNECT_S                                                                           \
    3 /* the consumer's loop is blocked meanwhile, and claims must be renewed */
#define READER_ANSWER_S    5
#define READER_HEARTBEAT_S 10
#define SYSTEM_CA_FILE     "/etc/ssl/certs/ca-certificates.crt" /* librabbitmq has no default */

/* --------------------------------------------------------------------------------------------------------------- URL */

int once__amqp_target_read(once__amqp_target_t *target, once__url_t *url)
{
    const char *slash = strchr(url->raw_path, '/');
    const char *name = slash != NULL ? slash + 1 : url->raw_path;
    size_t len = slash != NULL ? (size_t)(slash - url->raw_path) : 0;

    target->url = url;
    target->cert_file = once__url_take(url, "cert");
    target->key_file = once__url_take(url, "key");
    target->ca_file = once__url_take(url, "cacert");
    if (once__percent_decode(target->vhost, sizeof(target->vhost), url->raw_path, len) != 0 ||
        once__percent_decode(target->name, sizeof(target->name), name, strlen(name)) != 0) {
        return -1;
    }
    if (target->vhost[0] == '\0') {
        strcpy(target->vhost, "/");
    }
    return 0;
}

int once__amqp_queue_read(once__amqp_target_t *target, once__url_t *url, char *error, size_t size)
{
    const char *unknown, *beat = once__url_take(url, "heartbeat");

    *target = (once__amqp_target_t){.authorities = "cacert=FILE in the URL",
                                    .connect_s = READER_CONNECT_S,
                                    .answer_s = READER_ANSWER_S,
                                    .heartbeat_s = READER_HEARTBEAT_S};
    if (strchr(url->raw_path, '/') == NULL || once__amqp_target_read(target, url) != 0 ||
        target->name[0] == '\0') {
        snprintf(error, size,
                 "the URL must be amqp://HOST[:PORT]/VHOST/QUEUE, where the vhost / is %%2F");
        return -1;
    }
    if (beat != NULL && (beat[0] == '\0' || strspn(beat, "0123456789") != strlen(beat) ||
                         strlen(beat) > 5 || strtol(beat, NULL, 10) > 65535)) {
        snprintf(error, size, "heartbeat must be between 0 and 65535 seconds");
        return -1;
    }
    target->heartbeat_s = beat != NULL ? (int)strtol(beat, NULL, 10) : READER_HEARTBEAT_S;
    unknown = once__url_untaken(url);
    if (unknown != NULL) {
        snprintf(error, size, "amqp:// has no parameter %s: cacert, cert, key, heartbeat", unknown);
        return -1;
    }
    return 0;
}

int once__amqp_queue_name(once__url_t *url, char *name, char *error, size_t size)
{
    once__amqp_target_t target;

    if (once__amqp_queue_read(&target, url, error, size) != 0) {
        return -1;
    }
    memcpy(name, target.name, sizeof(target.name));
    return 0;
}

static int is_tls(const once__amqp_target_t *target)
{
    return strcmp(target->url->scheme, "amqps") == 0;
}

/* ------------------------------------------------------------------------------------------------------------ errors */

void once__amqp_describe_close(const amqp_method_t *method, const char *what, char *text,
                               size_t size)
{
    const amqp_channel_close_t *channel = method->decoded;
    const amqp_connection_close_t *connection = method->decoded;
    int is_channel = method->id == AMQP_CHANNEL_CLOSE_METHOD;
    int code = is_channel ? channel->reply_code : connection->reply_code;
    amqp_bytes_t reason = is_channel ? channel->reply_text : connection->reply_text;

    snprintf(text, size, "%s: %d %.*s", what, code, reason.len < 200 ? (int)reason.len : 200,
             (const char *)reason.bytes);
}

int once__amqp_check(amqp_rpc_reply_t reply, const char *what, char *error, size_t size)
{
    if (reply.reply_type == AMQP_RESPONSE_NORMAL) {
        return 0;
    }
    if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION &&
        (reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD ||
         reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD)) {
        once__amqp_describe_close(&reply.reply, what, error, size);
    } else {
        snprintf(error, size, "%s: %s", what,
                 reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION
                     ? amqp_error_string2(reply.library_error)
                     : "unexpected answer");
    }
    return -1;
}

/* --------------------------------------------------------------------------------------------------------------- TLS */

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
                               const once__amqp_target_t *target, char *error, size_t size)
{
    amqp_socket_t *made = amqp_ssl_socket_new(connection);
    SSL_CTX *context = made != NULL ? amqp_ssl_socket_get_context(made) : NULL;
    const char *ca = target->ca_file != NULL ? target->ca_file : getenv("SSL_CERT_FILE");
    const char *cert = target->cert_file;
    const char *key = target->key_file != NULL ? target->key_file : cert;

    ca = ca != NULL ? ca : SYSTEM_CA_FILE;
    if (context == NULL || expect_host(context, host) != 0) {
        return NULL;
    }
    amqp_ssl_socket_set_verify_peer(made, 1);
    amqp_ssl_socket_set_verify_hostname(made, 0); /* expect_host() */
    amqp_ssl_socket_set_ssl_versions(made, AMQP_TLSv1_2, AMQP_TLSvLATEST);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, note_error);
    if (amqp_ssl_socket_set_cacert(made, ca) != AMQP_STATUS_OK) {
        snprintf(error, size, "authorities cannot be read from %s", ca);
        return NULL;
    }
    if (cert != NULL && amqp_ssl_socket_set_key(made, cert, key) != AMQP_STATUS_OK) {
        snprintf(error, size, "the client certificate cannot be read from %s and %s", cert, key);
        return NULL;
    }
    return made;
}

/* --------------------------------------------------------------------------------------------------------- connecting */

static int open_socket(amqp_connection_state_t connection, once__amqp_target_t *target, char *error,
                       size_t size)
{
    struct timeval limit = {.tv_sec = target->connect_s};
    amqp_socket_t *made;
    SSL_CTX *context;
    long noted = X509_V_OK;
    const once__url_host_t *host = &target->url->host[target->turn++ % target->url->host_count];
    char reason[200];
    int port = host->port != 0 ? host->port : is_tls(target) ? 5671 : 5672, status, on = 1;

    made = is_tls(target) ? make_tls(connection, host->name, target, error, size)
                          : amqp_tcp_socket_new(connection);
    if (made == NULL) {
        return -1;
    }
    context = is_tls(target) ? amqp_ssl_socket_get_context(made) : NULL;
    if (context != NULL) {
        SSL_CTX_set_app_data(context, &noted);
    }
    status = amqp_socket_open_noblock(made, host->name, port, &limit);
    if (context != NULL) {
        SSL_CTX_set_app_data(context, NULL);
    }
    if (status != AMQP_STATUS_OK) {
        snprintf(reason, sizeof(reason), "%s", amqp_error_string2(status));
        if (noted != X509_V_OK) {
            once__broker_tls_explain(noted, target->authorities, reason, sizeof(reason));
        }
        snprintf(error, size, "connecting to %s:%d: %s", host->name, port, reason);
        return -1;
    }
    (void)setsockopt(amqp_get_sockfd(connection), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (target->socket != NULL) {
        atomic_store(target->socket, amqp_get_sockfd(connection));
    }
    return 0;
}

/* A server that misses a client certificate hangs up after the handshake (TLS 1.3). */
static void add_hint(const once__amqp_target_t *target, amqp_rpc_reply_t reply, char *error,
                     size_t size)
{
    size_t len = strlen(error);

    if (is_tls(target) && target->cert_file == NULL &&
        reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION) {
        snprintf(error + len, size - len,
                 ": does it ask for a client certificate? cert=FILE&key=FILE in the URL");
    }
}

static int log_in(amqp_connection_state_t connection, const once__amqp_target_t *target,
                  char *error, size_t size)
{
    const once__url_t *url = target->url;
    struct timeval limit = {.tv_sec = target->answer_s};
    amqp_rpc_reply_t reply;

    amqp_set_handshake_timeout(connection, &limit);
    amqp_set_rpc_timeout(connection, &limit);
    reply = amqp_login(connection, target->vhost, 0, AMQP_DEFAULT_FRAME_SIZE, target->heartbeat_s,
                       AMQP_SASL_METHOD_PLAIN, url->user != NULL ? url->user : "guest",
                       url->password != NULL ? url->password : "guest");
    if (once__amqp_check(reply, "logging in", error, size) != 0) {
        add_hint(target, reply, error, size);
        return -1;
    }
    amqp_channel_open(connection, 1);
    return once__amqp_check(amqp_get_rpc_reply(connection), "opening a channel", error, size);
}

amqp_connection_state_t once__amqp_connect(once__amqp_target_t *target, char *error, size_t size)
{
    amqp_connection_state_t connection = amqp_new_connection();

    snprintf(error, size, "out of memory");
    if (connection != NULL && (open_socket(connection, target, error, size) != 0 ||
                               log_in(connection, target, error, size) != 0)) {
        once__amqp_disconnect(target, connection);
        return NULL;
    }
    return connection;
}

void once__amqp_disconnect(const once__amqp_target_t *target, amqp_connection_state_t connection)
{
    if (target->socket != NULL) {
        atomic_store(target->socket, -1);
    }
    if (connection != NULL) {
        amqp_destroy_connection(connection);
    }
}

/* ------------------------------------------------------------------------------------------------------------ queues */

static int declare(amqp_connection_state_t connection, const char *queue, int passive, char *error,
                   size_t size)
{
    amqp_queue_declare(connection, 1, amqp_cstring_bytes(queue), (amqp_boolean_t)passive, 1, 0, 0,
                       amqp_empty_table);
    return once__amqp_check(amqp_get_rpc_reply(connection), "declaring a queue", error, size);
}

int once__amqp_declare(amqp_connection_state_t connection, const char *queue, char *error,
                       size_t size)
{
    amqp_channel_close_ok_t closed = {0};

    if (declare(connection, queue, 1, error, size) == 0) {
        return 0;
    }
    amqp_send_method(connection, 1, AMQP_CHANNEL_CLOSE_OK_METHOD, &closed); /* the refusal did */
    amqp_channel_open(connection, 1);
    if (once__amqp_check(amqp_get_rpc_reply(connection), "opening a channel", error, size) != 0) {
        return -1;
    }
    return declare(connection, queue, 0, error, size);
}
