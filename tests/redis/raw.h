/*
 * A connection of the test's own to the server that with-server started.
 */
#ifndef TESTS_REDIS_RAW_H
#define TESTS_REDIS_RAW_H

#include <hiredis/hiredis.h>
#include <stdint.h>

#include "store/store.h"

redisContext *raw_connect(void);

/* One command, as in printf; fails the test when there is no reply or an error. Free with freeReplyObject. */
redisReply *raw_call(redisContext *raw, const char *format, ...);
long long raw_integer(redisContext *raw, const char *format, ...);

/* The Redis key of a record with the default prefix. */
void raw_key(char key[64], const uint8_t id[ONCE_ID_SIZE]);

/* The store itself, below the handle: opened with the URL of with-server and these options. */
typedef struct raw_store {
    once__loop_t *loop;
    once__store_t *store;
} raw_store_t;

raw_store_t raw_open(const char *options);
void raw_turn(const raw_store_t *raw); /* one turn of the loop: waits, runs, dispatches */
void raw_close(raw_store_t *raw);

#endif
