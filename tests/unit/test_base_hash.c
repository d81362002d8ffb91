/* The hash table; its source is compiled into this test with an allocator that fails on demand. */
#include "support/testing.h"

#include <stdlib.h>
#include <string.h>

static int memory_is_short;

static void *failing_calloc(size_t count, size_t size)
{
    return memory_is_short ? NULL : calloc(count, size);
}

#define calloc failing_calloc
#include "../../lib/base/hash.c"
#undef calloc

#define COUNT 2000

typedef struct item {
    uint64_t key;
    once__hash_node_t node;
    int seen;
} item_t;

static item_t *find(const once__hash_t *table, uint64_t key, uint64_t hash)
{
    for (once__hash_node_t *node = once__hash_first(table, hash); node != NULL;
         node = once__hash_next(node)) {
        item_t *item = ONCE__CONTAINER(node, item_t, node);
        if (item->key == key) {
            return item;
        }
    }
    return NULL;
}

/* Adds all, removes every other, finds the rest and nothing else; `hash` is chosen by the caller to be good, or bad. */
static void use(uint64_t (*hash)(uint64_t), int growing_fails)
{
    static item_t items[COUNT];
    once__hash_t table;
    size_t seen = 0;

    memset(items, 0, sizeof(items));
    assert_int_equal(once__hash_init(&table, COUNT), 0);
    memory_is_short = growing_fails;
    for (uint64_t i = 0; i < COUNT; i++) {
        items[i].key = i;
        assert_null(find(&table, i, hash(i)));
        assert_int_equal(once__hash_add(&table, &items[i].node, hash(i)), 0);
    }
    memory_is_short = 0;
    assert_int_equal(table.count, COUNT);
    assert_true(growing_fails || table.mask + 1 >= COUNT / 2);
    for (uint64_t i = 0; i < COUNT; i += 2) {
        once__hash_remove(&table, &items[i].node);
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        assert_ptr_equal(find(&table, i, hash(i)), i % 2 == 0 ? NULL : &items[i]);
    }
    for (once__hash_node_t *node = once__hash_each(&table, NULL); node != NULL;
         node = once__hash_each(&table, node)) {
        item_t *item = ONCE__CONTAINER(node, item_t, node);
        assert_int_equal(item->key % 2, 1);
        assert_int_equal(item->seen++, 0);
        seen++;
    }
    assert_int_equal(seen, COUNT / 2);
    assert_int_equal(table.count, COUNT / 2);
    once__hash_free(&table);
}

static uint64_t all_the_same(uint64_t key)
{
    return 7;
}

static uint64_t one_bucket(uint64_t key)
{
    return key << 40;
}

static void finds_what_was_added(void **state)
{
    use(once__hash_number, 0);
}

static void collisions_only_cost_time(void **state)
{
    use(all_the_same, 0);
    use(one_bucket, 0);
}

static void growing_may_fail(void **state)
{
    use(once__hash_number, 1);
}

static void the_last_one_added_comes_first(void **state)
{
    item_t items[64] = {{0}};
    once__hash_t table;

    assert_int_equal(once__hash_init(&table, 1000), 0);
    for (size_t i = 0; i < 64; i++) { /* grows on the way */
        assert_int_equal(once__hash_add(&table, &items[i].node, 5), 0);
    }
    once__hash_node_t *node = once__hash_first(&table, 5);
    for (size_t i = 64; i-- > 0; node = once__hash_next(node)) {
        assert_ptr_equal(node, &items[i].node);
    }
    assert_null(node);
    once__hash_free(&table);
}

static void tables_are_bounded(void **state)
{
    item_t items[3] = {{0}};
    once__hash_t table;

    assert_int_equal(once__hash_init(&table, 2), 0);
    assert_int_equal(once__hash_add(&table, &items[0].node, 0), 0);
    assert_int_equal(once__hash_add(&table, &items[1].node, 1), 0);
    assert_int_equal(once__hash_add(&table, &items[2].node, 2), -1);
    assert_null(once__hash_first(&table, 2));
    once__hash_remove(&table, &items[0].node);
    assert_int_equal(once__hash_add(&table, &items[2].node, 2), 0);
    once__hash_free(&table);
    once__hash_free(&table);
    assert_null(once__hash_first(&table, 2));
    assert_null(once__hash_each(&table, NULL));
    memory_is_short = 1;
    assert_int_equal(once__hash_init(&table, 2), -1);
    memory_is_short = 0;
    once__hash_free(&table);
}

/* The example of the paper, and two of the authors' test vectors. */
static void data_is_hashed_by_siphash(void **state)
{
    const once__hash_seed_t seed = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
    const once__hash_seed_t other = {0x0706050403020101u, 0x0f0e0d0c0b0a0908u};
    uint8_t data[15];

    for (uint8_t i = 0; i < sizeof(data); i++) {
        data[i] = i;
    }
    assert_true(once__hash_data(&seed, data, 15) == 0xa129ca6149be45e5u);
    assert_true(once__hash_data(&seed, data, 0) == 0x726fdb47dd0e0e31u);
    assert_true(once__hash_data(&seed, data, 8) == 0x93f5f5799a932462u);
    assert_true(once__hash_data(&other, data, 15) != 0xa129ca6149be45e5u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_was_added), cmocka_unit_test(collisions_only_cost_time),
        cmocka_unit_test(growing_may_fail),     cmocka_unit_test(the_last_one_added_comes_first),
        cmocka_unit_test(tables_are_bounded),   cmocka_unit_test(data_is_hashed_by_siphash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
