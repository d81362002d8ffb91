/*
 * The greeting of a new connection: who we are, and whether the server is one that records can be given to.
 */
#ifndef ONCE_STORE_REDIS_GREET_H
#define ONCE_STORE_REDIS_GREET_H

#include "store/redis/link.h"

/* Collects the greeting's commands. 0 or -1: out of memory. When all are answered, once__redis_link_greeted is called. */
int once__redis_greet(once__redis_link_t *link);

/* Of link.c: the greeting is over. ONCE_OK: the link is ready; ONCE_E_UNAVAILABLE, ONCE_E_CONFIG: it is not to be used. */
void once__redis_link_greeted(once__redis_link_t *link, int code);

/* What INFO says about a server: may it be used? For tests, too. `trouble` is filled when not. */
int once__redis_judge_info(const char *info, const once__redis_settings_t *settings,
                           char trouble[ONCE__REDIS_TROUBLE_SIZE], uint64_t *max_bytes);

/* What INFO says about its size: adds the keys of the database, and the memory that the whole server uses. For tests, too. */
void once__redis_add_size(const char *info, unsigned database, uint64_t *keys, uint64_t *bytes);

#endif
