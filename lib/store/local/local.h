/*
 * `local:PATH`: a durable store in a directory, shared by the processes of one machine. The default of every program.
 *
 *     host's thread                      writer thread                                   maintenance thread
 *     submit -> queue -- dispatch -->    decides a batch: lock, read, once__step,        makes the next segment ahead of need,
 *                                        append, enter; answers what need not wait       compacts, scans, counts
 *                                        one fdatasync for the rest, answers them
 *     done <- dispatch <- eventfd <--
 *
 * The host never waits for a disk: it only moves lists, and answers replays that are in memory.
 */
#ifndef ONCE_STORE_LOCAL_LOCAL_H
#define ONCE_STORE_LOCAL_LOCAL_H

#include "store/local/disk.h"
#include "store/store.h"

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

#endif
