/*
 * The inside of a local store, for those that work on it: local.c (the host's side), writer.c (the thread that decides and
 * commits), recall.c (looks of any thread), upkeep.c (what concerns the store as a whole).
 */
#ifndef ONCE_STORE_LOCAL_LOCAL_INSIDE_H
#define ONCE_STORE_LOCAL_LOCAL_INSIDE_H

#include <pthread.h>
#include <sys/stat.h>

#include "store/local/decide.h"
#include "store/local/directory.h"
#include "store/local/local.h"
#include "store/local/summariser.h"
#include "store/oplist.h"

#define ONCE__RECALLERS 4 /* threads that look without waiting for each other */

/* What a thread needs that looks at records. */
typedef struct once__recaller {
    pthread_mutex_t lock;
    once__records_t records; /* with a log of its own, for reading only; NULL until it is needed */
    uint32_t first_segment;  /* when it last looked */
} once__recaller_t;

/* What is known about the secrets of the directory, and of which file. */
typedef struct once__local_mark {
    struct stat file;
    int is_there;                   /* the file was read */
    uint8_t bytes[ONCE__MARK_SIZE]; /* of the last that was read */
    int fits;                       /* in this batch: -1 not looked at yet */
} once__local_mark_t;

typedef struct once__local {
    once__store_t base;
    once__loop_t *loop;
    once__source_t source; /* the eventfd: answers are there */
    once__directory_t directory;
    once__records_t records;
    once__disk_t disk;

    once__oplist_t submitted; /* the host's, until dispatch hands it over */
    once__records_t glances;  /* of the host: its own log, for reading only */
    uint32_t first_segment;   /* when it last looked */
    once__log_config_t log_config;
    once__recaller_t recallers[ONCE__RECALLERS];
    _Atomic int failed; /* the log has: nothing is answered any more but that */
    _Atomic int lost;   /* the index was cut short */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    once__oplist_t queue;   /* for the writer; under the lock, like `answers` */
    once__oplist_t answers; /* for the host */
    int stop;

    once__local_mark_t mark; /* the writer's */
    once__summariser_t summariser;
    char trouble[128]; /* when it was opened */

    int threadless;         /* over a simulated loop: its owner does the writer's work */
    once__oplist_t decided; /* waits for the commit then */
} once__local_t;

/* The writer thread: batches from the queue until it is told to stop. `data` is the store. */
void *once__local_write(void *data);

/* Tells the processor what is coming: it fetches many records at a time, where we would wait for each. */
void once__local_expect(const once__local_t *local, const once__oplist_t *batch);

/* Without all of its index the store cannot be used any more: not even to close it. 1 or 0. */
int once__local_is_lost(once__local_t *local);

/* once_recall. Forgetting: the mappings of segments that were dropped. */
void once__recallers_open(once__local_t *local);
void once__recallers_forget(once__local_t *local);
void once__recallers_close(once__local_t *local);
void once__recallers_abandon(once__local_t *local); /* takes and destroys no lock */
void once__local_recall(once__store_t *store, once__lookup_t *looks, size_t count);

/* Operations on the store as a whole, by the writer. */
void once__local_secrets(once__local_t *local, once__op_t *op);

/* Is the directory still where it was, and are its secrets those with the claim's mark? Looked at once for a batch. */
int once__local_fits(once__local_t *local, const once__op_t *op);
void once__local_reap(once__local_t *local, once__op_t *op);
void once__local_stats(once__local_t *local, once__op_t *op);

#endif
