#include "gateway.h"

#include "machine.h"

static void start(void *data);

static void restart_later(gateway_t *gateway)
{
    world_t *world = gateway->world;
    uint64_t ms = world->quiet ? 1 : prng_between(&world->prng, 1, 2 * world->plan.lease);

    gateway->process = NULL;
    world_after(world, ms, start, gateway);
}

static void buried(void *data)
{
    restart_later(data);
}

static void start(void *data)
{
    gateway_t *gateway = data;
    char name[24];

    if (machine_is_down(gateway->world)) {
        world_after(gateway->world, 1, start, gateway);
        return;
    }
    gateway->starts++;
    gateway->attempts = 0;
    gateway->draining = gateway->shut = gateway->wrote = 0;
    (void)snprintf(name, sizeof(name), "gateway %u.%u", gateway->number, gateway->starts);
    gateway->process = process_start(gateway->world, name, gateway->number, buried, gateway);
}

void gateways_start(world_t *world)
{
    world->gateways = world_alloc(world, world->plan.gateways * sizeof(gateway_t));
    for (unsigned i = 0; i < world->plan.gateways; i++) {
        world->gateways[i].world = world;
        world->gateways[i].number = i;
        start(&world->gateways[i]);
    }
}

static int is_up(const gateway_t *gateway)
{
    return gateway->process != NULL && gateway->process->alive;
}

static void take_late(void *data);

/* A request that waits in the socket of a gateway that stands still. */
typedef struct arrival {
    gateway_t *gateway;
    process_t *process;
    request_t *request;
} arrival_t;

static void take(arrival_t *arrival)
{
    if (process_acts(arrival->process, take_late, arrival)) {
        arrival->gateway->attempts++;
        attempt_start(arrival->gateway, arrival->request);
    }
}

static void take_late(void *data)
{
    arrival_t *arrival = data;

    if (is_up(arrival->gateway) && arrival->gateway->process == arrival->process &&
        !arrival->gateway->draining) {
        take(arrival);
    }
}

int gateway_takes(gateway_t *gateway, request_t *request)
{
    arrival_t *arrival;

    if (!is_up(gateway) || gateway->draining) {
        return 0;
    }
    arrival = world_alloc(gateway->world, sizeof(*arrival));
    arrival->gateway = gateway;
    arrival->process = gateway->process;
    arrival->request = request;
    take(arrival);
    return 1;
}

void gateway_crash(gateway_t *gateway)
{
    world_t *world = gateway->world;

    if (!is_up(gateway)) {
        return;
    }
    world_count(world, COUNT_CRASHES);
    for (unsigned i = 0; i < world->plan.keys; i++) {
        if (gateway->process->asking[i] > 0) {
            world_count(world, COUNT_CRASHES_HOLDING);
        }
    }
    process_crash(gateway->process);
}

/* --------------------------------------------------------------------------------------------------- a graceful end */

static void shut(once_t *once, void *data);

static void shut_down(gateway_t *gateway)
{
    int code;

    gateway->shut = gateway->wrote = 0;
    code = once_shutdown(gateway->process->handle, shut, gateway);
    if (code != ONCE_OK) {
        world_violate(gateway->world, -1, "shutdown", "%s: shutdown answers %s",
                      gateway->process->name, once_error_name(code));
    }
}

static void leave(void *data)
{
    gateway_t *gateway = data;
    int code;

    if (!is_up(gateway) || !gateway->draining || !gateway->shut || gateway->attempts > 0) {
        return;
    }
    if (gateway->wrote) {
        shut_down(gateway); /* claims that ended since then were not waited for */
        return;
    }
    code = process_exit(gateway->process);
    if (code != ONCE_OK) {
        world_violate(gateway->world, -1, "shutdown", "%s: close after shutdown answers %s",
                      gateway->process->name, once_error_name(code));
    }
    world_count(gateway->world, COUNT_SHUTDOWNS);
    restart_later(gateway);
}

static void shut(once_t *once, void *data)
{
    gateway_t *gateway = data;

    if (gateway->shut) {
        world_violate(gateway->world, -1, "shutdown", "%s: its end is reported twice",
                      gateway->process->name);
    }
    gateway->shut = 1;
    world_after(gateway->world, 0, leave, gateway);
}

void gateway_shutdown(gateway_t *gateway)
{
    if (is_up(gateway) && !gateway->draining &&
        gateway->process->paused_until <= gateway->world->now) {
        world_say(gateway->world, -1, "%s is to stop", gateway->process->name);
        gateway->draining = 1;
        shut_down(gateway);
    }
}

void gateway_attempt_over(gateway_t *gateway)
{
    gateway->attempts--;
    if (gateway->draining && gateway->shut && gateway->attempts == 0) {
        world_after(gateway->world, 0, leave, gateway);
    }
}
