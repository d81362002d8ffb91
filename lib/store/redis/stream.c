#include "store/redis/link_inside.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define READ_SIZE 65536

/* ------------------------------------------------------------------------------------------------------------- sending */

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
        once__redis_buffer_empty(&link->plain);
    }
    for (;;) {
        char *to = once__redis_buffer_reserve(&link->wire, ONCE__REDIS_ROOM_MIN);
        size_t got = to != NULL ? once__tls_drain(link->ssl, to, ONCE__REDIS_ROOM_MIN) : 0;
        if (to == NULL || got == 0) {
            return to == NULL ? -1 : 0;
        }
        link->wire.len += got;
    }
}

void once__redis_link_flush(once__redis_link_t *link)
{
    once__redis_buffer_t *wire = &link->wire;
    int is_moving = 0;

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
            once__redis_link_watch(link, EPOLLIN | EPOLLOUT);
            if (is_moving) {
                once__redis_link_heard(link); /* a large one over a slow line */
            }
            return;
        }
        wire->from += (size_t)sent;
        is_moving = 1;
        link->gone += link->ssl == NULL ? (uint64_t)sent : 0;
    }
    once__redis_buffer_empty(wire);
    once__redis_link_watch(link, EPOLLIN);
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
            once__redis_link_shake(link);
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
int once__redis_link_take_in(once__redis_link_t *link)
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
    if (hand_out(link) != 0 || ended) {
        return -1;
    }
    once__redis_link_heard(link);
    return 0;
}
