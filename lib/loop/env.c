#include "loop/env.h"

#include <errno.h>
#include <pthread.h>
#include <sys/random.h>
#include <time.h>

static uint64_t read_clock(clockid_t id)
{
    struct timespec t;

    (void)clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t real_monotonic_ms(void *data)
{
    return read_clock(CLOCK_BOOTTIME);
}

static uint64_t wall_offset;
static pthread_once_t wall_once = PTHREAD_ONCE_INIT;

static void read_wall_offset(void)
{
    wall_offset = read_clock(CLOCK_REALTIME) - read_clock(CLOCK_BOOTTIME);
}

/* A change of the system's clock must not end leases: the wall clock is read once per process. */
static uint64_t real_wall_ms(void *data)
{
    (void)pthread_once(&wall_once, read_wall_offset);
    return read_clock(CLOCK_BOOTTIME) + wall_offset;
}

static int real_random(void *data, void *out, size_t len)
{
    unsigned char *p = out;

    while (len > 0) {
        ssize_t n = getrandom(p, len, 0);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return -1;
        }
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

const once__env_t once__real_env = {
    .monotonic_ms = real_monotonic_ms,
    .wall_ms = real_wall_ms,
    .random = real_random,
};
