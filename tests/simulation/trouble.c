#include "trouble.h"

#include "gateway.h"
#include "machine.h"
#include "server.h"

static gateway_t *any_gateway(world_t *world)
{
    return &world->gateways[prng_between(&world->prng, 0, world->plan.gateways - 1)];
}

static void pause_gateway(world_t *world)
{
    gateway_t *gateway = any_gateway(world);

    if (gateway->process != NULL && gateway->process->alive) {
        process_pause(gateway->process, prng_between(&world->prng, 1, 3 * world->plan.lease));
    }
}

static void begin_outage(world_t *world)
{
    world->outage_until = world->now + prng_between(&world->prng, 10, 2 * world->plan.lease);
    if (world->machine != NULL) {
        world->machine->full_until = world->outage_until;
    }
    world_say(world, -1, "the store is away (or full) until %+lld ms",
              (long long)(world->outage_until - world->now));
    world_count(world, COUNT_OUTAGES);
}

static void jump(world_t *world)
{
    int64_t ms = (int64_t)prng_between(&world->prng, 1, 4 * world->plan.lease);

    server_jump(world, prng_chance(&world->prng, 500) ? ms : -ms);
}

static void tick(void *data)
{
    world_t *world = data;
    const plan_t *plan = &world->plan;

    if (world->quiet) {
        return;
    }
    if (world_chance(world, plan->kill)) {
        gateway_crash(any_gateway(world));
    }
    if (world_chance(world, plan->pause)) {
        pause_gateway(world);
    }
    if (world_chance(world, plan->shutdown)) {
        gateway_shutdown(any_gateway(world));
    }
    if (world_chance(world, plan->outage)) {
        begin_outage(world);
    }
    if (world_chance(world, plan->power)) {
        if (prng_chance(&world->prng, 250)) {
            machine_restarts(world);
        } else {
            machine_power_fails(world);
        }
    }
    if (world_chance(world, plan->jump)) {
        jump(world);
    }
    world_after(world, plan->lease / 4, tick, world);
}

void trouble_start(world_t *world)
{
    world_after(world, world->plan.lease / 4, tick, world);
}

void trouble_end(world_t *world)
{
    world->quiet = 1;
    world->outage_until = 0;
    if (world->machine != NULL) {
        world->machine->full_until = 0;
    }
    world->clock_offset = world->clock_highest;
    for (process_t *process = world->processes; process != NULL; process = process->next) {
        process->paused_until =
            process->paused_until > world->now ? world->now : process->paused_until;
    }
    world_say(world, -1, "all trouble is over");
}
