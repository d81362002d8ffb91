/*
 * The inside of a handle.
 *
 * A call becomes a job (job.h): one store operation after another until there is an answer. A granted claim (claim.h) lives on
 * its own and renews itself. Everything that waits hangs on one loop; everything that runs, runs inside once_dispatch.
 */
#ifndef ONCE_API_HANDLE_H
#define ONCE_API_HANDLE_H

#include <pthread.h>

#include <once/once.h>

#include "api/options.h"
#include "api/pool.h"
#include "core/secrets.h"
#include "core/zstd.h"
#include "store/store.h"

#define ONCE__RANDOM_POOL 512
#define ONCE__PART_MAX    65536 /* bytes of a scope, method or target */

struct once__job;

/* How full the store is (bound.h). */
typedef struct once__bound {
    uint64_t records, bytes;                         /* when it was last looked */
    uint64_t made_records, made_bytes;               /* of this handle, perhaps not among them */
    uint64_t made_records_before, made_bytes_before; /* when the look under way began */
    uint64_t looked_at;                              /* when the last one began; 0: never */
    int error;                                       /* why it fails; ONCE_OK: it does not */
    int is_known, is_looking;
} once__bound_t;

struct once {
    unsigned generation; /* of the process: another one means that we are in a child */
    once__loop_t *loop;
    once__store_t *store;
    once_options_t options;
    once__bound_t bound;
    int store_is_silent; /* the last operation that was answered was not answered by the store */
    char trouble_logged[200]; /* what the host was last told about the store */
    once__zstd_t zstd;
    once__pool_t pool; /* of jobs and claims */

    once__secrets_t secrets; /* usable when secrets_ready */
    int secrets_ready;
    pthread_rwlock_t
        secrets_lock; /* of these two: who changes them, and readers in other threads */
    int secrets_loading;
    int secrets_error;                          /* why the last load failed; ONCE_OK: it did not */
    char secrets_text[ONCE__SECRETS_TEXT_SIZE]; /* as the store has it */
    uint8_t secrets_mark[ONCE__MARK_SIZE];      /* goes with every claim */
    int secrets_foreign; /* the store has others than ours: nothing is asked before that is over */

    struct once__job *jobs; /* all jobs that are not finished, newest first */
    unsigned job_count;     /* of those that a graceful end waits for */
    struct once_claim *claims;
    once__timer_t reap_timer;
    once__timer_t keyring_timer;

    char last_scope[64]; /* most asks in a row have the same one: its hash is kept */
    size_t last_scope_len;
    int last_scope_known;
    uint8_t last_scope_hash[ONCE_SCOPE_HASH_SIZE];

    uint8_t random_pool[ONCE__RANDOM_POOL]; /* a system call for many claim ids */
    size_t random_left;

    unsigned callbacks; /* called so far: the return value of dispatch is a difference of this */
    int depth;          /* inside a callback */
    int in_dispatch;
    _Atomic int closing; /* shutdown began: no new asks */
    int asks_to_close;   /* and those under way are to be told */
    int ended;           /* close: nothing is submitted any more */
    once_shutdown_cb shutdown_cb;
    void *shutdown_data;

    int threaded;
    int thread_stop;
    pthread_t thread;
    pthread_mutex_t lock; /* recursive; used only when threaded */
    pthread_cond_t changed;
};

/*
 * Opens a handle over a world and a store of the caller's: the simulation and the fault tests use it. The handle takes the
 * store over in every case (also on an error). The loop must be the one that the store was made with; it is taken over, too.
 */
int once__open_over(once__loop_t *loop, once__store_t *store, const once_options_t *options,
                    once_t **handle, once_error_t *err);

/* Every public function begins and ends with these. ONCE_E_FORKED in a child process; else locked where it must be. */
int once__enter(once_t *once);
void once__leave(once_t *once);

/* What is wrong with the store or its secrets, for people; empty: nothing. */
const char *once__trouble(const once_t *once);

/* The process generation: changes in a child of fork. */
unsigned once__generation(void);

/* The handle's randomness. 0, or -1. */
int once__random(once_t *once, void *out, size_t len);

/* When the handle wants to be dispatched: 0 now, UINT64_MAX never. For the simulation. */
uint64_t once__due(const once_t *once);

#endif
