/*
 * `local:PATH`: a durable store in a directory, shared by the processes of one machine. The default of every program.
 *
 *     host's thread                      writer thread                                   maintenance thread
 *     submit -> queue -- dispatch -->    decides a batch: lock, read, once__step,        compacts, scans, counts
 *                                        append, enter; answers what need not wait
 *                                        one fdatasync for the rest, answers them
 *     done <- dispatch <- eventfd <--
 *
 * The host never waits for a disk: it only moves lists, and answers replays that are in memory.
 */
#ifndef ONCE_STORE_LOCAL_LOCAL_H
#define ONCE_STORE_LOCAL_LOCAL_H

#include <pthread.h>
#include <sys/stat.h>

#include "store/local/decide.h"
#include "store/local/directory.h"
#include "store/oplist.h"

extern const once__store_vt_t once__local_store;

/* As the vtable's open, with another disk under it. For tests. */
int once__local_open(const once__store_config_t *config, const once__disk_t *disk,
                     once__store_t **store, once_error_t *err);

/*
 * Over a simulated loop (env.h) the store has no threads: its owner does the work of the writer, in two halves, so that others
 * can act in between. For tests.
 */
/* all that dispatch took in; answers what need not wait */
void once__local_decide(once__store_t *store);
void once__local_commit(once__store_t *store); /* syncs, and answers the rest */

/* ---- a handle, for local.c (the host's side), writer.c (decides and commits), maintain.c (the rest) and secrets.c ---- */

/* Looks at records beside the writer, with a reader of its own. One thread at a time. */
typedef struct once__looker {
    pthread_mutex_t lock;
    once__records_t records;
} once__looker_t;

/* What is known about the secrets of the directory, and of which file. */
typedef struct once__local_mark {
    struct stat file;
    int is_there;                   /* the file was read */
    uint8_t bytes[ONCE__MARK_SIZE]; /* of the last one that was read */
    int fits;                       /* in this batch; -1: not looked at yet */
} once__local_mark_t;

typedef struct once__local {
    once__store_t base;
    once__loop_t *loop;
    once__source_t source; /* the eventfd: answers are there */
    once__timer_t watch;   /* set while the writer has something to do */
    uint64_t watched;      /* `rounds` when it was set */
    once__disk_t disk;
    once__directory_t directory;
    uint64_t timeout_ms;
    int threadless; /* over a simulated loop */
    _Atomic int
        failed; /* the log has failed, or another index is in use: nothing is decided any more */

    once__oplist_t submitted;    /* the host's, until dispatch hands it over */
    once__looker_t host, others; /* the second one is for once_recall */

    pthread_mutex_t lock;   /* of what follows */
    once__oplist_t queue;   /* for the writer */
    once__oplist_t chores;  /* for the maintenance thread: reap, scan, stats */
    once__oplist_t answers; /* for the host */
    once__oplist_t decided; /* waits for the commit */
    uint64_t rounds;        /* of the writer, each with a commit */
    int busy;               /* the writer is in one */
    pthread_cond_t work;    /* the writer's */
    pthread_cond_t upkeep;  /* the maintenance thread's */
    int stop;
    int more;   /* the host is about to add to the queue: the writer need not sync yet */
    int forget; /* the writer is to close files of segments that were dropped */

    /* The writer's. */
    pthread_t writer;
    once__records_t records;
    once__local_mark_t mark;
    once__oplist_t deferred; /* the lock of their shard is taken */
    once__oplist_t handed;   /* for the maintenance thread, after this batch */

    /* The maintenance thread's. */
    pthread_t maintainer;
    once__records_t own; /* the log is NULL until it is needed */
    once__compaction_t compaction;
} once__local_t;

#define ONCE__SCRUB_OVER 2 /* in `scrub` of an operation: nothing is left of what was erased */

/* Hands answers to the host. From any thread. */
void once__local_answer(once__local_t *local, once__oplist_t *answers);

/* writer.c: the thread; `data` is the handle. */
void *once__local_write(void *data);

/* Gives operations up: nothing was applied; or that is not known. */
void once__local_refuse(once__oplist_t *list);
void once__local_doubt(once__oplist_t *list);

/* Seals the segment of a log if it is mostly dead: one that is being written is not compacted. */
void once__local_retire(const once__local_t *local, once__log_t *log);

/* maintain.c: the thread; and one operation of it (threadless). */
void *once__local_maintain(void *data);
void once__local_chore(once__local_t *local, once__op_t *op);

/* local.c: closes the files of dropped segments in all readers of the host. */
void once__local_forget(once__local_t *local);

/*
 * secrets.c: load and swap; and whether the directory is still where it was, with the secrets of the claim's mark (once for a
 * batch).
 */
void once__local_secrets(once__local_t *local, once__op_t *op);
int once__local_fits(once__local_t *local, const once__op_t *op);

/* audit.c: reads the audit trail, or adds to it. */
void once__local_audit(const once__local_t *local, once__op_t *op);

#endif
