/*
 * The memory store's table: bounds, reaping, many records, and that its answers are copies.
 */
#include "support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "store/memory/table.h"

static void make_id(uint8_t id[ONCE_ID_SIZE], unsigned n)
{
    memset(id, 0, ONCE_ID_SIZE);
    /* Few different first bytes: long runs in the index. */
    once__put32(id, n % 7);
    once__put32(id + 4, n);
}

static void claim(once__table_t *table, once__op_t *op, unsigned n, uint64_t now)
{
    memset(op, 0, sizeof(*op));
    op->kind = ONCE__OP_EVENT;
    op->event.kind = ONCE__CLAIM;
    op->event.lease_ms = 1000;
    op->event.ttl_ms = 5000;
    op->event.fingerprint_count = 1;
    once__put32(op->event.claim.id, n + 1);
    op->key = "key";
    op->key_len = 3;
    make_id(op->id, n);
    once__table_apply(table, op, now);
}

static void finish(once__table_t *table, once__op_t *op, size_t len, uint64_t now)
{
    static uint8_t data[100000];
    once__claim_ref_t ref = op->head.claim;

    op->event = (once__event_t){.kind = ONCE__COMPLETE, .claim = ref};
    op->payload = (once__payload_t){ONCE__PAYLOAD_RESPONSE, 200, data, len};
    once__table_apply(table, op, now);
}

static void many_records_come_and_go(void **state)
{
    static const once__limits_t limits = {100000, (uint64_t)1 << 30};
    once__table_t *table = once__table_new(&once__rules, &limits);
    uint8_t id[ONCE_ID_SIZE];
    once__op_t op;

    for (unsigned n = 0; n < 3000; n++) {
        claim(table, &op, n, 10);
        assert_int_equal(op.outcome, ONCE_OUTCOME_RUN);
        if (n % 3 != 0) {
            finish(table, &op, 10, 10);
            assert_int_equal(op.outcome, ONCE_OUTCOME_DONE);
        }
    }
    op = (once__op_t){.kind = ONCE__OP_REAP, .limit = 500};
    once__table_apply(table, &op, 5010);
    assert_int_equal(op.count, 500);
    op.limit = 0;
    once__table_apply(table, &op, 5010);
    assert_int_equal(op.count, 1500);
    for (unsigned n = 0; n < 3000; n++) {
        make_id(id, n);
        assert_int_equal(once__table_peek(table, id) != NULL, n % 3 == 0);
    }
    once__table_apply(table, &op, 10 + 1000 + 5000); /* abandoned for a retention */
    assert_int_equal(op.count, 1000);
    once__table_free(table);
}

static void a_full_table_says_so_and_heals(void **state)
{
    static const once__limits_t limits = {10, (uint64_t)1 << 30};
    once__table_t *table = once__table_new(&once__rules, &limits);
    once__op_t op;

    for (unsigned n = 0; n < 10; n++) {
        claim(table, &op, n, 10);
        finish(table, &op, 10, 10);
    }
    claim(table, &op, 10, 20);
    assert_int_equal(op.error, ONCE_E_FULL);
    claim(table, &op, 3, 20); /* what is there is still answered */
    assert_int_equal(op.outcome, ONCE_OUTCOME_REPLAY);
    free(op.record);
    claim(table, &op, 10, 5010);
    assert_int_equal(op.error, ONCE_OK);
    assert_int_equal(op.outcome, ONCE_OUTCOME_RUN);
    once__table_free(table);
}

static void bytes_are_bounded_too(void **state)
{
    static const once__limits_t limits = {1000, 120000};
    once__table_t *table = once__table_new(&once__rules, &limits);
    once__op_t op, other;

    claim(table, &op, 1, 10);
    finish(table, &op, 100000, 10);
    assert_int_equal(op.error, ONCE_OK);
    claim(table, &other, 2, 10);
    finish(table, &other, 100000, 10);
    assert_int_equal(other.error, ONCE_E_FULL);
    op = (once__op_t){.kind = ONCE__OP_STATS};
    once__table_apply(table, &op, 10);
    assert_int_equal(op.stats.pending, 1);
    assert_int_equal(op.stats.completed, 1);
    assert_in_range(op.stats.bytes, 100000, 120000);
    claim(table, &other, 2, 10);
    assert_int_equal(other.outcome, ONCE_OUTCOME_RUN); /* the claim is still its holder's */
    finish(table, &other, 100000, 5010); /* and there is room when the other one expired */
    assert_int_equal(other.error, ONCE_OK);
    once__table_free(table);
}

/* Making room for a late completion must not remove the very record that is being completed. */
static void a_record_being_written_is_not_reaped(void **state)
{
    static const once__limits_t limits = {1000, 1500};
    once__table_t *table = once__table_new(&once__rules, &limits);
    uint8_t id[ONCE_ID_SIZE];
    once__op_t op;

    claim(table, &op, 1, 10);
    finish(table, &op, 50000, 10 + 1000 + 5000); /* abandoned long ago, and too big */
    assert_int_equal(op.error, ONCE_E_FULL);
    make_id(id, 1);
    assert_non_null(once__table_peek(table, id));
    once__table_free(table);
}

static void answers_are_copies(void **state)
{
    static const once__limits_t limits = {1000, (uint64_t)1 << 30};
    once__table_t *table = once__table_new(&once__rules, &limits);
    once__op_t op, purge;

    claim(table, &op, 1, 10);
    finish(table, &op, 77, 10);
    claim(table, &op, 1, 11);
    assert_int_equal(op.outcome, ONCE_OUTCOME_REPLAY);
    purge = (once__op_t){.kind = ONCE__OP_EVENT,
                         .event = {.kind = ONCE__PURGE, .claim = op.head.claim}};
    make_id(purge.id, 1);
    once__table_apply(table, &purge, 12);
    assert_int_equal(purge.outcome, ONCE_OUTCOME_DONE);
    assert_null(once__table_peek(table, purge.id));
    assert_int_equal(op.record->payload.len, 77);
    assert_memory_equal(op.record->key, "key", 3);
    free(op.record);
    once__table_free(table);
}

static void a_swap_of_secrets_is_recognised_when_it_is_repeated(void **state)
{
    static const once__limits_t limits = {10, 10000};
    once__table_t *table = once__table_new(&once__rules, &limits);
    char text[ONCE__SECRETS_TEXT_SIZE];
    once__op_t op = {.kind = ONCE__OP_SECRETS_LOAD, .secrets_new = "one", .secrets = text};

    once__table_apply(table, &op, 1);
    assert_string_equal(text, "one");
    op.secrets_new = "another";
    once__table_apply(table, &op, 1);
    assert_string_equal(text, "one");
    op.kind = ONCE__OP_SECRETS_SWAP;
    op.secrets_old = "one";
    op.secrets_new = "two";
    once__table_apply(table, &op, 1);
    assert_int_equal(op.error, ONCE_OK);
    once__table_apply(table, &op, 1);
    assert_int_equal(op.error, ONCE_OK);
    op.secrets_new = "three";
    once__table_apply(table, &op, 1);
    assert_int_equal(op.error, ONCE_E_CONFLICT);
    once__table_free(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_records_come_and_go),
        cmocka_unit_test(a_full_table_says_so_and_heals),
        cmocka_unit_test(bytes_are_bounded_too),
        cmocka_unit_test(a_record_being_written_is_not_reaped),
        cmocka_unit_test(answers_are_copies),
        cmocka_unit_test(a_swap_of_secrets_is_recognised_when_it_is_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
