/*
 * What the parts of a link know of each other: link.c (its life, and calls), connect.c (until it can be used), stream.c (bytes).
 */
#ifndef ONCE_STORE_REDIS_LINK_INSIDE_H
#define ONCE_STORE_REDIS_LINK_INSIDE_H

#include "store/redis/link.h"

/* link.c */
void once__redis_link_timer(once__redis_link_t *link, uint64_t ms); /* 0: at once */
void once__redis_link_watch(once__redis_link_t *link, uint32_t events);
void once__redis_link_hang_up(
    once__redis_link_t *link); /* closes the socket, or stops looking a name up */
/* Bytes went one way or the other: those who wait for replies wait on. What is greeted has its own time. */
void once__redis_link_heard(once__redis_link_t *link);
/* Down, and not to be tried again before a pause that grows. */
void once__redis_link_fail(once__redis_link_t *link, int refusal);

/* connect.c */
void once__redis_link_trouble(once__redis_link_t *link, const char *what, const char *why);
void once__redis_link_resolved(once__redis_link_t *link);
void once__redis_link_connected(once__redis_link_t *link);
void once__redis_link_shake(once__redis_link_t *link); /* TLS */
void once__redis_link_try(once__redis_link_t *link);   /* the addresses, one after the other */

/* stream.c: reads what is there. 0, or -1: the connection ended. What came before its end still counts. */
int once__redis_link_take_in(once__redis_link_t *link);

#endif
