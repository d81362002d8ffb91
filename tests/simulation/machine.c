#include "machine.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/url.h"
#include "gateway.h"
#include "operator.h"

/* ------------------------------------------------------------------------------------------------------------- boots */

/* The power fails once more while the index is rebuilt: at this sync of that, or when it is done. */
typedef struct again {
    machine_t *machine;
    uint64_t syncs;
    char image[PLACE_SIZE];
    int done;
} again_t;

static void fail_now(disk_t *disk, void *data)
{
    again_t *again = data;

    if (!again->done && again->syncs-- == 0) {
        disk_crash(disk, SURVIVES_SOMETHING, &again->machine->dice, again->image);
        again->done = 1;
    }
}

static int open_directory(const machine_t *machine, once__directory_t *directory,
                          const once__disk_t *disk, once_error_t *err)
{
    once__directory_config_t config = {.path = machine->store, .disk = disk, .timeout_ms = 5000};

    return once__directory_open(directory, &config, err);
}

static int fail_again(machine_t *machine)
{
    again_t again = {.machine = machine, .syncs = dice_roll(&machine->dice, 6)};
    once__directory_t directory;
    once_error_t err = {0, ""};
    char name[32];
    disk_t disk;

    (void)snprintf(name, sizeof(name), "again-%u", machine->boots);
    place_join(again.image, machine->base, name);
    disk_init(&disk, machine->store);
    disk.boundary = fail_now;
    disk.data = &again;
    if (open_directory(machine, &directory, &disk.hooks, &err) != ONCE_OK) {
        world_violate(machine->world, -1, "the store opens after a crash", "%s", err.text);
        disk_free(&disk);
        return -1;
    }
    again.syncs = 0;
    fail_now(&disk, &again);
    once__directory_abandon(&directory);
    disk_free(&disk);
    place_remove(machine->store);
    memcpy(machine->store, again.image, sizeof(machine->store));
    world_say(machine->world, -1, "THE POWER FAILS while the index is rebuilt");
    world_count(machine->world, COUNT_REBUILDS_CUT);
    return 0;
}

static int boot(machine_t *machine, int in_order)
{
    world_t *world = machine->world;
    once_error_t err = {0, ""};

    machine_runs(machine);
    machine->booted_at = world->now;
    prng_fill(&world->prng, machine->boot_id, sizeof(machine->boot_id));
    if (machine->boots > 0 && !in_order && dice_roll(&machine->dice, 3) == 0 &&
        fail_again(machine) != 0) {
        return -1;
    }
    if (open_directory(machine, &machine->directory, &once__real_disk, &err) != ONCE_OK) {
        world_violate(world, -1, "the store opens after a crash", "%s", err.text);
        return -1;
    }
    if (world_is_broken(world, BROKEN_OLD_LEASES)) {
        for (uint32_t slot = 0; slot < once__index_slot_end(machine->directory.log.index); slot++) {
            once__index_segment(machine->directory.log.index, slot)->other_boot = 0;
        }
    }
    machine->reader = once__reader_open(&machine->directory.log);
    must(machine->reader != NULL, "a reader");
    disk_init(&machine->disk, machine->store);
    machine->down = 0;
    return 0;
}

static void go_down(machine_t *machine)
{
    once__reader_close(machine->reader);
    if (machine->orderly) {
        once__directory_close(&machine->directory);
    } else {
        once__index_remove(machine->directory.log.index); /* memory: it goes with the machine */
        once__directory_abandon(&machine->directory);
    }
    machine->reader = NULL;
    disk_free(&machine->disk);
}

static void boot_again(void *data)
{
    machine_t *machine = data;
    int in_order;

    go_down(machine);
    machine->boots++;
    if (!machine->orderly) {
        place_remove(machine->store);
        memcpy(machine->store, machine->image, sizeof(machine->store));
    }
    in_order = machine->orderly;
    machine->orderly = 0;
    world_say(machine->world, -1, "the machine starts again");
    if (boot(machine, in_order) == 0) {
        journal_recover(machine);
    }
}

void machine_dies(void *data)
{
    machine_t *machine = data;
    world_t *world = machine->world;

    for (unsigned i = 0; i < world->plan.gateways; i++) {
        gateway_crash(&world->gateways[i]);
    }
    operator_crash(world);
    /* After the handles were thrown away, which is their next event. */
    world_after(world, 0, boot_again, machine);
}

void machine_power_fails(world_t *world)
{
    if (!world->machine->down) {
        machine_take_image(world->machine);
        machine_dies(world->machine);
    }
}

void machine_restarts(world_t *world)
{
    machine_t *machine = world->machine;

    if (!machine->down) {
        world_say(world, -1, "the machine is restarted");
        world_count(world, COUNT_RESTARTS);
        machine->down = machine->orderly = 1;
        machine->died_at = machine_clock(machine);
        machine_dies(machine);
    }
}

int machine_is_down(const world_t *world)
{
    return world->machine != NULL && world->machine->down;
}

void machine_open(world_t *world)
{
    const char *in = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    machine_t *machine = world_alloc(world, sizeof(*machine));

    world->machine = machine;
    machine->world = world;
    for (unsigned i = 0; i < PLAN_KEYS_MAX; i++) {
        machine->ends[i] = &machine->journal[i];
    }
    (void)snprintf(machine->base, PLACE_SIZE, "%s/once-simulate-XXXXXX", in);
    must(mkdtemp(machine->base) != NULL, "mkdtemp");
    place_join(machine->store, machine->base, "boot-0");
    (void)boot(machine, 1);
}

void machine_close(world_t *world)
{
    if (world->machine->reader != NULL) {
        go_down(world->machine);
    }
    machine_runs(NULL);
    place_remove(world->machine->base);
    world->machine = NULL;
}

/* ------------------------------------------------------------------------------------------------------------- users */

uint64_t machine_clock(const machine_t *machine)
{
    return once__index_now(machine->directory.log.index);
}

void machine_pass(machine_t *machine, uint64_t ms)
{
    once__index_t *index = machine->directory.log.index;

    once__index_set_clock(index, once__index_clock(index) + (int64_t)ms);
}

once__store_t *machine_attach(process_t *process, once__loop_t *loop)
{
    machine_t *machine = process->world->machine;
    once__store_config_t config = {.path = machine->store, .timeout_ms = 5000, .loop = loop};
    once_error_t err = {0, ""};
    char text[2 * PLACE_SIZE];
    once__store_t *store = NULL;
    once__url_t url;

    (void)snprintf(text, sizeof(text), "local:%s?segment=64k", machine->store);
    must(once__url_parse(&url, "store URL", text, 0, &err) == ONCE_OK, text);
    config.url = &url;
    if (once__local_open(&config, &machine->hooks, &store, &err) != ONCE_OK) {
        world_violate(process->world, -1, "open", "%s cannot open the store: %s", process->name,
                      err.text);
    }
    once__url_free(&url);
    return store;
}
