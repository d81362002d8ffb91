/*
 * Records of an index for tests: number n has an id, an offset and a weight that are made from n.
 */
#ifndef TESTS_SUPPORT_LOCAL_INDEX_H
#define TESTS_SUPPORT_LOCAL_INDEX_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "store/local/index.h"
#include "support/testing.h"

#define NEVER UINT64_MAX

static inline uint64_t mix(uint64_t n)
{
    n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9u;
    n = (n ^ n >> 27) * 0x94d049bb133111ebu;
    return n ^ n >> 31;
}

static int few_shards; /* 64 instead of all, so that fewer records fill them */

static inline void make_id(uint64_t n, uint8_t id[ONCE_ID_SIZE])
{
    for (unsigned i = 0; i < 4; i++) {
        once__put64(id + 8 * i, mix(n * 4 + i + 1));
    }
    id[few_shards ? 1 : 31] &= 0xfc;
    id[few_shards ? 0 : 31] &= 0x3f;
}

/* The offset tells n, so that an entry can be checked by itself. */
static inline once__entry_t entry_of(uint32_t slot, uint64_t n, uint8_t state)
{
    once__entry_t entry = {{slot, (n + 16) * 8}, state};

    return entry;
}

static inline uint64_t number_of(const once__entry_t *entry)
{
    return entry->place.offset / 8 - 16;
}

static inline once__weight_t weight_of(uint64_t n, uint8_t state)
{
    once__weight_t weight = {(uint32_t)(64 + n % 50 * 8), state == ONCE_STATE_NONE ? 0 : NEVER};

    return weight;
}

/* What an operation on record n begins with: locked. 1 and `old`: it has an entry. */
static inline int begin(once__index_t *index, uint64_t n, uint8_t id[ONCE_ID_SIZE],
                        once__entry_t *old)
{
    make_id(n, id);
    if (once__index_lock(index, id, 60000) != ONCE_OK) {
        fprintf(stderr, "a lock cannot be had\n");
        abort();
    }
    return once__index_find(index, id, old);
}

/* Sets record n. ONCE_OK or ONCE_E_FULL. */
static inline int set_record(once__index_t *index, uint64_t n, uint32_t slot, uint8_t state)
{
    once__entry_t entry = entry_of(slot, n, state), old;
    once__weight_t none = {0, 0};
    uint8_t id[ONCE_ID_SIZE];
    int found = begin(index, n, id, &old);
    int code = found ? ONCE_OK : once__index_make_room(index, id);

    if (code == ONCE_OK) {
        once__index_set(index, id, &entry, weight_of(n, state), found ? &old : NULL,
                        found ? weight_of(n, old.state) : none);
    }
    once__index_unlock(index, id);
    return code;
}

static inline void forget_record(once__index_t *index, uint64_t n)
{
    uint8_t id[ONCE_ID_SIZE];
    once__entry_t old;

    if (begin(index, n, id, &old)) {
        once__index_forget(index, id, &old, weight_of(n, old.state));
    }
    once__index_unlock(index, id);
}

/* The entry of record n, which is its own. 1 or 0. */
static inline int get_record(once__index_t *index, uint64_t n, once__entry_t *entry)
{
    uint8_t id[ONCE_ID_SIZE];
    int found = begin(index, n, id, entry);

    assert_true(!found || number_of(entry) == n);
    once__index_unlock(index, id);
    return found;
}

/* A segment that can have entries. */
static inline uint32_t new_segment(once__index_t *index, once__segment_state_t state)
{
    once__segment_t *segment;
    uint64_t number;
    uint32_t slot;

    assert_int_equal(once__index_take_slot(index, &slot, &number), ONCE_OK);
    segment = once__index_segment(index, slot);
    segment->size = 1 << 20;
    segment->created = 1000;
    atomic_store(&segment->tail, 4096);
    atomic_store(&segment->state, state);
    return slot;
}

/* ------------------------------------------------------------------------------------------------- where it lies */

typedef struct place {
    char base[64];  /* a directory in a tmpfs */
    char store[80]; /* one in it */
    once__index_config_t config;
    once__index_t *index;
} place_t;

static inline void make_store(const char *path, int *fd)
{
    char segments[256];

    (void)snprintf(segments, sizeof(segments), "%s/segments", path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(mkdir(segments, 0700), 0);
    *fd = open(segments, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(*fd >= 0);
}

static inline place_t *make_place(void)
{
    place_t *place = calloc(1, sizeof(*place));
    const char *directory = once__index_default_directory();

    assert_non_null(place);
    assert_non_null(directory);
    (void)snprintf(place->base, sizeof(place->base), "%s/once-test-XXXXXX", directory);
    assert_non_null(mkdtemp(place->base));
    (void)snprintf(place->store, sizeof(place->store), "%s/store", place->base);
    make_store(place->store, &place->config.store_fd);
    place->config.directory = place->base;
    place->config.store = place->store;
    place->config.owner = geteuid();
    memset(place->config.store_id, 0xab, ONCE__STORE_ID_SIZE);
    memset(place->config.boot_id, 0xcd, ONCE__BOOT_ID_SIZE);
    return place;
}

static inline int setup_index(void **state)
{
    place_t *place = make_place();

    assert_int_equal(once__index_create(&place->index, &place->config, NULL), ONCE_OK);
    assert_int_equal(once__index_publish(place->index, NULL), ONCE_OK);
    *state = place;
    return 0;
}

static inline int teardown_index(void **state)
{
    place_t *place = *state;
    char command[128];

    once__index_close(place->index);
    (void)close(place->config.store_fd);
    (void)snprintf(command, sizeof(command), "rm -rf %s", place->base);
    assert_int_equal(system(command), 0);
    free(place);
    return 0;
}

#endif
