/*
 * One operation on the records of a local store, decided and written to the log, not yet durable. Used by the writer thread.
 */
#ifndef ONCE_STORE_LOCAL_DECIDE_H
#define ONCE_STORE_LOCAL_DECIDE_H

#include "store/local/log.h"
#include "store/store.h"

typedef struct once__records {
    once__index_t *index;
    once__log_t *log;
    const once__rules_t *rules;
    int directory_fd;     /* of the store */
    uint64_t clock;       /* of the batch; 0: each operation looks */
    uint32_t sweep_shard; /* where the next sweep begins */
    int relaxed_claims;   /* run is answered without waiting for the sync */
    once__limits_t limits;
    uint64_t counted_at; /* by the clock: when the next two were counted */
    uint64_t room;       /* for so many more records */
    uint64_t bytes;      /* of the log */
} once__records_t;

/* Before a batch, whose clock is set: how far is the store from its limits? */
void once__records_count(once__records_t *records);

/* Answers a record event or a get (op->error and so on). Returns whether the answer must wait for the next sync. */
int once__records_apply(once__records_t *records, once__op_t *op);

/*
 * Before some glances. `first_segment` is the oldest one when it was last called, by this log's owner (0: never); 1: older ones
 * were dropped since, and their mappings given back.
 */
int once__records_begin_glances(once__records_t *records, uint32_t *first_segment);

/*
 * Answers a claim of a record that is completed and durable, if nothing has to be waited for: no lock, no disk. 1: answered; 0: it
 * is for once__records_apply. Writes nothing. For another thread than the writer's, with a log of its own that never waits.
 */
int once__records_glance(once__records_t *records, once__op_t *op);

/*
 * The same for who only wants to know whether the answer would be replay, in two steps, each for many before the other: what the
 * index says (1: there may be a record; it will be read soon), and then the record (1: surely). They take no lock.
 */
int once__records_peek(const once__records_t *records, const uint8_t *id, once__peek_t *peek);
int once__records_recall(once__records_t *records, const once__lookup_t *look,
                         const once__peek_t *peek);

/*
 * Moves the pending and unknown records of the oldest segment to ours (or `everything` that still counts), and syncs. ONCE_OK:
 * nothing of that is there any more. ONCE_E_NOT_FOUND: everything would be too much.
 */
int once__records_carry(once__records_t *records, uint32_t segment, int everything);

/*
 * A held record that cannot be read must not keep its segment, and all behind it, for ever; nor may its key be taken for unused.
 * Its bytes go to quarantine/, and a frame in our segment says that it is lost. ONCE_OK, or why not.
 */
int once__records_lose(once__records_t *records, uint32_t shard, const once__shard_entry_t *entry);

/*
 * Takes records that may go out of the index, one by one; their frames go with their segments. Looks at no more than `look`
 * records (0: at all of them) and goes on from there the next time. At most `limit` (0: all); returns how many went.
 */
uint64_t once__records_sweep(once__records_t *records, uint64_t look, uint64_t limit);

/* A step through all records, and all of them at once. */
void once__records_scan(once__records_t *records, once__op_t *op);
void once__records_stats(once__records_t *records, once__op_t *op);

#endif
