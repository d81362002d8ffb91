/*
 * One connection to one server, and the calls that are under way on it.
 *
 * Calls are answered in order. What is sent is collected and goes out in one write (once__redis_link_flush).
 * A connection that was made is greeted before anybody else may use it: who we are, which database, and whether the server is
 * one that records can be given to.
 */
#ifndef ONCE_STORE_REDIS_LINK_H
#define ONCE_STORE_REDIS_LINK_H

#include <hiredis/hiredis.h>

#include "loop/loop.h"
#include "store/redis/buffer.h"
#include "store/redis/resolve.h"
#include "store/redis/tls.h"

#define ONCE__REDIS_TROUBLE_SIZE 200

typedef enum once__redis_link_state {
    ONCE__REDIS_DOWN,
    ONCE__REDIS_RESOLVING,
    ONCE__REDIS_CONNECTING,
    ONCE__REDIS_SHAKING, /* TLS */
    ONCE__REDIS_GREETING,
    ONCE__REDIS_READY,
} once__redis_link_state_t;

typedef struct once__redis_link once__redis_link_t;
typedef struct once__redis_call once__redis_call_t;

/* A command under way: the first member of an allocation. `done` is called once, and then it is the owner's again. */
struct once__redis_call {
    /* NULL: the connection ended before there was a reply; `sent` tells whether the server may have seen the command. */
    void (*done)(once__redis_call_t *call, const redisReply *reply);
    once__redis_call_t *next;
    once__redis_link_t *link;
    uint64_t begin; /* place in the stream */
    int sent;
};

/* What links of one store share. */
typedef struct once__redis_shared {
    once__loop_t *loop;
    const once__redis_settings_t *settings;
    SSL_CTX *tls;
    void (*changed)(void *data, once__redis_link_t *link); /* it is ready, or down */
    void *data;
    char trouble[ONCE__REDIS_TROUBLE_SIZE]; /* the last refusal, in words; empty: none */
    int is_complaint;                       /* it is about a command, not about a connection */
    unsigned refused;                       /* connections that were never made */
    int met;                                /* one was */
    uint64_t max_bytes;                     /* the server's bound of memory, of any of them */
} once__redis_shared_t;

struct once__redis_link {
    once__source_t source;
    once__timer_t timer;
    once__redis_shared_t *shared;
    once__redis_host_t host;
    int is_sentinel;
    once__redis_link_state_t state;
    uint32_t events;
    once__resolve_t *resolve;
    struct addrinfo *addresses, *address;
    int connect_error; /* errno of the last of them; 0: there is no such host */
    SSL *ssl;
    redisReader *reader;
    redisReplyObjectFunctions makers; /* the reader's, with bounds */
    once__redis_buffer_t plain, wire; /* without TLS there is only the wire */
    once__redis_call_t *first, **last;
    unsigned call_count, greeting_count;
    uint64_t stream, gone; /* bytes that were asked to be sent, and that were */
    int unsent;    /* of those: what the other side had not taken when there was no reply in time */
    int condemned; /* to be dropped as soon as nothing runs on it */
    int refusal;   /* why it is down: ONCE_E_UNAVAILABLE or ONCE_E_CONFIG */
    uint64_t retry_at; /* down: not before */
    unsigned failures; /* in a row */
};

/* Reserves a timer. 0 or -1. */
int once__redis_link_init(once__redis_link_t *link, once__redis_shared_t *shared,
                          const once__redis_host_t *host, int is_sentinel);
void once__redis_link_free(once__redis_link_t *link);

/* After fork: frees what is this process's; the server does not notice. */
void once__redis_link_abandon(once__redis_link_t *link);

/* Starts connecting; what becomes of it is told by `changed`, from the loop. */
void once__redis_link_connect(once__redis_link_t *link);

/* Is it ready? If it is down and may be tried again, connecting begins. */
int once__redis_link_is_ready(once__redis_link_t *link);

/* Collects a command. 0, or -1 when out of memory or down: then nothing was, and `done` will not be called. */
int once__redis_link_call(once__redis_link_t *link, once__redis_call_t *call, int argc,
                          const char **argv, const size_t *lengths);

/* Sends what was collected. */
void once__redis_link_flush(once__redis_link_t *link);

/* Gives the connection up, as soon as the loop comes round; calls under way on it end without a reply. */
void once__redis_link_condemn(once__redis_link_t *link);

/* The same, because of a reply that no Redis gives. */
void once__redis_link_distrust(once__redis_link_t *link);

/* A command was refused; what once_store_trouble() tells until one is not. */
void once__redis_link_complain(once__redis_link_t *link, const char *text);
void once__redis_link_content(once__redis_link_t *link);

#endif
