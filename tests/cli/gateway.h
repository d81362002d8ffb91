/*
 * `once gate` as a process, with a backend behind it, and an HTTP client.
 */
#ifndef TESTS_CLI_GATEWAY_H
#define TESTS_CLI_GATEWAY_H

#include <sys/types.h>

#include "harness.h"
#include "local.h"

#define WORKERS "nobody" /* the user of the workers where root runs the tests */

/* A program whose output is read. */
typedef struct process {
    pid_t pid; /* 0: has been waited for */
    int output;
    char text[32768]; /* what it has written so far, both streams, terminated */
    size_t len;
} process_t;

/* Starts a program; the list of arguments ends with NULL. */
void process_start(process_t *process, const char *const *arguments);
/* Reads until the text is there; fails the test when the program ends before, or after 20 s. */
void process_expect(process_t *process, const char *text);
/* Reads everything and returns the exit code, or minus the signal that ended it. */
int process_wait(process_t *process);

/* A directory with a local store, the example backend, and `once gate` in front of it. */
typedef struct gateway {
    place_t place;
    process_t backend;
    process_t gate;
    char upstream[64];
    int port;
    char listen[128];
    char scratch[96]; /* TMPDIR of the gate */
    int no_tmpdir;    /* without it */
} gateway_t;

/* A test whose state is a gateway_t with a backend; the gate is started by the test. */
int with_gateway(void **state);
int without_gateway(void **state);
#define WITH_GATEWAY(test) cmocka_unit_test_setup_teardown(test, with_gateway, without_gateway)

int free_port(void);

/* Makes the directory and the backend; chooses a port. */
void gateway_make(gateway_t *gateway);
/* Starts the gate with these options in addition; does not wait. The list ends with NULL. */
void gateway_start(gateway_t *gateway, const char *first, ...) __attribute__((sentinel));
/* Sends a signal to the gate (0: has been sent) and expects it to end with this code, leaving nothing behind. */
void gateway_stop(gateway_t *gateway, int signal_number, int code);
/* Ends the backend and removes the directory. */
void gateway_remove(gateway_t *gateway);

typedef struct reply {
    int status; /* 0: no answer */
    char text[8192];
} reply_t;

/* Sends a request of alice's over a connection of its own, with this key (NULL: none) and body (NULL: GET). */
reply_t request(int port, const char *target, const char *key, const char *body);
/* The same in two halves. */
int raw_send(int port, const char *text);
int request_send(int port, const char *target, const char *key, const char *body);
reply_t request_receive(int fd);
/* Does a server listen there? */
int is_answered(int port);
/* How many payments the backend has made. */
int executions(const gateway_t *gateway);

#endif
