/*
 * The parts of the benchmark. Each starts what it needs, reports, and stops it again.
 */
#ifndef TESTS_BENCH_GATEWAY_SECTIONS_H
#define TESTS_BENCH_GATEWAY_SECTIONS_H

#include <stdint.h>

#include "upstream.h"

typedef struct settings {
    const char *nginx;     /* the program */
    const char *module;    /* whole path */
    const char *directory; /* whole path, on the disk that is meant */
    uint64_t requests;     /* of the part that looks for growth */
    unsigned rounds;
    double seconds; /* of a turn */
    upstream_t upstream;
    unsigned troubles; /* lines of error logs, wrong answers, wrong counts */
} settings_t;

void section_speed(settings_t *settings);    /* beside bare nginx */
void section_redis(settings_t *settings);    /* the same with records in Redis */
void section_postgres(settings_t *settings); /* the same with records in PostgreSQL */
void section_workers(settings_t *settings);  /* two against one */
void section_memory(settings_t *settings);   /* of a request that is under way */
void section_growth(settings_t *settings);   /* over many requests */

/* Numbers of keys that were never used. */
uint64_t next_keys(uint64_t count);

#endif
