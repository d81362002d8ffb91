/* Schedules with false answers, or that lost what was known (I4, I6, I7, I9). See traces.h. */
#include "traces.h"

#include "script.h"

#define assert_row(script, name) assert_string_equal((script)->row, name)

/* ---------------------------------------------------------------- answers to clients (I4, I9) */

static uint8_t play_m7(script_t *s)
{
    script_claim(s, CLAIM_A, ONCE_RECOVER_RETRY, 0);
    script_lease_over(s);
    assert_int_equal(script_claim(s, CLAIM_B, ONCE_RECOVER_RETRY, 0), ONCE_OUTCOME_RUN);
    assert_int_equal(script_write(s, ONCE__COMPLETE, CLAIM_B, 2), ONCE_OUTCOME_DONE);
    script_ttl_over(s);
    assert_int_equal(script_claim(s, CLAIM_C, ONCE_RECOVER_RETRY, 0), ONCE_OUTCOME_RUN);
    return script_write(s, ONCE__RELEASE, CLAIM_A, 1);
}

void trace_m7(void **state)
{
    script_t s;

    script_begin(&s);
    assert_int_equal(play_m7(&s), ONCE_OUTCOME_LOST);
    assert_int_equal(s.head.state, ONCE_STATE_PENDING);
    script_begin(&s);
    s.epochs_only = 1;
    assert_int_equal(play_m7(&s), ONCE_OUTCOME_DONE);
    assert_int_equal(s.head.state, ONCE_STATE_FAILED);
}

/* What a gateway with a response of its own sends: 1 its own, 0 what the record says. */
static int play_l13(script_t *s)
{
    uint8_t outcome;

    script_claim(s, CLAIM_A, ONCE_RECOVER_RETRY, 0);
    script_lease_over(s);
    assert_int_equal(script_claim(s, CLAIM_B, ONCE_RECOVER_RETRY, 0), ONCE_OUTCOME_RUN);
    outcome = script_write(s, ONCE__COMPLETE, CLAIM_A, 1);
    return outcome == ONCE_OUTCOME_DONE || (s->behaviour & MUTANT_OWN_ANSWER);
}

void trace_l13(void **state)
{
    script_t s;

    script_begin(&s);
    assert_false(play_l13(&s));
    assert_row(&s, "complete: stale");
    assert_int_equal(s.head.state, ONCE_STATE_PENDING); /* the client gets busy */
    script_begin_mutant(&s, "own-answer-after-lost");
    assert_true(play_l13(&s));
    assert_int_not_equal(s.head.state, ONCE_STATE_COMPLETED);
}

/* The other fingerprint is refused, whatever became of the first. `doubtful`: its claim ended by lease. */
static uint8_t play_l15(script_t *s, int doubtful)
{
    uint8_t outcome;

    script_claim(s, CLAIM_A, ONCE_RECOVER_RETRY, 0);
    script_effect(s, 0);
    if (doubtful) {
        script_lease_over(s);
        assert_int_equal(script_claim(s, CLAIM_B, ONCE_RECOVER_RETRY, 0), ONCE_OUTCOME_RUN);
        assert_int_equal(script_write(s, ONCE__RELEASE, CLAIM_B, 2), ONCE_OUTCOME_DONE);
    } else {
        assert_int_equal(script_write(s, ONCE__RELEASE, CLAIM_A, 1), ONCE_OUTCOME_DONE);
    }
    outcome = script_claim(s, CLAIM_C, ONCE_RECOVER_RETRY, 1);
    if (outcome == ONCE_OUTCOME_RUN) {
        script_effect(s, 1);
    }
    return outcome;
}

void trace_l15(void **state)
{
    static const char *const broken[] = {"mismatch-not-failed", "mismatch-not-unknown"};

    for (int doubtful = 0; doubtful <= 1; doubtful++) {
        script_t s;
        script_begin(&s);
        assert_int_equal(play_l15(&s, doubtful), ONCE_OUTCOME_MISMATCH);
        assert_int_equal(s.payloads, 1);
        script_begin_mutant(&s, broken[doubtful]);
        assert_int_equal(play_l15(&s, doubtful), ONCE_OUTCOME_RUN);
        assert_int_equal(s.payloads, 3);
    }
}

/* ------------------------------------------------------------- refused before any effect (I9, I12) */

/* A stranger's 401 binds the key for two leases, not for a day; until then another payload is a mismatch. */
void trace_b1(void **state)
{
    script_t s;

    script_begin(&s);
    script_claim(&s, CLAIM_A, ONCE_RECOVER_HOLD, 1);
    assert_int_equal(script_refuse(&s, CLAIM_A, 1), ONCE_OUTCOME_DONE);
    assert_row(&s, "release: before any effect");
    assert_int_equal(script_claim(&s, CLAIM_B, ONCE_RECOVER_HOLD, 0), ONCE_OUTCOME_MISMATCH);
    assert_int_equal(script_claim(&s, CLAIM_A, ONCE_RECOVER_HOLD, 1),
                     ONCE_OUTCOME_LOST); /* a late copy */
    script_two_leases_over(&s);
    assert_int_equal(script_claim(&s, CLAIM_B, ONCE_RECOVER_HOLD, 0), ONCE_OUTCOME_RUN);
    assert_row(&s, "claim: new");
    script_begin_mutant(&s, "never-briefly");
    script_claim(&s, CLAIM_A, ONCE_RECOVER_HOLD, 1);
    script_refuse(&s, CLAIM_A, 1);
    script_two_leases_over(&s);
    assert_int_equal(script_claim(&s, CLAIM_B, ONCE_RECOVER_HOLD, 0), ONCE_OUTCOME_MISMATCH);
}

/* However often: each is as harmless as the first. */
void trace_b2(void **state)
{
    script_t s;

    script_begin(&s);
    script_claim(&s, CLAIM_A, ONCE_RECOVER_RETRY, 1);
    script_refuse(&s, CLAIM_A, 1);
    assert_int_equal(script_claim(&s, CLAIM_B, ONCE_RECOVER_RETRY, 1), ONCE_OUTCOME_RUN);
    assert_row(&s, "claim: refused before");
    script_refuse(&s, CLAIM_B, 2);
    script_two_leases_over(&s);
    assert_int_equal(script_claim(&s, CLAIM_C, ONCE_RECOVER_RETRY, 0), ONCE_OUTCOME_RUN);
}

/* Two leases later comes a different request; if that runs, both act. */
static int play_other_payload(script_t *s)
{
    script_two_leases_over(s);
    if (script_claim(s, CLAIM_C, ONCE_RECOVER_RETRY, 1) == ONCE_OUTCOME_RUN) {
        script_effect(s, 1);
    }
    return s->payloads;
}

/* The tempting shortcut: a 5xx is a release, so it is forgotten as soon. It may have come after the effect. */
static int play_b3(script_t *s)
{
    script_claim(s, CLAIM_A, ONCE_RECOVER_RETRY, 0);
    script_effect(s, 0);
    assert_int_equal(script_fail(s, CLAIM_A, 1), ONCE_OUTCOME_DONE);
    return play_other_payload(s);
}

void trace_b3(void **state)
{
    script_t s;

    script_begin(&s);
    assert_int_equal(play_b3(&s), 1);
    script_begin_mutant(&s, "every-release-early");
    assert_int_equal(play_b3(&s), 3);
    script_begin_mutant(&s, "always-briefly");
    assert_int_equal(play_b3(&s), 3);
}

/* The same with a 401 after the 5xx: the second claim did nothing, the first may have. */
static int play_b4(script_t *s)
{
    script_claim(s, CLAIM_A, ONCE_RECOVER_RETRY, 0);
    script_effect(s, 0);
    script_fail(s, CLAIM_A, 1);
    assert_int_equal(script_claim(s, CLAIM_B, ONCE_RECOVER_RETRY, 0), ONCE_OUTCOME_RUN);
    assert_int_equal(script_refuse(s, CLAIM_B, 2), ONCE_OUTCOME_DONE);
    return play_other_payload(s);
}

/* And after a lease that ran out: the record is tainted. */
static int play_b5(script_t *s)
{
    script_claim(s, CLAIM_A, ONCE_RECOVER_RETRY, 0);
    script_effect(s, 0);
    script_lease_over(s);
    assert_int_equal(script_claim(s, CLAIM_B, ONCE_RECOVER_RETRY, 0), ONCE_OUTCOME_RUN);
    assert_int_equal(script_refuse(s, CLAIM_B, 2), ONCE_OUTCOME_DONE);
    return play_other_payload(s);
}

void trace_b4(void **state)
{
    static const char *const broken[] = {"touched-briefly", "no-touch"};
    script_t s;

    script_begin(&s);
    assert_int_equal(play_b4(&s), 1);
    for (int i = 0; i < 2; i++) {
        script_begin_mutant(&s, broken[i]);
        assert_int_equal(play_b4(&s), 3);
    }
}

void trace_b5(void **state)
{
    script_t s;

    script_begin(&s);
    assert_int_equal(play_b5(&s), 1);
    script_begin_mutant(&s, "tainted-briefly");
    assert_int_equal(play_b5(&s), 3);
}

/* -------------------------------------------------------------------- lost replies (I6, I7, I7b) */

/* Returns the answer to the owner, whose reply was lost, when it repeats its claim. */
static uint8_t play_l4_i6(script_t *s)
{
    script_claim(s, CLAIM_A, ONCE_RECOVER_HOLD, 0); /* reply lost */
    script_lease_over(s);
    assert_int_equal(script_claim(s, CLAIM_B, ONCE_RECOVER_HOLD, 0), ONCE_OUTCOME_UNKNOWN);
    return script_claim(s, CLAIM_A, ONCE_RECOVER_HOLD, 0);
}

void trace_l4_i6(void **state)
{
    script_t s;

    script_begin(&s);
    assert_int_equal(play_l4_i6(&s), ONCE__MINE);
    assert_int_equal(script_write(&s, ONCE__RELEASE, CLAIM_A, 1), ONCE_OUTCOME_DONE);
    assert_int_equal(script_claim(&s, CLAIM_C, ONCE_RECOVER_HOLD, 0), ONCE_OUTCOME_RUN);
    script_begin_mutant(&s, "mine-not-told");
    assert_int_equal(play_l4_i6(&s), ONCE_OUTCOME_UNKNOWN);
    assert_int_equal(s.head.state, ONCE_STATE_UNKNOWN);
}

void trace_l12(void **state)
{
    script_t s;

    script_begin(&s);
    script_claim(&s, CLAIM_A, ONCE_RECOVER_HOLD, 0); /* reply lost */
    assert_int_equal(script_claim(&s, CLAIM_A, ONCE_RECOVER_HOLD, 0), ONCE_OUTCOME_RUN);
    assert_int_equal(s.head.claim.epoch, 1);
    /* Repeated under another id it would look like a stranger. */
    assert_int_equal(script_claim(&s, CLAIM_B, ONCE_RECOVER_HOLD, 0), ONCE_OUTCOME_BUSY);
    script_begin_mutant(&s, "own-claim-is-busy");
    script_claim(&s, CLAIM_A, ONCE_RECOVER_HOLD, 0);
    assert_int_equal(script_claim(&s, CLAIM_A, ONCE_RECOVER_HOLD, 0), ONCE_OUTCOME_BUSY);
}

/* Permitted: after a crash between claim and forward the record is unknown although nothing ran. Settling ends it. */
void trace_f4b(void **state)
{
    script_t s;

    script_begin(&s);
    script_claim(&s, CLAIM_A, ONCE_RECOVER_HOLD, 0);
    script_lease_over(&s);
    assert_int_equal(script_claim(&s, CLAIM_B, ONCE_RECOVER_HOLD, 0), ONCE_OUTCOME_UNKNOWN);
    assert_int_equal(s.head.flags, ONCE__BY_LEASE); /* a reader can tell it from doubt */
    assert_int_equal(script_retention_passes(&s), ONCE_OUTCOME_REFUSED);
    assert_int_equal(script_write(&s, ONCE__SETTLE_FAILED, CLAIM_A, 1), ONCE_OUTCOME_DONE);
    assert_int_equal(script_claim(&s, CLAIM_C, ONCE_RECOVER_HOLD, 0), ONCE_OUTCOME_RUN);
}

static uint8_t play_l4_i7(script_t *s)
{
    script_claim(s, CLAIM_A, ONCE_RECOVER_HOLD, 0);
    assert_int_equal(script_write(s, ONCE__COMPLETE, CLAIM_A, 1),
                     ONCE_OUTCOME_DONE); /* reply lost */
    return script_write(s, ONCE__COMPLETE, CLAIM_A, 1);
}

void trace_l4_i7(void **state)
{
    script_t s;

    script_begin(&s);
    assert_int_equal(play_l4_i7(&s), ONCE_OUTCOME_ALREADY);
    script_begin_mutant(&s, "complete-not-again");
    assert_int_equal(play_l4_i7(&s), ONCE_OUTCOME_LOST);
}

/* A live holder knows the outcome although its lease ran out. */
static uint8_t play_l4_i7b(script_t *s)
{
    script_claim(s, CLAIM_A, ONCE_RECOVER_HOLD, 0);
    script_lease_over(s);
    assert_int_equal(script_claim(s, CLAIM_B, ONCE_RECOVER_HOLD, 0), ONCE_OUTCOME_UNKNOWN);
    return script_write(s, ONCE__COMPLETE, CLAIM_A, 1);
}

void trace_l4_i7b(void **state)
{
    script_t s;

    script_begin(&s);
    assert_int_equal(play_l4_i7b(&s), ONCE_OUTCOME_DONE);
    assert_int_equal(s.head.state, ONCE_STATE_COMPLETED);
    script_begin_mutant(&s, "complete-not-unknown");
    assert_int_equal(play_l4_i7b(&s), ONCE_OUTCOME_LOST);
}
