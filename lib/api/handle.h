/*
 * The inside of a handle.
 *
 * A call becomes a job (job.h): one store operation after another until there is an answer. A granted claim (claim.h) exists
 * independently and is renewed by a timer. All waiting is done by one loop, and all work inside once_dispatch.
 */
#ifndef ONCE_API_HANDLE_H
#define ONCE_API_HANDLE_H

#include <pthread.h>

#include <once/once.h>

#include "api/options.h"
#include "core/about.h"
#include "core/audit.h"
#include "core/secrets.h"
#include "core/zstd.h"
#include "store/store.h"

#define ONCE__RANDOM_POOL 512
#define ONCE__PART_MAX    65536 /* bytes of a scope, method or target */

/* Memory for jobs and claims: freed blocks are kept for the next ones (once__handle_alloc). */
#define ONCE__POOL_CLASSES 8 /* of 256 bytes each */

typedef struct once__pool {
    struct once__pool_block *blocks[ONCE__POOL_CLASSES];
    unsigned counts[ONCE__POOL_CLASSES];
} once__pool_t;

struct once__job;

/*
 * How full the store is (bound.h). What was made when a count began is a part of what was made since the one before
 * (assert_bound_state in bound.c).
 */
typedef struct once__bound {
    uint64_t records, bytes;                         /* at the last count */
    uint64_t made_records, made_bytes;               /* by this handle, perhaps not counted yet */
    uint64_t made_records_before, made_bytes_before; /* when the present count began */
    uint64_t counted_at;                             /* when the last count began; 0: never */
    int error;                                       /* why counting fails; ONCE_OK: it does not */
    int is_known, is_counting;
} once__bound_t;

/* For whom the handle acts, and what it knows of the audit trail (audit.c). */
typedef struct once__auditor {
    char by[ONCE_AUDIT_BY_MAX + 1]; /* empty: no auditor */
    char note[ONCE_NOTE_MAX + 1];
    int is_known;            /* the end of the trail, as the handle last saw it: */
    uint64_t place;          /* in the store */
    once__audit_link_t last; /* the entry before it */
} once__auditor_t;

/*
 * What holds while no function of the handle runs (assert_handle_state in handle.c, at once__enter and once__leave):
 *   I-1  the handle has jobs if it counts any
 *   I-2  secrets are called foreign only by comparison with our own
 *   I-3  asks are closed only by a shutdown
 *   I-4  random bytes are taken from the pool, never from beyond it
 *   I-5  callbacks that were entered are left
 */
struct once {
    unsigned generation; /* of the process that opened it: differs in a child */
    once__loop_t *loop;
    once__store_t *store;
    once_options_t options;
    once__bound_t bound;
    char holder[ONCE__HOLDER_MAX + 1]; /* of its claims, for people: host:process */
    int store_is_silent; /* the last operation that was answered was not answered by the store */
    char trouble_logged[200]; /* the last message about the store */
    once__zstd_t zstd;
    once__pool_t pool; /* of jobs and claims */

    once__secrets_t secrets; /* usable when secrets_ready */
    int secrets_ready;
    pthread_rwlock_t secrets_lock; /* protects these two from readers in other threads */
    int secrets_loading;
    int secrets_error; /* why the last load failed; ONCE_OK: it succeeded */
    char secrets_text[ONCE__SECRETS_TEXT_SIZE]; /* as the store has it */
    uint8_t secrets_mark[ONCE__MARK_SIZE];      /* goes with every claim */
    int secrets_foreign; /* the store has other secrets than ours: nothing is asked until it has ours */

    struct once__job *jobs; /* all jobs that are not finished, newest first */
    unsigned job_count;     /* of those that a graceful end waits for */
    struct once_claim *claims;
    once__timer_t reap_timer;
    uint64_t behind_ms, messages_behind_ms; /* as the last reaping found it */
    once__timer_t keyring_timer;

    once__auditor_t auditor;

    char last_scope[64]; /* consecutive asks mostly have the same scope: its hash is kept */
    size_t last_scope_len;
    int last_scope_known;
    uint8_t last_scope_hash[ONCE_SCOPE_HASH_SIZE];

    uint8_t random_pool[ONCE__RANDOM_POOL]; /* one system call for many claim ids */
    size_t random_left;

    unsigned callbacks; /* called so far; dispatch returns the difference */
    int depth;          /* inside a callback */
    int in_dispatch;
    _Atomic int closing; /* shutdown began: no new asks */
    int asks_to_close;   /* the next dispatch fails those under way */
    int ended;           /* by close: nothing more is submitted */
    once_shutdown_cb shutdown_cb;
    void *shutdown_data;

    int threaded;
    int thread_stop;
    pthread_t thread;
    pthread_mutex_t lock; /* recursive; used only when threaded */
    pthread_cond_t changed;
};

/*
 * Opens a handle over a loop and a store made by the caller, for the simulation and the fault tests. The handle owns both, also on
 * an error. The store must have been made with this loop.
 */
int once__open_over(once__loop_t *loop, once__store_t *store, const once_options_t *options,
                    once_t **handle, once_error_t *err);

/* Every public function begins and ends with these. Locks the handle if it has a thread. ONCE_E_FORKED in a child process. */
int once__enter(once_t *once);
void once__leave(once_t *once);

/*
 * `size` zeroed bytes for a job or a claim, or NULL. The general allocator takes longer for blocks of this size than all other
 * bookkeeping of a call.
 */
void *once__handle_alloc(once_t *once, size_t size);
void once__handle_free(once_t *once, void *memory);

/*
 * A message for the host (once_options_set_log): what no return value and no callback can say. Nothing happens unless the host
 * wants messages of this level. A message is cut to one line of 300 bytes.
 */
void once__log(const once_t *once, once_log_level_t level, const char *format, ...)
    ONCE_PRINTF(3, 4);

/* Reports that the store cannot be used, why, and that it works again; each once. */
void once__log_store(once_t *once);

/* The process generation: changes in a child of fork. */
unsigned once__generation(void);

/* Random bytes. Returns 0, or -1 if the system has none. */
int once__random(once_t *once, void *out, size_t len);

/* When the handle is to be dispatched next: 0 now, UINT64_MAX never. For the simulation. */
uint64_t once__due(const once_t *once);

#endif
