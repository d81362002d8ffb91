/*
 * Operations on records: lock the shard, read, once__step, append, enter. Nothing here waits for a disk or for another process
 * while a shard is locked.
 */
#ifndef ONCE_STORE_LOCAL_DECIDE_H
#define ONCE_STORE_LOCAL_DECIDE_H

#include "store/limits.h"
#include "store/local/log.h"
#include "store/store.h"

/* What one thread needs to work on records. */
typedef struct once__records {
    once__index_t *index;
    once__log_t *log; /* NULL: only looks */
    once__reader_t *reader;
    const once__rules_t *rules;
    const once__log_config_t *log_config;
    once__limits_t limits;
    uint64_t room;  /* new records that max_records allows */
    uint64_t bytes; /* of the log; this and `room` as of counted_at */
    uint64_t counted_at;
    uint64_t clock; /* of the batch; 0: each operation reads it */
    int relaxed_claims;
    uint32_t tried_slot; /* the last segment whose writer might have died */
    uint64_t tried_until;
    once__erasing_t erasing;
    uint8_t why[ONCE__WHY_MAX]; /* of the record that is being decided */
} once__records_t;

typedef enum once__decided {
    ONCE__DECIDED_NOW,   /* answer it */
    ONCE__DECIDED_SYNC,  /* answer it when the log is synced */
    ONCE__DECIDED_LATER, /* the shard's lock is taken: try again. Nothing was applied */
} once__decided_t;

/* Counts what the limits are about, if there are any. Before each batch, whose clock is set. */
void once__records_count(once__records_t *records);

/* The operations, from `first` on, and their entries were last used by other processors: they are fetched all at once. */
void once__records_expect(const once__records_t *records, const once__op_t *first);

/* Decides a record event or a get. Waits for the disk without a lock only, and for no lock. */
once__decided_t once__records_apply(once__records_t *records, once__op_t *op);

/*
 * Answers a claim from a record that is completed and durable, if that is in memory and the shard's lock is free. 1: answered. For
 * another thread than the one that decides, with a reader of its own; records->clock is set.
 */
int once__records_glance(once__records_t *records, once__op_t *op);

/* Would the claim be answered with a replay? Under the same conditions. 1 or 0. */
int once__records_recall(once__records_t *records, const once__lookup_t *look);

/* May the record go: has it expired, or was it abandoned? */
int once__records_may_go(const once__records_t *records, const once__head_t *head);

/* scan.c: a step through all records, and all of them at once. Shards are locked only to copy their entries. */
void once__records_scan(once__records_t *records, once__op_t *op);
/* Calls `tend` now and then. 1 from it: the handle is being closed, the count is given up. */
void once__records_stats(once__records_t *records, once__op_t *op, int (*tend)(void *data),
                         void *data);

/* compact.c */

typedef struct once__compaction {
    int thorough; /* also takes every expired record out of the index */
    uint64_t
        limit; /* records that are removed at most (about: a segment goes as a whole); 0: any number */
    uint64_t until;          /* no victim is begun after this time; 0: at any */
    int (*tend)(void *data); /* called now and then, without a lock; 1: stop. NULL: none */
    void *data;
    uint32_t sweep_shard; /* kept from one compaction to the next: where the sweep goes on */

    uint64_t removed;  /* records that went */
    uint64_t carried;  /* frames that were copied */
    uint64_t segments; /* that were dropped */
} once__compaction_t;

/*
 * Compacts the segments that are worth it and sweeps (docs/format.md, "Compaction"). `records` has a log of its own. ONCE_OK;
 * ONCE_E_CONFLICT: no segment may be dropped now (fsck, backup); ONCE_E_FULL, ONCE_E_IO, ONCE_E_NOMEM.
 */
int once__records_compact(once__records_t *records, once__compaction_t *compaction);

/* Is a segment worth it: less than two thirds of its bytes live, or of copies less than half? */
int once__segment_is_dead(const once__segment_t *segment, uint64_t now);

#endif
