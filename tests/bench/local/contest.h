/*
 * Ways to keep the same pairs durable: the limit that nothing can beat, our store, and libraries that could take its place.
 *
 * A pair is a claim of a new key and its completion. With a batch of n, n claims become durable together, then their n
 * completions.
 */
#ifndef TESTS_BENCH_LOCAL_CONTEST_H
#define TESTS_BENCH_LOCAL_CONTEST_H

#include <stdint.h>

typedef struct contestant contestant_t;

struct contestant {
    const char *name;
    contestant_t *(*open)(const contestant_t *kind,
                          const char *directory); /* a copy to work with; exits when it cannot */
    void (*run)(contestant_t *self, uint64_t pairs, unsigned batch);
    void (*close)(contestant_t *self);
};

/* Appends the bytes that our store would write, and syncs; no index, nothing can be found again. Set the sizes first. */
extern const contestant_t contest_limit_write, contest_limit_map;
extern uint32_t contest_claim_bytes, contest_completion_bytes;

extern const contestant_t contest_once;
extern const contestant_t contest_sqlite; /* name NULL: not built in */
extern const contestant_t contest_lmdb;

/* 32 bytes that are as good as a hash, and a head of the size that ours has: what the libraries store for a key. */
#define CONTEST_ID_SIZE   32
#define CONTEST_HEAD_SIZE 137
void contest_id(uint8_t id[CONTEST_ID_SIZE], uint64_t n);

void contest_die(const char *who, const char *what);

#endif
