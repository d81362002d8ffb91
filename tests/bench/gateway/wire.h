/*
 * As much of HTTP/1.1 as both ends of a benchmark need: messages with a Content-Length, one at a time on a connection.
 */
#ifndef TESTS_BENCH_GATEWAY_WIRE_H
#define TESTS_BENCH_GATEWAY_WIRE_H

#include <stddef.h>

#define WIRE_ROOM 8192 /* the longest message */

/* Length of the whole message that begins here. 0: it is not whole yet. */
size_t wire_message(const char *bytes, size_t len);

/* Prints why and ends the process. */
void wire_die(const char *what) __attribute__((noreturn));

#endif
