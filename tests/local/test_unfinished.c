/*
 * A process finds no room for a segment, and removes the file. Before it has freed the slot, another one takes it for dead, frees
 * the slot, and uses it for a segment of its own: that one stays as it is.
 */
#include "place.h"

#include "support/testing.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define SIZE ((uint64_t)64 << 10)

static once__log_config_t healthy, full;
static once__own_t others; /* the segment of the other process */
static int armed;

int __real_unlinkat(int fd, const char *name, int flags);
int __wrap_unlinkat(int fd, const char *name, int flags);

/* Behind the removal of the file: the moment of the other process. */
int __wrap_unlinkat(int fd, const char *name, int flags)
{
    int code = __real_unlinkat(fd, name, flags);

    if (armed && strstr(name, ".new") != NULL) {
        armed = 0;
        for (uint32_t slot = 0; slot < once__index_slot_end(healthy.index); slot++) {
            if (atomic_load(&once__index_segment(healthy.index, slot)->state) ==
                ONCE__SEGMENT_PREPARING) {
                once__segment_discard_unfinished(&healthy, slot);
            }
        }
        assert_int_equal(once__segment_make(&healthy, SIZE, NULL, 0, 0, &others), ONCE_OK);
    }
    return code;
}

static int no_room(void *data, int fd, uint64_t size)
{
    errno = ENOSPC;
    return -1;
}

static void test_a_slot_is_freed_once(void **state)
{
    char base[PLACE_SIZE], path[PLACE_SIZE];
    once__disk_t disk = once__real_disk;
    const once__segment_t *segment;
    const once__buffer_t *buffer;
    uint64_t room;
    once__own_t own;
    once_t *once;
    peek_t peek;

    place_make(base);
    place_join(path, base, "store");
    once = place_open(path, "segment=64k&reap=off&renew=off", NULL);
    peek_open(&peek, path);
    healthy = peek.directory.log;
    healthy.segment_size = SIZE;
    full = healthy;
    disk.allocate = no_room;
    full.disk = &disk;
    armed = 1;
    assert_int_equal(once__segment_make(&full, SIZE, NULL, 0, 0, &own), ONCE_E_FULL);
    assert_int_equal(armed, 0);
    segment = once__index_segment(peek.index, others.slot);
    buffer = once__buffer_of(peek.index, others.slot, &room);
    assert_int_equal(atomic_load(&segment->number), others.number);
    assert_int_equal(atomic_load(&segment->state), ONCE__SEGMENT_ACTIVE);
    assert_ptr_equal(buffer, others.buffer);
    assert_int_equal(atomic_load(&buffer->number), others.number);
    once__segment_seal(&healthy, &others);
    peek_close(&peek);
    assert_int_equal(once_close(once, 5000), ONCE_OK);
    place_remove(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_slot_is_freed_once)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
