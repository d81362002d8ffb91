#include "store/redis/link.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "store/redis/greet.h"

#define PAUSE_MIN_MS 50
#define PAUSE_MAX_MS 2000
#define READ_SIZE    65536
#define ROOM_MIN     16384u
#define ROOM_KEEP    ((size_t)1 << 20) /* a rare giant must not stay for ever */

#define LINK_OF(member, pointer)                                                                   \
    ((once__redis_link_t *)(void *)((char *)(pointer)-offsetof(once__redis_link_t, member)))

/* ------------------------------------------------------------------------------------------------------------ buffers */

static char *reserve(once__redis_buffer_t *buffer, size_t more)
{
    if (buffer->room - buffer->len < more) {
        size_t room = buffer->room < ROOM_MIN ? ROOM_MIN : buffer->room;
        char *data;
        while (room - buffer->len < more) {
            room *= 2;
        }
        data = realloc(buffer->data, room);
        if (data == NULL) {
            return NULL;
        }
        buffer->data = data;
        buffer->room = room;
    }
    return buffer->data + buffer->len;
}

static void empty(once__redis_buffer_t *buffer)
{
    buffer->len = buffer->from = 0;
    if (buffer->room > ROOM_KEEP) {
        free(buffer->data);
        memset(buffer, 0, sizeof(*buffer));
    }
}

/* ---------------------------------------------------------------------------------------------------------- lifetime */

static void set_timer(once__redis_link_t *link, uint64_t ms)
{
    once__loop_t *loop = link->shared->loop;

    once__timer_set(loop, &link->timer, ms == 0 ? 0 : once__loop_now(loop) + ms);
}

static void watch(once__redis_link_t *link, uint32_t events)
{
    if (link->events != events) {
        (void)once__source_set(link->shared->loop, &link->source, link->source.fd, events);
        link->events = events;
    }
}

static void close_socket(once__redis_link_t *link)
{
    if (link->source.fd >= 0) {
        if (link->events != 0) {
            (void)once__source_set(link->shared->loop, &link->source, link->source.fd, 0);
        }
        if (link->resolve == NULL) {
            (void)close(link->source.fd);
        }
    }
    if (link->resolve != NULL) {
        once__resolve_free(link->resolve);
    }
    link->resolve = NULL;
    link->source.fd = -1;
    link->events = 0;
}

static void forget_connection(once__redis_link_t *link)
{
    close_socket(link);
    if (link->addresses != NULL) {
        freeaddrinfo(link->addresses);
    }
    link->addresses = link->address = NULL;
    SSL_free(link->ssl);
    link->ssl = NULL;
    if (link->reader != NULL) {
        redisReaderFree(link->reader);
    }
    link->reader = NULL;
    empty(&link->plain);
    empty(&link->wire);
    link->condemned = 0;
    link->state = ONCE__REDIS_DOWN;
    once__timer_stop(link->shared->loop, &link->timer);
}

/* Calls that got no reply. What they do about it may be to call again, on whatever is there then. */
static void end_calls(once__redis_link_t *link)
{
    once__redis_call_t *call = link->first;
    uint64_t gone = link->gone;

    link->first = NULL;
    link->last = &link->first;
    link->call_count = 0;
    link->stream = link->gone = 0;
    while (call != NULL) {
        once__redis_call_t *next = call->next;
        call->sent = call->begin < gone;
        call->done(call, NULL);
        call = next;
    }
}

/* Down, and not to be tried again before a pause that grows; many that lost the same server must not come back in step. */
static void fail(once__redis_link_t *link, int refusal)
{
    const once__env_t *env = once__loop_env(link->shared->loop);
    uint64_t pause = PAUSE_MIN_MS;
    uint8_t jitter = 0;

    forget_connection(link);
    for (unsigned i = 0; i < link->failures && pause < PAUSE_MAX_MS; i++) {
        pause *= 2;
    }
    pause = pause < PAUSE_MAX_MS ? pause : PAUSE_MAX_MS;
    (void)env->random(env->data, &jitter, 1);
    link->failures++;
    link->refusal = refusal;
    link->retry_at = once__loop_now(link->shared->loop) + pause + pause * jitter / 512;
    end_calls(link);
    link->shared->changed(link->shared->data, link);
}

/* A connection that had worked: the next try may be made at once. */
static void drop(once__redis_link_t *link)
{
    if (link->state != ONCE__REDIS_READY) {
        fail(link, ONCE_E_UNAVAILABLE);
        return;
    }
    forget_connection(link);
    link->refusal = ONCE_E_UNAVAILABLE;
    link->retry_at = 0;
    end_calls(link);
    link->shared->changed(link->shared->data, link);
}

void once__redis_link_condemn(once__redis_link_t *link)
{
    if (link->state != ONCE__REDIS_DOWN) {
        link->condemned = 1;
        set_timer(link, 0);
    }
}

/* --------------------------------------------------------------------------------------------------------- connecting */

static void connect_next(once__redis_link_t *link);

static void trouble(once__redis_link_t *link, const char *what, const char *why)
{
    (void)snprintf(link->shared->trouble, ONCE__REDIS_TROUBLE_SIZE, "%.60s:%u: %s%.100s",
                   link->host.name, link->host.port, what, why);
}

static void greet(once__redis_link_t *link)
{
    link->state = ONCE__REDIS_GREETING;
    if (once__redis_greet(link) != 0) {
        fail(link, ONCE_E_UNAVAILABLE);
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
    if (!link->is_sentinel) {
        link->shared->trouble[0] = '\0';
    }
    link->failures = 0;
    link->retry_at = 0;
    link->state = ONCE__REDIS_READY;
    once__timer_stop(link->shared->loop, &link->timer);
    link->shared->changed(link->shared->data, link);
}

static void shake(once__redis_link_t *link)
{
    int done = once__tls_handshake(link->ssl);

    if (done < 0) {
        once__redis_link_flush(link); /* the server is told why */
        trouble(link, "", once__tls_trouble(link->ssl));
        fail(link, ONCE_E_CONFIG);
        return;
    }
    if (done > 0) {
        greet(link);
    } else {
        once__redis_link_flush(link);
    }
}

static void connected(once__redis_link_t *link)
{
    const once__redis_settings_t *settings = link->shared->settings;
    int error = 0, one = 1;
    socklen_t size = sizeof(error);

    if (getsockopt(link->source.fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
        close_socket(link);
        link->address = link->address->ai_next;
        connect_next(link);
        return;
    }
    (void)setsockopt(link->source.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(link->source.fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    link->reader = redisReaderCreate();
    if (settings->tls) {
        link->ssl = once__tls_new(link->shared->tls, settings->tls_name != NULL ? settings->tls_name
                                                                                : link->host.name);
    }
    if (link->reader == NULL || (settings->tls && link->ssl == NULL)) {
        fail(link, ONCE_E_UNAVAILABLE);
        return;
    }
    watch(link, EPOLLIN);
    if (settings->tls) {
        link->state = ONCE__REDIS_SHAKING;
        shake(link);
    } else {
        greet(link);
    }
}

/* Tries the addresses one after the other. */
static void connect_next(once__redis_link_t *link)
{
    for (; link->address != NULL; link->address = link->address->ai_next) {
        const struct addrinfo *a = link->address;
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0) {
            continue;
        }
        link->source.fd = fd;
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0 || errno == EINPROGRESS) {
            link->state = ONCE__REDIS_CONNECTING;
            watch(link, EPOLLOUT);
            return;
        }
        close_socket(link);
    }
    trouble(link, "no connection", "");
    fail(link, ONCE_E_UNAVAILABLE);
}

static void resolved(once__redis_link_t *link)
{
    struct addrinfo *found = once__resolve_take(link->resolve);

    close_socket(link);
    link->addresses = link->address = found;
    connect_next(link);
}

void once__redis_link_connect(once__redis_link_t *link)
{
    int fd = -1;

    link->refusal = ONCE_OK;
    set_timer(link, link->shared->settings->connect_ms);
    link->addresses = link->address = once__resolve_number(link->host.name, link->host.port);
    link->state = ONCE__REDIS_RESOLVING;
    if (link->addresses != NULL) {
        /* From the loop, like everything that can fail. */
        link->state = ONCE__REDIS_CONNECTING;
        set_timer(link, 0);
        return;
    }
    link->resolve = once__resolve_start(link->host.name, link->host.port, &fd);
    if (link->resolve == NULL) {
        set_timer(link, 0);
        return;
    }
    link->source.fd = fd;
    watch(link, EPOLLIN);
}

int once__redis_link_is_ready(once__redis_link_t *link)
{
    if (link->state == ONCE__REDIS_DOWN && link->retry_at <= once__loop_now(link->shared->loop)) {
        once__redis_link_connect(link);
    }
    return link->state == ONCE__REDIS_READY && !link->condemned;
}

/* -------------------------------------------------------------------------------------------------------------- calls */

int once__redis_link_call(once__redis_link_t *link, once__redis_call_t *call, int argc,
                          const char **argv, const size_t *lengths)
{
    once__redis_buffer_t *out = link->ssl != NULL ? &link->plain : &link->wire;
    char *text = NULL, *to;
    int len;

    if (link->state < ONCE__REDIS_GREETING || link->condemned) {
        return -1; /* it went away meanwhile */
    }
    len = redisFormatCommandArgv(&text, argc, argv, lengths);
    if (len < 0) {
        return -1;
    }
    to = reserve(out, (size_t)len);
    if (to != NULL) {
        memcpy(to, text, (size_t)len);
        out->len += (size_t)len;
    }
    free(text);
    if (to == NULL) {
        return -1;
    }
    call->next = NULL;
    call->link = link;
    call->begin = link->stream;
    link->stream += (uint64_t)len;
    if (link->first == NULL && link->state != ONCE__REDIS_GREETING) {
        set_timer(link, link->shared->settings->reply_ms);
    }
    *link->last = call;
    link->last = &call->next;
    link->call_count++;
    return 0;
}

/* What TLS makes of the collected bytes goes to the wire. 0 or -1. */
static int encrypt(once__redis_link_t *link)
{
    if (link->ssl == NULL) {
        return 0;
    }
    if (link->plain.len > 0) {
        if (once__tls_write(link->ssl, link->plain.data, link->plain.len) != 0) {
            return -1;
        }
        link->gone = link->stream;
        empty(&link->plain);
    }
    for (;;) {
        char *to = reserve(&link->wire, ROOM_MIN);
        size_t got = to != NULL ? once__tls_drain(link->ssl, to, ROOM_MIN) : 0;
        if (to == NULL || got == 0) {
            return to == NULL ? -1 : 0;
        }
        link->wire.len += got;
    }
}

void once__redis_link_flush(once__redis_link_t *link)
{
    once__redis_buffer_t *wire = &link->wire;

    if (link->state < ONCE__REDIS_SHAKING || link->condemned) {
        return;
    }
    if (encrypt(link) != 0) {
        once__redis_link_condemn(link);
        return;
    }
    while (wire->from < wire->len) {
        ssize_t sent =
            send(link->source.fd, wire->data + wire->from, wire->len - wire->from, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK) {
                once__redis_link_condemn(link);
                return;
            }
            watch(link, EPOLLIN | EPOLLOUT);
            return;
        }
        wire->from += (size_t)sent;
        link->gone += link->ssl == NULL ? (uint64_t)sent : 0;
    }
    empty(wire);
    watch(link, EPOLLIN);
}

/* ------------------------------------------------------------------------------------------------------------ replies */

/* Hands out the replies that are complete. 0, or -1: this is not the protocol. */
static int hand_out(once__redis_link_t *link)
{
    void *reply = NULL;

    while (!link->condemned && redisReaderGetReply(link->reader, &reply) == REDIS_OK) {
        once__redis_call_t *call = link->first;
        if (reply == NULL) {
            return 0;
        }
        if (call == NULL) {
            freeReplyObject(reply);
            return -1;
        }
        link->first = call->next;
        link->last = link->first == NULL ? &link->first : link->last;
        link->call_count--;
        if (link->state == ONCE__REDIS_READY) {
            if (link->first != NULL) {
                set_timer(link, link->shared->settings->reply_ms);
            } else {
                once__timer_stop(link->shared->loop, &link->timer);
            }
        }
        call->done(call, reply);
        freeReplyObject(reply);
        reply = NULL;
    }
    return link->condemned ? 0 : -1;
}

static int decrypt(once__redis_link_t *link, const char *data, size_t len)
{
    char plain[16384];

    if (once__tls_feed(link->ssl, data, len) != 0) {
        return -1;
    }
    for (;;) {
        int got;
        if (link->state == ONCE__REDIS_SHAKING) {
            shake(link);
            if (link->state <= ONCE__REDIS_SHAKING) {
                return 0;
            }
        }
        got = once__tls_read(link->ssl, plain, sizeof(plain));
        if (got <= 0) {
            return got;
        }
        if (redisReaderFeed(link->reader, plain, (size_t)got) != REDIS_OK) {
            return -1;
        }
    }
}

/* Reads what is there. 0, or -1: the connection ended. What came before its end still counts. */
static int take_in(once__redis_link_t *link)
{
    static _Thread_local char data[READ_SIZE];
    int ended = 0;

    while (!ended) {
        ssize_t got = recv(link->source.fd, data, sizeof(data), 0);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            break;
        }
        if (got <= 0) {
            ended = 1;
        } else if (link->ssl != NULL) {
            ended = decrypt(link, data, (size_t)got) != 0;
            if (link->state == ONCE__REDIS_DOWN) {
                return 0;
            }
        } else {
            ended = redisReaderFeed(link->reader, data, (size_t)got) != REDIS_OK;
        }
        if (got > 0 && (size_t)got < sizeof(data)) {
            break;
        }
    }
    return hand_out(link) != 0 || ended ? -1 : 0;
}

static void refuse_or_drop(once__redis_link_t *link)
{
    if (link->state == ONCE__REDIS_GREETING) {
        fail(link, link->refusal != ONCE_OK ? link->refusal : ONCE_E_UNAVAILABLE);
    } else {
        drop(link);
    }
}

static void ready(once__source_t *source, uint32_t events)
{
    once__redis_link_t *link = LINK_OF(source, source);

    switch (link->state) {
    case ONCE__REDIS_DOWN:
        return;
    case ONCE__REDIS_RESOLVING:
        resolved(link);
        return;
    case ONCE__REDIS_CONNECTING:
        connected(link);
        return;
    default:
        break;
    }
    if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) && take_in(link) != 0) {
        refuse_or_drop(link);
        return;
    }
    if (link->condemned) {
        refuse_or_drop(link);
    } else if (events & EPOLLOUT) {
        once__redis_link_flush(link);
    }
}

/* No reply for too long, no connection for too long, condemned; or an address that needed no look-up. */
static void timer_fired(once__timer_t *timer)
{
    once__redis_link_t *link = LINK_OF(timer, timer);

    if (link->state == ONCE__REDIS_CONNECTING && link->source.fd < 0 && link->address != NULL &&
        !link->condemned) {
        set_timer(link, link->shared->settings->connect_ms);
        connect_next(link);
        return;
    }
    if (link->state != ONCE__REDIS_READY && !link->condemned) {
        trouble(link, "no connection in time", "");
    }
    refuse_or_drop(link);
}

int once__redis_link_init(once__redis_link_t *link, once__redis_shared_t *shared,
                          const once__redis_host_t *host, int is_sentinel)
{
    memset(link, 0, sizeof(*link));
    link->shared = shared;
    link->host = *host;
    link->is_sentinel = is_sentinel;
    link->source.ready = ready;
    link->source.fd = -1;
    link->timer.fire = timer_fired;
    link->last = &link->first;
    return once__timers_reserve(shared->loop);
}

static void free_memory(once__redis_link_t *link)
{
    free(link->plain.data);
    free(link->wire.data);
    memset(&link->plain, 0, sizeof(link->plain));
    memset(&link->wire, 0, sizeof(link->wire));
}

void once__redis_link_free(once__redis_link_t *link)
{
    forget_connection(link);
    end_calls(link);
    free_memory(link);
    once__timers_release(link->shared->loop);
}

/* The loop's descriptors are the parent's, too: nothing in them may be changed. */
void once__redis_link_abandon(once__redis_link_t *link)
{
    once__redis_call_t *call = link->first;

    if (link->source.fd >= 0 && link->resolve == NULL) {
        (void)close(link->source.fd);
    }
    if (link->addresses != NULL) {
        freeaddrinfo(link->addresses);
    }
    if (link->reader != NULL) {
        redisReaderFree(link->reader);
    }
    SSL_free(link->ssl);
    while (call != NULL) {
        once__redis_call_t *next = call->next;
        free(call);
        call = next;
    }
    free_memory(link);
}
