/*
 * Peeks while others change the index: tables grow, are replaced, and their pages become something else. What held was there.
 */
#include "support/testing.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "store/local/index_file.h"
#include "store/local/index_pages.h"

#define RECORDS 32u /* that are looked at */
#define FILLERS 400u
#define LOOKERS 2
#define ROUNDS  3000u

static const uint8_t boot[ONCE__BOOT_ID_SIZE] = "boot";

static struct shared {
    once__index_t *index;
    /* Versions of each record: an odd one is there, an even one was removed. */
    _Atomic uint32_t begun[RECORDS], done[RECORDS];
    _Atomic int stop;
} shared;

static uint64_t next_random(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

/* All in one shard. */
static void make_id(uint64_t n, uint8_t id[ONCE_ID_SIZE])
{
    memset(id, 0, ONCE_ID_SIZE);
    once__put64(id + 2, (n + 1) * 0x9e3779b97f4a7c15u);
}

static uint64_t table(void)
{
    return atomic_load(&shared.index->map->shards[0].table);
}

/* The place tells which record it is, and which version of it. */
static void set(uint64_t n, uint32_t version, uint8_t state)
{
    once__entry_t old,
        entry = {{1, ((uint64_t)version << 10 | (n < RECORDS ? n : RECORDS)) * 8}, state};
    uint8_t id[ONCE_ID_SIZE];
    uint64_t cursor = 0;
    int found;

    make_id(n, id);
    once__index_lock(shared.index, id);
    found = once__index_find(shared.index, id, &cursor, &old);
    if (!found && state != ONCE_STATE_NONE) {
        assert_int_equal(once__index_make_room(shared.index, id), ONCE_OK);
    }
    if (found || state != ONCE_STATE_NONE) {
        once__index_set(shared.index, id, cursor, found, &entry);
    }
    once__index_unlock(shared.index, id);
}

static void change(uint64_t n)
{
    uint32_t version = atomic_load(&shared.begun[n]) + 1;

    atomic_store(&shared.begun[n], version);
    set(n, version, version % 2 ? ONCE_STATE_COMPLETED : ONCE_STATE_NONE);
    atomic_store(&shared.done[n], version);
}

/* Whatever pages are free get words that look like entries, as a response could have them. */
static void fill_free_pages(uint64_t n)
{
    uint32_t page = once__pages_take(shared.index, 1);
    _Atomic uint64_t *words = (void *)((char *)shared.index->map + (uint64_t)page * 4096);
    uint8_t id[ONCE_ID_SIZE];

    assert_true(page != 0);
    make_id(n, id);
    for (size_t i = 0; i < 4096 / 8; i += 2) {
        atomic_store(&words[i], once__get64(id + 2));
        atomic_store(&words[i + 1], (uint64_t)1 << 40 | (uint64_t)(0x3ffff << 10 | n) << 12 |
                                        (uint64_t)ONCE_STATE_COMPLETED << 8 | 2);
    }
    once__pages_give(shared.index, page, 1);
}

typedef struct looker {
    pthread_t thread;
    uint64_t random;
    uint64_t held, wrong;
} looker_t;

static void look(looker_t *looker)
{
    uint64_t n = next_random(&looker->random) % RECORDS, was;
    uint32_t done;
    uint8_t id[ONCE_ID_SIZE];
    once__peek_t peek;

    make_id(n, id);
    if (!once__index_peek(shared.index, id, &peek)) {
        return;
    }
    if (next_random(&looker->random) % 4 == 0) {
        (void)sched_yield();
    }
    /* here a record would be read: what came before it is no answer */
    done = atomic_load(&shared.done[n]);
    if (once__index_peek_holds(shared.index, &peek)) {
        was = peek.entry.place.offset / 8;
        looker->held++;
        looker->wrong += was % 1024 != n || peek.entry.state != ONCE_STATE_COMPLETED ||
                         was / 1024 < done || was / 1024 > atomic_load(&shared.begun[n]) ||
                         was / 1024 % 2 == 0;
    }
}

static void *look_all_the_time(void *data)
{
    looker_t *looker = data;

    while (!atomic_load(&shared.stop) || looker->held == 0) {
        look(looker);
    }
    return NULL;
}

static unsigned work(uint64_t *random)
{
    unsigned replaced = 0;

    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t fillers = next_random(random) % FILLERS + 1;
        uint64_t first = RECORDS + (uint64_t)round * FILLERS; /* others: they leave dead entries */
        for (uint64_t i = 0; i < 2 * fillers; i++) {
            uint64_t before = table();
            set(first + i % fillers, 1, i < fillers ? ONCE_STATE_COMPLETED : ONCE_STATE_NONE);
            replaced += table() != before;
            change(next_random(random) % RECORDS);
            if (i % 16 == 0) {
                fill_free_pages(next_random(random) % RECORDS);
            }
        }
    }
    return replaced;
}

static void test_what_held_was_there(void **state)
{
    looker_t lookers[LOOKERS];
    uint64_t random = 88172645463325252u;
    unsigned replaced;

    for (uint64_t n = 0; n < RECORDS; n++) {
        change(n);
    }
    for (size_t i = 0; i < LOOKERS; i++) {
        lookers[i] = (looker_t){.random = next_random(&random)};
        assert_int_equal(pthread_create(&lookers[i].thread, NULL, look_all_the_time, &lookers[i]),
                         0);
    }
    replaced = work(&random);
    for (uint64_t n = 0; n < RECORDS;
         n++) { /* those are there at last, for a looker that came late */
        if (atomic_load(&shared.begun[n]) % 2 == 0) {
            change(n);
        }
    }
    atomic_store(&shared.stop, 1);
    for (size_t i = 0; i < LOOKERS; i++) {
        assert_int_equal(pthread_join(lookers[i].thread, NULL), 0);
        assert_true(lookers[i].held > 0);
        assert_int_equal(lookers[i].wrong, 0);
    }
    assert_true(replaced > ROUNDS / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_held_was_there)};
    char path[64];
    int fd, failed;

    (void)snprintf(path, sizeof(path), "%s/once-peek-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (mkdtemp(path) == NULL || (fd = open(path, O_RDONLY | O_DIRECTORY)) < 0 ||
        once__index_open(&shared.index, fd, boot, 1, NULL) != ONCE_OK) {
        return 1;
    }
    once__index_add_segment(shared.index, 1, ONCE__SEGMENT_SEALED, 1 << 20, 0);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    once__index_close(shared.index);
    (void)unlinkat(fd, "index", 0);
    (void)close(fd);
    (void)rmdir(path);
    return failed;
}
