/*
 * The pages of the index file: no page is handed out twice, what is given back is handed out again, and the file grows only when
 * nothing is free.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/local/index_pages.h"
#include "support/testing.h"

#define RUNS 400

static once__index_t *make(char *path)
{
    static const uint8_t boot[ONCE__BOOT_ID_SIZE] = {1};
    once__index_t *index = NULL;
    int fd;

    assert_non_null(mkdtemp(path));
    fd = open(path, O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0);
    assert_int_equal(once__index_open(&index, fd, boot, 1, NULL), ONCE_OK);
    (void)unlinkat(fd, "index", 0);
    (void)close(fd);
    (void)rmdir(path);
    return index;
}

static void pages_are_nobody_elses(void **state)
{
    char path[] = "/tmp/once-pages-XXXXXX";
    once__index_t *index = make(path);
    uint32_t first[RUNS], count[RUNS];
    uint64_t end;

    for (uint32_t i = 0; i < RUNS; i++) {
        count[i] = i * 7 % 11 + 1;
        first[i] = once__pages_take(index, count[i]);
        assert_true(first[i] * (uint64_t)ONCE__INDEX_PAGE >= sizeof(once__index_header_t));
        for (uint32_t j = 0; j < i; j++) {
            assert_true(first[j] + count[j] <= first[i] || first[i] + count[i] <= first[j]);
        }
    }
    end = atomic_load(&index->map->end);
    for (uint32_t i = 0; i < RUNS; i += 2) {
        memset((char *)index->map + (uint64_t)first[i] * ONCE__INDEX_PAGE, 1, ONCE__INDEX_PAGE);
        once__pages_give(index, first[i], count[i]);
    }
    for (uint32_t i = 0; i < RUNS; i += 2) {
        const char *page;
        first[i] = once__pages_take(index, count[i]);
        page = (const char *)index->map + (uint64_t)first[i] * ONCE__INDEX_PAGE;
        assert_int_equal(page[0], 0);
        for (uint32_t j = 0; j < RUNS; j++) {
            assert_true(j == i || (j > i && j % 2 == 0) || first[j] + count[j] <= first[i] ||
                        first[i] + count[i] <= first[j]);
        }
    }
    assert_int_equal(atomic_load(&index->map->end), end);
    once__index_close(index);
}

static void neighbours_join(void **state)
{
    char path[] = "/tmp/once-pages-XXXXXX";
    once__index_t *index = make(path);
    uint32_t a = once__pages_take(index, 3), b = once__pages_take(index, 3);

    assert_true(once__pages_take(index, 1) == b + 3);
    once__pages_give(index, b, 3);
    once__pages_give(index, a, 3);
    assert_int_equal(once__pages_take(index, 6), a);
    once__index_close(index);
}

/* ------------------------------------------------------------------------------------------------- while it grows */

#define GROWTHS 150

typedef struct {
    once__index_t *index;
    atomic_int done;
} grower_t;

static void *grow(void *data)
{
    grower_t *grower = data;

    for (int i = 0; i < GROWTHS; i++) {
        (void)once__pages_take(grower->index, 256);
    }
    atomic_store(&grower->done, 1);
    return NULL;
}

/* Whoever looks between two growths must never take the index for one that was cut short: he would never use it again. */
static void it_is_whole_while_it_grows(void **state)
{
    char path[] = "/tmp/once-pages-XXXXXX";
    grower_t grower = {.index = make(path)};
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, grow, &grower), 0);
    while (!atomic_load(&grower.done)) {
        assert_true(once__index_is_whole(grower.index, -1));
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(ftruncate(grower.index->fd, (off_t)sizeof(once__index_header_t)), 0);
    assert_false(once__index_is_whole(grower.index, -1));
    once__index_close(grower.index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_nobody_elses),
        cmocka_unit_test(neighbours_join),
        cmocka_unit_test(it_is_whole_while_it_grows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
