/*
 * Compaction under random schedules: whatever it copies, forgets and drops, and wherever it is stopped or killed, every record
 * stays as it was, in the index and in a log that is read anew.
 */
#include "support/testing.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <once/local.h>

#include "base/bytes.h"
#include "store/local/decide.h"
#include "store/local/directory.h"

#define WRITERS 3
#define KEYS    48
#define SEGMENT ((uint64_t)64 << 10)
#define LARGE   ((size_t)300 << 10)

/* What can be seen of a record. */
typedef struct view {
    int found;
    uint8_t state;
    once__claim_ref_t claim;
    uint64_t changed, until;
    size_t len;
} view_t;

typedef struct store {
    char path[64];
    once__disk_t disk;
    once__directory_t directory;
    once__log_config_t config;
    once__records_t writers[WRITERS];
    once__records_t compactor;
    once__compaction_t compaction;
    view_t expected[KEYS];
    once__claim_ref_t claims[KEYS]; /* the last that was granted */
    uint64_t random;
    uint64_t carried, dropped;
    int interrupted;
} store_t;

static uint64_t roll(store_t *store, uint64_t below)
{
    store->random ^= store->random << 13;
    store->random ^= store->random >> 7;
    store->random ^= store->random << 17;
    return store->random % below;
}

static int no_sync(void *data, int fd)
{
    return 0;
}

static once__records_t make_records(store_t *store)
{
    once__records_t records = {.index = store->config.index,
                               .log = once__log_open(&store->config),
                               .reader = once__reader_open(&store->config),
                               .rules = &once__rules,
                               .log_config = &store->config,
                               .tried_slot = UINT32_MAX};

    assert_non_null(records.log);
    assert_non_null(records.reader);
    return records;
}

static void open_store(store_t *store, uint64_t seed)
{
    once__directory_config_t how = {.timeout_ms = 1000};
    once_error_t err = {0, ""};

    memset(store, 0, sizeof(*store));
    store->random = seed * 0x9e3779b97f4a7c15u + 1;
    store->disk = once__real_disk;
    store->disk.sync = no_sync;
    store->disk.sync_directory = no_sync;
    (void)snprintf(store->path, sizeof(store->path), "/tmp/once-compact-XXXXXX");
    assert_non_null(mkdtemp(store->path));
    how.path = store->path;
    how.disk = &store->disk;
    if (once__directory_open(&store->directory, &how, &err) != ONCE_OK) {
        fail_msg("%s", err.text);
    }
    store->config = store->directory.log;
    store->config.segment_size = SEGMENT;
    for (size_t i = 0; i < WRITERS; i++) {
        store->writers[i] = make_records(store);
    }
    store->compactor = make_records(store);
}

static void close_store(store_t *store)
{
    char command[128];

    for (size_t i = 0; i < WRITERS; i++) {
        (void)once__log_close(store->writers[i].log);
        once__reader_close(store->writers[i].reader);
    }
    (void)once__log_close(store->compactor.log);
    once__reader_close(store->compactor.reader);
    once__directory_close(&store->directory);
    (void)snprintf(command, sizeof(command), "rm -rf %s", store->path);
    assert_int_equal(system(command), 0);
}

static void make_id(uint8_t *id, unsigned key)
{
    memset(id, 0, ONCE_ID_SIZE);
    /* Few shards, so that they are shared. */
    once__put64(id, (uint64_t)(key + 1) * 0x9e3779b97f4a7c15u);
    id[0] = (uint8_t)(key % 3);
    id[1] &= 0xfc;
    once__put64(id + 8, (uint64_t)(key + 1) * 0xc2b2ae3d27d4eb4fu);
}

/* ------------------------------------------------------------------------------------------------------------ looking */

/* Expired and abandoned ones count as gone: when they are removed does not matter. */
static view_t look(once__records_t *records, unsigned key)
{
    once__op_t op = {.kind = ONCE__OP_GET};
    view_t view;

    memset(&view, 0, sizeof(view));
    make_id(op.id, key);
    assert_int_not_equal(once__records_apply(records, &op), ONCE__DECIDED_LATER);
    if (op.error == ONCE_OK && !once__records_may_go(records, &op.head)) {
        view = (view_t){.found = 1,
                        .state = op.head.state,
                        .claim = op.head.claim,
                        .changed = op.head.changed,
                        .until = once__index_kept_until(&op.head),
                        .len = op.record->payload.len};
    } else if (op.error != ONCE_OK) {
        assert_int_equal(op.error, ONCE_E_NOT_FOUND);
    }
    free(op.record);
    return view;
}

static void compare(store_t *store, once__records_t *records, const char *where)
{
    for (unsigned key = 0; key < KEYS; key++) {
        const view_t *want = &store->expected[key];
        view_t got = look(records, key);
        int expired = want->until <= once__index_now(records->index);
        if (expired && !got.found) {
            continue;
        }
        if (got.found != want->found || got.state != want->state ||
            memcmp(&got.claim, &want->claim, sizeof(got.claim)) != 0 ||
            got.changed != want->changed || got.len != want->len) {
            fail_msg("%s: key %u is %d/%u/%u, not %d/%u/%u", where, key, got.found, got.state,
                     got.claim.epoch, want->found, want->state, want->claim.epoch);
        }
    }
}

/* The log says the same as the index. */
static void read_anew(store_t *store)
{
    once__index_config_t how = {.store = store->path, .store_fd = store->directory.log.segments_fd};
    once__log_config_t config = store->config;
    once__rebuild_config_t rebuild = {.log = &config, .threads = 1, .looks_only = 1};
    once__records_t records = store->compactor;
    once__manifest_t manifest = {0};
    once__rebuilt_t rebuilt;
    once_error_t err = {0, ""};

    memcpy(how.store_id, store->directory.log.store_id, ONCE__STORE_ID_SIZE);
    memcpy(how.boot_id, store->directory.log.boot_id, ONCE__BOOT_ID_SIZE);
    assert_int_equal(once__manifest_read(&manifest, &config), ONCE_OK);
    rebuild.manifest = &manifest;
    assert_int_equal(once__index_create(&config.index, &how, &err), ONCE_OK);
    if (once__rebuild(&rebuild, &rebuilt, &err) != ONCE_OK) {
        fail_msg("%s", err.text);
    }
    once__index_set_clock(config.index, once__index_clock(store->config.index));
    records.index = config.index;
    records.log_config = &config;
    records.reader = once__reader_open(&config);
    compare(store, &records, "the log");
    once__reader_close(records.reader);
    once__index_close(config.index);
    once__manifest_free(&manifest);
}

/* ------------------------------------------------------------------------------------------------------------- events */

static void sync_all(store_t *store)
{
    for (size_t i = 0; i < WRITERS; i++) {
        assert_int_equal(once__log_sync(store->writers[i].log), ONCE_OK);
    }
}

/* A writer dies; what it had in its buffer stays. */
static void kill_writer(store_t *store, size_t i)
{
    once__log_abandon(store->writers[i].log);
    once__reader_close(store->writers[i].reader);
    store->writers[i] = make_records(store);
}

static void fill_event(store_t *store, once__op_t *op, unsigned key)
{
    static const uint64_t ttls[] = {50, 2000, 60000, 3600000, 86400000};
    static uint8_t payload[LARGE];
    static char text[32];
    uint64_t what = roll(store, 12);

    op->event.claim = store->claims[key];
    if (what < 5) {
        op->event.kind = ONCE__CLAIM;
        op->event.recover = roll(store, 2) == 0 ? ONCE_RECOVER_HOLD : ONCE_RECOVER_RETRY;
        op->event.lease_ms = 1000 + roll(store, 100000);
        op->event.ttl_ms = ttls[roll(store, 5)];
        op->event.fingerprint_count = 1;
        once__put64(op->event.claim.id, roll(store, UINT64_MAX));
        (void)snprintf(text, sizeof(text), "key-%u", key);
        op->key = text;
        op->key_len = strlen(text);
    } else if (what < 9) {
        op->event.kind = ONCE__COMPLETE;
        op->event.ttl_ms = ttls[roll(store, 5)];
        op->payload = (once__payload_t){ONCE__PAYLOAD_RESPONSE, 200, payload,
                                        roll(store, 60) == 0 ? LARGE - roll(store, 100)
                                                             : 9 + roll(store, 2000)};
    } else if (what == 9) {
        op->event.kind = ONCE__RELEASE;
        op->event.ttl_ms = roll(store, 2) * 50;
    } else if (what == 10) {
        op->event.kind = ONCE__DOUBT;
    } else {
        op->event.kind = ONCE__PURGE;
        op->event.force = 1;
        op->event.claim = store->expected[key].claim;
    }
}

static void one_event(store_t *store)
{
    unsigned key = (unsigned)roll(store, KEYS);
    size_t writer = roll(store, WRITERS);
    once__records_t *records = &store->writers[writer];
    once__op_t op = {.kind = ONCE__OP_EVENT};

    make_id(op.id, key);
    fill_event(store, &op, key);
    sync_all(store); /* or others would count as busy */
    assert_int_not_equal(once__records_apply(records, &op), ONCE__DECIDED_LATER);
    assert_int_equal(op.error, ONCE_OK);
    free(op.record);
    if (op.event.kind == ONCE__CLAIM && op.outcome == ONCE_OUTCOME_RUN) {
        store->claims[key] = op.head.claim;
    }
    store->expected[key] = look(records, key);
}

/* ------------------------------------------------------------------------------------------------------------ compacting */

static int stop_at_once(void *data)
{
    return 1;
}

static void compact(store_t *store, int thorough)
{
    once__compaction_t *compaction = &store->compaction;

    compaction->thorough = thorough;
    compaction->limit = roll(store, 3) == 0 ? 1 + roll(store, 10) : 0;
    compaction->tend = roll(store, 8) == 0 ? stop_at_once : NULL;
    assert_int_equal(once__records_compact(&store->compactor, compaction), ONCE_OK);
}

/* A process compacts and is killed, sooner or later. Another one may compact at the same time. */
static void compact_and_die(store_t *store)
{
    useconds_t pause = (useconds_t)roll(store, 3000);
    int beside = roll(store, 2) == 0;
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        once__records_t records = make_records(store);
        once__compaction_t compaction = {.thorough = 1};
        for (;;) {
            (void)once__records_compact(&records, &compaction);
        }
    }
    (void)usleep(pause);
    if (beside) {
        compact(store, 1);
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
}

static void pass_time(store_t *store, uint64_t ms)
{
    once__index_set_clock(store->config.index,
                          once__index_clock(store->config.index) + (int64_t)ms);
}

static void run(uint64_t seed, unsigned events, int kills)
{
    store_t store;

    open_store(&store, seed);
    for (unsigned i = 0; i < events; i++) {
        uint64_t what = roll(&store, 100);
        one_event(&store);
        if (what < 4) {
            compact(&store, what < 2);
        } else if (what == 4 && kills) {
            compact_and_die(&store);
        } else if (what == 5) {
            pass_time(&store, roll(&store, 20) == 0 ? 4000000 : roll(&store, 3000));
        } else if (what == 6) {
            kill_writer(&store, roll(&store, WRITERS));
        } else if (what == 7) {
            (void)once__log_retire(store.writers[roll(&store, WRITERS)].log);
        }
        sync_all(&store);
        if (what < 8) {
            compare(&store, &store.writers[0], "the index");
        }
        if (what % 20 == 0) {
            assert_int_equal(once__log_sync(store.compactor.log), ONCE_OK);
            /* What was killed is in buffers only until somebody sees to it. */
            for (uint32_t slot = 0; slot < once__index_slot_end(store.config.index); slot++) {
                (void)once__segment_take_over(&store.config, slot);
            }
            read_anew(&store);
        }
    }
    store.carried = store.compaction.carried;
    store.dropped = store.compaction.segments;
    close_store(&store);
    assert_true(store.dropped > 0 && store.carried > 0);
}

static void test_nothing_changes(void **state)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        run(seed, 1500, 0);
    }
}

static void test_nothing_changes_by_kills(void **state)
{
    run(100, 1500, 1);
}

/* Everything that expired is given back, whatever stood between. */
static void test_everything_goes(void **state)
{
    uint64_t records, bytes;
    store_t store;

    open_store(&store, 7);
    for (unsigned i = 0; i < 3000; i++) {
        one_event(&store);
        if (i % 100 == 0) {
            compact(&store, 0);
        }
    }
    for (unsigned key = 0; key < KEYS; key++) {
        once__op_t op = {.kind = ONCE__OP_EVENT, .event = {.kind = ONCE__PURGE, .force = 1}};
        make_id(op.id, key);
        op.event.claim = look(&store.writers[1], key).claim;
        sync_all(&store);
        (void)once__records_apply(&store.writers[1], &op);
        assert_int_equal(op.error, ONCE_OK);
    }
    for (size_t i = 0; i < WRITERS; i++) {
        assert_int_equal(once__log_retire(store.writers[i].log), ONCE_OK);
    }
    /* The second time there is nothing left that frames of kind removed are needed for. */
    for (int i = 0; i < 3; i++) {
        store.compaction = (once__compaction_t){.thorough = 1};
        assert_int_equal(once__log_retire(store.compactor.log), ONCE_OK);
        assert_int_equal(once__records_compact(&store.compactor, &store.compaction), ONCE_OK);
    }
    assert_int_equal(once__index_entries(store.config.index), 0);
    once__index_usage(store.config.index, &records, &bytes);
    assert_int_equal(bytes, 0);
    close_store(&store);
}

/* ------------------------------------------------------------------------------------------------------ what must wait */

static uint64_t event_ttl = 86400000;

static void do_event(store_t *store, size_t writer, unsigned key, once__event_kind_t kind)
{
    static const char name[] = "key";
    static uint8_t payload[700];
    once__op_t op = {.kind = ONCE__OP_EVENT,
                     .key = name,
                     .key_len = 3,
                     .payload = {ONCE__PAYLOAD_NONE, 0, NULL, 0},
                     .event = {.kind = kind,
                               .claim = store->claims[key],
                               .recover = ONCE_RECOVER_HOLD,
                               .lease_ms = 3600000,
                               .ttl_ms = event_ttl,
                               .fingerprint_count = 1,
                               .force = 1}};

    make_id(op.id, key);
    if (kind == ONCE__CLAIM) {
        once__put64(op.event.claim.id, key + 1);
    } else if (kind == ONCE__COMPLETE) {
        op.payload = (once__payload_t){ONCE__PAYLOAD_RESPONSE, 200, payload, sizeof(payload)};
    }
    assert_int_not_equal(once__records_apply(&store->writers[writer], &op), ONCE__DECIDED_LATER);
    assert_int_equal(op.error, ONCE_OK);
    free(op.record);
    if (kind == ONCE__CLAIM) {
        assert_int_equal(op.outcome, ONCE_OUTCOME_RUN);
        store->claims[key] = op.head.claim;
    }
}

/* A segment of the first writer, sealed: key 0 is pending, and a lot was removed before and behind it. */
static void make_victim(store_t *store, unsigned behind)
{
    do_event(store, 0, 1, ONCE__CLAIM);
    do_event(store, 0, 1, ONCE__PURGE);
    do_event(store, 0, 0, ONCE__CLAIM);
    for (unsigned i = 0; i < behind; i++) {
        do_event(store, 0, 2, ONCE__CLAIM);
        do_event(store, 0, 2, ONCE__PURGE);
    }
    assert_int_equal(once__log_sync(store->writers[0].log), ONCE_OK);
    assert_int_equal(once__log_retire(store->writers[0].log), ONCE_OK);
}

static uint32_t slot_of(const store_t *store, unsigned key)
{
    uint8_t id[ONCE_ID_SIZE];
    once__entry_t entry;

    make_id(id, key);
    assert_true(once__index_find(store->config.index, id, &entry));
    return entry.place.slot;
}

static uint64_t compact_all(store_t *store, int (*tend_to)(void *data))
{
    once__compaction_t compaction = {.tend = tend_to};

    assert_int_equal(once__records_compact(&store->compactor, &compaction), ONCE_OK);
    return compaction.segments;
}

static void test_older_frame_stays_until_the_newer_is_durable(void **state)
{
    store_t store;

    open_store(&store, 1);
    make_victim(&store, 2);
    do_event(&store, 1, 0, ONCE__COMPLETE); /* in another segment, which is not synced */
    assert_int_equal(compact_all(&store, NULL), 0);
    assert_int_equal(once__log_sync(store.writers[1].log), ONCE_OK);
    assert_int_equal(compact_all(&store, NULL), 1);
    store.expected[0] = look(&store.writers[1], 0);
    assert_int_equal(store.expected[0].state, ONCE_STATE_COMPLETED);
    read_anew(&store);
    close_store(&store);
}

/*
 * A compaction is stopped behind the copy of key 0. The copy goes, and so does the frame that says that key 0 was removed: unless
 * something keeps saying so, the frame in the victim counts again.
 */
static void test_removal_stays_beside_a_victim_that_is_half_done(void **state)
{
    store_t store;
    uint32_t victim;
    int fd;

    open_store(&store, 1);
    make_victim(&store, 150);
    victim = slot_of(&store, 0);
    assert_int_equal(compact_all(&store, stop_at_once), 0);
    assert_int_not_equal(slot_of(&store, 0), victim);
    assert_int_equal(once__log_retire(store.compactor.log), ONCE_OK);
    fd = once__segment_open(&store.config,
                            atomic_load(&once__index_segment(store.config.index, victim)->number),
                            O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0); /* as the stopped process has it */
    do_event(&store, 1, 0, ONCE__PURGE);
    assert_int_equal(once__log_sync(store.writers[1].log), ONCE_OK);
    assert_int_equal(once__log_retire(store.writers[1].log), ONCE_OK);
    assert_int_equal(compact_all(&store, NULL), 2); /* the copy's segment and the removal's */
    assert_int_equal(once__log_sync(store.compactor.log), ONCE_OK);
    assert_false(look(&store.writers[1], 0).found);
    read_anew(&store); /* nothing is expected to be there */
    (void)close(fd);
    assert_int_equal(compact_all(&store, NULL), 1);
    read_anew(&store);
    close_store(&store);
}

/* fsck and backup: neither by a compaction nor by a writer that has not used its segment. */
static void test_nothing_is_dropped_while_all_is_read(void **state)
{
    once__compaction_t compaction = {.thorough = 1};
    const once__segment_t *unused;
    store_t store;
    int lock;

    open_store(&store, 1);
    make_victim(&store, 2);
    assert_int_equal(once__segments_lock(store.config.segments_fd, LOCK_EX, 0, &lock), ONCE_OK);
    assert_int_equal(once__records_compact(&store.compactor, &compaction), ONCE_E_CONFLICT);
    assert_int_equal(once__log_reserve(store.writers[1].log, 100), ONCE_OK);
    unused = once__index_segment(store.config.index, once__log_slot(store.writers[1].log));
    assert_int_equal(once__log_retire(store.writers[1].log), ONCE_OK);
    assert_int_equal(atomic_load(&unused->state), ONCE__SEGMENT_SEALED);
    (void)close(lock);
    assert_int_equal(compact_all(&store, NULL), 2);
    close_store(&store);
}

/* A process was killed when it had dropped a segment, and had not freed its slot: a copy does without the segment. */
static void test_backup_beside_a_drop_that_was_killed(void **state)
{
    once_local_backup_report_t report = ONCE_LOCAL_BACKUP_REPORT_INIT;
    char url[128], copy[128], name[ONCE__SEGMENT_NAME], command[192];
    once_error_t err = {0};
    uint64_t number;
    store_t store;

    open_store(&store, 1);
    make_victim(&store, 2);
    number = atomic_load(&once__index_segment(store.config.index, slot_of(&store, 0))->number);
    do_event(&store, 1, 0, ONCE__PURGE);
    sync_all(&store);
    assert_int_equal(once__manifest_drop(&store.config, number), ONCE_OK);
    once__segment_name(name, number);
    assert_int_equal(unlinkat(store.config.segments_fd, name, 0), 0);
    (void)snprintf(url, sizeof(url), "local:%s", store.path);
    (void)snprintf(copy, sizeof(copy), "%s-copy", store.path);
    if (once_local_backup(url, copy, NULL, &report, &err) != ONCE_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(report.segments, 1); /* that of the removal */
    assert_int_equal(report.damaged, 0);
    (void)snprintf(command, sizeof(command), "rm -rf %s", copy);
    assert_int_equal(system(command), 0);
    assert_int_equal(compact_all(&store, NULL), 0); /* it only frees the slot */
    close_store(&store);
}

/*
 * While the first compaction runs, a segment becomes mostly dead by time, and a second one is stopped in the middle of it. What the
 * first one chooses from then on sees that.
 */
static int meanwhile(void *data)
{
    once__compaction_t second = {.thorough = 1, .limit = 1};
    store_t *store = data;

    if (!store->interrupted) {
        store->interrupted = 1;
        pass_time(store, 3600000);
        assert_int_equal(once__records_compact(&store->writers[2], &second), ONCE_OK);
        assert_int_equal(second.carried, 1);
        assert_int_equal(once__log_retire(store->writers[2].log), ONCE_OK);
        do_event(store, 1, 0, ONCE__PURGE);
        assert_int_equal(once__log_sync(store->writers[1].log), ONCE_OK);
        assert_int_equal(once__log_retire(store->writers[1].log), ONCE_OK);
    }
    return 0;
}

static void test_removal_stays_beside_a_victim_of_meanwhile(void **state)
{
    once__compaction_t first = {.tend = meanwhile};
    store_t store;

    open_store(&store, 1);
    first.data = &store;
    do_event(&store, 0, 0, ONCE__CLAIM);
    event_ttl = 1000;
    for (unsigned key = 3; key < 43; key++) {
        do_event(&store, 0, key, ONCE__CLAIM);
        do_event(&store, 0, key, ONCE__COMPLETE);
    }
    event_ttl = 86400000;
    assert_int_equal(once__log_retire(store.writers[0].log), ONCE_OK);
    for (unsigned i = 0; i < 150; i++) { /* in a segment that is dead from the beginning */
        do_event(&store, 0, 2, ONCE__CLAIM);
        do_event(&store, 0, 2, ONCE__PURGE);
    }
    assert_int_equal(once__log_retire(store.writers[0].log), ONCE_OK);
    assert_int_equal(once__records_compact(&store.compactor, &first), ONCE_OK);
    assert_int_equal(first.segments, 3); /* this one, the second one's copies, the removal's */
    assert_int_equal(once__log_sync(store.compactor.log), ONCE_OK);
    read_anew(&store); /* nothing is expected to be there */
    close_store(&store);
}

/* For frames: an entry of the manifest still finds some. */
static ssize_t no_room(void *data, int fd, const void *bytes, size_t len, uint64_t offset)
{
    char link[64], path[128] = "";

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    (void)!readlink(link, path, sizeof(path) - 1);
    if (strstr(path, ".log") == NULL) {
        return pwrite(fd, bytes, len, (off_t)offset);
    }
    errno = ENOSPC;
    return -1;
}

/* The copies stay in memory when the disk has no room. The next compaction has nothing to copy, and must not call them synced. */
static void test_victim_stays_until_its_copies_are_written(void **state)
{
    once__compaction_t compaction = {.thorough = 1};
    const once__segment_t *segment;
    uint64_t number;
    store_t store;

    open_store(&store, 1);
    make_victim(&store, 150);
    segment = once__index_segment(store.config.index, slot_of(&store, 0));
    number = atomic_load(&segment->number);
    assert_int_equal(once__log_reserve(store.compactor.log, 1000), ONCE_OK);
    store.disk.write = no_room;
    assert_int_equal(once__records_compact(&store.compactor, &compaction), ONCE_E_FULL);
    assert_int_not_equal(slot_of(&store, 0),
                         (uint32_t)(segment - once__index_segment(store.config.index, 0)));
    assert_int_equal(once__records_compact(&store.compactor, &compaction), ONCE_E_FULL);
    assert_int_equal(compaction.segments, 0);
    assert_int_equal(atomic_load(&segment->number), number);
    store.disk.write = NULL;
    assert_int_equal(compact_all(&store, NULL), 1);
    assert_int_not_equal(atomic_load(&segment->number), number);
    close_store(&store);
}

/* A segment that has what was claimed beside what came of it goes, though a little more than half is live: but copies stay. */
static void test_claims_beside_what_came_of_them_go(void **state)
{
    enum { SEGMENTS = 9, EACH = 5, DOUBTED = 3, AT_A_TIME = 8, ALL = SEGMENTS * EACH };
    store_t store;
    unsigned gone = 0;

    open_store(&store, 1);
    store.config.segment_size = 16 << 10; /* those are not small then */
    for (unsigned key = 0; key < ALL; key++) {
        do_event(&store, 0, key, ONCE__CLAIM);
        if (key % EACH < DOUBTED) {
            do_event(&store, 0, key, ONCE__DOUBT);
        } else if (key % EACH == EACH - 1) {
            assert_int_equal(once__log_retire(store.writers[0].log), ONCE_OK);
        }
    }
    assert_int_equal(compact_all(&store, NULL), AT_A_TIME);
    assert_int_equal(compact_all(&store, NULL), SEGMENTS - AT_A_TIME);
    assert_int_equal(once__log_retire(store.compactor.log), ONCE_OK);
    for (; gone < ALL * 4 / 10; gone++) {
        do_event(&store, 1, gone, ONCE__PURGE);
    }
    assert_int_equal(once__log_sync(store.writers[1].log), ONCE_OK);
    assert_int_equal(compact_all(&store, NULL), 0);
    for (; gone < ALL * 6 / 10; gone++) {
        do_event(&store, 1, gone, ONCE__PURGE);
    }
    assert_int_equal(once__log_sync(store.writers[1].log), ONCE_OK);
    assert_int_equal(compact_all(&store, NULL), 1);
    for (unsigned key = 0; key < KEYS; key++) {
        store.expected[key] = look(&store.writers[1], key);
        assert_int_equal(store.expected[key].found, key >= gone && key < ALL);
    }
    assert_int_equal(once__log_sync(store.compactor.log), ONCE_OK);
    read_anew(&store);
    close_store(&store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_victim_stays_until_its_copies_are_written),
        cmocka_unit_test(test_removal_stays_beside_a_victim_of_meanwhile),
        cmocka_unit_test(test_nothing_is_dropped_while_all_is_read),
        cmocka_unit_test(test_backup_beside_a_drop_that_was_killed),
        cmocka_unit_test(test_older_frame_stays_until_the_newer_is_durable),
        cmocka_unit_test(test_removal_stays_beside_a_victim_that_is_half_done),
        cmocka_unit_test(test_claims_beside_what_came_of_them_go),
        cmocka_unit_test(test_nothing_changes),
        cmocka_unit_test(test_nothing_changes_by_kills),
        cmocka_unit_test(test_everything_goes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
