/*
 * Whether the locks of an index can be used: for those who check one that may be damaged, and must neither wait for ever nor fall.
 */
#include <errno.h>
#include <poll.h>

#include "store/local/index_file.h"

#define TRIES   500 /* nobody holds one for five seconds, unless his disk hangs */
#define WAIT_MS 10

/* 1 or 0. */
static int is_sound(const once__index_t *index, once__shard_t *shard)
{
    pthread_mutex_t *lock = &shard->lock;
    int code = pthread_mutex_trylock(lock);

    for (int i = 0; code == EBUSY && i < TRIES; i++) {
        (void)poll(NULL, 0, WAIT_MS);
        code = pthread_mutex_trylock(lock);
    }
    if (code == EOWNERDEAD) { /* as whoever locks it after that, and before anybody else does */
        shard->floor = once__index_end_segment(index) - 1;
        code = pthread_mutex_consistent(lock);
    }
    return code == 0 && pthread_mutex_unlock(lock) == 0;
}

int once__index_locks_are_sound(once__index_t *index)
{
    for (uint32_t i = 0; i < ONCE__SHARDS; i++) {
        if (!is_sound(index, &index->map->shards[i])) {
            return 0;
        }
    }
    return 1;
}
