/* Schedules that let an operation take effect twice, or that hid that it had (I1, I2, I3, F7a, I8). See traces.h. */
#include "traces.h"

#include "script.h"

#define assert_row(script, name) assert_string_equal((script)->row, name)

/* --------------------------------------------------------------- the transactional door (I1, I8) */

/* A zombie of the first record meets a second one with the same epoch. Returns what its once.complete is answered. */
static uint8_t play_l3(script_t *s)
{
    script_claim(s, CLAIM_A, ONCE_RECOVER_RETRY, 0);
    script_write(s, ONCE__DOUBT, CLAIM_A, 1);
    script_lease_over(s);
    assert_int_equal(script_claim(s, CLAIM_B, ONCE_RECOVER_RETRY, 0), ONCE_OUTCOME_RUN);
    assert_int_equal(script_transaction(s, CLAIM_B, 2), ONCE_OUTCOME_DONE);
    script_ttl_over(s);
    assert_int_equal(script_claim(s, CLAIM_C, ONCE_RECOVER_RETRY, 0), ONCE_OUTCOME_RUN);
    assert_int_equal(s->head.claim.epoch, 1);
    return script_transaction(s, CLAIM_A, 1);
}

void trace_l3(void **state)
{
    script_t s;

    script_begin(&s);
    assert_int_equal(play_l3(&s), ONCE_OUTCOME_LOST);
    assert_int_equal(s.effects, 1);
    assert_int_equal(s.head.state, ONCE_STATE_PENDING);
    script_begin(&s);
    s.epochs_only = 1;
    assert_int_equal(play_l3(&s), ONCE_OUTCOME_DONE);
    assert_int_equal(s.effects, 2);
}

/* The same transaction a second time: its COMMIT reply was lost, or the request reached the backend twice. */
static uint8_t play_twice(script_t *s)
{
    script_claim(s, CLAIM_A, ONCE_RECOVER_TRANSACTIONAL, 0);
    assert_int_equal(script_transaction(s, CLAIM_A, 1), ONCE_OUTCOME_DONE);
    return script_transaction(s, CLAIM_A, 1);
}

void trace_m3(void **state)
{
    script_t s;

    script_begin(&s);
    assert_int_equal(play_twice(&s), ONCE_OUTCOME_ALREADY);
    assert_int_equal(s.effects, 1);
    script_begin_mutant(&s, "idempotent-sql");
    play_twice(&s);
    assert_int_equal(s.effects, 2);
}

/* As M3, but the first copy's gateway has meanwhile said what it saw: that changes nothing. */
void trace_m4(void **state)
{
    script_t s;

    script_begin(&s);
    script_claim(&s, CLAIM_A, ONCE_RECOVER_TRANSACTIONAL, 0);
    assert_int_equal(script_transaction(&s, CLAIM_A, 1), ONCE_OUTCOME_DONE);
    assert_int_equal(script_write(&s, ONCE__COMPLETE, CLAIM_A, 1), ONCE_OUTCOME_ALREADY);
    assert_int_equal(script_transaction(&s, CLAIM_A, 1), ONCE_OUTCOME_ALREADY);
    assert_int_equal(s.effects, 1);
    script_begin_mutant(&s, "complete-twice");
    play_twice(&s);
    assert_int_equal(s.effects, 2);
}

static uint8_t play_m1(script_t *s)
{
    script_claim(s, CLAIM_A, ONCE_RECOVER_RETRY, 0);
    script_lease_over(s);
    assert_int_equal(script_claim(s, CLAIM_B, ONCE_RECOVER_RETRY, 0), ONCE_OUTCOME_RUN);
    return script_transaction(s, CLAIM_A, 1);
}

void trace_m1(void **state)
{
    script_t s;

    script_begin(&s);
    assert_int_equal(play_m1(&s), ONCE_OUTCOME_LOST);
    assert_row(&s, "complete: stale");
    assert_int_equal(s.head.state, ONCE_STATE_PENDING);
    assert_int_equal(script_transaction(&s, CLAIM_B, 2), ONCE_OUTCOME_DONE);
    assert_int_equal(s.effects, 1);
    /* Without the comparison there is still one effect: only the record tells that a stale claim wrote it. */
    script_begin_mutant(&s, "complete-any-claim");
    assert_int_equal(play_m1(&s), ONCE_OUTCOME_DONE);
    assert_int_equal(s.head.state, ONCE_STATE_COMPLETED);
    assert_int_equal(s.head.claim.epoch, 2);
}

/* A gateway that timed out says so after the backend has committed. */
static uint8_t play_m2(script_t *s)
{
    script_claim(s, CLAIM_A, ONCE_RECOVER_TRANSACTIONAL, 0);
    assert_int_equal(script_transaction(s, CLAIM_A, 1), ONCE_OUTCOME_DONE);
    return script_write(s, ONCE__DOUBT, CLAIM_A, 1);
}

void trace_m2(void **state)
{
    script_t s;

    script_begin(&s);
    assert_int_equal(play_m2(&s), ONCE_OUTCOME_ALREADY);
    assert_int_equal(s.head.state, ONCE_STATE_COMPLETED);
    script_begin_mutant(&s, "doubt-completed");
    assert_int_equal(play_m2(&s), ONCE_OUTCOME_DONE);
    assert_int_equal(s.head.state, ONCE_STATE_UNKNOWN);
}

/* A live transaction is not refused because its gateway stopped waiting. */
static uint8_t play_l17(script_t *s)
{
    script_claim(s, CLAIM_A, ONCE_RECOVER_HOLD, 0);
    script_write(s, ONCE__DOUBT, CLAIM_A, 1);
    assert_int_equal(s->head.state, ONCE_STATE_UNKNOWN);
    return script_transaction(s, CLAIM_A, 1);
}

void trace_l17(void **state)
{
    script_t s;

    script_begin(&s);
    assert_int_equal(play_l17(&s), ONCE_OUTCOME_DONE);
    assert_int_equal(s.head.state, ONCE_STATE_COMPLETED);
    assert_int_equal(s.effects, 1);
    script_begin_mutant(&s, "complete-not-unknown");
    assert_int_equal(play_l17(&s), ONCE_OUTCOME_LOST);
    assert_int_equal(s.effects, 0);
}

/* ------------------------------------------------------------------------- hold, plain door (I2) */

/*
 * Permitted: a status that the operator listed as "before any effect" came after one. The record says failed, because it was
 * told so. With the status not listed it is doubt, and the second request is answered unknown.
 */
void trace_l5(void **state)
{
    script_t s;

    script_begin(&s);
    script_claim(&s, CLAIM_A, ONCE_RECOVER_HOLD, 0);
    script_effect(&s, 0);
    assert_int_equal(script_write(&s, ONCE__RELEASE, CLAIM_A, 1), ONCE_OUTCOME_DONE);
    assert_int_equal(s.head.state, ONCE_STATE_FAILED);
    assert_int_equal(script_claim(&s, CLAIM_B, ONCE_RECOVER_HOLD, 0), ONCE_OUTCOME_RUN);

    script_begin(&s);
    script_claim(&s, CLAIM_A, ONCE_RECOVER_HOLD, 0);
    script_effect(&s, 0);
    assert_int_equal(script_write(&s, ONCE__DOUBT, CLAIM_A, 1), ONCE_OUTCOME_DONE);
    script_lease_over(&s);
    assert_int_equal(script_claim(&s, CLAIM_B, ONCE_RECOVER_HOLD, 0), ONCE_OUTCOME_UNKNOWN);
}

static uint8_t play_l6(script_t *s)
{
    script_claim(s, CLAIM_A, ONCE_RECOVER_HOLD, 0);
    script_effect(s, 0);
    script_retention_passes(s);
    if (script_claim(s, CLAIM_B, ONCE_RECOVER_HOLD, 0) == ONCE_OUTCOME_RUN) {
        script_effect(s, 0);
    }
    return s->head.state;
}

void trace_l6(void **state)
{
    script_t s;

    script_begin(&s);
    assert_int_equal(play_l6(&s), ONCE_STATE_UNKNOWN);
    assert_int_equal(s.effects, 1);
    script_begin_mutant(&s, "reap-ignores-hold");
    play_l6(&s);
    assert_int_equal(s.effects, 2);
}

/*
 * Permitted: an operator that settles to failed promises that it no longer can happen; here it could. What the record does keep is
 * the fence: the claim that was judged can write nothing any more.
 */
void trace_l7(void **state)
{
    script_t s;

    script_begin(&s);
    script_claim(&s, CLAIM_A, ONCE_RECOVER_HOLD, 0);
    script_write(&s, ONCE__DOUBT, CLAIM_A, 1);
    assert_int_equal(script_write(&s, ONCE__SETTLE_FAILED, CLAIM_A, 1), ONCE_OUTCOME_REFUSED);
    script_lease_over(&s);
    script_effect(&s, 0);
    assert_int_equal(script_write(&s, ONCE__SETTLE_FAILED, CLAIM_A, 1), ONCE_OUTCOME_DONE);
    assert_int_equal(s.head.state, ONCE_STATE_FAILED);
    assert_int_equal(script_write(&s, ONCE__COMPLETE, CLAIM_A, 1), ONCE_OUTCOME_LOST);
    assert_int_equal(script_claim(&s, CLAIM_B, ONCE_RECOVER_HOLD, 0), ONCE_OUTCOME_RUN);
}

/* A settle whose reply was lost is repeated after the record has moved on. */
static uint8_t play_l8(script_t *s)
{
    uint8_t repeated;

    script_claim(s, CLAIM_A, ONCE_RECOVER_HOLD, 0);
    script_write(s, ONCE__DOUBT, CLAIM_A, 1);
    script_lease_over(s);
    assert_int_equal(script_write(s, ONCE__SETTLE_FAILED, CLAIM_A, 1), ONCE_OUTCOME_DONE);
    assert_int_equal(script_claim(s, CLAIM_B, ONCE_RECOVER_HOLD, 0), ONCE_OUTCOME_RUN);
    script_write(s, ONCE__DOUBT, CLAIM_B, 2);
    script_effect(s, 0);
    script_lease_over(s);
    repeated = script_write(s, ONCE__SETTLE_FAILED, CLAIM_A, 1);
    if (script_claim(s, CLAIM_C, ONCE_RECOVER_HOLD, 0) == ONCE_OUTCOME_RUN) {
        script_effect(s, 0);
    }
    return repeated;
}

void trace_l8(void **state)
{
    script_t s;

    script_begin(&s);
    assert_int_equal(play_l8(&s), ONCE_OUTCOME_REFUSED);
    assert_int_equal(s.head.state, ONCE_STATE_UNKNOWN);
    assert_int_equal(s.effects, 1);
    script_begin_mutant(&s, "settle-any-claim");
    assert_int_equal(play_l8(&s), ONCE_OUTCOME_DONE);
    assert_int_equal(s.effects, 2);
}

/* The owner of a claim whose reply was lost comes back after an operator has judged it. */
static uint8_t play_f4a(script_t *s)
{
    uint8_t again;

    script_claim(s, CLAIM_A, ONCE_RECOVER_HOLD, 0); /* reply lost */
    script_lease_over(s);
    assert_int_equal(script_claim(s, CLAIM_B, ONCE_RECOVER_HOLD, 0), ONCE_OUTCOME_UNKNOWN);
    again = script_claim(s, CLAIM_A, ONCE_RECOVER_HOLD, 0); /* after the operator has looked */
    if (again == ONCE_OUTCOME_RUN) {
        script_effect(s, 0);
        script_write(s, ONCE__DOUBT, CLAIM_A, 1);
        script_lease_over(s);
    } else {
        assert_int_equal(script_write(s, ONCE__RELEASE, CLAIM_A, 1), ONCE_OUTCOME_DONE);
    }
    assert_int_equal(script_write(s, ONCE__SETTLE_FAILED, CLAIM_A, 1), ONCE_OUTCOME_DONE);
    assert_int_equal(script_claim(s, CLAIM_C, ONCE_RECOVER_HOLD, 0), ONCE_OUTCOME_RUN);
    script_effect(s, 0);
    return again;
}

void trace_f4a(void **state)
{
    script_t s;

    script_begin(&s);
    assert_int_equal(play_f4a(&s), ONCE__MINE);
    assert_int_equal(s.effects, 1);
    script_begin_mutant(&s, "mine-revives");
    assert_int_equal(play_f4a(&s), ONCE_OUTCOME_RUN);
    assert_int_equal(s.effects, 2);
}

/* ------------------------------------------------------------------- retry, plain door (I3, F7a) */

/* Permitted: a complete 5xx after an effect releases under retry. Under hold the gateway doubts instead. */
void trace_l9(void **state)
{
    script_t s;

    script_begin(&s);
    script_claim(&s, CLAIM_A, ONCE_RECOVER_RETRY, 0);
    script_effect(&s, 0);
    assert_int_equal(script_write(&s, ONCE__RELEASE, CLAIM_A, 1), ONCE_OUTCOME_DONE);
    assert_int_equal(script_claim(&s, CLAIM_B, ONCE_RECOVER_RETRY, 0), ONCE_OUTCOME_RUN);
    script_effect(&s, 0);
    assert_int_equal(s.head.claim.epoch, 2); /* each effect has its own claim */
    assert_int_equal(s.effects, 2);

    script_begin(&s);
    script_claim(&s, CLAIM_A, ONCE_RECOVER_HOLD, 0);
    script_effect(&s, 0);
    script_write(&s, ONCE__DOUBT, CLAIM_A, 1);
    assert_int_equal(script_claim(&s, CLAIM_B, ONCE_RECOVER_HOLD, 0), ONCE_OUTCOME_UNKNOWN);
}

/* Permitted: the later claim acts first. The record follows the claims, not the effects, and remembers the earlier one. */
void trace_l10(void **state)
{
    script_t s;

    script_begin(&s);
    script_claim(&s, CLAIM_A, ONCE_RECOVER_RETRY, 0);
    script_lease_over(&s);
    assert_int_equal(script_claim(&s, CLAIM_B, ONCE_RECOVER_RETRY, 0), ONCE_OUTCOME_RUN);
    script_effect(&s, 0); /* of epoch 2 */
    script_effect(&s, 0); /* of epoch 1 */
    assert_int_equal(script_write(&s, ONCE__COMPLETE, CLAIM_A, 1), ONCE_OUTCOME_LOST);
    assert_int_equal(s.head.flags, ONCE__TAINTED);
    assert_int_equal(script_write(&s, ONCE__COMPLETE, CLAIM_B, 2), ONCE_OUTCOME_DONE);
}

/* The first claim acted, the second sent nothing. Returns the state that its release leads to. */
static uint8_t play_f7a(script_t *s)
{
    script_claim(s, CLAIM_A, ONCE_RECOVER_RETRY, 0);
    script_effect(s, 0);
    script_lease_over(s);
    assert_int_equal(script_claim(s, CLAIM_B, ONCE_RECOVER_RETRY, 0), ONCE_OUTCOME_RUN);
    assert_int_equal(script_write(s, ONCE__RELEASE, CLAIM_B, 2), ONCE_OUTCOME_DONE);
    return s->head.state;
}

void trace_f7a(void **state)
{
    script_t s;

    script_begin(&s);
    assert_int_equal(play_f7a(&s), ONCE_STATE_UNKNOWN);
    assert_int_equal(script_claim(&s, CLAIM_C, ONCE_RECOVER_RETRY, 0),
                     ONCE_OUTCOME_RUN); /* no request has to wait */
    script_begin_mutant(&s, "release-ignores-taint");
    assert_int_equal(play_f7a(&s), ONCE_STATE_FAILED);
}
