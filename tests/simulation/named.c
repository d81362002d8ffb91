#include "named.h"

#include <stdio.h>
#include <string.h>

#include "mutation.h"
#include "schedule.h"

#define NEVER SCRIPT_NEVER

#define ASK(at, gateway)                                                                           \
    {                                                                                              \
        at, SCRIPT_ASK, gateway, 0                                                                 \
    }
#define ASK_OTHER(at, gateway)                                                                     \
    {                                                                                              \
        at, SCRIPT_ASK, gateway, 1                                                                 \
    }
#define CRASH(at, gateway)                                                                         \
    {                                                                                              \
        at, SCRIPT_CRASH, gateway, 0                                                               \
    }
#define PAUSE(at, gateway, ms)                                                                     \
    {                                                                                              \
        at, SCRIPT_PAUSE, gateway, ms                                                              \
    }
#define LOOK(at)                                                                                   \
    {                                                                                              \
        at, SCRIPT_LOOK, 0, 0                                                                      \
    }
#define LOOK_FORCED(at)                                                                            \
    {                                                                                              \
        at, SCRIPT_LOOK, 0, 1                                                                      \
    }
#define LOOK_AGAIN(at)                                                                             \
    {                                                                                              \
        at, SCRIPT_LOOK_AGAIN, 0, 0                                                                \
    }

/* Courses: when the effect comes, when the answer comes, with which status. */
#define COURSE(effect, answer, code)                                                               \
    {                                                                                              \
        .effect_at = effect, .answer_at = answer, .status = code                                   \
    }
#define REFUSED                                                                                    \
    {                                                                                              \
        .refused = 1, .effect_at = NEVER, .answer_at = NEVER, .status = 502                        \
    }
#define GOOD COURSE(5, 10, 201)

/* clang-format off */
const script_t named_scripts[] = {
    {"L3", "a transaction of epoch 1 meets epoch 1 of the record's next life", .recover = ONCE_RECOVER_TRANSACTIONAL,
     .ttl = 1000, .horizon = 5000,
     .steps = {ASK(0, 0), ASK(1700, 0), ASK(3000, 1)},
     .courses = {COURSE(3289, NEVER, 201), GOOD, COURSE(NEVER, NEVER, 201)},
     .effects = 1, .state = ONCE_STATE_UNKNOWN, .catches = {"epoch-only"}},

    {"M3", "the reply to a commit is lost, the transaction is repeated", .recover = ONCE_RECOVER_TRANSACTIONAL, .horizon = 1000,
     .steps = {ASK(0, 0)},
     .courses = {{.effect_at = 5, .again_at = 30, .answer_at = 50, .status = 201}},
     .effects = 1, .state = ONCE_STATE_COMPLETED, .catches = {"sql-idempotent", "sql-separate"}},

    {"M4", "the request reaches the backend twice, the second time after the answer", .recover = ONCE_RECOVER_TRANSACTIONAL,
     .horizon = 2000,
     .steps = {ASK(0, 0)},
     .courses = {{.effect_at = 5, .again_at = 900, .answer_at = 10, .status = 201}},
     .effects = 1, .state = ONCE_STATE_COMPLETED, .catches = {"sql-idempotent", "sql-separate"}},

    {"L5", "a status that releases is sent before any effect, or hold is void", .recover = ONCE_RECOVER_HOLD, .horizon = 1000,
     .steps = {ASK(0, 0), ASK(100, 1)},
     .courses = {COURSE(NEVER, 10, 401), GOOD},
     .effects = 1, .state = ONCE_STATE_COMPLETED, .catches = {"dirty-401"}},

    {"L6", "a record that may have taken effect does not expire under hold", .recover = ONCE_RECOVER_HOLD,
     .ttl = 1000, .reap = 500, .horizon = 6000,
     .steps = {ASK(0, 0), PAUSE(20, 0, 9000), ASK(4000, 1)},
     .courses = {COURSE(10, NEVER, 201), GOOD},
     .effects = 1, .state = ONCE_STATE_UNKNOWN, .catches = {"reap-ignores-hold"}},

    {"L7", "an operator that says never must mean it: not yet is not never", .recover = ONCE_RECOVER_HOLD, .horizon = 4000,
     .steps = {ASK(0, 0), LOOK(1700), ASK(2300, 1)},
     .fates = {{FATE_DELAY, SCRIPT_OPERATOR, ONCE__SETTLE_FAILED, 1, 1, 190}},
     .courses = {COURSE(1800, NEVER, 201), GOOD},
     .effects = 1, .state = ONCE_STATE_UNKNOWN, .catches = {"hasty-operator"}},

    {"L8", "a repeated settle names the claim that it judged, not the one of now", .recover = ONCE_RECOVER_HOLD, .horizon = 5000,
     .steps = {ASK(0, 0), LOOK_FORCED(100), ASK(200, 0), LOOK_AGAIN(2500), ASK(2600, 1)},
     .courses = {COURSE(NEVER, 10, 500), COURSE(1500, NEVER, 201), GOOD},
     .effects = 1, .state = ONCE_STATE_UNKNOWN, .catches = {"renaming-operator", "settle-any-claim"}},

    {"L9", "retry: a complete 5xx after the effect lets the next one act at once", .recover = ONCE_RECOVER_RETRY, .horizon = 1000,
     .steps = {ASK(0, 0), ASK(100, 1)},
     .courses = {COURSE(5, 10, 500), GOOD},
     .effects = 2, .state = ONCE_STATE_COMPLETED},

    {"L10", "retry: the effect of epoch 2 may come before that of epoch 1", .recover = ONCE_RECOVER_RETRY, .horizon = 5000,
     .steps = {ASK(0, 0), CRASH(50, 0), ASK(1100, 1)},
     .courses = {COURSE(3000, NEVER, 201), GOOD},
     .effects = 2, .state = ONCE_STATE_COMPLETED},

    {"F7a", "a release does not hide that an earlier claim may have taken effect", .recover = ONCE_RECOVER_RETRY, .horizon = 2000,
     .steps = {ASK(0, 0), PAUSE(20, 0, 9000), ASK(1100, 1)},
     .courses = {COURSE(10, NEVER, 201), REFUSED},
     .effects = 1, .state = ONCE_STATE_UNKNOWN, .catches = {"release-ignores-taint", "no-taint-by-lease"}},

    {"M7", "a release of epoch 1 meets epoch 1 of the record's next life", .recover = ONCE_RECOVER_RETRY,
     .ttl = 1000, .horizon = 4000,
     .steps = {ASK(0, 0), PAUSE(20, 0, 2380), ASK(1100, 1), ASK(2300, 1)},
     .courses = {{.connect_ms = 30, .effect_at = NEVER, .answer_at = NEVER, .status = 201}, COURSE(NEVER, 10, 422),
                 COURSE(300, 310, 201)},
     .effects = 1, .state = ONCE_STATE_COMPLETED, .catches = {"epoch-only", "late-forward"}},

    {"L13", "a gateway whose completion is lost answers from the record", .recover = ONCE_RECOVER_RETRY, .horizon = 3000,
     .steps = {ASK(0, 0), PAUSE(15, 0, 1500), ASK(1100, 1)},
     .courses = {COURSE(NEVER, 10, 422), COURSE(500, 550, 201)},
     .effects = 1, .state = ONCE_STATE_COMPLETED, .catches = {"own-answer", "complete-any-claim"}},

    {"L4", "the reply to a claim is lost until the lease is over: nothing was sent, nothing stays unknown",
     .recover = ONCE_RECOVER_HOLD, .store_timeout = 4000, .horizon = 6000,
     .steps = {ASK(0, 0), ASK(1100, 1), ASK(3000, 1)},
     .fates = {{FATE_LOSE_REPLY, 0, ONCE__CLAIM, 1, 1, 0}, {FATE_LOSE_REQUEST, 0, ONCE__CLAIM, 2, 5, 0}},
     .courses = {GOOD},
     .effects = 1, .state = ONCE_STATE_COMPLETED, .catches = {"mine-not-told", "new-claim-id"}},

    {"L12", "the reply to a claim is lost: the repeated claim is recognised", .recover = ONCE_RECOVER_HOLD, .horizon = 1000,
     .steps = {ASK(0, 0)},
     .fates = {{FATE_LOSE_REPLY, 0, ONCE__CLAIM, 1, 1, 0}},
     .courses = {GOOD},
     .effects = 1, .state = ONCE_STATE_COMPLETED, .catches = {"own-claim-is-busy", "new-claim-id"}},

    {"F4b", "a crash between claim and forward leaves an unknown that never ran", .recover = ONCE_RECOVER_HOLD, .horizon = 2000,
     .steps = {ASK(0, 0), CRASH(100, 0), ASK(1100, 1)},
     .courses = {{.connect_ms = 300, .effect_at = 5, .answer_at = 10, .status = 201}},
     .effects = 0, .state = ONCE_STATE_UNKNOWN, .catches = {"hold-ignored-at-lease-over"}},

    {"I7", "the reply to a completion is lost: the repeated one is answered already", .recover = ONCE_RECOVER_HOLD, .horizon = 1000,
     .steps = {ASK(0, 0), ASK(500, 1)},
     .fates = {{FATE_LOSE_REPLY, 0, ONCE__COMPLETE, 1, 1, 0}},
     .courses = {GOOD},
     .effects = 1, .state = ONCE_STATE_COMPLETED, .catches = {"complete-not-again"}},

    {"I7b", "an unknown record takes the known outcome of its live holder", .recover = ONCE_RECOVER_HOLD, .horizon = 3000,
     .steps = {ASK(0, 0), PAUSE(15, 0, 1500), ASK(1100, 1)},
     .courses = {COURSE(8, 10, 201)},
     .effects = 1, .state = ONCE_STATE_COMPLETED, .catches = {"complete-not-unknown", "hold-ignored-at-lease-over"}},

    {"L17", "a transaction commits although the gateway gave up waiting", .recover = ONCE_RECOVER_TRANSACTIONAL, .horizon = 2000,
     .steps = {ASK(0, 0)},
     .courses = {COURSE(800, NEVER, 201)},
     .effects = 1, .state = ONCE_STATE_COMPLETED, .catches = {"complete-not-unknown"}},

    {"M2", "doubt comes after the backend's commit: completed stays completed", .recover = ONCE_RECOVER_TRANSACTIONAL,
     .horizon = 2000,
     .steps = {ASK(0, 0)},
     .courses = {COURSE(590, NEVER, 201)},
     .effects = 1, .state = ONCE_STATE_COMPLETED, .catches = {"doubt-completed"}},

    {"L15", "a record that may have taken effect keeps its body", .recover = ONCE_RECOVER_RETRY, .horizon = 3000,
     .steps = {ASK(0, 0), PAUSE(20, 0, 9000), ASK(1100, 1), ASK_OTHER(1300, 1)},
     .courses = {COURSE(10, NEVER, 201), REFUSED, GOOD},
     .effects = 1, .state = ONCE_STATE_UNKNOWN, .catches = {"mismatch-not-unknown", "mismatch-after-all"}},

    {"L15-failed", "and so does one that failed", .recover = ONCE_RECOVER_RETRY, .horizon = 1000,
     .steps = {ASK(0, 0), ASK_OTHER(100, 1)},
     .courses = {REFUSED, GOOD},
     .effects = 0, .state = ONCE_STATE_FAILED, .catches = {"mismatch-not-failed", "mismatch-after-all"}},

    {"M1", "a transaction whose claim is stale rolls back", .recover = ONCE_RECOVER_TRANSACTIONAL, .horizon = 3000,
     .steps = {ASK(0, 0), PAUSE(20, 0, 9000), ASK(1100, 1)},
     .courses = {COURSE(1489, NEVER, 201), COURSE(500, 550, 201)},
     .effects = 1, .state = ONCE_STATE_COMPLETED, .catches = {"complete-any-claim"}},

    {"F4a", "an unknown record is not revived under the epoch that an operator judged", .recover = ONCE_RECOVER_HOLD,
     .store_timeout = 4000, .horizon = 5000,
     .steps = {ASK(0, 0), ASK(1100, 1), LOOK(1380), ASK(2600, 1)},
     .fates = {{FATE_LOSE_REPLY, 0, ONCE__CLAIM, 1, 1, 0}, {FATE_LOSE_REQUEST, 0, ONCE__CLAIM, 2, 5, 0},
               {FATE_DELAY, SCRIPT_OPERATOR, ONCE__SETTLE_FAILED, 1, 1, 190}},
     .courses = {GOOD, GOOD},
     .effects = 1, .state = ONCE_STATE_COMPLETED, .catches = {"mine-revives", "mine-runs"}},

    {"F4a-late", "a grant that was heard of too late is given back, not revived", .recover = ONCE_RECOVER_HOLD, .horizon = 5000,
     .steps = {ASK(0, 0), PAUSE(8, 0, 1130), ASK(1100, 1), LOOK(1136), LOOK_AGAIN(2850), ASK(3000, 1)},
     .courses = {COURSE(5, NEVER, 201), GOOD},
     .effects = 1, .state = ONCE_STATE_UNKNOWN},
};
/* clang-format on */

const size_t named_script_count = sizeof(named_scripts) / sizeof(named_scripts[0]);

const script_t *named_find(const char *name)
{
    for (size_t i = 0; i < named_script_count; i++) {
        if (strcmp(named_scripts[i].name, name) == 0) {
            return &named_scripts[i];
        }
    }
    return NULL;
}

static verdict_t run(const script_t *script, const broken_t *broken)
{
    counters_t counters = {{0}};
    schedule_t schedule = {.seed = 1, .broken = broken, .counters = &counters};

    schedule.script = script;
    return schedule_run(&schedule);
}

/* With the defect put back it must not hold. */
static int run_defect(const script_t *script, const char *name)
{
    const broken_t *broken = mutation_find(name);
    verdict_t verdict;

    if (broken == NULL) {
        printf("  MISSING  %-10s there is no defect called %s\n", script->name, name);
        return 1;
    }
    verdict = run(script, broken);
    if (verdict.property[0] == '\0') {
        printf("  MISSED   %-10s %s\n", script->name, name);
        return 1;
    }
    printf("  noticed  %-10s %-28s %s\n", script->name, name, verdict.property);
    return 0;
}

int named_run(void)
{
    int bad = 0;

    for (size_t i = 0; i < named_script_count; i++) {
        const script_t *script = &named_scripts[i];
        verdict_t verdict = run(script, &broken_nothing);
        int holds = verdict.property[0] == '\0';
        printf("  %-8s %-10s %s\n", holds ? "holds" : "VIOLATED", script->name, script->what);
        if (!holds) {
            printf("           %s: %s\n", verdict.property, verdict.violation);
        }
        bad += !holds;
        for (unsigned j = 0; j < SCRIPT_CATCHES && script->catches[j] != NULL; j++) {
            bad += run_defect(script, script->catches[j]);
        }
    }
    printf("%zu schedules, %d not as they must be\n", named_script_count, bad);
    return bad > 0;
}
