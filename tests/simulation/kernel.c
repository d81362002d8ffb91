/*
 * What a machine's kernel and disk tell the local store.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "machine.h"

#define BOOT_TIME 60000u /* what the machine's clock shows when it is up */

static const machine_t *running; /* whose clocks and boot id the library sees */

/* ------------------------------------------------------------------------------------------------ the kernel's part */

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);

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

/* A file that says the machine's boot id, if that is what is opened; -1: it is not. */
static int open_boot_id(const char *path)
{
    int fd;

    if (running == NULL || strcmp(path, "/proc/sys/kernel/random/boot_id") != 0) {
        return -1;
    }
    fd = memfd_create("boot_id", MFD_CLOEXEC);
    for (unsigned i = 0; fd >= 0 && i < ONCE__BOOT_ID_SIZE; i++) {
        must(dprintf(fd, "%s%02x", i > 2 && i < 12 && i % 2 == 0 ? "-" : "", running->boot_id[i]) >=
                 2,
             "boot id");
    }
    must(lseek(fd, 0, SEEK_SET) == 0, "boot id");
    return fd;
}

/* It has two names: which one is used depends on how the library was compiled. */
int __wrap_open(const char *path, int flags, ...)
{
    int fd = open_boot_id(path);
    va_list args;

    va_start(args, flags);
    fd = fd >= 0 ? fd : __real_open(path, flags, flags & O_CREAT ? va_arg(args, int) : 0);
    va_end(args);
    return fd;
}

int __wrap_open64(const char *path, int flags, ...)
{
    int fd = open_boot_id(path);
    va_list args;

    va_start(args, flags);
    fd = fd >= 0 ? fd : __real_open64(path, flags, flags & O_CREAT ? va_arg(args, int) : 0);
    va_end(args);
    return fd;
}

/* ---------------------------------------------------------------------------------------------------------- its disk */

/* What the disk holds at this very moment, if the power fails. */
void machine_take_image(machine_t *machine)
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

/* In the middle of what the store does: its processes die in the next event. */
static void fail_power(machine_t *machine)
{
    machine_take_image(machine);
    world_count(machine->world, COUNT_POWER_AT_SYNC);
    world_after(machine->world, 0, machine_dies, machine);
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

void machine_runs(machine_t *machine)
{
    running = machine;
    if (machine != NULL) {
        machine->hooks.sync = hook_sync;
        machine->hooks.sync_directory = hook_sync_directory;
        machine->hooks.allocate = hook_allocate;
        machine->hooks.write = hook_write;
        machine->hooks.data = machine;
    }
}
