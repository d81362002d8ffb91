/*
 * What must hold. The numbers are those of docs/record.md.
 *
 * Two kinds. Harm is what the world suffers: effects that happened twice, answers that differ, records that say something
 * untrue or that no request can move. The other kind looks at every single answer of the table and is stricter: it sees a broken
 * rule before the schedule that does harm is complete. None of them looks at the rows.
 */
#include "model.h"

#include <string.h>

void model_break(model_t *model, const char *invariant)
{
    if (model->broken == NULL) {
        model->broken = invariant;
    }
}

static void must(model_t *model, int holds, const char *invariant)
{
    if (!holds) {
        model_break(model, invariant);
    }
}

static int is_open(const model_record_t *record)
{
    return record->state == ONCE_STATE_PENDING || record->state == ONCE_STATE_UNKNOWN;
}

/* -------------------------------------------------------------------------------- single answers */

static void check_grant(model_t *model, const model_step_t *step, int exists, int current)
{
    const model_record_t *was = &step->before->record, *is = &step->after->record;
    uint8_t policy = step->before->policy[step->claim];

    must(model, is->state == ONCE_STATE_PENDING && is->claim == step->claim,
         "I4-granted-to-another");
    must(model, is->lease == MODEL_LIVE, "I3-granted-without-a-lease");
    if (!exists) {
        must(model, is->epoch == 1 && is->recover == policy, "I4-new-record");
        return;
    }
    must(model, was->state != ONCE_STATE_COMPLETED, "I8-completed-is-run-again");
    must(model, !is_open(was) || was->lease != MODEL_LIVE, "I3-granted-under-a-live-lease");
    must(model, !is_open(was) || (was->recover != ONCE_RECOVER_HOLD && policy != ONCE_RECOVER_HOLD),
         "I2-granted-though-hold");
    must(model, !current, "I6-an-ended-claim-is-granted-again");
    must(model, is->epoch == was->epoch + 1, "I4-epoch");
    must(model, is->recover >= was->recover && is->recover >= policy, "I2-policy-weakened");
}

/* What design says that a claim with the record's fingerprint is answered. */
static uint8_t expected_answer(const model_step_t *step, int exists, int current)
{
    const model_record_t *was = &step->before->record;
    int live = was->lease == MODEL_LIVE;
    int hold =
        was->recover == ONCE_RECOVER_HOLD || step->before->policy[step->claim] == ONCE_RECOVER_HOLD;

    if (!exists) {
        return ONCE_OUTCOME_RUN;
    }
    switch (was->state) {
    case ONCE_STATE_PENDING:
        return current ? ONCE_OUTCOME_RUN
               : live  ? ONCE_OUTCOME_BUSY
               : hold  ? ONCE_OUTCOME_UNKNOWN
                       : ONCE_OUTCOME_RUN;
    case ONCE_STATE_FAILED:
        return current ? ONCE_OUTCOME_LOST : ONCE_OUTCOME_RUN;
    case ONCE_STATE_COMPLETED:
        return ONCE_OUTCOME_REPLAY;
    default:
        break;
    }
    if (current) {
        return was->flags & ONCE__BY_LEASE ? ONCE__MINE : ONCE_OUTCOME_UNKNOWN;
    }
    return hold ? ONCE_OUTCOME_UNKNOWN : live ? ONCE_OUTCOME_BUSY : ONCE_OUTCOME_RUN;
}

static void check_claim(model_t *model, const model_step_t *step)
{
    const model_record_t *was = &step->before->record, *is = &step->after->record;
    int exists = model_exists(step->before);
    int current = exists && was->claim == step->claim;
    uint8_t asked = (step->before->other & model_bit(step->claim)) != 0;

    if (exists && asked != was->fingerprint) {
        must(model, step->outcome == ONCE_OUTCOME_MISMATCH && !step->changed,
             "I9-mismatch-not-told");
        return;
    }
    /* A gateway that never heard of its grant has forwarded nothing: it must be able to learn of it. */
    if (current && is_open(was) && step->before->epoch[step->claim] == 0) {
        must(model, step->outcome == ONCE_OUTCOME_RUN || step->outcome == ONCE__MINE,
             "I6-own-claim-not-recognised");
        must(model, step->outcome != ONCE_OUTCOME_RUN || was->state == ONCE_STATE_PENDING,
             "I6-unknown-claim-revived");
    }
    if (step->outcome == ONCE_OUTCOME_RUN && !(current && was->state == ONCE_STATE_PENDING)) {
        check_grant(model, step, exists, current);
    } else if (step->changed) {
        must(model, was->state == ONCE_STATE_PENDING && is->state == ONCE_STATE_UNKNOWN && !current,
             "I4-a-claim-changed-the-record");
        must(model, was->lease != MODEL_LIVE, "I3-unknown-under-a-live-lease");
        must(model, was->claim == is->claim && was->epoch == is->epoch,
             "I4-a-claim-changed-the-record");
        must(model, is->flags & ONCE__BY_LEASE, "I6-unknown-by-lease-not-noted");
    }
    must(model, step->outcome == expected_answer(step, exists, current),
         "I5-claim-answered-wrongly");
}

/* Complete, release, doubt and renew by the claim that the record names, while it is pending or unknown. */
static void check_own_write(model_t *model, const model_step_t *step)
{
    const model_record_t *was = &step->before->record, *is = &step->after->record;
    uint8_t others =
        (uint8_t)(model_peers(step->before, step->before->life) & ~model_bit(step->claim));

    must(model, step->outcome == ONCE_OUTCOME_DONE, "I7b-holder-refused");
    must(model, is->claim == was->claim && is->epoch == was->epoch, "I4-a-write-changed-the-claim");
    switch (step->kind) {
    case ONCE__COMPLETE:
        must(model, is->state == ONCE_STATE_COMPLETED, "I7b-known-outcome-refused");
        must(model, is->payload == step->payload, "I4-other-response-recorded");
        break;
    case ONCE__RELEASE:
        must(model, is->payload == step->payload, "I4-release-without-its-note");
        if (is->state == ONCE_STATE_FAILED) {
            int touched =
                (step->before->loose & model_peers(step->before, step->before->life)) != 0;
            must(model, !(step->before->doubtful & others), "F7a-failed-hides-earlier-doubt");
            must(model, !is->brief || (step->early && !touched), "I12-forgotten-too-early");
            must(model, is->brief || !step->early || touched, "I12-bound-though-nothing-happened");
        } else {
            must(model, is->state == ONCE_STATE_UNKNOWN && is->lease != MODEL_LIVE,
                 "I5-released-is-not-claimable");
            must(model, (step->before->doubtful & others) != 0, "I6-false-unknown");
            must(model, !(is->flags & ONCE__BY_LEASE), "I6-released-but-by-lease");
        }
        break;
    case ONCE__DOUBT:
        must(model, is->state == ONCE_STATE_UNKNOWN, "I7b-doubt-refused");
        must(model, !(is->flags & ONCE__BY_LEASE), "I6-doubted-but-by-lease");
        if (was->state == ONCE_STATE_PENDING || (was->flags & ONCE__BY_LEASE)) {
            must(model, is->lease == MODEL_LIVE, "I3-doubt-does-not-wait");
        } else {
            must(model, !step->changed, "I5-repeated-doubt-waits-again");
        }
        break;
    default:
        must(model, is->state == was->state && is->lease == MODEL_LIVE, "I7b-renewal-refused");
        break;
    }
}

static void check_write(model_t *model, const model_step_t *step, int current)
{
    const model_record_t *was = &step->before->record;

    if (!current) {
        must(model, step->outcome == ONCE_OUTCOME_LOST, "I4-stale-claim-believed");
    } else if (is_open(was)) {
        check_own_write(model, step);
    } else if (was->state == ONCE_STATE_COMPLETED) {
        must(model, step->outcome == ONCE_OUTCOME_ALREADY, "I7-own-completion-called-lost");
    } else {
        uint8_t expected = step->kind == ONCE__RELEASE ? ONCE_OUTCOME_DONE : ONCE_OUTCOME_LOST;
        must(model, step->outcome == expected, "I4-fence-not-told");
    }
}

static void check_settle(model_t *model, const model_step_t *step, int current)
{
    const model_record_t *was = &step->before->record, *is = &step->after->record;
    uint8_t to = step->kind == ONCE__SETTLE_COMPLETED ? ONCE_STATE_COMPLETED : ONCE_STATE_FAILED;

    if (!current) {
        must(model, step->outcome == ONCE_OUTCOME_REFUSED, "I11-settled-another-claim");
    } else if (is_open(was) && was->lease == MODEL_LIVE && !step->force) {
        must(model, step->outcome == ONCE_OUTCOME_REFUSED && !step->changed,
             "I11-settled-under-a-live-lease");
    } else if (is_open(was)) {
        must(model, step->outcome == ONCE_OUTCOME_DONE && is->state == to, "I5-cannot-be-settled");
        must(model, is->payload == step->payload, "I4-other-response-recorded");
    } else if (was->state == ONCE_STATE_COMPLETED) {
        must(model, step->outcome == ONCE_OUTCOME_ALREADY, "I8-settled-a-completed-record");
    } else {
        uint8_t expected = to == ONCE_STATE_FAILED ? ONCE_OUTCOME_DONE : ONCE_OUTCOME_REFUSED;
        must(model, step->outcome == expected, "I11-settled-a-failed-record");
    }
}

static void check_removal(model_t *model, const model_step_t *step, int current)
{
    const model_record_t *was = &step->before->record;
    int removed = was->state != ONCE_STATE_NONE && step->after->record.state == ONCE_STATE_NONE;

    must(model, step->changed == removed, "I8-changed-by-removal");
    must(model, step->outcome == (removed ? ONCE_OUTCOME_DONE : ONCE_OUTCOME_REFUSED),
         "I8-removal-answered-wrongly");
    if (step->kind == ONCE__PURGE) {
        must(model, !removed || current, "I4-purged-another-record");
        must(model, !removed || !is_open(was) || step->force, "I10-purged-without-force");
        must(model, removed || !current || (is_open(was) && !step->force), "I5-cannot-be-purged");
        return;
    }
    if (is_open(was)) {
        int abandoned = was->lease == MODEL_LONG_OVER && was->recover != ONCE_RECOVER_HOLD;
        must(model, !removed || was->recover != ONCE_RECOVER_HOLD, "I10-hold-record-reaped");
        must(model, removed == abandoned, "I10-reaped-too-early-or-never");
    } else if (was->state != ONCE_STATE_NONE) {
        must(model, removed == was->expired, "I8-reaped-too-early-or-never");
    }
}

static void check_erase(model_t *model, const model_step_t *step, int current)
{
    const model_record_t *was = &step->before->record, *is = &step->after->record;
    int erases = current && !is_open(was);

    must(model, step->outcome == (erases ? ONCE_OUTCOME_DONE : ONCE_OUTCOME_REFUSED),
         "I13-erasing-answered-wrongly");
    must(model, is->erased == (erases || was->erased), "I13-erased-another-or-nothing");
    must(model, is->state == was->state && is->payload == was->payload, "I13-erased-the-outcome");
}

void model_check_step(model_t *model, const model_step_t *step)
{
    const model_record_t *was = &step->before->record;
    int exists = model_exists(step->before);
    int current = exists && was->claim == step->claim && was->epoch == step->epoch;
    int removal = step->kind == ONCE__REAP || step->kind == ONCE__PURGE;

    if (model->harm_only) {
        return;
    }
    if (step->kind == ONCE__CLAIM) {
        check_claim(model, step);
        return;
    }
    if (removal) {
        check_removal(model, step, current);
        return;
    }
    must(model, current || !step->changed, "I4-stale-claim-changed-the-record");
    if (step->kind == ONCE__ERASE) {
        check_erase(model, step, current);
        return;
    }
    if (exists && was->state == ONCE_STATE_COMPLETED) {
        must(model, !step->changed, "I8-completed-undone");
    }
    if (exists && was->state == ONCE_STATE_FAILED) {
        must(model, !step->changed, "I4-failed-undone");
    }
    if (step->kind == ONCE__SETTLE_COMPLETED || step->kind == ONCE__SETTLE_FAILED) {
        check_settle(model, step, current);
    } else {
        check_write(model, step, current);
    }
}

/* ------------------------------------------------------------------------------------------ harm */

/* `world` is the state before the effect is counted. */
void model_check_effect(model_t *model, const model_world_t *world, unsigned claim)
{
    uint8_t bit = model_bit(claim);
    uint8_t others = world->acted & model_peers(world, world->lives[claim]) & (uint8_t)~bit;
    uint8_t same = world->other & bit ? world->other : (uint8_t)~world->other;

    if (model->scenario->door == MODEL_SQL) {
        must(model, !(world->acted & bit) && others == 0, "I1-double-effect");
        must(model, world->lives[claim] == world->life, "I1-effect-under-another-record");
        return;
    }
    must(model, !(world->acted & bit), "I3-same-claim-acts-twice");
    must(model, !(others & (uint8_t)~same), "I9-two-payloads-one-key");
    must(model, !((world->held & bit) && (others & world->held)), "I2-double-effect");
    must(model, others == 0 || (world->excused & model_bit(world->lives[claim])),
         "I3-second-effect-without-cause");
}

void model_check_told(model_t *model, model_world_t *world, uint8_t payload)
{
    int recorded = model_exists(world) && world->record.state == ONCE_STATE_COMPLETED &&
                   world->record.payload == payload;

    must(model, world->told == 0 || world->told == payload, "I4-clients-told-different-answers");
    must(model, recorded || model->harm_only, "I4-client-told-unrecorded-response");
    world->told = payload;
}

/* Is a gateway left that will forward or release what the record's claim was granted for? */
static int has_holder(const model_world_t *world)
{
    for (unsigned i = 0; i < MODEL_SLOTS; i++) {
        const model_slot_t *slot = &world->slots[i];
        if (slot->phase != MODEL_IDLE && slot->claim == world->record.claim) {
            return 1;
        }
    }
    return 0;
}

/* What a record never looks like, whatever wrote it. */
static void check_record(model_t *model, const model_record_t *record)
{
    must(model, record->claim != 0 && record->epoch != 0, "I4-record-without-a-claim");
    must(model, !(record->flags & ONCE__BY_LEASE) || record->state == ONCE_STATE_UNKNOWN,
         "I6-by-lease-but-not-unknown");
    must(model, is_open(record) || record->flags == 0, "F7a-ended-but-tainted");
    must(model, !record->brief || record->state == ONCE_STATE_FAILED, "I12-brief-but-not-failed");
    must(model, record->state != ONCE_STATE_PENDING || record->payload == 0,
         "I4-pending-with-a-response");
    must(model, !record->erased || !is_open(record), "I13-open-but-erased");
}

void model_check_world(model_t *model, const model_world_t *world)
{
    const model_record_t *record = &world->record;
    uint8_t peers = model_peers(world, world->life);
    int crashed = world->crashes < model->scenario->crashes;

    if (!model_exists(world)) {
        return;
    }
    if (!model->harm_only) {
        check_record(model, record);
    }
    if (record->state == ONCE_STATE_UNKNOWN && record->recover == ONCE_RECOVER_HOLD && !crashed) {
        must(model, (world->forwarded & model_bit(record->claim)) || has_holder(world),
             "I6-unknown-but-never-forwarded");
    }
    if (record->state == ONCE_STATE_FAILED) {
        must(model, !(world->doubtful & world->acted & peers), "F7a-failed-though-it-took-effect");
    }
    if (record->state == ONCE_STATE_COMPLETED) {
        must(model, record->payload != 0, "I4-completed-without-a-response");
    }
}
