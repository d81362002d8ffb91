/*
 * Opening a local store: an index that was left is used if the log is exactly what it says, and made anew otherwise. Files that are
 * no part of the log go, or keep the store from opening.
 */
#include "support/testing.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "store/local/directory.h"
#include "store/local/log.h"

#define SEGMENT ((uint64_t)4 << 20)

typedef struct place {
    char top[64], path[80];
    once__directory_t directory;
    once__log_config_t config;
    once__log_t *log;
    once_error_t err;
} place_t;

static uint8_t *id_of(unsigned n)
{
    static uint8_t id[ONCE_ID_SIZE];

    memset(id, 0, sizeof(id));
    once__put64(id, (uint64_t)(n + 1) * 0x9e3779b97f4a7c15u);
    once__put64(id + 8, (uint64_t)(n + 1) * 0xc2b2ae3d27d4eb4fu);
    return id;
}

static void make_place(place_t *place)
{
    memset(place, 0, sizeof(*place));
    strcpy(place->top, "/tmp/once-verify-XXXXXX");
    assert_non_null(mkdtemp(place->top));
    snprintf(place->path, sizeof(place->path), "%s/store", place->top);
}

static int try_open(place_t *place, uint64_t timeout_ms)
{
    once__directory_config_t config = {.path = place->path, .timeout_ms = timeout_ms};
    int code;

    memset(&place->err, 0, sizeof(place->err));
    code = once__directory_open(&place->directory, &config, &place->err);
    if (code == ONCE_OK) {
        place->config = place->directory.log;
        place->config.segment_size = SEGMENT;
    }
    return code;
}

static void open_place(place_t *place)
{
    if (try_open(place, 1000) != ONCE_OK) {
        print_error("%s\n", place->err.text);
        fail();
    }
}

/* As a process that is killed: locks and memory go, the index stays. */
static void kill_place(place_t *place)
{
    if (place->log != NULL) {
        once__log_abandon(place->log);
    }
    place->log = NULL;
    once__directory_leave(&place->directory);
}

static void close_place(place_t *place)
{
    if (place->log != NULL) {
        assert_int_equal(once__log_close(place->log), ONCE_OK);
    }
    place->log = NULL;
    once__directory_close(&place->directory);
}

static void remove_place(place_t *place)
{
    char command[128];

    open_place(place);
    close_place(place); /* removes the index */
    snprintf(command, sizeof(command), "rm -r %s", place->top);
    assert_int_equal(system(command), 0);
}

/* Appends a pending record and enters it. */
static void put(place_t *place, unsigned n)
{
    once__index_t *index = place->directory.log.index;
    once__record_t record = {.head = {.schema = ONCE__SCHEMA,
                                      .state = ONCE_STATE_PENDING,
                                      .claim = {.epoch = 1},
                                      .lease_until = 2000,
                                      .lease_ms = 1000,
                                      .changed = 1000,
                                      .ttl_ms = 5000,
                                      .created = 1000},
                             .key = "key",
                             .key_len = 3};
    once__entry_t entry = {.state = ONCE_STATE_PENDING};
    once__weight_t weight = {.until = 7000}, none = {0, 0};
    uint64_t version;

    memcpy(record.id, id_of(n), ONCE_ID_SIZE);
    if (place->log == NULL) {
        place->log = once__log_open(&place->config);
        assert_non_null(place->log);
    }
    assert_int_equal(once__log_reserve(place->log, 4096), ONCE_OK);
    assert_int_equal(once__index_lock(index, record.id, 0), ONCE_OK);
    assert_int_equal(once__index_make_room(index, record.id), ONCE_OK);
    version = once__index_next_version(index, record.id, once__index_now(index));
    assert_int_equal(
        once__log_append(place->log, record.id, &record, version, 0, &entry.place, &weight.size),
        ONCE_OK);
    once__index_set(index, record.id, &entry, weight, NULL, none);
    once__index_unlock(index, record.id);
}

static void put_durably(place_t *place, unsigned n)
{
    put(place, n);
    assert_int_equal(once__log_sync(place->log), ONCE_OK);
}

static int has(const place_t *place, unsigned n)
{
    once__entry_t entry;

    return once__index_find(place->directory.log.index, id_of(n), &entry);
}

static uint64_t identity(const place_t *place)
{
    return once__index_identity(place->directory.log.index);
}

__attribute__((format(printf, 2, 3))) static void shell(const place_t *place, const char *format,
                                                        ...)
{
    char command[512] = "", text[400];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    snprintf(command, sizeof(command), "cd %s && %s", place->top, text);
    assert_int_equal(system(command), 0);
}

/* The name of the newest segment, in store/segments. */
static const char *newest(const place_t *place)
{
    static char name[ONCE__SEGMENT_NAME];
    uint64_t number = 0;

    for (uint32_t slot = 0; slot < once__index_slot_end(place->directory.log.index); slot++) {
        uint64_t n = atomic_load(&once__index_segment(place->directory.log.index, slot)->number);
        number = n > number ? n : number;
    }
    once__segment_name(name, number);
    return name;
}

/* --------------------------------------------------------------------------------------------------------- an index left */

static void the_index_of_a_killed_process_is_used(void **state)
{
    place_t place;
    uint64_t index;

    make_place(&place);
    open_place(&place);
    index = identity(&place);
    put_durably(&place, 1);
    put_durably(&place, 2);
    put(&place, 3); /* is only in the write buffer */
    kill_place(&place);
    open_place(&place);
    assert_true(identity(&place) == index);
    assert_true(has(&place, 1) && has(&place, 2) && has(&place, 3));
    for (uint32_t slot = 0; slot < once__index_slot_end(place.directory.log.index); slot++) {
        assert_int_not_equal(
            atomic_load(&once__index_segment(place.directory.log.index, slot)->state),
            ONCE__SEGMENT_ACTIVE);
    }
    kill_place(&place);
    open_place(&place); /* and again, now that everything is sealed */
    assert_true(identity(&place) == index);
    kill_place(&place);
    remove_place(&place);
}

static void a_small_index_goes_with_the_last_process(void **state)
{
    place_t place, other;
    uint64_t index;

    make_place(&place);
    open_place(&place);
    put_durably(&place, 1);
    index = identity(&place);
    other = place;
    open_place(&other);
    assert_true(identity(&other) == index);
    other.log = NULL;
    close_place(&other); /* not the last one */
    open_place(&other);
    assert_true(identity(&other) == index);
    close_place(&other);
    close_place(&place);
    open_place(&place);
    assert_true(identity(&place) != index);
    assert_true(has(&place, 1));
    close_place(&place);
    remove_place(&place);
}

static void an_index_newer_than_the_log_is_not_believed(void **state)
{
    enum { SYNCED, WRITTEN, SEALED, KINDS };

    for (int kind = 0; kind < KINDS; kind++) {
        place_t place;
        uint64_t index;

        make_place(&place);
        open_place(&place);
        put_durably(&place, 1);
        shell(&place, "cp -a store/segments before");
        if (kind != WRITTEN) {
            put_durably(&place, 2);
        } else {
            /* More than the write buffer has room for: in the file, but not synced. */
            for (unsigned n = 2; n < 3000; n++) {
                put(&place, n);
            }
        }
        index = identity(&place);
        kill_place(&place);
        if (kind == SEALED) {
            open_place(&place);
            assert_true(identity(&place) == index);
            kill_place(&place);
        }
        /* The filesystem comes back without its last writes: the same files, the same directory. */
        shell(&place, "for f in before/*; do cat $f > store/segments/${f#before/}; done");
        if (kind != WRITTEN) { /* what was durable is gone: that is for a person to accept */
            assert_int_equal(try_open(&place, 1000), ONCE_E_CORRUPT);
            assert_non_null(strstr(place.err.text, "lacks records that were durable"));
            shell(&place, "rm /dev/shm/once-$(sed -n 's/^id //p' store/format)-* store/index");
        }
        open_place(&place);
        assert_true(identity(&place) != index);
        assert_true(has(&place, 1));
        assert_false(has(&place, 2));
        kill_place(&place);
        shell(&place, "rm -r store; mkdir store; chmod 700 store");
        remove_place(&place);
    }
}

static void an_index_older_than_the_log_is_not_used(void **state)
{
    place_t place;
    uint64_t index;

    make_place(&place);
    open_place(&place);
    put_durably(&place, 1);
    index = identity(&place);
    kill_place(&place);
    shell(&place, "ls -t /dev/shm/once-$(sed -n 's/^id //p' store/format)-* | head -1 > name");
    shell(&place, "cp $(cat name) index");
    open_place(&place);
    put_durably(&place, 2);
    kill_place(&place);
    shell(&place, "rm $(cat name); cp index $(cat name); chmod 600 $(cat name)");
    open_place(&place);
    assert_true(identity(&place) != index);
    assert_true(has(&place, 1) && has(&place, 2));
    kill_place(&place);
    remove_place(&place);
}

static void another_file_in_place_of_a_segment_is_noticed(void **state)
{
    place_t place, other;

    make_place(&place);
    open_place(&place);
    put_durably(&place, 1);
    make_place(&other);
    open_place(&other);
    put_durably(&other, 1);
    kill_place(&other);
    kill_place(&place);
    shell(&place, "cat %s/segments/0000000000000001.log > store/segments/0000000000000001.log",
          other.path);
    assert_int_equal(try_open(&place, 1000), ONCE_E_CORRUPT); /* of another store */
    assert_non_null(strstr(place.err.text, "segment 0000000000000001 has a damaged header"));
    shell(&place, "rm -r store; mkdir store; chmod 700 store");
    remove_place(&place);
    remove_place(&other);
}

static void a_missing_segment_is_noticed(void **state)
{
    place_t place;

    make_place(&place);
    open_place(&place);
    put_durably(&place, 1);
    shell(&place, "mv store/segments/%s aside", newest(&place));
    kill_place(&place);
    assert_int_equal(try_open(&place, 1000), ONCE_E_CORRUPT);
    assert_non_null(strstr(place.err.text, "segment 0000000000000001 is missing; restore it"));
    shell(&place, "mv aside store/segments/0000000000000001.log");
    open_place(&place);
    assert_true(has(&place, 1));
    kill_place(&place);
    remove_place(&place);
}

/* ----------------------------------------------------------------------------------------------------- files that are not */

static int exists(const place_t *place, const char *name)
{
    char path[200];

    snprintf(path, sizeof(path), "%s/segments/%s", place->path, name);
    return access(path, F_OK) == 0;
}

static void what_is_no_part_of_the_log_goes(void **state)
{
    uint64_t number;
    uint32_t slot;
    place_t place;

    make_place(&place);
    open_place(&place);
    put_durably(&place, 1);
    kill_place(&place);
    open_place(&place);
    /* A killed process left these: a segment that was being made, one that was dropped. */
    shell(&place, "cd store/segments; echo x > 00000000000000aa.new; echo x > manifest.new");
    shell(&place, "cp store/segments/0000000000000001.log store/segments/00000000000000bb.log");
    assert_int_equal(once__manifest_add(&place.config, 0xbb), ONCE_OK);
    assert_int_equal(once__manifest_drop(&place.config, 0xbb), ONCE_OK);
    kill_place(&place);
    open_place(&place);
    assert_false(exists(&place, "00000000000000aa.new"));
    assert_false(exists(&place, "manifest.new"));
    assert_false(exists(&place, "00000000000000bb.log"));
    assert_true(exists(&place, "0000000000000001.log"));
    assert_int_equal(once__index_take_slot(place.directory.log.index, &slot, &number), ONCE_OK);
    assert_true(number > 0xbb); /* no number is used twice */
    kill_place(&place);
    open_place(&place); /* the slot of a killed process is free again */
    assert_int_equal(atomic_load(&once__index_segment(place.directory.log.index, slot)->state),
                     ONCE__SEGMENT_FREE);
    kill_place(&place);
    remove_place(&place);
}

static void a_segment_that_the_manifest_does_not_know_is_refused(void **state)
{
    place_t place;

    make_place(&place);
    open_place(&place);
    shell(&place, "cp store/segments/manifest manifest"); /* an older one */
    put_durably(&place, 1);
    kill_place(&place);
    shell(&place, "cp manifest store/segments/manifest");
    assert_int_equal(try_open(&place, 1000), ONCE_E_CORRUPT);
    assert_non_null(strstr(place.err.text, "0000000000000001.log is not in the manifest"));
    assert_true(exists(&place, "0000000000000001.log"));
    shell(&place, "rm store/segments/manifest");
    assert_int_equal(try_open(&place, 1000), ONCE_E_CORRUPT);
    assert_non_null(strstr(place.err.text, "segments/manifest is missing; restore it"));
    shell(&place, "rm -r store; mkdir store; chmod 700 store");
    remove_place(&place);
}

/* ---------------------------------------------------------------------------------------------------------- among others */

static void an_index_that_is_not_the_one_in_use_is_refused(void **state)
{
    place_t place, other;

    make_place(&place);
    open_place(&place);
    other = place;
    shell(&place,
          "cp store/index index; printf 12345678 > store/index"); /* another one is in use */
    assert_int_equal(try_open(&other, 5000), ONCE_E_CONFLICT);
    assert_non_null(strstr(other.err.text, "other programs use"));
    assert_non_null(strstr(other.err.text, "must share /dev/shm"));
    shell(&place, "cp index store/index");
    open_place(&other);
    close_place(&other);
    close_place(&place);
    remove_place(&place);
}

/* The process that was alone has not compared it with the log yet, or was killed before. */
static void an_index_that_is_not_compared_is_not_joined(void **state)
{
    place_t place, other;

    make_place(&place);
    open_place(&place);
    other = place;
    atomic_store(&place.directory.log.index->map->doubted, 1);
    assert_int_equal(try_open(&other, 50), ONCE_E_CONFLICT);
    atomic_store(&place.directory.log.index->map->doubted, 0);
    open_place(&other);
    close_place(&other);
    close_place(&place);
    remove_place(&place);
}

static void waiting_for_one_that_is_alone_has_an_end(void **state)
{
    place_t place;
    char path[128];
    int fd;

    make_place(&place);
    open_place(&place);
    close_place(&place);
    snprintf(path, sizeof(path), "%s/segments", place.path);
    fd = open(path, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(try_open(&place, 50), ONCE_E_CONFLICT);
    assert_non_null(strstr(place.err.text, "another program has"));
    close(fd);
    open_place(&place);
    close_place(&place);
    remove_place(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_index_of_a_killed_process_is_used),
        cmocka_unit_test(a_small_index_goes_with_the_last_process),
        cmocka_unit_test(an_index_newer_than_the_log_is_not_believed),
        cmocka_unit_test(an_index_older_than_the_log_is_not_used),
        cmocka_unit_test(another_file_in_place_of_a_segment_is_noticed),
        cmocka_unit_test(a_missing_segment_is_noticed),
        cmocka_unit_test(what_is_no_part_of_the_log_goes),
        cmocka_unit_test(a_segment_that_the_manifest_does_not_know_is_refused),
        cmocka_unit_test(an_index_that_is_not_the_one_in_use_is_refused),
        cmocka_unit_test(an_index_that_is_not_compared_is_not_joined),
        cmocka_unit_test(waiting_for_one_that_is_alone_has_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
