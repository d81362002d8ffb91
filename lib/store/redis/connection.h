/*
 * One connection to one server, and the calls that are in flight on it.
 *
 *     down -> resolving -> connecting -> (TLS handshake) -> handshake -> ready
 *
 * Any state can go back to down. Connecting starts again when the connection is asked for, at the earliest
 * after a pause that grows with each failure. The handshake (handshake.h) logs in, selects the database, and checks whether
 * records can be kept on this server; only then the connection is ready for others.
 *
 * Calls are answered in order. Commands are collected and go out in one write (once__redis_connection_flush).
 */
#ifndef ONCE_STORE_REDIS_CONNECTION_H
#define ONCE_STORE_REDIS_CONNECTION_H

#include <hiredis/hiredis.h>

#include "base/buf.h"
#include "base/list.h"
#include "loop/loop.h"
#include "store/redis/settings.h"
#include "store/redis/tls.h"

#define ONCE__REDIS_TROUBLE_SIZE 200

typedef enum once__redis_connection_state {
    ONCE__REDIS_DOWN,
    ONCE__REDIS_RESOLVING,
    ONCE__REDIS_CONNECTING,
    ONCE__REDIS_TLS_HANDSHAKE,
    ONCE__REDIS_HANDSHAKE,
    ONCE__REDIS_READY,
} once__redis_connection_state_t;

typedef struct once__redis_connection once__redis_connection_t;
typedef struct once__redis_call once__redis_call_t;

/* A command in flight: the first member of an allocation. `done` is called once; then the call belongs to its owner again. */
struct once__redis_call {
    /* NULL: the connection ended before the reply came; `sent` says whether the server may have seen the command. */
    void (*done)(once__redis_call_t *call, const redisReply *reply);
    once__redis_call_t *next;
    once__redis_connection_t *connection;
    uint64_t begin; /* where the command begins in the stream of bytes */
    int sent;
};

/* What the connections of one store share. */
typedef struct once__redis_shared {
    once__loop_t *loop;
    const once__redis_settings_t *settings;
    SSL_CTX *tls;
    void (*changed)(void *data, once__redis_connection_t *connection); /* is now ready, or down */
    void *data;
    char trouble[ONCE__REDIS_TROUBLE_SIZE]; /* the last error in words; empty: none */
    char server[40];                        /* "Redis 7.0.15", of the last one that was met */
    int is_complaint;                       /* it was about a command, not about a connection */
    unsigned refused;                       /* attempts that got no connection */
    int met;                                /* there was a connection */
    uint64_t max_bytes;                     /* maxmemory of one of the servers */
} once__redis_shared_t;

/*
 * Invariants, checked by assert_connection_state() in connection.c:
 *
 * C-1  down: no descriptor, look-up, addresses, TLS session or reader, and no call in flight.
 * C-2  calls are in flight only during the handshake and when ready.
 * C-3  from the TLS handshake on there is a descriptor and a reader, and a TLS session exactly if the settings ask for TLS.
 * C-4  a look-up runs only while resolving.
 * C-5  `calls.first`, `calls.end` and `calls.count` agree about whether there are calls.
 * C-6  no more bytes have left than were asked to be sent, and no more of the wire buffer than it holds.
 */
struct once__redis_connection {
    once__source_t source;
    once__timer_t timer;
    once__redis_shared_t *shared;
    once__redis_host_t host;
    int is_sentinel;
    once__redis_connection_state_t state;
    uint32_t events;
    struct once__redis_lookup *lookup; /* of the host name, in a thread */
    struct addrinfo *addresses, *address;
    int connect_error; /* errno of the last of them; 0: there is no such host */
    SSL *ssl;
    redisReader *reader;
    redisReplyObjectFunctions makers; /* the reader's, with bounds */
    once__buf_t plain, wire;          /* to be sent; `plain` is used with TLS only */
    size_t wire_sent;
    struct {
        ONCE__LIST(once__redis_call_t);
    } calls;
    unsigned handshake_count;
    uint64_t stream, gone; /* bytes that were asked to be sent, and that were */
    int unsent;    /* of those, bytes that the peer had not acknowledged when a reply was late */
    int condemned; /* to be dropped as soon as nothing runs on it */
    int refusal;   /* why it is down: ONCE_E_UNAVAILABLE or ONCE_E_CONFIG */
    uint64_t retry_at; /* down: not before */
    unsigned failures; /* in a row */
};

/* Reserves a timer. Returns 0, or -1 if out of memory. */
int once__redis_connection_init(once__redis_connection_t *connection, once__redis_shared_t *shared,
                                const once__redis_host_t *host, int is_sentinel);
void once__redis_connection_free(once__redis_connection_t *connection);

/* After a fork, in the child: frees memory and descriptors without the server noticing. */
void once__redis_connection_abandon(once__redis_connection_t *connection);

/* Whether it is ready. If it is down and may be tried again, connecting starts. */
int once__redis_connection_is_ready(once__redis_connection_t *connection);

/* Collects a command. Returns 0, or -1 if out of memory or down: then `done` will not be called. */
int once__redis_connection_call(once__redis_connection_t *connection, once__redis_call_t *call,
                                int argc, const char **argv, const size_t *lengths);

/* Sends what was collected. */
void once__redis_connection_flush(once__redis_connection_t *connection);

/* Closes the connection in the next turn of the loop; calls in flight end without a reply. */
void once__redis_connection_condemn(once__redis_connection_t *connection);

/* The same, because of a reply that Redis cannot have given. */
void once__redis_connection_distrust(once__redis_connection_t *connection);

/* A command was refused: once_store_trouble() says so until another one succeeds. */
void once__redis_connection_complain(once__redis_connection_t *connection, const char *text);
void once__redis_connection_content(once__redis_connection_t *connection);

#endif
