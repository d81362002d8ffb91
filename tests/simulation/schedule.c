#include "schedule.h"

#include <assert.h>
#include <string.h>

#include "check.h"
#include "client.h"
#include "gateway.h"
#include "machine.h"
#include "network.h"
#include "operator.h"
#include "script.h"
#include "server.h"
#include "trouble.h"

enum { TURNS_MAX = 20000 };

/* ---------------------------------------------------------------------------------------------------------- running */

static process_t *first_due(const world_t *world, uint64_t *when)
{
    process_t *first = NULL;

    *when = UINT64_MAX;
    for (process_t *process = world->processes; process != NULL; process = process->next) {
        uint64_t due = process_due(process);
        if (due < *when) {
            first = process;
            *when = due;
        }
    }
    return first;
}

/* The next thing happens: a process is dispatched, or an event fires. 0: not before `until`. */
static int step(world_t *world, uint64_t until)
{
    uint64_t when;
    process_t *process = first_due(world, &when);
    uint64_t next = world_next(world);

    if ((when < next ? when : next) > until) {
        return 0;
    }
    if (++world->turns > TURNS_MAX) {
        world_violate(world, -1, "time goes on", "%s never rests",
                      process != NULL ? process->name : "the world");
        return 0;
    }
    if (process != NULL && when <= next) {
        if (when > world->now) {
            world->now = when;
            world->turns = 0;
        }
        process_dispatch(process);
    } else {
        world_fire_next(world);
    }
    return 1;
}

static int holds(const world_t *world)
{
    return world->property[0] == '\0';
}

static void run_for(world_t *world, uint64_t ms)
{
    uint64_t until = world->now + ms;

    while (holds(world) && step(world, until)) {
    }
    if (holds(world)) {
        world->now = until;
    }
}

/* ----------------------------------------------------------------------------------------------------- opening, closing */

static void make_policies(world_t *world)
{
    for (int i = 0; i < 3; i++) {
        char text[96];
        int code;
        world->policies[i] = once_policy_new();
        assert(world->policies[i] != NULL);
        (void)snprintf(text, sizeof(text), "recover=%s lease=%llums ttl=%llums",
                       once_recover_name((once_recover_t)i), (unsigned long long)world->plan.lease,
                       (unsigned long long)world->plan.ttl);
        code = once_policy_parse(world->policies[i], text, NULL);
        assert(code == ONCE_OK);
        (void)code;
    }
}

static void open_world(world_t *world, int local)
{
    make_policies(world);
    ledger_open(world);
    if (local) {
        machine_open(world);
    } else {
        server_open(world);
    }
    gateways_start(world);
    operator_start(world);
    clients_start(world);
    if (world->script != NULL) {
        script_start(world);
    } else if (!world->plan.calm) {
        trouble_start(world);
    }
}

static void close_world(world_t *world)
{
    for (process_t *process = world->processes; process != NULL; process = process->next) {
        if (process->handle != NULL) {
            process_discard(process);
        }
        link_free(process->link);
    }
    if (world->machine != NULL) {
        machine_close(world);
    } else {
        server_close(world);
    }
    for (int i = 0; i < 3; i++) {
        once_policy_free(world->policies[i]);
    }
}

static void say_plan(world_t *world)
{
    const plan_t *plan = &world->plan;

    world_say(world, -1,
              "%u keys, %u gateways, %u clients%s%s; lease %llu ms, ttl %llu ms, reply %llu ms, "
              "store %llu ms, "
              "upstream %llu ms, client %llu ms",
              plan->keys, plan->gateways, plan->clients, plan->calm ? ", calm" : "",
              plan->operator_ ? ", operator" : "", (unsigned long long)plan->lease,
              (unsigned long long)plan->ttl, (unsigned long long)plan->reply_timeout,
              (unsigned long long)plan->store_timeout, (unsigned long long)plan->upstream_timeout,
              (unsigned long long)plan->client_timeout);
    for (unsigned i = 0; i < plan->keys; i++) {
        world_say(world, (int)i, "policy %s", once_recover_name((once_recover_t)plan->recover[i]));
    }
}

/* ----------------------------------------------------------------------------------------------------------- phases */

/* Every accepted call must have been called back by now. */
static void check_callbacks(world_t *world)
{
    const plan_t *plan = &world->plan;
    uint64_t longest = plan->store_timeout + 2 * plan->reply_timeout + plan->lease;

    for (const process_t *process = world->processes; process != NULL; process = process->next) {
        const char *waits = process->alive ? process_waits(process, longest) : NULL;
        if (waits != NULL) {
            world_violate(world, -1, "calls: one callback each", "%s: %s is never called back",
                          process->name, waits);
        }
    }
}

static void run_quiet(world_t *world)
{
    uint64_t limit = world->now + 40 * world->plan.lease;

    clients_calm_down(world);
    while (holds(world) && !clients_done(world) && world->now < limit) {
        run_for(world, world->plan.lease / 4);
    }
    if (holds(world) && !clients_done(world)) {
        world_violate(world, -1, "I5 nothing stays stuck",
                      "a client has no answer 40 leases after all trouble");
    }
}

static void run_phases(world_t *world)
{
    const plan_t *plan = &world->plan;

    run_for(world, plan->horizon);
    if (holds(world) && world->script != NULL && world->broken == &broken_nothing) {
        script_check(world);
    }
    if (holds(world)) {
        trouble_end(world);
        run_for(world, 12 * plan->lease);
    }
    if (holds(world)) {
        run_quiet(world);
    }
    if (holds(world)) {
        check_end(world);
        check_callbacks(world);
    }
    if (holds(world) && plan->reap > 0) {
        world->clock_offset += (int64_t)(2 * plan->ttl + 2 * plan->lease);
        if (world->machine != NULL) {
            machine_pass(world->machine, 2 * plan->ttl + 2 * plan->lease);
        }
        run_for(world, 2 * plan->reap + plan->lease);
        if (holds(world)) {
            check_reaped(world);
        }
    }
}

verdict_t schedule_run(const schedule_t *schedule)
{
    world_t *world = world_new(schedule->seed, schedule->broken, schedule->counters);
    verdict_t verdict;

    world->tracing = schedule->tracing;
    world->out = schedule->out;
    world->harm_only = schedule->harm_only;
    if (schedule->script != NULL) {
        world->script = schedule->script;
        script_plan(schedule->script, &world->plan);
    }
    if (schedule->local) {
        plan_draw_local(&world->plan, &world->prng);
    }
    world_count(world, COUNT_SCHEDULES);
    if (world->plan.calm) {
        world_count(world, COUNT_CALM);
    }
    say_plan(world);
    open_world(world, schedule->local);
    run_phases(world);
    close_world(world);
    memset(&verdict, 0, sizeof(verdict));
    memcpy(verdict.property, world->property, sizeof(verdict.property));
    memcpy(verdict.violation, world->violation, sizeof(verdict.violation));
    verdict.key = world->violated_key;
    verdict.trace_hash = world->trace_hash;
    world_free(world);
    return verdict;
}
