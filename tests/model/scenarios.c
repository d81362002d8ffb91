/*
 * The scenarios: which part of the world is let loose at a time. Each is visited completely within its bounds.
 */
#include "model.h"

#define RETRY         (1 << ONCE_RETRY)
#define TRANSACTIONAL (1 << ONCE_TRANSACTIONAL)
#define HOLD          (1 << ONCE_HOLD)
#define ANY_POLICY    (RETRY | TRANSACTIONAL | HOLD)

#define ANSWERS (MODEL_5XX | MODEL_401 | MODEL_ASKED | MODEL_CONNECT)
#define LATE    (MODEL_LATE_CLAIMS | MODEL_LATE_WRITES)

/* clang-format off */
const model_scenario_t model_scenarios[] = {
    {.name = "sql-retry", .what = "transactional door, lost COMMIT replies, requests delivered twice, a crash, ttl",
     .door = MODEL_SQL, .policies = RETRY, .slots = 2, .ids = 3, .losses = 1, .crashes = 1,
     .can = MODEL_LAPSE | MODEL_5XX | MODEL_REPEAT_TX | MODEL_TTL,
     .deep_ids = 3, .deep_can = MODEL_LOSE | MODEL_RENEW | MODEL_ABANDON},
    {.name = "sql-transactional", .what = "transactional door and policy, renewals, abandoned records are reaped",
     .door = MODEL_SQL, .policies = TRANSACTIONAL, .slots = 2, .ids = 3, .losses = 1,
     .can = MODEL_LOSE | MODEL_LAPSE | MODEL_RENEW | MODEL_5XX | MODEL_REPEAT_TX | MODEL_ABANDON},
    {.name = "sql-hold-settle", .what = "transactional door, hold, an operator who says anything, with force",
     .door = MODEL_SQL, .policies = HOLD, .slots = 2, .ids = 3, .losses = 1, .looks = 1,
     .can = MODEL_LOSE | MODEL_LAPSE | MODEL_5XX | MODEL_REPEAT_TX | MODEL_ANY_LOOK | MODEL_FORCE},
    {.name = "sql-mixed", .what = "transactional door, askers of all policies, two fingerprints",
     .door = MODEL_SQL, .policies = ANY_POLICY, .fingerprints = 2, .slots = 2, .ids = 3,
     .can = MODEL_LAPSE | MODEL_5XX | MODEL_REPEAT_TX},
    {.name = "sql-late", .what = "transactional door, copies of every message arrive late",
     .door = MODEL_SQL, .policies = TRANSACTIONAL, .slots = 2, .ids = 3, .losses = 1,
     .can = MODEL_LAPSE | MODEL_5XX | MODEL_REPEAT_TX | LATE},
    {.name = "sql-purge", .what = "transactional door, records are purged, pending ones by force",
     .door = MODEL_SQL, .policies = RETRY, .slots = 2, .ids = 3, .looks = 1,
     .can = MODEL_LAPSE | MODEL_5XX | MODEL_REPEAT_TX | MODEL_PURGE | MODEL_FORCE},
    {.name = "hold", .what = "plain door, hold, all answers, lost replies, clients that give up",
     .policies = HOLD, .slots = 2, .ids = 4, .losses = 2,
     .can = MODEL_LOSE | MODEL_LAPSE | MODEL_RENEW | MODEL_GIVING_UP | ANSWERS},
    {.name = "hold-crash", .what = "plain door, hold, a crash, ttl, abandoned records",
     .policies = HOLD, .slots = 2, .ids = 4, .losses = 1, .crashes = 1,
     .can = MODEL_LOSE | MODEL_LAPSE | MODEL_TTL | MODEL_ABANDON | ANSWERS},
    {.name = "hold-settle", .what = "plain door, hold, settled by who sees the backend only, replies lost",
     .policies = HOLD, .slots = 2, .ids = 3, .losses = 1, .looks = 2,
     .can = MODEL_LAPSE | MODEL_5XX | MODEL_401 | MODEL_TTL | MODEL_BLIND},
    {.name = "hold-settle-sleepy", .what = "the same with gateways that sleep before they forward",
     .policies = HOLD, .slots = 2, .ids = 4, .losses = 1, .looks = 2,
     .can = MODEL_LAPSE | MODEL_5XX | MODEL_401 | MODEL_LATE_FORWARD},
    {.name = "hold-force", .what = "plain door, hold, settled by force under a live lease",
     .policies = HOLD, .slots = 2, .ids = 4, .losses = 1, .looks = 2,
     .can = MODEL_LAPSE | MODEL_5XX | MODEL_FORCE},
    {.name = "hold-late", .what = "plain door, hold, copies of every write arrive late",
     .policies = HOLD, .slots = 2, .ids = 3, .losses = 1,
     .can = MODEL_LAPSE | MODEL_RENEW | ANSWERS | MODEL_LATE_WRITES | MODEL_LATE_OWN},
    {.name = "hold-three", .what = "plain door, hold, three requests at once",
     .policies = HOLD, .slots = 3, .ids = 4, .losses = 1, .crashes = 1,
     .can = MODEL_LAPSE | MODEL_5XX | MODEL_401},
    {.name = "retry", .what = "plain door, retry, all answers, lost replies, a crash, ttl",
     .policies = RETRY, .slots = 2, .ids = 3, .losses = 1, .crashes = 1,
     .can = MODEL_LOSE | MODEL_LAPSE | MODEL_GIVING_UP | MODEL_TTL | ANSWERS},
    {.name = "retry-renewed", .what = "plain door, retry, no lease of a live holder runs out, only true releases",
     .policies = RETRY, .slots = 2, .ids = 4, .losses = 1,
     .can = MODEL_LOSE | MODEL_RENEW | MODEL_401 | MODEL_CONNECT},
    {.name = "retry-late", .what = "plain door, retry, copies of every message arrive late",
     .policies = RETRY, .slots = 2, .ids = 3, .losses = 1,
     .can = MODEL_LAPSE | MODEL_5XX | LATE},
    {.name = "retry-settle", .what = "plain door, retry, settled and purged, abandoned records are reaped",
     .policies = RETRY, .slots = 2, .ids = 3, .looks = 1,
     .can = MODEL_LAPSE | MODEL_CONNECT | MODEL_ABANDON | MODEL_PURGE,
     .deep_ids = 3, .deep_can = MODEL_5XX | MODEL_FORCE},
    {.name = "retry-force", .what = "plain door, retry, settled by force under a live lease",
     .policies = RETRY, .slots = 2, .ids = 3, .looks = 1, .can = MODEL_LAPSE | MODEL_CONNECT | MODEL_FORCE},
    {.name = "retry-two", .what = "plain door, retry, two fingerprints",
     .policies = RETRY, .fingerprints = 2, .slots = 2, .ids = 4,
     .can = MODEL_LAPSE | MODEL_CONNECT},
    {.name = "mixed", .what = "plain door, askers with retry and hold, two fingerprints",
     .policies = RETRY | HOLD, .fingerprints = 2, .slots = 2, .ids = 3, .losses = 1,
     .can = MODEL_LAPSE | ANSWERS},
    {.name = "mixed-three", .what = "plain door, askers with retry and hold, three requests at once, a crash",
     .policies = RETRY | HOLD, .slots = 3, .ids = 3, .losses = 1, .crashes = 1, .can = MODEL_LAPSE | MODEL_CONNECT,
     .deep_ids = 3, .deep_can = MODEL_5XX | MODEL_LOSE},

    /* What the contract takes for granted, taken away: each must break. */
    {.name = "untrue-401", .what = "a status listed as before any effect follows one", .breaks = "I2-double-effect",
     .policies = HOLD, .slots = 2, .ids = 3, .can = MODEL_LAPSE | MODEL_DIRTY_401},
    {.name = "hasty-settle", .what = "settled to failed because it has not happened yet", .breaks = "I2-double-effect",
     .policies = HOLD, .slots = 2, .ids = 3, .looks = 1, .can = MODEL_LAPSE | MODEL_HASTY},
    {.name = "sleepy-and-blind", .what = "settled while a gateway may still forward", .breaks = "I2-double-effect",
     .policies = HOLD, .slots = 2, .ids = 3, .losses = 1, .looks = 1, .can = MODEL_LAPSE | MODEL_LATE_FORWARD | MODEL_BLIND},
    {.name = "revived-and-blind", .what = "settled while a gateway renews a lease that was over, and forwards",
     .breaks = "I2-double-effect", .policies = HOLD, .slots = 2, .ids = 3, .losses = 1, .looks = 1,
     .can = MODEL_LAPSE | MODEL_CONFIRM | MODEL_BLIND},
    {.name = "early-look", .what = "settled by what was seen before the lease was over", .breaks = "I2-double-effect",
     .policies = HOLD, .slots = 2, .ids = 3, .looks = 1, .can = MODEL_LAPSE | MODEL_BLIND | MODEL_EARLY},
    {.name = "judged-by-asker", .what = "a gateway judges a 5xx by its own retry though the record says hold",
     .breaks = "I2-double-effect",
     .policies = RETRY | HOLD, .slots = 2, .ids = 3, .can = MODEL_LAPSE | ANSWERS | MODEL_BY_ASKER},
    {.name = "late-claim", .what = "a copy of a claim arrives after its request has ended", .breaks = "I6-unknown-but-never-forwarded",
     .policies = HOLD, .slots = 2, .ids = 3, .losses = 1, .can = MODEL_LAPSE | MODEL_401 | LATE},
};
/* clang-format on */

const size_t model_scenario_count = sizeof(model_scenarios) / sizeof(model_scenarios[0]);
