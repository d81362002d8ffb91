#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/url.h"
#include "gateway.h"
#include "operator.h"
#include "sight.h"

#define BOOT_TIME 60000u /* what the machine's clock shows when it is up */

static machine_t *running; /* whose clocks and boot id the library sees */

/* ------------------------------------------------------------------------------------------------ the kernel's part */

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    uint64_t ms;

    if (running == NULL || (id != CLOCK_BOOTTIME && id != CLOCK_REALTIME)) {
        return __real_clock_gettime(id, out);
    }
    ms = id == CLOCK_BOOTTIME ? running->world->now - running->booted_at + BOOT_TIME
                              : world_store_clock(running->world);
    out->tv_sec = (time_t)(ms / 1000);
    out->tv_nsec = (long)(ms % 1000) * 1000000;
    return 0;
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    int fd;

    va_start(args, flags);
    if (running == NULL || strcmp(path, "/proc/sys/kernel/random/boot_id") != 0) {
        fd = __real_open(path, flags, flags & O_CREAT ? va_arg(args, int) : 0);
    } else {
        fd = memfd_create("boot_id", MFD_CLOEXEC);
        for (unsigned i = 0; fd >= 0 && i < ONCE__BOOT_ID_SIZE; i++) {
            must(dprintf(fd, "%02x", running->boot_id[i]) == 2, "boot id");
        }
        must(lseek(fd, 0, SEEK_SET) == 0, "boot id");
    }
    va_end(args);
    return fd;
}

/* ---------------------------------------------------------------------------------------------------------- its disk */

/* What the disk holds at this very moment, if the power fails. */
static void take_image(machine_t *machine)
{
    world_t *world = machine->world;
    static const survival_t kinds[] = {SURVIVES_NOTHING, SURVIVES_EVERYTHING, SURVIVES_SOMETHING,
                                       SURVIVES_SOMETHING};
    char name[32];

    (void)snprintf(name, sizeof(name), "boot-%u", machine->boots + 1);
    place_join(machine->image, machine->base, name);
    machine->dice.state = prng_next(&world->prng);
    disk_crash(&machine->disk, kinds[prng_between(&world->prng, 0, 3)], &machine->dice,
               machine->image);
    machine->down = 1;
    machine->died_at = machine_clock(machine);
    world_say(world, -1, "THE POWER FAILS");
    world_count(world, COUNT_POWER_FAILURES);
}

static void all_die(void *data);

/* In the middle of what the store does: its processes die in the next event. */
static void fail_power(machine_t *machine)
{
    take_image(machine);
    world_count(machine->world, COUNT_POWER_AT_SYNC);
    world_after(machine->world, 0, all_die, machine);
}

/* 1: nothing reaches the disk any more. */
static int fails_here(machine_t *machine)
{
    if (!machine->down && world_chance(machine->world, machine->world->plan.power_at_sync)) {
        fail_power(machine);
    }
    return machine->down;
}

static int disk_error(machine_t *machine, int error)
{
    machine->disk_fails++;
    errno = error;
    return -1;
}

static int hook_sync(void *data, int fd)
{
    machine_t *machine = data;

    if (fails_here(machine)) {
        return disk_error(machine, EIO);
    }
    if (world_chance(machine->world, machine->world->plan.disk_error)) {
        world_say(machine->world, -1, "a sync fails");
        world_count(machine->world, COUNT_DISK_ERRORS);
        return disk_error(machine, EIO);
    }
    if (world_is_broken(machine->world, BROKEN_LYING_SYNC)) {
        return 0;
    }
    return machine->disk.hooks.sync(&machine->disk, fd);
}

static int hook_sync_directory(void *data, int fd)
{
    machine_t *machine = data;

    if (fails_here(machine)) {
        return disk_error(machine, EIO);
    }
    if (world_is_broken(machine->world, BROKEN_LYING_NAMES)) {
        return 0;
    }
    return machine->disk.hooks.sync_directory(&machine->disk, fd);
}

static int hook_allocate(void *data, int fd, uint64_t size)
{
    machine_t *machine = data;

    if (machine->down || machine->world->now < machine->full_until) {
        world_count(machine->world, COUNT_DISK_FULL);
        errno = ENOSPC;
        return -1;
    }
    return machine->disk.hooks.allocate(&machine->disk, fd, size);
}

/* The power may fail when some of it was written. */
static ssize_t hook_write(void *data, int fd, const void *bytes, size_t len, uint64_t offset)
{
    machine_t *machine = data;
    world_t *world = machine->world;
    const once__disk_t *disk = &machine->disk.hooks;
    size_t some = world_chance(world, 100) ? (size_t)prng_between(&world->prng, 1, len) : len;

    if (!machine->down && world_chance(world, world->plan.power_at_sync)) {
        (void)disk->write(disk->data, fd, bytes, some, offset);
        fail_power(machine);
    }
    if (machine->down) {
        return disk_error(machine, EIO);
    }
    if (world_chance(world, world->plan.disk_error)) {
        world_say(world, -1, "a write fails");
        world_count(world, COUNT_WRITE_ERRORS);
        return disk_error(machine, prng_chance(&world->prng, 500) ? EIO : ENOSPC);
    }
    return disk->write(disk->data, fd, bytes, some, offset);
}

/* ------------------------------------------------------------------------------------------------------------- boots */

static int boot(machine_t *machine)
{
    world_t *world = machine->world;
    once__log_config_t config = {.disk = &once__real_disk, .segment_size = 65536};
    once_error_t err = {0, ""};

    running = machine;
    machine->booted_at = world->now;
    if (machine->boots == 0 || !world_is_broken(world, BROKEN_OLD_INDEX)) {
        prng_fill(&world->prng, machine->boot_id, sizeof(machine->boot_id));
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
    machine->hooks = machine->disk.hooks;
    machine->hooks.sync = hook_sync;
    machine->hooks.sync_directory = hook_sync_directory;
    machine->hooks.allocate = hook_allocate;
    machine->hooks.write = hook_write;
    machine->hooks.data = machine;
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

    go_down(machine);
    machine->boots++;
    if (!machine->orderly) {
        if (world_is_broken(machine->world, BROKEN_OLD_INDEX)) {
            keep_index(machine);
        }
        place_remove(machine->store);
        memcpy(machine->store, machine->image, sizeof(machine->store));
    }
    machine->orderly = 0;
    world_say(machine->world, -1, "the machine starts again");
    if (boot(machine) == 0) {
        journal_recover(machine);
    }
}

static void all_die(void *data)
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
        take_image(world->machine);
        all_die(world->machine);
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
        all_die(machine);
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
    (void)boot(machine);
}

void machine_close(world_t *world)
{
    if (world->machine->reader != NULL) {
        go_down(world->machine);
    }
    running = NULL;
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
    must(once__url_parse(&url, text, &err) == ONCE_OK, text);
    config.url = &url;
    if (once__local_open(&config, &machine->hooks, &store, &err) != ONCE_OK) {
        world_violate(process->world, -1, "open", "%s cannot open the store: %s", process->name,
                      err.text);
    }
    once__url_free(&url);
    return store;
}

/* ----------------------------------------------------------------------------------------------------------- looking */

/* Was the segment begun by this boot? The file itself says so. */
static int is_of_this_boot(const machine_t *machine, uint32_t number)
{
    uint8_t bytes[ONCE__SEGMENT_HEADER];
    once__segment_header_t header;
    char name[ONCE__SEGMENT_NAME];
    int fd, same;

    once__segment_name(name, number, "log");
    fd = openat(machine->directory.segments_fd, name, O_RDONLY | O_CLOEXEC);
    same = fd >= 0 && pread(fd, bytes, sizeof(bytes), 0) == (ssize_t)sizeof(bytes) &&
           once__segment_header_read(&header, bytes) == ONCE_OK &&
           memcmp(header.boot_id, machine->boot_id, ONCE__BOOT_ID_SIZE) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return same;
}

static mirror_t mirror_of(const once__record_t *record)
{
    mirror_t mirror;

    memset(&mirror, 0, sizeof(mirror));
    mirror.exists = 1;
    mirror.head = record->head;
    mirror.payload_kind = record->payload.kind;
    mirror.payload_status = record->payload.status;
    mirror.payload_len = record->payload.len;
    mirror.payload_hash = sight_hash(record->payload.data, record->payload.len);
    return mirror;
}

mirror_t machine_look(machine_t *machine, const sim_key_t *key)
{
    once__index_t *index = machine->directory.index;
    mirror_t mirror = {0};
    uint64_t cursor = 0;
    once__entry_t entry;

    once__index_lock(index, key->id);
    while (!mirror.exists && once__index_find(index, key->id, &cursor, &entry)) {
        once__frame_t frame;
        once__record_t record;
        int code = once__log_read(machine->reader, entry.place, &frame);
        if (code == ONCE_OK) {
            code = once__record_decode(&record, frame.bytes, frame.len);
        }
        if (code != ONCE_OK) {
            world_violate(machine->world, key->number, "every record can be read",
                          "segment %08x at %llu: %s", entry.place.segment,
                          (unsigned long long)entry.place.offset, once_error_name(code));
            break;
        }
        if (memcmp(frame.id, key->id, ONCE_ID_SIZE) == 0) {
            mirror = mirror_of(&record);
        }
    }
    once__index_unlock(index, key->id);
    /* A lease ends with the machine. */
    if (mirror.exists && mirror.head.lease_until > mirror.head.changed &&
        !is_of_this_boot(machine, entry.place.segment)) {
        mirror.head.lease_until = mirror.head.changed;
    }
    return mirror;
}

int machine_is_unsynced(const machine_t *machine, const sim_key_t *key)
{
    const once__index_t *index = machine->directory.index;
    uint64_t cursor = 0;
    once__entry_t entry;

    return once__index_find(index, key->id, &cursor, &entry) &&
           entry.place.offset >=
               atomic_load(&once__index_segment(index, entry.place.segment)->synced);
}
