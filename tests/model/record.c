/*
 * The record of the model: from the few bytes of a state to a head of the library, through once__step, and back.
 */
#include "model.h"

#include <string.h>

enum { LEASE_MS = 10, TTL_MS = 100, BRIEF_MS = 2 * LEASE_MS };

static void put_id(uint8_t id[ONCE_CLAIM_ID_SIZE], unsigned claim)
{
    memset(id, 0, ONCE_CLAIM_ID_SIZE);
    id[0] = (uint8_t)claim;
}

static int is_ended(uint8_t state)
{
    return state == ONCE_STATE_COMPLETED || state == ONCE_STATE_FAILED;
}

int model_exists(const model_world_t *world)
{
    return world->record.state != ONCE_STATE_NONE && !world->record.expired;
}

/* What was kept briefly is forgotten before its time: whatever was done under it was done for the same key. */
int model_lives(const model_world_t *world)
{
    return model_exists(world) || world->torn || world->record.brief;
}

void model_head(const model_world_t *world, once__head_t *head)
{
    const model_record_t *record = &world->record;

    memset(head, 0, sizeof(*head));
    head->schema = ONCE__SCHEMA;
    head->state = record->state;
    head->recover = record->recover;
    head->flags = record->flags;
    head->claim.epoch = record->epoch;
    put_id(head->claim.id, record->claim);
    head->lease_ms = LEASE_MS;
    head->ttl_ms = TTL_MS;
    head->lease_until = MODEL_NOW;
    if (record->lease == MODEL_LIVE) {
        head->lease_until = MODEL_NOW + LEASE_MS;
    } else if (record->lease == MODEL_LONG_OVER) {
        head->lease_until = MODEL_NOW - TTL_MS;
    }
    if (is_ended(record->state)) {
        head->changed = MODEL_NOW;
        head->expires = MODEL_NOW + (record->expired ? 0 : record->brief ? BRIEF_MS : TTL_MS);
    }
    head->fingerprint.secret = 1;
    head->fingerprint.mac[0] = record->fingerprint;
}

void model_event(const model_world_t *world, once__event_kind_t kind, unsigned claim,
                 unsigned epoch, once__event_t *event)
{
    memset(event, 0, sizeof(*event));
    event->kind = kind;
    put_id(event->claim.id, claim);
    event->lease_ms = LEASE_MS;
    event->ttl_ms = TTL_MS;
    if (kind == ONCE__CLAIM) {
        event->recover = world->policy[claim];
        event->fingerprint_count = 1;
        event->fingerprints[0].secret = 1;
        event->fingerprints[0].mac[0] = (world->other & model_bit(claim)) != 0;
    } else {
        event->claim.epoch = epoch;
    }
    if (kind >= ONCE__SETTLE_COMPLETED && kind != ONCE__REAP) {
        event->force = world->look_force;
    }
}

static void take_head(model_record_t *record, const once__head_t *head)
{
    memset(record, 0, offsetof(model_record_t, payload));
    if (head->state == ONCE_STATE_NONE) {
        record->payload = record->erased = 0;
        return;
    }
    record->state = head->state;
    record->recover = head->recover;
    record->flags = head->flags;
    record->claim = head->claim.id[0];
    record->epoch = (uint8_t)head->claim.epoch;
    record->fingerprint = head->fingerprint.mac[0];
    record->brief = head->state == ONCE_STATE_FAILED && head->expires < MODEL_NOW + TTL_MS;
    if (head->lease_until > MODEL_NOW) {
        record->lease = MODEL_LIVE;
    } else if (MODEL_NOW >= head->lease_until + head->ttl_ms) {
        record->lease = MODEL_LONG_OVER;
    }
}

uint8_t model_peers(const model_world_t *world, unsigned life)
{
    unsigned mask = 0;

    for (unsigned claim = 1; claim <= world->ids; claim++) {
        mask |= world->lives[claim] == life ? 1u << claim : 0;
    }
    return (uint8_t)mask;
}

void model_forget_copies(model_world_t *world)
{
    for (unsigned claim = 1; claim <= MODEL_CLAIMS; claim++) {
        world->sent[claim] &= (uint8_t) ~(1u << ONCE__CLAIM);
    }
}

/* What the checks need to know later about a grant. */
static void remember_grant(model_world_t *world, const model_world_t *before, unsigned claim)
{
    uint8_t bit = model_bit(claim);

    if (!model_lives(before)) {
        world->life++;
        world->told = 0;
    } else if (model_exists(before) && before->record.state != ONCE_STATE_FAILED) {
        world->doubtful |= model_bit(before->record.claim);
    }
    world->torn = 0;
    if (world->lives[claim] != world->life) {
        world->doubtful &= (uint8_t)~bit;
        world->loose &= (uint8_t)~bit;
        world->acted &= (uint8_t)~bit;
    }
    world->lives[claim] = world->life;
    world->forwarded &= (uint8_t)~bit;
    world->held &= (uint8_t)~bit;
    world->held |= world->record.recover == ONCE_RECOVER_HOLD ? bit : 0;
}

/*
 * A life ends with the ttl, or when an operator purges the very record that was looked at. Whatever else removes a record
 * only makes it forget: what was done under it was still done for the same key.
 */
static void remember_removal(model_world_t *world, const model_world_t *before,
                             once__event_kind_t kind, unsigned claim)
{
    const model_record_t *was = &before->record;
    int open = was->state == ONCE_STATE_PENDING || was->state == ONCE_STATE_UNKNOWN;
    int purged = kind == ONCE__PURGE && was->claim == claim && (!open || before->look_force);

    world->torn = (!was->expired || was->brief) && !purged;
    world->doubtful &= (uint8_t)~model_peers(world, world->life);
    world->loose &= (uint8_t)~model_peers(world, world->life);
    model_forget_copies(world);
}

/* Every record that ends has its ttl; a release before any effect may have two leases instead. */
static void check_ttl(model_t *model, const once__step_t *step, int early)
{
    uint64_t kept = step->next.expires - MODEL_NOW;

    if (is_ended(step->next.state) && step->changed && kept != TTL_MS &&
        !(early && step->next.state == ONCE_STATE_FAILED && kept == BRIEF_MS)) {
        model_break(model, "I8-ended-without-a-ttl");
    }
}

/* To erase decides nothing: the head stays as it is, to the time of its last change. */
static void check_erased(model_t *model, const once__head_t *head, const once__step_t *step)
{
    if (step->changed && (step->next.state != head->state || step->next.expires != head->expires ||
                          step->next.changed != head->changed || step->next.flags != head->flags ||
                          step->next.lease_until != head->lease_until)) {
        model_break(model, "I13-erasing-changed-the-outcome");
    }
}

/* That what was done under the claim is not known to be nothing. */
static void remember_release(model_world_t *world, once__event_kind_t kind, unsigned claim,
                             int early)
{
    if (kind == ONCE__SETTLE_FAILED) {
        world->doubtful &= (uint8_t)~model_peers(world, world->life);
    }
    if (!early) {
        world->loose |= model_bit(claim);
    }
}

uint8_t model_deliver(model_t *model, model_world_t *world, once__event_kind_t kind, unsigned claim,
                      unsigned epoch, uint8_t payload)
{
    model_world_t before = *world;
    once__head_t head;
    once__event_t event;
    once__step_t step;
    int early = kind == ONCE__RELEASE && (payload & 7) == MODEL_EARLY_NOTE;

    model_head(world, &head);
    model_event(world, kind, claim, epoch, &event);
    event.ttl_ms = kind != ONCE__RELEASE ? event.ttl_ms : early ? BRIEF_MS : 0;
    once__step(model->rules, &head, &event, MODEL_NOW, &step);
    if (model->fired != NULL) {
        model->fired[step.rule - model->rules->rows] = 1;
    }
    if (step.changed) {
        take_head(&world->record, &step.next);
        if (step.rule->effects & (ONCE__E_PAYLOAD | ONCE__E_DROP_PAYLOAD)) {
            world->record.payload = step.rule->effects & ONCE__E_PAYLOAD ? payload : 0;
            world->record.erased = 0;
        }
        world->record.erased |= (step.rule->effects & ONCE__E_ERASE) != 0;
    }
    if (kind == ONCE__ERASE) {
        check_erased(model, &head, &step);
    } else {
        check_ttl(model, &step, early);
    }
    if (kind == ONCE__CLAIM && step.outcome == ONCE_OUTCOME_RUN && step.changed) {
        remember_grant(world, &before, claim);
    }
    if ((kind == ONCE__RELEASE || kind == ONCE__SETTLE_FAILED) && step.changed) {
        remember_release(world, kind, claim, early);
    }
    if (before.record.state != ONCE_STATE_NONE && world->record.state == ONCE_STATE_NONE) {
        remember_removal(world, &before, kind, claim);
    }
    if (kind == ONCE__DOUBT && step.changed) {
        world->excused |= model_bit(world->life);
    }
    model_check_step(
        model, &(model_step_t){
                   .before = &before,
                   .after = world,
                   .kind = kind,
                   .claim = claim,
                   .epoch = epoch,
                   .force = event.force,
                   .payload = payload,
                   .early = early,
                   .outcome = step.outcome,
                   .changed = memcmp(&before.record, &world->record, sizeof(before.record)) != 0,
               });
    return step.outcome;
}

static uint8_t ask(const model_t *model, const model_world_t *world, once__event_t *event)
{
    once__head_t head;
    once__step_t step;

    model_head(world, &head);
    once__step(model->rules, &head, event, MODEL_NOW, &step);
    return step.outcome;
}

uint8_t model_probe(const model_t *model, const model_world_t *world)
{
    once__event_t event;

    model_event(world, ONCE__CLAIM, 0, 0, &event);
    put_id(event.claim.id, 0xff);
    event.recover = world->record.recover;
    event.fingerprints[0].mac[0] = world->record.fingerprint;
    return ask(model, world, &event);
}

int model_can_settle(const model_t *model, const model_world_t *world)
{
    once__event_t event;
    const model_record_t *record = &world->record;

    model_event(world, ONCE__SETTLE_COMPLETED, record->claim, record->epoch, &event);
    event.force = 0;
    if (ask(model, world, &event) != ONCE_OUTCOME_DONE) {
        return 0;
    }
    event.kind = ONCE__SETTLE_FAILED;
    return ask(model, world, &event) == ONCE_OUTCOME_DONE;
}
