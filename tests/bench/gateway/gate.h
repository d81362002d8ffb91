/*
 * An nginx in front of the upstream, with or without the module, and what its workers have used.
 */
#ifndef TESTS_BENCH_GATEWAY_GATE_H
#define TESTS_BENCH_GATEWAY_GATE_H

#include <stdint.h>
#include <sys/types.h>

typedef struct settings settings_t;

typedef enum gate_kind {
    GATE_BARE,
    GATE_SLOW, /* bare, and takes its time to send a response */
    GATE_MEMORY,
    GATE_LOCAL,
    GATE_REDIS,    /* ONCE_REDIS_URL */
    GATE_POSTGRES, /* ONCE_PG_GATEWAY_URL */
} gate_kind_t;

#define GATE_WORKERS 4

typedef struct gate {
    const char *name; /* of its directory below that of the settings */
    pid_t master;
    pid_t worker[GATE_WORKERS];
    unsigned workers, port;
} gate_t;

/* Ends the process when it does not start. */
void gate_start(gate_t *gate, const settings_t *settings, const char *name, gate_kind_t kind,
                unsigned workers);

/* Waits until it is gone. Returns how many lines of its error log tell of trouble; they are printed. */
unsigned gate_stop(gate_t *gate, const settings_t *settings);

/* CPU seconds of all threads of all workers, which have nothing to do at the moment. */
double gate_cpu(const gate_t *gate);

/* The same of any process and its children that live; 0 of process 0. */
double process_cpu(pid_t pid);

/* Memory of all workers in bytes: private pages that are not of a file, and everything. */
typedef struct gate_memory {
    double anonymous, resident;
} gate_memory_t;

gate_memory_t gate_memory(const gate_t *gate);

#endif
