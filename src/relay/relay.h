/* The relay: publishes the events of the outbox in PostgreSQL. docs/relay.md has its guarantees and how they are kept. */
#ifndef ONCE_RELAY_RELAY_H
#define ONCE_RELAY_RELAY_H

#include <stddef.h>
#include <stdint.h>

#include "service/log.h"

typedef struct once__relay_options {
    const char *from;        /* connection string of libpq */
    const char *to;          /* URL of a publisher */
    const char *source;      /* ce_source; NULL: urn:once:DATABASE */
    const char *metrics;     /* address; NULL: none */
    const char *secret_file; /* HTTP: NULL: unsigned */
    const char *ca_file;     /* TLS: NULL: the system's authorities */
    uint64_t lease_ms;
    uint64_t poll_ms;
    uint64_t timeout_ms; /* of one attempt, HTTP and AMQP */
    /* after a destination accepted nothing for this time, its failing events of that age are dead */
    uint64_t give_up_ms;
    uint64_t drain_ms;    /* how long events in flight are waited for at the end */
    unsigned tries;       /* failures after which an event is dead */
    unsigned window;      /* events in memory */
    unsigned connections; /* HTTP requests at once */
    int until_empty;      /* ends when the outbox is empty */
    int trace;            /* the database remembers what was published: once trace */
    int progress;         /* shows on standard error how the backlog drains */
    once__service_log_level_t level;
} once__relay_options_t;

typedef enum once__relay_end {
    ONCE__RELAY_DONE,
    ONCE__RELAY_USAGE,    /* an option is wrong */
    ONCE__RELAY_UNUSABLE, /* the database cannot be used: no schema, no rights */
    ONCE__RELAY_RIVAL,    /* another relay publishes the same outbox to another destination */
} once__relay_end_t;

/* Runs until a signal; logs to standard output. If it returns anything but ONCE__RELAY_DONE, the reason is in `error`. */
once__relay_end_t once__relay_run(const once__relay_options_t *options, char *error, size_t size);

#endif
