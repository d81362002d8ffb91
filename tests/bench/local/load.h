/*
 * What the benchmarks of the local store write, and the loop that writes it through the public API.
 */
#ifndef TESTS_BENCH_LOCAL_LOAD_H
#define TESTS_BENCH_LOCAL_LOAD_H

#include <stddef.h>
#include <stdint.h>

#include <once/once.h>

#define LOAD_KEY_SIZE 37 /* a UUID and its terminator */
#define LOAD_BODY_MAX 2048

/* Kinds of response. */
typedef enum load_kind {
    LOAD_SIMILAR, /* 400 bytes of JSON, much the same from one record to the next */
    LOAD_MIXED,   /* 2 KiB of JSON with names, numbers and prose of its own */
    LOAD_RANDOM,  /* 2 KiB that do not compress */
} load_kind_t;

extern const char *const load_kind_names[3];

/* The n-th key, and the n-th response body of a kind: always the same. There are 4096 bodies of a kind, made beforehand. */
void load_key(char out[LOAD_KEY_SIZE], uint64_t n);
once_slice_t load_body(load_kind_t kind, uint64_t n);
uint64_t load_mix(uint64_t n);

typedef struct load {
    once_t *once;
    load_kind_t kind;
    uint64_t next;   /* number of the next key */
    uint64_t bodies; /* of responses that were given */
    int claims_only; /* claims are dropped, not completed */
    int light;       /* responses are recorded without their bodies */
    uint64_t
        shared; /* keys that others ask for, too, in another order: claims are released; 0: every key is new */

    uint64_t left, running; /* asks to make; made and not finished */
    uint64_t failed;
} load_t;

/* Opens `local:path` with these URL parameters ("" or "?..."). Ends the program with a sentence when that fails. */
void load_open(load_t *load, const char *path, const char *parameters);
void load_close(load_t *load);

/* The index of the store in a directory, in shared memory; it outlives a store of many records. And both, removed. */
#define LOAD_INDEX_ROOM 512
int load_index(char out[LOAD_INDEX_ROOM], const char *path); /* 0, or -1: there is none */
void load_remove(const char *path);

/* Claims and completes (or releases) `pairs` keys, `inflight` at a time. Ends the program when anything but that happens. */
void load_run(load_t *load, uint64_t pairs, unsigned inflight);

/* The question for the n-th key. It points to `key`. */
once_ask_t load_ask(char key[LOAD_KEY_SIZE], uint64_t n);

#endif
