/*
 * The inside of a run and of a test under way.
 */
#ifndef ONCE_CONFORMANCE_TEST_H
#define ONCE_CONFORMANCE_TEST_H

#include <pthread.h>
#include <setjmp.h>
#include <stddef.h>

#include "conformance/conformance.h"
#include "conformance/suite.h"

#define ONCE__THREADS_MAX   64
#define ONCE__PROCESSES_MAX 32
#define ONCE__REASON_SIZE   400
#define ONCE__URL_SIZE      2048

typedef struct once__run {
    char url[ONCE__URL_SIZE];
    int is_memory;         /* private to the process */
    int expires_by_itself; /* the server removes what expired, so it cannot be counted */
    uint64_t seed;
    once_conformance_options_t options;
    once_conformance_counts_t counts;
} once__run_t;

struct once__memory {
    struct once__memory *next;
    max_align_t bytes[];
};

struct once__test {
    const once__run_t *run;
    const once__case_t *which;
    char scope[40]; /* random: no other test and no other user has it */

    pthread_mutex_t lock; /* of all below */
    once_conformance_result_t result;
    char reason[ONCE__REASON_SIZE];
    int late; /* an ask took half of a short lease or longer: what follows may not be the fault of the store */
    once__peer_t *peers;
    struct once__memory *memory;
    uint8_t (*made)[ONCE_ID_SIZE]; /* ids of the records to remove at the end */
    size_t made_count, made_room;

    once__process_t children[ONCE__PROCESSES_MAX]; /* those that have not ended */
    unsigned child_count;
};

/* Where a check that does not hold goes to: the place that this thread's part of the test was started from. */
extern _Thread_local jmp_buf *once__test_exit;

/* Records the first failure; the others are its consequences. */
void once__test_note(once__test_t *t, once_conformance_result_t result, const char *reason);
int once__test_is_over(once__test_t *t);

/* Leaves this thread's part of the test. */
void once__test_leave(void) __attribute__((noreturn));

/* The record is removed when the test is over. */
void once__test_made(once__test_t *t, const uint8_t id[ONCE_ID_SIZE]);

/* Kills the processes that a failed test left behind. */
void once__process_kill_all(once__test_t *t);

/* Runs one test. 0, or ONCE_E_NOMEM or ONCE_E_IO when it could not be started. */
int once__test_run(const once__run_t *run, const once__case_t *which,
                   once_conformance_result_t *result, char reason[ONCE__REASON_SIZE], int *late);

/* Opens a handle with the run's way of opening. `text` as in once__peer_open. */
int once__run_open(const once__run_t *run, const char *text, once_t **handle, once_error_t *err);

#endif
