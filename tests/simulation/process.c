#include "process.h"

#include <assert.h>

#include "api/handle.h"
#include "network.h"

struct call {
    call_t *next;
    process_t *process;
    const char *what;
    call_fn fn;
    void *data;
    uint64_t made_at;
    int accepted;
    unsigned times;
};

/* ----------------------------------------------------------------------------------------------------------- clocks */

uint64_t process_clock(const process_t *process)
{
    return process->clock_start +
           (process->world->now - process->born) * process->clock_rate / 1000;
}

static uint64_t true_time(const process_t *process, uint64_t clock)
{
    uint64_t passed = clock > process->clock_start ? clock - process->clock_start : 0;

    return process->born + (passed * 1000 + process->clock_rate - 1) / process->clock_rate;
}

static uint64_t env_monotonic(void *data)
{
    return process_clock(data);
}

static uint64_t env_wall(void *data)
{
    return world_store_clock(((process_t *)data)->world);
}

static int env_random(void *data, void *out, size_t len)
{
    prng_fill(&((process_t *)data)->world->prng, out, len);
    return 0;
}

/* ------------------------------------------------------------------------------------------------------------ start */

static void set_ms(once_options_t *options, const char *name, uint64_t ms)
{
    char value[32];
    int code;

    (void)snprintf(value, sizeof(value), "%llums", (unsigned long long)ms);
    code = once_options_set(options, name, ms == 0 ? "off" : value, NULL);
    assert(code == ONCE_OK);
    (void)code;
}

static once_options_t *make_options(const world_t *world)
{
    once_options_t *options = once_options_new();
    int code;

    assert(options != NULL);
    set_ms(options, "store_timeout", world->plan.store_timeout);
    set_ms(options, "reap", world->plan.reap);
    code = once_options_set(options, "renew",
                            world_is_broken(world, BROKEN_NO_RENEWAL) ? "off" : "on", NULL);
    assert(code == ONCE_OK);
    code = once_options_set(options, "compress", "off", NULL);
    assert(code == ONCE_OK);
    (void)code;
    return options;
}

static void open_handle(process_t *process)
{
    once__env_t env = {env_monotonic, env_wall, env_random, 1, process};
    once_options_t *options = make_options(process->world);
    once_error_t err = {0, ""};
    int code = ONCE_OK;
    once__loop_t *loop = once__loop_new(&env, &code);

    assert(loop != NULL);
    process->link = link_new(process, loop);
    code = once__open_over(loop, link_store(process->link), options, &process->handle, &err);
    if (code != ONCE_OK) {
        world_violate(process->world, -1, "open", "%s cannot open its handle: %s", process->name,
                      err.text);
        process->alive = 0;
    }
    once_options_free(options);
}

process_t *process_start(world_t *world, const char *name, unsigned number,
                         void (*gone)(void *data), void *data)
{
    process_t *process = world_alloc(world, sizeof(*process));

    process->world = world;
    (void)snprintf(process->name, sizeof(process->name), "%s", name);
    process->number = number;
    process->alive = 1;
    process->born = world->now;
    process->clock_start = prng_between(&world->prng, 1, 1000000000);
    process->clock_rate = (unsigned)prng_between(&world->prng, 990, 1010);
    process->gone = gone;
    process->data = data;
    process->next = world->processes;
    world->processes = process;
    open_handle(process);
    world_say(world, -1, "%s starts", process->name);
    return process;
}

/* --------------------------------------------------------------------------------------------------------- dispatch */

uint64_t process_due(const process_t *process)
{
    uint64_t due;

    if (!process->alive) {
        return UINT64_MAX;
    }
    due = once__due(process->handle);
    if (due == UINT64_MAX) {
        return due;
    }
    due = due == 0 ? process->world->now : true_time(process, due);
    return due < process->paused_until ? process->paused_until : due;
}

void process_dispatch(process_t *process)
{
    int code = once_dispatch(process->handle);

    if (code < 0) {
        world_violate(process->world, -1, "dispatch", "%s: dispatch answers %s", process->name,
                      once_error_name(code));
    }
}

void process_pause(process_t *process, uint64_t ms)
{
    process->paused_until = process->world->now + ms;
    world_say(process->world, -1, "%s stands still for %llu ms", process->name,
              (unsigned long long)ms);
    world_count(process->world, COUNT_PAUSES);
}

int process_acts(process_t *process, event_fn fire, void *data)
{
    world_t *world = process->world;

    if (!process->alive) {
        return 0;
    }
    if (process->paused_until > world->now) {
        world_after(world, process->paused_until - world->now, fire, data);
        return 0;
    }
    return 1;
}

/* -------------------------------------------------------------------------------------------------------------- end */

static void check_calls(const process_t *process)
{
    for (const call_t *call = process->calls; call != NULL; call = call->next) {
        if (call->times != (call->accepted ? 1u : 0u)) {
            world_violate(process->world, -1, "calls: one callback each",
                          "%s: %s was %s and called back %u times", process->name, call->what,
                          call->accepted ? "accepted" : "refused", call->times);
        }
    }
}

static int close_handle(process_t *process)
{
    int code = once_close(process->handle, 0);

    process->handle = NULL;
    process->alive = 0;
    check_calls(process);
    return code;
}

static void bury(void *data)
{
    process_t *process = data;

    (void)close_handle(process);
    if (process->gone != NULL) {
        process->gone(process->data);
    }
}

void process_crash(process_t *process)
{
    if (!process->alive) {
        return;
    }
    world_say(process->world, -1, "%s CRASHES", process->name);
    process->alive = 0;
    process->crashed = 1;
    link_cut(process->link);
    /* A handle must not be closed inside of its own callback. */
    world_after(process->world, 0, bury, process);
}

int process_exit(process_t *process)
{
    int code = close_handle(process);

    link_cut(process->link);
    world_say(process->world, -1, "%s exits", process->name);
    return code;
}

void process_discard(process_t *process)
{
    process->alive = 0; /* its callbacks are called, without effect */
    link_cut(process->link);
    (void)close_handle(process);
}

/* ------------------------------------------------------------------------------------------------------------ calls */

const char *process_waits(const process_t *process, uint64_t ms)
{
    for (const call_t *call = process->calls; call != NULL; call = call->next) {
        if (call->accepted && call->times == 0 && call->made_at + ms < process->world->now) {
            return call->what;
        }
    }
    return NULL;
}

call_t *call_new(process_t *process, const char *what, call_fn fn, void *data)
{
    call_t *call = world_alloc(process->world, sizeof(*call));

    call->process = process;
    call->what = what;
    call->fn = fn;
    call->data = data;
    call->made_at = process->world->now;
    call->next = process->calls;
    process->calls = call;
    return call;
}

int call_accepted(call_t *call, int code)
{
    if (call->times > 0) {
        world_violate(call->process->world, -1, "calls: one callback each",
                      "%s: %s is called back before it returned", call->process->name, call->what);
    }
    call->accepted = code == ONCE_OK;
    return call->accepted;
}

/*
 * A caller is answered after store_timeout at the latest, counted from the first try that failed (the network says so after its own
 * time-out), unless its process stood still meanwhile.
 */
static void check_in_time(const call_t *call)
{
    const process_t *process = call->process;
    const plan_t *plan = &process->world->plan;
    uint64_t took = process->world->now - call->made_at;
    uint64_t most = plan->store_timeout + plan->reply_timeout;

    if (process->paused_until < call->made_at && took > most + most / 50 + 2) {
        world_violate(process->world, -1, "calls: told in time", "%s: %s took %llu ms",
                      process->name, call->what, (unsigned long long)took);
    }
}

void call_back(once_t *once, once_answer_t *answer, void *data)
{
    call_t *call = data;
    process_t *process = call->process;

    call->times++;
    if (call->times > 1) {
        world_violate(process->world, -1, "calls: one callback each", "%s: %s is called back again",
                      process->name, call->what);
        return;
    }
    if (!process->alive) {
        return;
    }
    check_in_time(call);
    if (call->fn != NULL) {
        call->fn(answer, call->data);
    }
}
