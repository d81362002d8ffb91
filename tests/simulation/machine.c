#include "machine.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/url.h"
#include "gateway.h"
#include "operator.h"
#include "store/local/crc32c.h"
#include "store/local/summary.h"

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
    if (once__directory_open_on(&directory, machine->store, &disk.hooks, &err) != ONCE_OK) {
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
    once__log_config_t config = {.disk = &once__real_disk, .segment_size = 65536};
    once_error_t err = {0, ""};

    machine_runs(machine);
    machine->booted_at = world->now;
    if (machine->boots == 0 || !world_is_broken(world, BROKEN_OLD_INDEX)) {
        prng_fill(&world->prng, machine->boot_id, sizeof(machine->boot_id));
    }
    if (machine->boots > 0 && !in_order && dice_roll(&machine->dice, 3) == 0 &&
        fail_again(machine) != 0) {
        return -1;
    }
    if (once__directory_open(&machine->directory, machine->store, &err) != ONCE_OK) {
        world_violate(world, -1, "the store opens after a crash", "%s", err.text);
        return -1;
    }
    if (world_is_broken(world, BROKEN_OLD_LEASES)) {
        for (uint32_t n = once__index_first_segment(machine->directory.index);
             n < once__index_end_segment(machine->directory.index); n++) {
            once__index_segment(machine->directory.index, n)->other_boot = 0;
        }
    }
    config.directory_fd = machine->directory.segments_fd;
    config.index = machine->directory.index;
    machine->reader = once__log_open(&config);
    must(machine->reader != NULL, "a reader");
    disk_init(&machine->disk, machine->store);
    machine->down = 0;
    return 0;
}

/* Whatever the old index was, it is the one that the new boot finds. */
static void keep_index(const machine_t *machine)
{
    char from[PLACE_SIZE], to[PLACE_SIZE];
    once__directory_t copy = {.fd = -1};
    char identity[ONCE__IDENTITY_SIZE];
    int fd;

    place_join(from, machine->store, "index");
    place_join(to, machine->image, "index");
    (void)unlink(to);
    must(rename(from, to) == 0, "rename");
    copy.fd = open(machine->image, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    once__directory_identify(&copy, identity);
    place_join(to, machine->image, "lock");
    fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    must(fd >= 0 && write(fd, identity, strlen(identity)) > 0, "lock");
    (void)close(fd);
    (void)close(copy.fd);
}

/* The last entry is missing, and the sum is right. */
static void spoil_summary(int segments_fd, const char *name, once__summary_t *summary)
{
    uint8_t *bytes = summary->bytes;
    size_t size = summary->size - ONCE__SUMMARY_ENTRY;
    int fd = openat(segments_fd, name, O_WRONLY | O_TRUNC | O_CLOEXEC);

    once__put32(bytes + 20, summary->count - 1);
    once__put32(bytes + 12, 0);
    once__put32(bytes + 12, once__crc32c(0, bytes, size));
    must(fd >= 0 && write(fd, bytes, size) == (ssize_t)size, "a summary");
    (void)close(fd);
}

/* Which of the segments that a power failure left need not be read. */
static void look_at_summaries(const machine_t *machine)
{
    char path[PLACE_SIZE], name[ONCE__SEGMENT_NAME];
    int fd;

    place_join(path, machine->image, "segments");
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (uint32_t n = 1; n < once__index_end_segment(machine->directory.index); n++) {
        once__summary_t summary;
        if (once__summary_read(&summary, fd, n) != ONCE_OK) {
            continue;
        }
        world_count(machine->world, COUNT_SUMMARIES);
        once__segment_name(name, n, "sum");
        if (world_is_broken(machine->world, BROKEN_SUMMARIES) && summary.count > 0) {
            spoil_summary(fd, name, &summary);
        }
        once__summary_free(&summary);
    }
    (void)close(fd);
}

static void go_down(machine_t *machine)
{
    if (machine->orderly) {
        (void)once__log_close(machine->reader);
        once__directory_close(&machine->directory);
    } else {
        once__log_abandon(machine->reader);
        once__directory_abandon(&machine->directory);
    }
    machine->reader = NULL;
    disk_free(&machine->disk);
}

static void boot_again(void *data)
{
    machine_t *machine = data;
    int in_order;

    if (!machine->orderly) {
        look_at_summaries(machine);
    }
    go_down(machine);
    machine->boots++;
    if (!machine->orderly) {
        if (world_is_broken(machine->world, BROKEN_OLD_INDEX)) {
            keep_index(machine);
        }
        place_remove(machine->store);
        memcpy(machine->store, machine->image, sizeof(machine->store));
    }
    in_order = machine->orderly || world_is_broken(machine->world, BROKEN_OLD_INDEX);
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
    return once__index_now(machine->directory.index);
}

void machine_pass(machine_t *machine, uint64_t ms)
{
    once__index_start_clock(machine->directory.index, machine_clock(machine) + ms);
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
