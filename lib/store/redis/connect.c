/*
 * From a host name to a connection that can be used: look-up, TCP, TLS, and the start of the handshake. The C library blocks while
 * it looks a name up, so a thread does that, and says by a descriptor that it is done.
 */
#include "store/redis/connection_internal.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "store/redis/handshake.h"
#include "store/thread.h"

#define ELEMENTS_MAX (1 << 20) /* of a reply: more than a page of keys, or a map of a cluster */

/* ------------------------------------------------------------------------------------------------------ looking names up */

typedef struct once__redis_lookup {
    atomic_int users; /* the thread and the connection */
    int fd;
    _Atomic(struct addrinfo *) found;
    char port[8];
    char host[];
} lookup_t;

static struct addrinfo *look_up(const char *host, const char *port, int flags)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    struct addrinfo *found = NULL;

    return getaddrinfo(host, port, &hints, &found) == 0 ? found : NULL;
}

/* An address that needs no look-up. NULL if it is a name. Freed with freeaddrinfo. */
static struct addrinfo *numeric_address(const char *host, uint16_t port)
{
    char text[8];

    (void)snprintf(text, sizeof(text), "%u", port);
    return look_up(host, text, AI_NUMERICHOST);
}

static void leave(lookup_t *lookup)
{
    if (atomic_fetch_sub(&lookup->users, 1) == 1) {
        struct addrinfo *found = atomic_load(&lookup->found);
        if (found != NULL) {
            freeaddrinfo(found);
        }
        (void)close(lookup->fd);
        free(lookup);
    }
}

static void *run(void *data)
{
    lookup_t *lookup = data;
    uint64_t one = 1;

    atomic_store(&lookup->found, look_up(lookup->host, lookup->port, AI_ADDRCONFIG));
    while (write(lookup->fd, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    leave(lookup);
    return NULL;
}

static int start_thread(lookup_t *lookup)
{
    pthread_t thread;

    if (once__spawn(&thread, run, lookup) != 0) {
        return -1;
    }
    (void)pthread_detach(thread);
    return 0;
}

/* `*fd` becomes readable when it is done. NULL: no memory, descriptor or thread. */
static lookup_t *start_lookup(const char *host, uint16_t port, int *fd)
{
    lookup_t *lookup = calloc(1, sizeof(*lookup) + strlen(host) + 1);

    if (lookup == NULL) {
        return NULL;
    }
    (void)snprintf(lookup->port, sizeof(lookup->port), "%u", port);
    memcpy(lookup->host, host, strlen(host) + 1);
    atomic_init(&lookup->users, 2);
    lookup->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (lookup->fd < 0 || start_thread(lookup) != 0) {
        if (lookup->fd >= 0) {
            (void)close(lookup->fd);
        }
        free(lookup);
        return NULL;
    }
    *fd = lookup->fd;
    return lookup;
}

/* When it is done: the addresses, which the caller frees. NULL: there are none. */
static struct addrinfo *take_addresses(lookup_t *lookup)
{
    return atomic_exchange(&lookup->found, NULL);
}

void once__redis_lookup_free(lookup_t *lookup)
{
    leave(lookup);
}

/* ------------------------------------------------------------------------------------------------------------ connecting */

static void start_handshake(once__redis_connection_t *connection)
{
    connection->state = ONCE__REDIS_HANDSHAKE;
    if (once__redis_handshake(connection) != 0) {
        once__redis_connection_fail(connection, ONCE_E_UNAVAILABLE);
        return;
    }
    once__redis_connection_flush(connection);
}

void once__redis_connection_tls(once__redis_connection_t *connection)
{
    int done = once__redis_tls_handshake(connection->ssl);

    if (done < 0) {
        once__redis_connection_flush(connection); /* the alert for the server */
        once__redis_connection_trouble(connection, "", once__redis_tls_trouble(connection->ssl));
        once__redis_connection_fail(connection, ONCE_E_CONFIG);
        return;
    }
    if (done > 0) {
        start_handshake(connection);
    } else {
        once__redis_connection_flush(connection);
    }
}

/* hiredis trusts the length of an array: it would make room for two billion elements, and visit each to free it. */
static void *make_array(const redisReadTask *task, int elements)
{
    const redisReplyObjectFunctions *makers = task->privdata;

    return elements <= ELEMENTS_MAX ? makers->createArray(task, elements) : NULL;
}

static redisReader *new_reader(once__redis_connection_t *connection)
{
    redisReader *reader = redisReaderCreate();

    if (reader != NULL) {
        connection->makers = *reader->fn;
        connection->makers.createArray = make_array;
        reader->privdata = reader->fn;
        reader->fn = &connection->makers;
    }
    return reader;
}

void once__redis_connection_connected(once__redis_connection_t *connection)
{
    const once__redis_settings_t *settings = connection->shared->settings;
    int error = 0, one = 1;
    socklen_t size = sizeof(error);

    if (getsockopt(connection->source.fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
        connection->connect_error = error != 0 ? error : errno;
        once__redis_connection_hang_up(connection);
        connection->address = connection->address->ai_next;
        once__redis_connection_try(connection);
        return;
    }
    connection->shared->met = 1;
    (void)setsockopt(connection->source.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(connection->source.fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    connection->reader = new_reader(connection);
    if (settings->tls) {
        connection->ssl = once__redis_tls_new(connection->shared->tls, settings->tls_name != NULL
                                                                           ? settings->tls_name
                                                                           : connection->host.name);
    }
    if (connection->reader == NULL || (settings->tls && connection->ssl == NULL)) {
        once__redis_connection_fail(connection, ONCE_E_UNAVAILABLE);
        return;
    }
    once__redis_connection_watch(connection, EPOLLIN);
    if (settings->tls) {
        connection->state = ONCE__REDIS_TLS_HANDSHAKE;
        once__redis_connection_tls(connection);
    } else {
        start_handshake(connection);
    }
}

void once__redis_connection_try(once__redis_connection_t *connection)
{
    for (; connection->address != NULL; connection->address = connection->address->ai_next) {
        const struct addrinfo *a = connection->address;
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0) {
            connection->connect_error = errno;
            continue;
        }
        connection->source.fd = fd;
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0 || errno == EINPROGRESS) {
            connection->state = ONCE__REDIS_CONNECTING;
            once__redis_connection_watch(connection, EPOLLOUT);
            return;
        }
        connection->connect_error = errno;
        once__redis_connection_hang_up(connection);
    }
    connection->shared->refused++;
    once__redis_connection_trouble(connection, "no connection: ",
                                   connection->connect_error != 0
                                       ? strerror(connection->connect_error)
                                       : "there is no such host");
    once__redis_connection_fail(connection, ONCE_E_UNAVAILABLE);
}

void once__redis_connection_resolved(once__redis_connection_t *connection)
{
    struct addrinfo *found = take_addresses(connection->lookup);

    once__redis_connection_hang_up(connection);
    connection->addresses = connection->address = found;
    connection->connect_error = 0;
    once__redis_connection_try(connection);
}

/* Starts connecting; `changed` is called from the loop when it is ready or down. */
static void start_connecting(once__redis_connection_t *connection)
{
    int fd = -1;

    connection->refusal = ONCE_OK;
    once__redis_connection_timer(connection, connection->shared->settings->connect_ms);
    connection->addresses = connection->address =
        numeric_address(connection->host.name, connection->host.port);
    connection->state = ONCE__REDIS_RESOLVING;
    if (connection->addresses != NULL) {
        /* Later, from the loop, like everything that can fail. */
        connection->state = ONCE__REDIS_CONNECTING;
        once__redis_connection_timer(connection, 0);
        return;
    }
    connection->lookup = start_lookup(connection->host.name, connection->host.port, &fd);
    if (connection->lookup == NULL) {
        once__redis_connection_timer(connection, 0);
        return;
    }
    connection->source.fd = fd;
    once__redis_connection_watch(connection, EPOLLIN);
}

int once__redis_connection_is_ready(once__redis_connection_t *connection)
{
    if (connection->state == ONCE__REDIS_DOWN &&
        connection->retry_at <= once__loop_now(connection->shared->loop)) {
        start_connecting(connection);
    }
    return connection->state == ONCE__REDIS_READY && !connection->condemned;
}
