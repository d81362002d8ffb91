/*
 * What happened, counted over all schedules. A simulation that no longer reaches something proves nothing about it: those
 * that are marked fail the run when they stay at zero: 1 with a table behind a network, 2 with a local store.
 */
#ifndef SIMULATION_COUNTERS_H
#define SIMULATION_COUNTERS_H

#include <stdint.h>

/* name, must it happen, what it is */
#define COUNTERS(XX)                                                                               \
    XX(SCHEDULES, 1, "schedules")                                                                  \
    XX(CALM, 1, "schedules in which nothing goes wrong")                                           \
    XX(REQUESTS, 1, "requests of clients")                                                         \
    XX(OPS, 1, "store requests applied")                                                           \
    XX(GRANTS, 1, "claims granted")                                                                \
    XX(TAKEOVERS, 1, "claims granted after a lease was over")                                      \
    XX(RUN_AGAIN, 1, "claims repeated after a lost reply")                                         \
    XX(MINE, 1, "own claims found unknown by lease")                                               \
    XX(REPLAYS, 1, "answers: replay")                                                              \
    XX(BUSY, 1, "answers: busy")                                                                   \
    XX(MISMATCHES, 1, "answers: mismatch")                                                         \
    XX(UNKNOWN, 1, "answers: unknown")                                                             \
    XX(ERRORS, 1, "answers: 503")                                                                  \
    XX(COMPLETED, 1, "records completed by their claim")                                           \
    XX(RELEASED, 1, "claims released")                                                             \
    XX(RELEASED_EARLY, 1, "claims released before any effect")                                     \
    XX(RELEASED_TOUCHED, 1, "the same, after a release that was not")                              \
    XX(RELEASED_TAINTED, 1, "releases after an earlier doubt")                                     \
    XX(DOUBTED, 1, "claims doubted")                                                               \
    XX(RENEWED, 1, "leases extended")                                                              \
    XX(REVIVED, 1, "leases extended after they had run out")                                       \
    XX(ALREADY, 1, "writes: already")                                                              \
    XX(LOST, 1, "writes: lost")                                                                    \
    XX(UNKNOWN_BY_LEASE, 1, "records unknown because a lease ran out")                             \
    XX(UNKNOWN_COMPLETED, 1, "unknown records completed by their claim")                           \
    XX(SETTLED_COMPLETED, 1, "settled to completed")                                               \
    XX(SETTLED_FAILED, 1, "settled to failed")                                                     \
    XX(SETTLE_REFUSED, 1, "settles refused")                                                       \
    XX(SETTLE_FORCED, 1, "settles under a live lease, by force")                                   \
    XX(PURGE_FORCED, 1, "pending or unknown records purged by force")                              \
    XX(PURGE_REFUSED, 1, "purges refused")                                                         \
    XX(PURGED, 1, "records purged")                                                                \
    XX(REAPED, 1, "records removed after their ttl")                                               \
    XX(REAPED_ABANDONED, 1, "pending and unknown records removed")                                 \
    XX(REBORN, 1, "claims on a record whose ttl was over")                                         \
    XX(EFFECTS, 1, "effects")                                                                      \
    XX(EFFECTS_SECOND, 1, "second effects that policy retry allows")                               \
    XX(EFFECTS_STALE, 1, "effects of claims that were no longer current")                          \
    XX(COMMITS, 1, "transactions committed")                                                       \
    XX(ROLLBACKS_LOST, 1, "transactions rolled back: stale claim")                                 \
    XX(ROLLBACKS_ALREADY, 1, "transactions rolled back: completed before")                         \
    XX(COMMITS_REPEATED, 1, "transactions repeated after a lost commit reply")                     \
    XX(DELIVERED_TWICE, 1, "requests delivered twice to a transactional backend")                  \
    XX(LOST_REQUESTS, 1, "store requests lost")                                                    \
    XX(LOST_REPLIES, 1, "store replies lost")                                                      \
    XX(LATE_REQUESTS, 1, "store requests that arrived after their time-out")                       \
    XX(DUPLICATES, 1, "store requests that arrived twice")                                         \
    XX(LATE_GRANTS, 1, "claims granted by a late or doubled request")                              \
    XX(NO_REPLIES, 1, "store calls answered with a lost reply")                                    \
    XX(REFUSED, 1, "store calls refused during an outage")                                         \
    XX(FULL, 1, "store calls answered with no room")                                               \
    XX(OUTAGES, 1, "outages of the store")                                                         \
    XX(CRASHES, 1, "gateways that crashed")                                                        \
    XX(CRASHES_HOLDING, 1, "gateways that crashed with a claim that they had not forwarded")       \
    XX(PAUSES, 1, "gateways that stood still")                                                     \
    XX(SHUTDOWNS, 1, "gateways that ended gracefully")                                             \
    XX(JUMPS_BACK, 1, "store clocks set back")                                                     \
    XX(JUMPS_FORTH, 1, "store clocks set forth")                                                   \
    XX(DROPPED, 1, "claims forgotten by their gateway")                                            \
    XX(UNKNOWN_SECRET, 1, "claims by a gateway that did not know the record's secret")             \
    XX(STRICTER, 1, "claims granted under a stricter policy than their own")                       \
    XX(ROTATIONS, 1, "secrets rotated")                                                            \
    XX(FORWARDS, 1, "requests forwarded")                                                          \
    XX(TOO_LATE, 1, "requests not forwarded: half the lease was over")                             \
    XX(NOT_SENT, 1, "requests not forwarded: no connection")                                       \
    XX(STUCK_UNKNOWN, 1, "records that ended unknown under hold")                                  \
    XX(NEVER_RAN, 1, "of them those that never ran, after a crash or a late claim")                \
    XX(POWER_FAILURES, 2, "power failures")                                                        \
    XX(POWER_AT_SYNC, 2, "of them those in the middle of writing")                                 \
    XX(LOST_UNSYNCED, 2, "unacknowledged decisions lost, or renewals")                             \
    XX(CAME_BACK, 0, "expired records that came back from the log")                                \
    XX(PUT_OFF, 2, "answers put off: a record was not durable yet, or the store failed")           \
    XX(REBUILDS_CUT, 2, "crashes while the index was rebuilt after a crash")                       \
    XX(RESTARTS, 2, "machines restarted in good order")                                            \
    XX(WRITE_ERRORS, 2, "writes that failed")                                                      \
    XX(DISK_ERRORS, 2, "syncs that failed")                                                        \
    XX(DISK_FULL, 2, "segments for which there was no room")

enum counter {
#define COUNTERS_ENUM(name, must, text) COUNT_##name,
    COUNTERS(COUNTERS_ENUM)
#undef COUNTERS_ENUM
        COUNTER_COUNT
};

typedef struct counters {
    uint64_t at[COUNTER_COUNT];
} counters_t;

#endif
