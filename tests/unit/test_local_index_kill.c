/*
 * A process is killed at any instruction: the invariants of index.h hold, and the next one goes on.
 *
 * A child does one change, stepped by the parent one instruction at a time. After each, the parent looks at the memory as the next
 * process would find it. Now and then the child is killed there, and the parent takes its locks.
 */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "support/local_index.h"

#define RECORDS    26u      /* in one shard: the first table is nearly full */
#define FRESH      RECORDS  /* one that is not there yet */
#define STEPS_MOST 2000000u /* of one change: then something does not end */

typedef struct scene {
    once__index_t *index;
    uint32_t from, to; /* segments */
    uint64_t numbers[RECORDS + 1];
} scene_t;

/* Numbers whose records are in one shard. */
static void choose_numbers(scene_t *scene)
{
    uint8_t id[ONCE_ID_SIZE];
    uint32_t found = 0;

    for (uint64_t n = 0; found <= RECORDS; n++) {
        make_id(n, id);
        if (once__index_shard_of(id) == 77) {
            scene->numbers[found++] = n;
        }
    }
}

static void set_scene(scene_t *scene, once__index_t *index)
{
    scene->index = index;
    choose_numbers(scene);
    scene->from = new_segment(index, ONCE__SEGMENT_SEALED);
    scene->to = new_segment(index, ONCE__SEGMENT_ACTIVE);
    for (uint32_t i = 0; i < RECORDS; i++) {
        assert_int_equal(set_record(index, scene->numbers[i], scene->from, ONCE_STATE_COMPLETED),
                         ONCE_OK);
    }
}

/* ---------------------------------------------------------------------------------------------------------- changes */

static void add_one(const scene_t *scene)
{
    (void)set_record(scene->index, scene->numbers[FRESH], scene->to, ONCE_STATE_PENDING);
}

static void move_one(const scene_t *scene)
{
    (void)set_record(scene->index, scene->numbers[0], scene->to, ONCE_STATE_UNKNOWN);
}

static void expire_one(const scene_t *scene)
{
    (void)set_record(scene->index, scene->numbers[0], scene->from, ONCE_STATE_NONE);
}

static void forget_one(const scene_t *scene)
{
    forget_record(scene->index, scene->numbers[0]);
}

static void replace_table(const scene_t *scene)
{
    uint8_t id[ONCE_ID_SIZE];

    make_id(scene->numbers[0], id);
    if (once__index_lock(scene->index, id, 1000) == ONCE_OK) {
        uint64_t table = atomic_load(&scene->index->map->shards[77].table);
        (void)once__index_reserve(scene->index, id, once__table_size(table));
        once__index_unlock(scene->index, id);
    }
}

static void take_and_free_slot(const scene_t *scene)
{
    uint64_t number;
    uint32_t slot;

    if (once__index_take_slot(scene->index, &slot, &number) == ONCE_OK) {
        once__index_free_slot(scene->index, slot);
    }
}

static void take_and_give_pages(const scene_t *scene)
{
    uint32_t first = once__index_take_pages(scene->index, 2, ONCE__INDEX_WAIT_MS);

    if (first != 0) {
        once__index_give_pages(scene->index, first, 2, 0, ONCE__INDEX_WAIT_MS);
    }
}

static void take_version(const scene_t *scene)
{
    uint8_t id[ONCE_ID_SIZE];

    make_id(scene->numbers[0], id);
    if (once__index_lock(scene->index, id, 1000) == ONCE_OK) {
        uint64_t version = once__index_next_version(scene->index, id, 5);
        once__index_segment(scene->index, scene->to)->word = version; /* the frame */
        once__index_unlock(scene->index, id);
    }
}

typedef struct change {
    const char *name;
    void (*run)(const scene_t *);
    uint32_t record; /* the one that it changes; UINT32_MAX: none */
} change_t;

static const change_t changes[] = {
    {"add", add_one, FRESH},
    {"move", move_one, 0},
    {"expire", expire_one, 0},
    {"forget", forget_one, 0},
    {"replace the first table", replace_table, UINT32_MAX},
    {"slots", take_and_free_slot, UINT32_MAX},
    {"pages", take_and_give_pages, UINT32_MAX},
    {"version", take_version, UINT32_MAX},
};

/* ----------------------------------------------------------------------------------------------------------- checks */

/* One entry of each record at most, and it is its own. 1 or 0. */
static int look(const scene_t *scene, uint32_t i, once__entry_t *entry)
{
    uint8_t id[ONCE_ID_SIZE];
    int found;

    make_id(scene->numbers[i], id);
    found = once__index_find(scene->index, id, entry);
    assert_true(!found || number_of(entry) == scene->numbers[i]);
    return found;
}

static void check_counts(const scene_t *scene)
{
    int64_t entries[2] = {0}, bytes[2] = {0};
    once__entry_t entry;

    for (uint32_t i = 0; i <= RECORDS; i++) {
        if (look(scene, i, &entry)) {
            int which = entry.place.slot == scene->to;
            entries[which]++;
            bytes[which] += weight_of(scene->numbers[i], entry.state).until != 0
                                ? weight_of(scene->numbers[i], entry.state).size
                                : 0;
        }
    }
    for (int i = 0; i < 2; i++) { /* */
        const once__segment_t *segment =
            once__index_segment(scene->index, i == 0 ? scene->from : scene->to);
        assert_true(atomic_load(&segment->entries) >= entries[i]);
        assert_true((int64_t)once__segment_live(segment, 0) >= bytes[i]);
    }
}

/* What the next process would find. */
static void check(const scene_t *scene, const change_t *change)
{
    const once__segment_t *to = once__index_segment(scene->index, scene->to);
    once__entry_t entry;

    for (uint32_t i = 0; i < RECORDS; i++) {
        int found = look(scene, i, &entry);
        if (i != change->record) {
            assert_true(found && entry.state == ONCE_STATE_COMPLETED &&
                        entry.place.slot == scene->from);
        } else {
            assert_true(found || change->run == forget_one);
        }
        if (found) { /* */
            assert_true(atomic_load(&once__index_segment(scene->index, entry.place.slot)->state) >=
                        ONCE__SEGMENT_ACTIVE);
        }
    }
    check_counts(scene);
    /* */
    assert_true(atomic_load(&scene->index->map->shards[77].version) >= to->word);
}

/* The locks can be taken, and every change can be made: nothing is lost but pages. */
static void go_on(const scene_t *scene)
{
    uint32_t used = 0, records = 0;
    const once__shard_t *shard = &scene->index->map->shards[77];
    once__entry_t entry;
    uint64_t version = atomic_load(&shard->version);

    forget_one(scene);
    for (uint32_t i = 0; i <= RECORDS; i++) {
        assert_int_equal(set_record(scene->index, scene->numbers[i], scene->to, ONCE_STATE_PENDING),
                         ONCE_OK);
    }
    for (uint32_t i = 0; i <= RECORDS; i++) {
        assert_true(get_record(scene->index, scene->numbers[i], &entry));
        assert_true(entry.place.slot == scene->to && entry.state == ONCE_STATE_PENDING);
        records++;
    }
    for (uint32_t i = 0; i < once__table_size(atomic_load(&shard->table)); i++) {
        const once__cell_t *cells =
            (const void *)((const char *)scene->index->map + once__table_at(shard->table));
        used += atomic_load(&cells[i].where) != 0;
    }
    assert_true(atomic_load(&shard->used) >= used);
    assert_int_equal(atomic_load(&shard->records), records);
    check_counts(scene);
    take_version(scene);
    assert_true(atomic_load(&shard->version) > version);
    replace_table(scene);
    take_and_free_slot(scene);
    assert_true(once__index_take_pages(scene->index, 2, ONCE__INDEX_WAIT_MS) != 0);
}

/* --------------------------------------------------------------------------------------------------------- stepping */

static pid_t start(const scene_t *scene, const change_t *change)
{
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
            _exit(1);
        }
        (void)raise(SIGSTOP);
        change->run(scene);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSTOPPED(status));
    return child;
}

/* One instruction. 1, or 0: it has ended. */
static int step(pid_t child)
{
    int status;

    assert_int_equal(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) {
        assert_int_equal(WEXITSTATUS(status), 0);
        return 0;
    }
    assert_true(WIFSTOPPED(status));
    return 1;
}

static uint32_t step_through(const scene_t *scene, const change_t *change)
{
    pid_t child = start(scene, change);
    uint32_t steps = 0;

    while (step(child)) {
        check(scene, change);
        assert_true(++steps < STEPS_MOST);
    }
    return steps;
}

static void kill_at(const scene_t *scene, const change_t *change, uint32_t steps)
{
    pid_t child = start(scene, change);

    for (uint32_t i = 0; i < steps && step(child); i++) {
    }
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    check(scene, change);
    go_on(scene);
}

static void in_new_place(void (*run)(scene_t *, const change_t *, uint32_t), const change_t *change,
                         uint32_t steps)
{
    scene_t scene;
    void *state;

    (void)setup_index(&state);
    set_scene(&scene, ((place_t *)state)->index);
    run(&scene, change, steps);
    (void)teardown_index(&state);
}

static uint32_t needed;

static void count_steps(scene_t *scene, const change_t *change, uint32_t steps)
{
    (void)steps;
    needed = step_through(scene, change);
    go_on(scene);
}

static void kill_there(scene_t *scene, const change_t *change, uint32_t steps)
{
    kill_at(scene, change, steps);
}

#define KILLS 10u

static void killed_at_any_instruction(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        in_new_place(count_steps, &changes[i], 0);
        for (uint32_t k = 0; k < KILLS; k++) {
            in_new_place(kill_there, &changes[i],
                         (uint32_t)(((uint64_t)needed * k + mix(k) % needed) / KILLS));
        }
    }
}

/* ------------------------------------------------------------------------------------------------------- many at once */

#define UNIVERSE 3000u
#define SEGMENTS 4u

typedef struct shared {
    _Atomic uint64_t versions[ONCE__SHARDS]; /* the last one of each, under its lock */
} shared_t;

/* A wait for the lock of the pages ends after a second, and on a busy machine its holder may not run for as long. */
#define TRIES 60

static int set_patiently(once__index_t *index, uint64_t n, uint32_t slot, uint8_t state)
{
    int code = set_record(index, n, slot, state);

    for (unsigned i = 1; code != ONCE_OK && i < TRIES; i++) {
        code = set_record(index, n, slot, state);
    }
    return code;
}

static uint32_t take_patiently(once__index_t *index, uint32_t count)
{
    uint32_t first = once__index_take_pages(index, count, ONCE__INDEX_WAIT_MS);

    for (unsigned i = 1; first == 0 && i < TRIES; i++) {
        first = once__index_take_pages(index, count, ONCE__INDEX_WAIT_MS);
    }
    return first;
}

/* Until it is killed. */
static void hammer(once__index_t *index, shared_t *shared, uint64_t seed)
{
    for (uint64_t i = 0;; i++) {
        uint64_t what = mix(seed * 1000003 + i), n = what % UNIVERSE;
        uint8_t id[ONCE_ID_SIZE];
        uint64_t version;

        make_id(n, id);
        if (once__index_lock(index, id, 60000) != ONCE_OK) {
            _exit(1);
        }
        version = once__index_next_version(index, id, what >> 60);
        if (version <= atomic_load(&shared->versions[once__index_shard_of(id)])) {
            _exit(2);
        }
        atomic_store(&shared->versions[once__index_shard_of(id)], version);
        once__index_unlock(index, id);
        if (what >> 32 & 1) {
            forget_record(index, n);
        } else if (set_patiently(index, n, what >> 33 & 3, (uint8_t)((what >> 40) % 5)) !=
                   ONCE_OK) {
            _exit(3);
        }
        if (i % 100 == 0) {
            uint32_t first = take_patiently(index, 3);
            if (first == 0) {
                _exit(4);
            }
            once__index_give_pages(index, first, 3, 0, ONCE__INDEX_WAIT_MS);
        }
    }
}

static void check_all(once__index_t *index)
{
    int64_t entries[SEGMENTS] = {0}, bytes[SEGMENTS] = {0};
    uint64_t records = 0;
    once__entry_t entry;

    for (uint64_t n = 0; n < UNIVERSE; n++) {
        if (get_record(index, n, &entry)) {
            assert_in_range(entry.place.slot, 0, SEGMENTS - 1);
            entries[entry.place.slot]++;
            bytes[entry.place.slot] +=
                entry.state != ONCE_STATE_NONE ? weight_of(n, entry.state).size : 0;
            records += entry.state != ONCE_STATE_NONE;
        }
    }
    for (uint32_t i = 0; i < SEGMENTS; i++) {
        const once__segment_t *segment = once__index_segment(index, i);
        assert_true(atomic_load(&segment->entries) >= entries[i]);
        assert_true((int64_t)once__segment_live(segment, 0) >= bytes[i]);
    }
    assert_int_equal(once__index_entries(index), records);
}

static void killed_at_any_time(void **state)
{
    once__index_t *index = ((place_t *)*state)->index;
    shared_t *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(shared != MAP_FAILED);
    for (uint32_t i = 0; i < SEGMENTS; i++) {
        assert_int_equal(new_segment(index, ONCE__SEGMENT_ACTIVE), i);
    }
    for (uint64_t round = 0; round < 60; round++) {
        pid_t children[3];
        int statuses[3];
        for (unsigned i = 0; i < 3; i++) {
            children[i] = fork();
            assert_true(children[i] >= 0);
            if (children[i] == 0) {
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                hammer(index, shared, round * 3 + i + 1);
            }
        }
        (void)usleep((useconds_t)(mix(round) % 20000));
        for (unsigned i = 0; i < 3; i++) {
            (void)kill(children[i], SIGKILL);
            assert_int_equal(waitpid(children[i], &statuses[i], 0), children[i]);
        }
        for (unsigned i = 0; i < 3; i++) {
            assert_int_equal(statuses[i], SIGKILL); /* else its exit code says which step failed */
        }
        check_all(index);
    }
    assert_int_equal(munmap(shared, sizeof(*shared)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_at_any_instruction),
        cmocka_unit_test_setup_teardown(killed_at_any_time, setup_index, teardown_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
