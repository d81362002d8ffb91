/*
 * Whether the locks of an index can be used: for those who check one that may be damaged, and must neither wait for ever nor fall.
 */
#include <errno.h>
#include <time.h>

#include "store/local/index_file.h"

#define WAIT_SECONDS 5 /* nobody holds one for that long, unless his disk hangs */

/* 1 or 0. `*died`: its holder was killed. */
static int is_sound(pthread_mutex_t *lock, int *died)
{
    struct timespec until;
    int code = pthread_mutex_trylock(lock);

    if (code == EBUSY) {
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += WAIT_SECONDS;
        code = pthread_mutex_timedlock(lock, &until);
    }
    *died = code == EOWNERDEAD;
    if (*died) {
        code = pthread_mutex_consistent(lock);
    }
    return code == 0 && pthread_mutex_unlock(lock) == 0;
}

int once__index_locks_are_sound(once__index_t *index)
{
    once__index_header_t *map = index->map;
    int died;

    for (uint32_t i = 0; i < ONCE__SHARDS; i++) {
        once__shard_t *shard = &map->shards[i];
        if (!is_sound(&shard->lock, &died)) {
            return 0;
        }
        if (died) { /* as whoever locks it after that */
            shard->floor = once__index_end_segment(index) - 1;
        }
    }
    return 1;
}
