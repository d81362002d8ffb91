#include "store/redis/connection.h"

#include <assert.h>
#include <errno.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/backoff.h"
#include "store/redis/handshake.h"
#include "store/redis/lookup.h"

#define PAUSE_MIN_MS 50
#define PAUSE_MAX_MS 500 /* a store_timeout of a second always contains an attempt */
#define READ_SIZE    65536
#define WIRE_STEP    16384u
#define OUTPUT_MAX   ((size_t)1 << 31) /* bytes that may wait to be sent */
#define OUTPUT_KEEP  ((size_t)1 << 20) /* memory that stays after a rare large command */
#define ELEMENTS_MAX (1 << 20) /* of a reply: more than a page of keys, or a map of a cluster */

#define CONNECTION_OF(member, pointer)                                                             \
    ((once__redis_connection_t *)(void *)((char *)(pointer)-offsetof(once__redis_connection_t,     \
                                                                     member)))

static void assert_connection_state(const once__redis_connection_t *connection)
{
    int is_open = connection->state >= ONCE__REDIS_TLS_HANDSHAKE;

    if (connection->state == ONCE__REDIS_DOWN) { /* C-1 */
        assert(connection->source.fd < 0 && connection->lookup == NULL);
        assert(connection->addresses == NULL && connection->ssl == NULL);
        assert(connection->reader == NULL && !connection->condemned);
    }
    assert(connection->state >= ONCE__REDIS_HANDSHAKE || connection->calls.first == NULL); /* C-2 */
    assert(!is_open || (connection->source.fd >= 0 && connection->reader != NULL));        /* C-3 */
    assert(!is_open || (connection->ssl != NULL) == (connection->shared->settings->tls != 0));
    assert(connection->lookup == NULL || connection->state == ONCE__REDIS_RESOLVING); /* C-4 */
    assert((connection->calls.first == NULL) == (connection->calls.count == 0));      /* C-5 */
    assert((connection->calls.first == NULL) ==
           (connection->calls.end == &connection->calls.first));
    assert(connection->gone <= connection->stream); /* C-6 */
    assert(connection->wire_sent <= connection->wire.len);
}

/* ----------------------------------------------------------------------------------------------------------- the end */

/* 0: at once. */
static void set_timer(once__redis_connection_t *connection, uint64_t ms)
{
    once__loop_t *loop = connection->shared->loop;

    once__timer_set(loop, &connection->timer, ms == 0 ? 0 : once__loop_now(loop) + ms);
}

/* Bytes went one way or the other: replies have more time again. The handshake has a time of its own. */
static void heard(once__redis_connection_t *connection)
{
    if (connection->state != ONCE__REDIS_READY || connection->condemned) {
        return;
    }
    if (connection->calls.first != NULL) {
        set_timer(connection, connection->shared->settings->reply_ms);
    } else {
        once__timer_stop(connection->shared->loop, &connection->timer);
    }
}

static void watch(once__redis_connection_t *connection, uint32_t events)
{
    if (connection->events != events) {
        (void)once__source_set(connection->shared->loop, &connection->source, connection->source.fd,
                               events);
        connection->events = events;
    }
}

/* Closes the socket, or stops a look-up. */
static void hang_up(once__redis_connection_t *connection)
{
    if (connection->source.fd >= 0) {
        if (connection->events != 0) {
            (void)once__source_set(connection->shared->loop, &connection->source,
                                   connection->source.fd, 0);
        }
        if (connection->lookup == NULL) {
            (void)close(connection->source.fd);
        }
    }
    if (connection->lookup != NULL) {
        once__redis_lookup_free(connection->lookup);
    }
    connection->lookup = NULL;
    connection->source.fd = -1;
    connection->events = 0;
}

static void forget_connection(once__redis_connection_t *connection)
{
    hang_up(connection);
    if (connection->addresses != NULL) {
        freeaddrinfo(connection->addresses);
    }
    connection->addresses = connection->address = NULL;
    SSL_free(connection->ssl);
    connection->ssl = NULL;
    if (connection->reader != NULL) {
        redisReaderFree(connection->reader);
    }
    connection->reader = NULL;
    once__buf_reset(&connection->plain, OUTPUT_KEEP);
    once__buf_reset(&connection->wire, OUTPUT_KEEP);
    connection->wire_sent = 0;
    connection->condemned = 0;
    connection->state = ONCE__REDIS_DOWN;
    once__timer_stop(connection->shared->loop, &connection->timer);
}

/* Ends the calls that got no reply. Their callbacks may call again, on any connection. */
static void end_calls(once__redis_connection_t *connection)
{
    once__redis_call_t *call = connection->calls.first;
    uint64_t gone = connection->gone;

    once__list_init(&connection->calls);
    connection->stream = connection->gone = 0;
    while (call != NULL) {
        once__redis_call_t *next = call->next;
        call->sent = call->begin < gone;
        call->done(call, NULL);
        call = next;
    }
}

/* Down, and not to be tried again before a pause that grows. */
static void fail(once__redis_connection_t *connection, int refusal)
{
    const once__env_t *env = once__loop_env(connection->shared->loop);
    uint64_t bits = 0;

    forget_connection(connection);
    (void)env->random(env->data, (uint8_t *)&bits, sizeof(bits));
    connection->retry_at = once__loop_now(connection->shared->loop) +
                           once__backoff(connection->failures, PAUSE_MIN_MS, PAUSE_MAX_MS, bits);
    connection->failures++;
    connection->refusal = refusal;
    end_calls(connection);
    connection->shared->changed(connection->shared->data, connection);
}

/* A connection that had worked may be tried again at once. */
static void drop(once__redis_connection_t *connection)
{
    if (connection->state != ONCE__REDIS_READY) {
        fail(connection, ONCE_E_UNAVAILABLE);
        return;
    }
    forget_connection(connection);
    connection->refusal = ONCE_E_UNAVAILABLE;
    connection->retry_at = 0;
    end_calls(connection);
    connection->shared->changed(connection->shared->data, connection);
}

void once__redis_connection_condemn(once__redis_connection_t *connection)
{
    assert_connection_state(connection);
    if (connection->state != ONCE__REDIS_DOWN) {
        connection->condemned = 1;
        set_timer(connection, 0);
    }
}

void once__redis_connection_distrust(once__redis_connection_t *connection)
{
    once__redis_connection_complain(connection, "this is not what Redis answers");
    once__redis_connection_condemn(connection);
}

static void note_trouble(once__redis_connection_t *connection, const char *what, const char *why)
{
    (void)snprintf(connection->shared->trouble, ONCE__REDIS_TROUBLE_SIZE, "%.60s:%u: %s%.100s",
                   connection->host.name, connection->host.port, what, why);
    connection->shared->is_complaint = 0;
}

void once__redis_connection_complain(once__redis_connection_t *connection, const char *text)
{
    note_trouble(connection, "", text);
    connection->shared->is_complaint = 1;
}

void once__redis_connection_content(once__redis_connection_t *connection)
{
    if (connection->shared->is_complaint) {
        connection->shared->is_complaint = 0;
        connection->shared->trouble[0] = '\0';
    }
}

/* ------------------------------------------------------------------------------------------------------------ connecting */

static void start_handshake(once__redis_connection_t *connection)
{
    connection->state = ONCE__REDIS_HANDSHAKE;
    if (once__redis_handshake(connection) != 0) {
        fail(connection, ONCE_E_UNAVAILABLE);
        return;
    }
    once__redis_connection_flush(connection);
}

static void go_on_with_tls(once__redis_connection_t *connection)
{
    int done = once__redis_tls_handshake(connection->ssl);

    if (done < 0) {
        once__redis_connection_flush(connection); /* the alert for the server */
        note_trouble(connection, "", once__redis_tls_trouble(connection->ssl));
        fail(connection, ONCE_E_CONFIG);
        return;
    }
    if (done > 0) {
        start_handshake(connection);
    } else {
        once__redis_connection_flush(connection);
    }
}

#if HIREDIS_MAJOR < 1
typedef int array_len_t;
#else
typedef size_t array_len_t;
#endif

/* hiredis trusts the length of an array: it would make room for two billion elements, and visit each to free it. */
static void *make_array(const redisReadTask *task, array_len_t elements)
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

/* The addresses, one after the other. */
static void try_address(once__redis_connection_t *connection)
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
            watch(connection, EPOLLOUT);
            return;
        }
        connection->connect_error = errno;
        hang_up(connection);
    }
    connection->shared->refused++;
    note_trouble(connection, "no connection: ",
                 connection->connect_error != 0 ? strerror(connection->connect_error)
                                                : "there is no such host");
    fail(connection, ONCE_E_UNAVAILABLE);
}

static void connected(once__redis_connection_t *connection)
{
    const once__redis_settings_t *settings = connection->shared->settings;
    int error = 0, one = 1;
    socklen_t size = sizeof(error);

    if (getsockopt(connection->source.fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
        connection->connect_error = error != 0 ? error : errno;
        hang_up(connection);
        connection->address = connection->address->ai_next;
        try_address(connection);
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
        fail(connection, ONCE_E_UNAVAILABLE);
        return;
    }
    watch(connection, EPOLLIN);
    if (settings->tls) {
        connection->state = ONCE__REDIS_TLS_HANDSHAKE;
        go_on_with_tls(connection);
    } else {
        start_handshake(connection);
    }
}

static void resolved(once__redis_connection_t *connection)
{
    struct addrinfo *found = once__redis_lookup_take(connection->lookup);

    hang_up(connection);
    connection->addresses = connection->address = found;
    connection->connect_error = 0;
    try_address(connection);
}

/* Starts connecting; `changed` is called from the loop when it is ready or down. */
static void start_connecting(once__redis_connection_t *connection)
{
    int fd = -1;

    connection->refusal = ONCE_OK;
    set_timer(connection, connection->shared->settings->connect_ms);
    connection->addresses = connection->address =
        once__redis_lookup_numeric(connection->host.name, connection->host.port);
    connection->state = ONCE__REDIS_RESOLVING;
    if (connection->addresses != NULL) {
        /* Later, from the loop, like everything that can fail. */
        connection->state = ONCE__REDIS_CONNECTING;
        set_timer(connection, 0);
        return;
    }
    connection->lookup =
        once__redis_lookup_start(connection->host.name, connection->host.port, &fd);
    if (connection->lookup == NULL) {
        set_timer(connection, 0);
        return;
    }
    connection->source.fd = fd;
    watch(connection, EPOLLIN);
}

int once__redis_connection_is_ready(once__redis_connection_t *connection)
{
    if (connection->state == ONCE__REDIS_DOWN &&
        connection->retry_at <= once__loop_now(connection->shared->loop)) {
        start_connecting(connection);
    }
    return connection->state == ONCE__REDIS_READY && !connection->condemned;
}

/* -------------------------------------------------------------------------------------------------------------- calls */

int once__redis_connection_call(once__redis_connection_t *connection, once__redis_call_t *call,
                                int argc, const char **argv, const size_t *lengths)
{
    once__buf_t *out = connection->ssl != NULL ? &connection->plain : &connection->wire;
    char *text = NULL;
    int len, code;

    assert_connection_state(connection);
    if (connection->state < ONCE__REDIS_HANDSHAKE || connection->condemned) {
        return -1; /* it went away meanwhile */
    }
    len = redisFormatCommandArgv(&text, argc, argv, lengths);
    if (len < 0) {
        return -1;
    }
    code = once__buf_add(out, text, (size_t)len);
    free(text);
    if (code != ONCE_OK) {
        out->error = ONCE_OK; /* nothing was added: a shorter one may fit */
        return -1;
    }
    call->connection = connection;
    call->begin = connection->stream;
    connection->stream += (uint64_t)len;
    if (connection->calls.first == NULL && connection->state != ONCE__REDIS_HANDSHAKE) {
        set_timer(connection, connection->shared->settings->reply_ms);
    }
    once__list_add(&connection->calls, call);
    return 0;
}

/* ------------------------------------------------------------------------------------------------------------- sending */

/* Encrypts the collected commands into the wire buffer. Returns 0 or -1. */
static int encrypt(once__redis_connection_t *connection)
{
    if (connection->ssl == NULL) {
        return 0;
    }
    if (connection->plain.len > 0) {
        if (once__redis_tls_write(connection->ssl, connection->plain.data, connection->plain.len) !=
            0) {
            return -1;
        }
        connection->gone = connection->stream;
        once__buf_reset(&connection->plain, OUTPUT_KEEP);
    }
    for (;;) {
        char *to = once__buf_reserve(&connection->wire, WIRE_STEP);
        size_t got = to != NULL ? once__redis_tls_drain(connection->ssl, to, WIRE_STEP) : 0;
        if (to == NULL || got == 0) {
            return to == NULL ? -1 : 0;
        }
        once__buf_added(&connection->wire, got);
    }
}

void once__redis_connection_flush(once__redis_connection_t *connection)
{
    once__buf_t *wire = &connection->wire;
    int is_moving = 0;

    assert_connection_state(connection);
    if (connection->state < ONCE__REDIS_TLS_HANDSHAKE || connection->condemned) {
        return;
    }
    if (encrypt(connection) != 0) {
        once__redis_connection_condemn(connection);
        return;
    }
    while (connection->wire_sent < wire->len) {
        ssize_t sent = send(connection->source.fd, wire->data + connection->wire_sent,
                            wire->len - connection->wire_sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK) {
                once__redis_connection_condemn(connection);
                return;
            }
            watch(connection, EPOLLIN | EPOLLOUT);
            if (is_moving) {
                heard(connection); /* a large one over a slow line */
            }
            return;
        }
        connection->wire_sent += (size_t)sent;
        is_moving = 1;
        connection->gone += connection->ssl == NULL ? (uint64_t)sent : 0;
    }
    once__buf_reset(wire, OUTPUT_KEEP);
    connection->wire_sent = 0;
    watch(connection, EPOLLIN);
}

/* ------------------------------------------------------------------------------------------------------------ replies */

/* Gives complete replies to their calls. Returns 0, or -1 if this is not the protocol. */
static int hand_out(once__redis_connection_t *connection)
{
    void *reply = NULL;

    while (!connection->condemned && redisReaderGetReply(connection->reader, &reply) == REDIS_OK) {
        once__redis_call_t *call = connection->calls.first;
        if (reply == NULL) {
            return 0;
        }
        if (call == NULL) {
            freeReplyObject(reply);
            return -1;
        }
        once__list_drop(&connection->calls);
        call->done(call, reply);
        freeReplyObject(reply);
        reply = NULL;
    }
    return connection->condemned ? 0 : -1;
}

static int decrypt(once__redis_connection_t *connection, const char *data, size_t len)
{
    char plain[16384];

    if (once__redis_tls_feed(connection->ssl, data, len) != 0) {
        return -1;
    }
    for (;;) {
        int got;
        if (connection->state == ONCE__REDIS_TLS_HANDSHAKE) {
            go_on_with_tls(connection);
            if (connection->state <= ONCE__REDIS_TLS_HANDSHAKE) {
                return 0;
            }
        }
        got = once__redis_tls_read(connection->ssl, plain, sizeof(plain));
        if (got <= 0) {
            return got;
        }
        if (redisReaderFeed(connection->reader, plain, (size_t)got) != REDIS_OK) {
            return -1;
        }
    }
}

/* Reads what has arrived. Returns 0, or -1 if the connection ended; replies that came before its end still count. */
static int take_in(once__redis_connection_t *connection)
{
    static _Thread_local char data[READ_SIZE];
    int ended = 0;

    while (!ended) {
        ssize_t got = recv(connection->source.fd, data, sizeof(data), 0);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            break;
        }
        if (got <= 0) {
            ended = 1;
        } else if (connection->ssl != NULL) {
            ended = decrypt(connection, data, (size_t)got) != 0;
            if (connection->state == ONCE__REDIS_DOWN) {
                return 0;
            }
        } else {
            ended = redisReaderFeed(connection->reader, data, (size_t)got) != REDIS_OK;
        }
        if (got > 0 && (size_t)got < sizeof(data)) {
            break;
        }
    }
    if (hand_out(connection) != 0 || ended) {
        return -1;
    }
    heard(connection);
    return 0;
}

/* -------------------------------------------------------------------------------------------------- what the loop says */

static void refuse_or_drop(once__redis_connection_t *connection)
{
    if (connection->state == ONCE__REDIS_HANDSHAKE) {
        fail(connection, connection->refusal != ONCE_OK ? connection->refusal : ONCE_E_UNAVAILABLE);
    } else {
        drop(connection);
    }
}

static void ready(once__source_t *source, uint32_t events)
{
    once__redis_connection_t *connection = CONNECTION_OF(source, source);

    assert_connection_state(connection);
    switch (connection->state) {
    case ONCE__REDIS_DOWN:
        return;
    case ONCE__REDIS_RESOLVING:
        resolved(connection);
        return;
    case ONCE__REDIS_CONNECTING:
        connected(connection);
        return;
    default:
        break;
    }
    if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) && take_in(connection) != 0) {
        if (connection->state != ONCE__REDIS_READY && connection->refusal == ONCE_OK) {
            note_trouble(connection, "this is no Redis, or it hung up", "");
        }
        refuse_or_drop(connection);
        return;
    }
    if (connection->condemned) {
        refuse_or_drop(connection);
    } else if (events & EPOLLOUT) {
        once__redis_connection_flush(connection);
    }
}

/* No reply in time. Whether the command is still on its way, over a slow line. */
static int is_on_its_way(once__redis_connection_t *connection)
{
    int left = 0;

    if (connection->state != ONCE__REDIS_READY || connection->condemned ||
        ioctl(connection->source.fd, SIOCOUTQ, &left) != 0 || left == 0 ||
        left == connection->unsent) {
        return 0;
    }
    connection->unsent = left;
    return 1;
}

/* A reply or a connection took too long, the connection is condemned, or an address needed no look-up. */
static void timer_fired(once__timer_t *timer)
{
    once__redis_connection_t *connection = CONNECTION_OF(timer, timer);

    assert_connection_state(connection);
    if (connection->state == ONCE__REDIS_CONNECTING && connection->source.fd < 0 &&
        connection->address != NULL && !connection->condemned) {
        set_timer(connection, connection->shared->settings->connect_ms);
        try_address(connection);
        return;
    }
    if (is_on_its_way(connection)) {
        heard(connection);
        return;
    }
    if (connection->state != ONCE__REDIS_READY && !connection->condemned) {
        note_trouble(connection, "no connection in time", "");
    }
    refuse_or_drop(connection);
}

int once__redis_connection_init(once__redis_connection_t *connection, once__redis_shared_t *shared,
                                const once__redis_host_t *host, int is_sentinel)
{
    memset(connection, 0, sizeof(*connection));
    connection->shared = shared;
    connection->host = *host;
    connection->is_sentinel = is_sentinel;
    connection->source.ready = ready;
    connection->source.fd = -1;
    connection->timer.fire = timer_fired;
    once__list_init(&connection->calls);
    connection->plain.max = connection->wire.max = OUTPUT_MAX;
    return once__timers_reserve(shared->loop);
}

void once__redis_connection_free(once__redis_connection_t *connection)
{
    forget_connection(connection);
    end_calls(connection);
    once__buf_free(&connection->plain);
    once__buf_free(&connection->wire);
    once__timers_release(connection->shared->loop);
}

/* The loop's descriptors are shared with the parent: they must not change. */
void once__redis_connection_abandon(once__redis_connection_t *connection)
{
    once__redis_call_t *call = connection->calls.first;

    if (connection->source.fd >= 0 && connection->lookup == NULL) {
        (void)close(connection->source.fd);
    }
    if (connection->addresses != NULL) {
        freeaddrinfo(connection->addresses);
    }
    if (connection->reader != NULL) {
        redisReaderFree(connection->reader);
    }
    SSL_free(connection->ssl);
    while (call != NULL) {
        once__redis_call_t *next = call->next;
        free(call);
        call = next;
    }
    once__buf_free(&connection->plain);
    once__buf_free(&connection->wire);
}
