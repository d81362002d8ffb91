#include "base/uuid.h"

#include <stdatomic.h>

#include "loop/env.h"

/* The stamp of the last version 7 UUID of this process. */
static _Atomic uint64_t last_stamp;

static int fill_random(uint8_t *out, size_t len)
{
    return once__real_env.random(once__real_env.data, out, len) == 0 ? ONCE_OK : ONCE_E_IO;
}

int once_key_uuid4(char out[ONCE_UUID_SIZE])
{
    uint8_t random[16];
    int rc = fill_random(random, sizeof(random));

    out[0] = '\0';
    if (rc == ONCE_OK) {
        once__uuid4(out, random);
    }
    return rc;
}

/*
 * The UUIDs of one process come in order, also from several threads and when the clock steps back: each takes a stamp greater
 * than the last one. A child after fork() goes on from its parent's stamp; the 62 random bits keep the two apart.
 */
int once_key_uuid7(char out[ONCE_UUID_SIZE])
{
    uint8_t random[8];
    int rc = fill_random(random, sizeof(random));

    out[0] = '\0';
    if (rc == ONCE_OK) {
        uint64_t now = once__real_env.wall_ms(once__real_env.data), stamp;
        uint64_t last = atomic_load(&last_stamp);
        do {
            stamp = once__uuid7_next(last, now);
        } while (!atomic_compare_exchange_weak(&last_stamp, &last, stamp));
        once__uuid7(out, stamp, random);
    }
    return rc;
}
