/*
 * A bad line to the real server: replies come in pieces, slowly, or the connection is cut after a number of bytes.
 */
#ifndef TESTS_REDIS_PROXY_H
#define TESTS_REDIS_PROXY_H

#include <stdatomic.h>
#include <stddef.h>

typedef struct proxy proxy_t;

/* Changed while it runs: what connections do from then on. */
typedef struct proxy_line {
    atomic_uint piece;    /* bytes at a time from the server; 0: as they come */
    atomic_uint pause_us; /* between pieces, both ways */
    atomic_uint up_piece; /* the same to the server */
    atomic_int is_deaf;   /* nothing is passed on from the server */
    /* the next connection ends after this many bytes from the server, once; < 0: never */
    atomic_long cut_down;
    atomic_long cut_up;   /* the same, to the server */
    atomic_uint accepted; /* connections so far */
    atomic_uint cuts;     /* of those: cut */
} proxy_line_t;

proxy_t *proxy_start(unsigned port, proxy_line_t *line); /* of the server, on loopback */
unsigned proxy_port(const proxy_t *proxy);
void proxy_stop(proxy_t *proxy);

#endif
