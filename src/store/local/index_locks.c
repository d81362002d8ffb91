/*
 * Whether the locks of an index can be used: for those who check one that may be damaged, and must neither wait for ever nor fall.
 */
#include <errno.h>
#include <poll.h>

#include "store/local/index_file.h"

#define TRIES   500 /* nobody holds one for five seconds, unless his disk hangs */
#define WAIT_MS 10

/* 1 or 0. `*died`: its holder was killed. */
static int is_sound(pthread_mutex_t *lock, int *died)
{
    int code = pthread_mutex_trylock(lock);

    for (int i = 0; code == EBUSY && i < TRIES; i++) {
        (void)poll(NULL, 0, WAIT_MS);
        code = pthread_mutex_trylock(lock);
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
