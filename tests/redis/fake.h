/*
 * A server that speaks RESP and answers what the test says, or nothing, or rubbish. Each connection has a thread of its own.
 */
#ifndef TESTS_REDIS_FAKE_H
#define TESTS_REDIS_FAKE_H

#include <stddef.h>

#define FAKE_ARGS_MAX 16

typedef struct fake fake_t;

typedef struct fake_command {
    int argc;
    char *argv[FAKE_ARGS_MAX];
    size_t lengths[FAKE_ARGS_MAX];
    unsigned number; /* of this connection, from 1 */
} fake_command_t;

/* Called for each command, by several threads at once. 0: go on, -1: hang up. */
typedef int (*fake_answer_t)(int fd, const fake_command_t *command, void *data);

fake_t *fake_start(fake_answer_t answer, void *data);
unsigned fake_port(const fake_t *fake);
unsigned fake_connections(const fake_t *fake); /* so far */
void fake_stop(fake_t *fake);                  /* all connections end, all threads are joined */

/* 0, or -1: the other side is gone. */
int fake_say(int fd, const char *text);
int fake_say_bytes(int fd, const void *data, size_t len);
int fake_say_string(int fd, const void *data, size_t len); /* as a bulk string */

/* What a good server says while it is greeted, and when it is asked for secrets; 1: it was neither of these. */
int fake_polite(int fd, const fake_command_t *command, const char *info);
extern const char fake_info[]; /* of a master that is fine */

#endif
