#include "store/redis/link_inside.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "store/redis/greet.h"

#define ELEMENTS_MAX (1 << 20) /* of a reply: more than a page of keys, or a map of a cluster */

void once__redis_link_try(once__redis_link_t *link);

void once__redis_link_trouble(once__redis_link_t *link, const char *what, const char *why)
{
    (void)snprintf(link->shared->trouble, ONCE__REDIS_TROUBLE_SIZE, "%.60s:%u: %s%.100s",
                   link->host.name, link->host.port, what, why);
    link->shared->is_complaint = 0;
}

static void greet(once__redis_link_t *link)
{
    link->state = ONCE__REDIS_GREETING;
    if (once__redis_greet(link) != 0) {
        once__redis_link_fail(link, ONCE_E_UNAVAILABLE);
        return;
    }
    once__redis_link_flush(link);
}

void once__redis_link_greeted(once__redis_link_t *link, int code)
{
    if (code != ONCE_OK) {
        link->refusal = code;
        once__redis_link_condemn(link);
        return;
    }
    if (!link->is_sentinel && !link->shared->is_complaint) {
        link->shared->trouble[0] = '\0';
    }
    link->failures = 0;
    link->retry_at = 0;
    link->state = ONCE__REDIS_READY;
    once__timer_stop(link->shared->loop, &link->timer);
    link->shared->changed(link->shared->data, link);
}

void once__redis_link_shake(once__redis_link_t *link)
{
    int done = once__tls_handshake(link->ssl);

    if (done < 0) {
        once__redis_link_flush(link); /* the server is told why */
        once__redis_link_trouble(link, "", once__tls_trouble(link->ssl));
        once__redis_link_fail(link, ONCE_E_CONFIG);
        return;
    }
    if (done > 0) {
        greet(link);
    } else {
        once__redis_link_flush(link);
    }
}

/* hiredis believes what it is told: room for two thousand million elements, and a look at each when it is freed again. */
static void *make_array(const redisReadTask *task, int elements)
{
    const redisReplyObjectFunctions *makers = task->privdata;

    return elements <= ELEMENTS_MAX ? makers->createArray(task, elements) : NULL;
}

static redisReader *new_reader(once__redis_link_t *link)
{
    redisReader *reader = redisReaderCreate();

    if (reader != NULL) {
        link->makers = *reader->fn;
        link->makers.createArray = make_array;
        reader->privdata = reader->fn;
        reader->fn = &link->makers;
    }
    return reader;
}

void once__redis_link_connected(once__redis_link_t *link)
{
    const once__redis_settings_t *settings = link->shared->settings;
    int error = 0, one = 1;
    socklen_t size = sizeof(error);

    if (getsockopt(link->source.fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
        link->connect_error = error != 0 ? error : errno;
        once__redis_link_hang_up(link);
        link->address = link->address->ai_next;
        once__redis_link_try(link);
        return;
    }
    link->shared->met = 1;
    (void)setsockopt(link->source.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(link->source.fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    link->reader = new_reader(link);
    if (settings->tls) {
        link->ssl = once__tls_new(link->shared->tls, settings->tls_name != NULL ? settings->tls_name
                                                                                : link->host.name);
    }
    if (link->reader == NULL || (settings->tls && link->ssl == NULL)) {
        once__redis_link_fail(link, ONCE_E_UNAVAILABLE);
        return;
    }
    once__redis_link_watch(link, EPOLLIN);
    if (settings->tls) {
        link->state = ONCE__REDIS_SHAKING;
        once__redis_link_shake(link);
    } else {
        greet(link);
    }
}

/* Tries the addresses one after the other. */
void once__redis_link_try(once__redis_link_t *link)
{
    for (; link->address != NULL; link->address = link->address->ai_next) {
        const struct addrinfo *a = link->address;
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0) {
            link->connect_error = errno;
            continue;
        }
        link->source.fd = fd;
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0 || errno == EINPROGRESS) {
            link->state = ONCE__REDIS_CONNECTING;
            once__redis_link_watch(link, EPOLLOUT);
            return;
        }
        link->connect_error = errno;
        once__redis_link_hang_up(link);
    }
    link->shared->refused++;
    once__redis_link_trouble(link, "no connection: ",
                             link->connect_error != 0 ? strerror(link->connect_error)
                                                      : "there is no such host");
    once__redis_link_fail(link, ONCE_E_UNAVAILABLE);
}

void once__redis_link_resolved(once__redis_link_t *link)
{
    struct addrinfo *found = once__resolve_take(link->resolve);

    once__redis_link_hang_up(link);
    link->addresses = link->address = found;
    link->connect_error = 0;
    once__redis_link_try(link);
}

void once__redis_link_connect(once__redis_link_t *link)
{
    int fd = -1;

    link->refusal = ONCE_OK;
    once__redis_link_timer(link, link->shared->settings->connect_ms);
    link->addresses = link->address = once__resolve_number(link->host.name, link->host.port);
    link->state = ONCE__REDIS_RESOLVING;
    if (link->addresses != NULL) {
        /* From the loop, like everything that can fail. */
        link->state = ONCE__REDIS_CONNECTING;
        once__redis_link_timer(link, 0);
        return;
    }
    link->resolve = once__resolve_start(link->host.name, link->host.port, &fd);
    if (link->resolve == NULL) {
        once__redis_link_timer(link, 0);
        return;
    }
    link->source.fd = fd;
    once__redis_link_watch(link, EPOLLIN);
}

int once__redis_link_is_ready(once__redis_link_t *link)
{
    if (link->state == ONCE__REDIS_DOWN && link->retry_at <= once__loop_now(link->shared->loop)) {
        once__redis_link_connect(link);
    }
    return link->state == ONCE__REDIS_READY && !link->condemned;
}
