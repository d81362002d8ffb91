/*
 * Laws: what holds for every record, every event and every clock, tried on every combination of what the rules can see.
 */
#include "support/testing.h"

#include <string.h>

#include "core/rules.h"

enum { NOW = 1000000000, LEASE = 30000, TTL = 86400000 };

typedef struct situation {
    once__head_t head;
    once__event_t event;
    int id_fits, epoch_fits, same; /* how the event was made */
    int expired;
} situation_t;

typedef void (*law_t)(const situation_t *situation, const once__step_t *step);

static int is_ended(uint8_t state)
{
    return state == ONCE_STATE_COMPLETED || state == ONCE_STATE_FAILED;
}

static int is_newer(const situation_t *situation)
{
    return situation->head.schema > ONCE__SCHEMA;
}

/* The parts of a situation are the digits of a number; every number below COUNT is one. */
enum { COUNT = ONCE__EVENT_COUNT * 5 * 3 * 3 * 3 * 8 * 2 * 2 * 2 * 2 * 2 * 2 };

static unsigned digit(unsigned *number, unsigned base)
{
    unsigned value = *number % base;
    *number /= base;
    return value;
}

static situation_t situation_of(unsigned number)
{
    static const uint64_t leases[] = {NOW + 1, NOW, NOW - TTL};
    situation_t s = {
        .head = {.schema = ONCE__SCHEMA, .lease_ms = LEASE, .ttl_ms = TTL, .changed = NOW - 1},
        .event = {.lease_ms = LEASE, .ttl_ms = TTL, .fingerprint_count = 1}};

    s.event.kind = (once__event_kind_t)digit(&number, ONCE__EVENT_COUNT);
    s.head.state = (uint8_t)digit(&number, 5);
    s.head.lease_until = leases[digit(&number, 3)];
    s.head.recover = (uint8_t)digit(&number, 3);
    s.event.recover = (uint8_t)digit(&number, 3);
    s.head.flags = (uint8_t)digit(&number, 8);
    s.id_fits = (int)digit(&number, 2);
    s.epoch_fits = (int)digit(&number, 2);
    s.same = (int)digit(&number, 2);
    s.event.force = (int)digit(&number, 2);
    s.head.schema = (uint8_t)(ONCE__SCHEMA + digit(&number, 2));
    s.expired = (int)digit(&number, 2) && is_ended(s.head.state);
    s.head.expires = is_ended(s.head.state) ? (s.expired ? NOW : NOW + 1) : 0;
    s.head.claim = (once__claim_ref_t){5, {1}};
    s.event.claim = (once__claim_ref_t){s.epoch_fits ? 5 : 4, {(uint8_t)(s.id_fits ? 1 : 2)}};
    s.event.fingerprints[0].mac[0] = (uint8_t)!s.same;
    if (s.head.state == ONCE_STATE_NONE) {
        memset(&s.head, 0, sizeof(s.head));
    }
    return s;
}

static void always(law_t law)
{
    for (unsigned number = 0; number < COUNT; number++) {
        situation_t situation = situation_of(number);
        once__step_t step;
        once__step(&once__rules, &situation.head, &situation.event, NOW, &step);
        law(&situation, &step);
    }
}

/* For callers that do not need the head: the same answer, and none that changes something. */
static void answers_as_it_steps_law(const situation_t *s, const once__step_t *step)
{
    for (unsigned outcome = 0; outcome <= ONCE__MINE; outcome++) {
        assert_int_equal(once__answers(&once__rules, &s->head, &s->event, NOW, (uint8_t)outcome),
                         !step->changed && step->outcome == outcome);
    }
}

static void answers_as_it_steps(void **state)
{
    always(answers_as_it_steps_law);
}

static void only_the_claim_named_writes_law(const situation_t *s, const once__step_t *step)
{
    int stranger = !s->id_fits || !s->epoch_fits;

    if (stranger && s->event.kind != ONCE__CLAIM && s->event.kind != ONCE__REAP) {
        assert_false(step->changed);
        assert_int_not_equal(step->outcome, ONCE_OUTCOME_DONE);
    }
}

static void only_the_claim_named_writes(void **state)
{
    always(only_the_claim_named_writes_law);
}

static void completed_stays_law(const situation_t *s, const once__step_t *step)
{
    if (s->head.state == ONCE_STATE_COMPLETED && !s->expired && s->event.kind != ONCE__PURGE) {
        assert_true(!step->changed || s->event.kind == ONCE__ERASE);
        assert_int_equal(step->next.state, ONCE_STATE_COMPLETED);
        assert_int_not_equal(step->outcome, ONCE_OUTCOME_RUN);
    }
}

static void completed_stays(void **state)
{
    always(completed_stays_law);
}

static void hold_is_never_run_again_by_itself_law(const situation_t *s, const once__step_t *step)
{
    int open = s->head.state == ONCE_STATE_PENDING || s->head.state == ONCE_STATE_UNKNOWN;
    int hold = s->head.recover == ONCE_RECOVER_HOLD || s->event.recover == ONCE_RECOVER_HOLD;

    if (open && hold && s->event.kind == ONCE__CLAIM && !s->id_fits) {
        assert_int_not_equal(step->outcome, ONCE_OUTCOME_RUN);
    }
    if (open && s->head.recover == ONCE_RECOVER_HOLD && s->event.kind == ONCE__REAP) {
        assert_false(step->changed);
    }
}

static void hold_is_never_run_again_by_itself(void **state)
{
    always(hold_is_never_run_again_by_itself_law);
}

static void no_grant_under_a_live_lease_law(const situation_t *s, const once__step_t *step)
{
    int open = s->head.state == ONCE_STATE_PENDING || s->head.state == ONCE_STATE_UNKNOWN;

    if (open && s->head.lease_until > NOW && s->event.kind == ONCE__CLAIM) {
        assert_false(step->changed);
        assert_true(step->outcome != ONCE_OUTCOME_RUN || s->id_fits);
    }
}

static void no_grant_under_a_live_lease(void **state)
{
    always(no_grant_under_a_live_lease_law);
}

static void another_fingerprint_is_told_first_law(const situation_t *s, const once__step_t *step)
{
    if (s->event.kind == ONCE__CLAIM && !s->same && s->head.state != ONCE_STATE_NONE &&
        !s->expired && !is_newer(s)) {
        assert_int_equal(step->outcome, ONCE_OUTCOME_MISMATCH);
        assert_false(step->changed);
    }
}

static void another_fingerprint_is_told_first(void **state)
{
    always(another_fingerprint_is_told_first_law);
}

/* Purge is by hand and names the claim, which every version can read; nothing else touches a record it cannot read. */
static void newer_versions_are_left_alone_law(const situation_t *s, const once__step_t *step)
{
    if (is_newer(s) && s->event.kind != ONCE__PURGE) {
        assert_false(step->changed);
        assert_true(step->outcome == ONCE_OUTCOME_BUSY || s->event.kind == ONCE__REAP);
    }
}

static void newer_versions_are_left_alone(void **state)
{
    always(newer_versions_are_left_alone_law);
}

static void an_expired_record_is_none_law(const situation_t *s, const once__step_t *step)
{
    once__step_t fresh;

    if (s->expired && !is_newer(s) && s->event.kind != ONCE__REAP) {
        once__step(&once__rules, NULL, &s->event, NOW, &fresh);
        assert_ptr_equal(step->rule, fresh.rule);
        assert_memory_equal(&step->next, &fresh.next, sizeof(fresh.next));
    }
}

static void an_expired_record_is_none(void **state)
{
    always(an_expired_record_is_none_law);
}

/* Repeating what was done changes nothing more, and is not called lost. */
static void repeating_is_harmless_law(const situation_t *s, const once__step_t *step)
{
    once__step_t again;
    once__event_t event = s->event;

    if (!step->changed || step->next.state == ONCE_STATE_NONE) {
        return;
    }
    once__step(&once__rules, &step->next, &event, NOW, &again);
    assert_memory_equal(&again.next, &step->next, sizeof(again.next));
    if (step->outcome == ONCE_OUTCOME_DONE) {
        assert_true(again.outcome == ONCE_OUTCOME_DONE || again.outcome == ONCE_OUTCOME_ALREADY);
    } else {
        assert_int_equal(again.outcome, step->outcome);
    }
}

static void repeating_is_harmless(void **state)
{
    always(repeating_is_harmless_law);
}

static void unchanged_means_unchanged_law(const situation_t *s, const once__step_t *step)
{
    if (!step->changed && !s->expired) {
        assert_memory_equal(&step->next, &s->head, sizeof(s->head));
    }
    assert_true(!step->changed || step->next.state == ONCE_STATE_NONE ||
                s->event.kind == ONCE__ERASE || step->next.changed == NOW);
}

static void unchanged_means_unchanged(void **state)
{
    always(unchanged_means_unchanged_law);
}

/* Texts are not in the head: what is erased decides as before, also whether it was kept briefly. */
static void erasing_leaves_the_head_law(const situation_t *s, const once__step_t *step)
{
    if (s->event.kind == ONCE__ERASE && !s->expired) {
        assert_memory_equal(&step->next, &s->head, sizeof(s->head));
        assert_int_equal(step->changed, step->outcome == ONCE_OUTCOME_DONE);
        assert_true(!step->changed || is_ended(s->head.state));
    }
}

static void erasing_leaves_the_head(void **state)
{
    always(erasing_leaves_the_head_law);
}

/* A clock that went back decides as if it stood still since the record's last change. */
static void a_clock_that_went_back_stands_still_law(const situation_t *s, const once__step_t *step)
{
    once__head_t head = s->head;
    once__step_t back;

    if (head.state != ONCE_STATE_NONE) {
        head.changed = NOW;
        once__step(&once__rules, &head, &s->event, 5, &back);
        assert_ptr_equal(back.rule, step->rule);
        assert_int_equal(back.now, NOW);
    }
}

static void a_clock_that_went_back_stands_still(void **state)
{
    always(a_clock_that_went_back_stands_still_law);
}

static void the_end_of_time_does_not_wrap_law(const situation_t *s, const once__step_t *step)
{
    once__event_t event = s->event;
    once__step_t last;

    event.lease_ms = event.ttl_ms = UINT64_MAX;
    once__step(&once__rules, &s->head, &event, NOW, &last);
    assert_ptr_equal(last.rule, step->rule);
    if (last.rule->effects & (ONCE__E_GRANT | ONCE__E_EXTEND | ONCE__E_DOUBT_LEASE)) {
        assert_true(last.next.lease_until == UINT64_MAX);
    }
    if ((last.rule->effects & ONCE__E_RETAIN) && event.kind != ONCE__RELEASE) {
        assert_true(last.next.expires == UINT64_MAX);
    }
}

static void the_end_of_time_does_not_wrap(void **state)
{
    always(the_end_of_time_does_not_wrap_law);
}

/* The claim carries the fingerprint under each live secret; one that fits is enough, in any place. */
static void any_live_secret_will_do(void **state)
{
    once__head_t head = {
        .schema = ONCE__SCHEMA, .state = ONCE_STATE_COMPLETED, .fingerprint = {2, 0, {9}}};
    once__event_t event = {
        .kind = ONCE__CLAIM, .fingerprint_count = 2, .fingerprints = {{3, 0, {8}}, {2, 0, {9}}}};
    once__step_t step;

    once__step(&once__rules, &head, &event, NOW, &step);
    assert_int_equal(step.outcome, ONCE_OUTCOME_REPLAY);
    assert_true(once__fingerprint_known(&head, &event));
    event.fingerprints[1].mode = 1;
    once__step(&once__rules, &head, &event, NOW, &step);
    assert_int_equal(step.outcome, ONCE_OUTCOME_MISMATCH);
    assert_true(once__fingerprint_known(&head, &event));
    event.fingerprint_count = 1;
    once__step(&once__rules, &head, &event, NOW, &step);
    assert_int_equal(step.outcome, ONCE_OUTCOME_MISMATCH);
    assert_false(once__fingerprint_known(&head, &event));
}

static void zero_means_the_records_own(void **state)
{
    once__head_t head = {
        .schema = ONCE__SCHEMA, .state = ONCE_STATE_PENDING, .lease_ms = 77, .ttl_ms = 88};
    once__event_t event = {.kind = ONCE__RENEW};
    once__step_t step;

    once__step(&once__rules, &head, &event, NOW, &step);
    assert_int_equal(step.next.lease_until, NOW + 77);
    event.kind = ONCE__COMPLETE;
    once__step(&once__rules, &head, &event, NOW, &step);
    assert_int_equal(step.next.expires, NOW + 88);
}

static void a_renewal_never_shortens(void **state)
{
    once__head_t head = {
        .schema = ONCE__SCHEMA, .state = ONCE_STATE_PENDING, .lease_until = NOW + 500};
    once__event_t event = {.kind = ONCE__RENEW, .lease_ms = 100};
    once__step_t step;

    once__step(&once__rules, &head, &event, NOW, &step);
    assert_int_equal(step.next.lease_until, NOW + 500);
}

static void rows_and_events_have_names_of_their_own(void **state)
{
    for (size_t i = 0; i < once__rules.count; i++) {
        const once__rule_t *rule = &once__rules.rows[i];
        const char *event = once__event_name((once__event_kind_t)rule->event);
        assert_memory_equal(rule->name, event, strlen(event));
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(rule->name, once__rules.rows[k].name);
        }
    }
    assert_string_equal(once__event_name(ONCE__EVENT_COUNT), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_as_it_steps),
        cmocka_unit_test(only_the_claim_named_writes),
        cmocka_unit_test(completed_stays),
        cmocka_unit_test(hold_is_never_run_again_by_itself),
        cmocka_unit_test(no_grant_under_a_live_lease),
        cmocka_unit_test(another_fingerprint_is_told_first),
        cmocka_unit_test(newer_versions_are_left_alone),
        cmocka_unit_test(an_expired_record_is_none),
        cmocka_unit_test(repeating_is_harmless),
        cmocka_unit_test(unchanged_means_unchanged),
        cmocka_unit_test(erasing_leaves_the_head),
        cmocka_unit_test(a_clock_that_went_back_stands_still),
        cmocka_unit_test(the_end_of_time_does_not_wrap),
        cmocka_unit_test(any_live_secret_will_do),
        cmocka_unit_test(zero_means_the_records_own),
        cmocka_unit_test(a_renewal_never_shortens),
        cmocka_unit_test(rows_and_events_have_names_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
