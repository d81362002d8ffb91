/*
 * Time and the operator: leases that run out, records that are forgotten, unknown ones that are settled.
 */
#include "model.h"

#include <string.h>

static int can(const model_t *model, unsigned what)
{
    return (model->scenario->can & what) != 0;
}

static int is_open(const model_record_t *record)
{
    return record->state == ONCE_STATE_PENDING || record->state == ONCE_STATE_UNKNOWN;
}

/* Is a holder alive that knows of its claim? Then it renews in time, unless leases may lapse. */
static int is_held(const model_world_t *world)
{
    for (unsigned i = 0; i < MODEL_SLOTS; i++) {
        const model_slot_t *slot = &world->slots[i];
        if (slot->phase >= MODEL_GRANTED && slot->claim == world->record.claim &&
            world->epoch[slot->claim] == world->record.epoch) {
            return 1;
        }
    }
    return 0;
}

static void lease_runs_out(model_t *model, const model_world_t *world)
{
    model_world_t next = *world;
    int held = is_held(world);

    if (held && !can(model, MODEL_LAPSE)) {
        return;
    }
    next.record.lease = MODEL_OVER;
    next.excused |= model_bit(next.life);
    for (unsigned i = 0; i < MODEL_SLOTS; i++) {
        model_slot_t *slot = &next.slots[i];
        int waits = slot->phase == MODEL_ASKING || slot->phase == MODEL_GRANTED;
        if (waits && slot->claim == next.record.claim && !can(model, MODEL_LATE_FORWARD)) {
            slot->flags |= MODEL_LATE;
        }
    }
    model_emit(model, &next,
               &(model_move_t){.act = MODEL_LEASE_RUNS_OUT,
                               .claim = world->record.claim,
                               .epoch = world->record.epoch,
                               .detail = (uint8_t)held});
}

static void reap(model_t *model, const model_world_t *world)
{
    model_world_t next = *world;
    model_move_t move = {.act = MODEL_REAPED, .kind = world->record.state};

    move.outcome = model_deliver(model, &next, ONCE__REAP, 0, 0, 0);
    model_emit(model, &next, &move);
}

static void pass_time(model_t *model, const model_world_t *world)
{
    const model_record_t *record = &world->record;
    model_world_t next = *world;
    model_move_t move = {.claim = record->claim, .epoch = record->epoch, .kind = record->state};

    if (is_open(record) && record->lease == MODEL_LIVE) {
        lease_runs_out(model, world);
    } else if (is_open(record) && record->lease == MODEL_OVER && can(model, MODEL_ABANDON)) {
        move.act = MODEL_RETENTION_PASSES;
        next.record.lease = MODEL_LONG_OVER;
        model_forget_copies(&next);
        model_emit(model, &next, &move);
    } else if (model_exists(world) && !is_open(record) &&
               can(model, record->brief ? MODEL_TTL | MODEL_BRIEF : MODEL_TTL)) {
        move.act = MODEL_TTL_OVER;
        move.detail = record->brief;
        next.record.expired = 1;
        if (!record->brief || !can(model, MODEL_OLD_COPIES)) {
            model_forget_copies(&next);
        }
        model_emit(model, &next, &move);
    }
    if (record->state != ONCE_STATE_NONE && can(model, MODEL_TTL | MODEL_ABANDON | MODEL_BRIEF)) {
        reap(model, world);
    }
}

/* Could the operation still happen under a claim of this life? A job may act; a gateway may forward. */
static int may_still_happen(const model_t *model, const model_world_t *world)
{
    const model_record_t *record = &world->record;
    uint8_t peers = model_peers(world, world->life);
    int by_lease = record->state == ONCE_STATE_UNKNOWN && (record->flags & ONCE__BY_LEASE);

    for (unsigned claim = 1; claim <= world->ids; claim++) {
        if ((peers & model_bit(claim)) && world->job[claim] == MODEL_OPEN) {
            return 1;
        }
    }
    for (unsigned i = 0; i < model->scenario->slots && !can(model, MODEL_BLIND); i++) {
        const model_slot_t *slot = &world->slots[i];
        if (!(peers & model_bit(slot->claim)) || (slot->flags & MODEL_LATE)) {
            continue;
        }
        /* A claim that waits for its reply runs if the record is pending; unknown by lease it is answered mine and does not. */
        if (slot->phase == MODEL_GRANTED ||
            (slot->phase == MODEL_ASKING && slot->claim == record->claim && !by_lease)) {
            return 1;
        }
    }
    return 0;
}

static void look(model_t *model, const model_world_t *world, unsigned verdict, int force)
{
    model_world_t next = *world;

    next.looks--;
    next.look = (uint8_t)verdict;
    next.look_claim = world->record.claim;
    next.look_epoch = world->record.epoch;
    next.look_force = (uint8_t)force;
    model_emit(model, &next,
               &(model_move_t){.act = MODEL_LOOKS,
                               .claim = next.look_claim,
                               .epoch = next.look_epoch,
                               .kind = (uint8_t)verdict,
                               .detail = (uint8_t)force});
}

static void look_moves(model_t *model, const model_world_t *world)
{
    const model_record_t *record = &world->record;
    int happened = (world->acted & model_peers(world, world->life)) != 0;
    int never = !happened && (can(model, MODEL_HASTY) || !may_still_happen(model, world));

    if (world->looks == 0 || world->look != MODEL_NOT_LOOKED || !model_exists(world)) {
        return;
    }
    for (int force = 0; force <= can(model, MODEL_FORCE); force++) {
        if (can(model, MODEL_PURGE)) {
            look(model, world, MODEL_FORGET, force);
        }
        if (can(model, MODEL_ERASE)) {
            look(model, world, MODEL_WIPE, force);
        }
        /* Who cannot see the gateways judges only what no gateway will touch any more: a record whose lease is over. */
        if (!is_open(record) ||
            (can(model, MODEL_BLIND) && record->lease == MODEL_LIVE && !can(model, MODEL_EARLY))) {
            continue;
        }
        if (happened || can(model, MODEL_ANY_LOOK)) {
            look(model, world, MODEL_HAPPENED, force);
        }
        if (never || can(model, MODEL_ANY_LOOK)) {
            look(model, world, MODEL_NEVER, force);
        }
    }
}

static void settle_moves(model_t *model, const model_world_t *world)
{
    static const once__event_kind_t kinds[] = {[MODEL_HAPPENED] = ONCE__SETTLE_COMPLETED,
                                               [MODEL_NEVER] = ONCE__SETTLE_FAILED,
                                               [MODEL_FORGET] = ONCE__PURGE,
                                               [MODEL_WIPE] = ONCE__ERASE};
    uint8_t payload = (uint8_t)(world->look_claim << 3 | MODEL_OPERATOR);

    for (int lost = 0; lost <= 1 && world->look != MODEL_NOT_LOOKED; lost++) {
        once__event_kind_t kind = kinds[world->look];
        model_world_t next = *world;
        model_move_t move = {.act = MODEL_SETTLES, .kind = kind, .claim = world->look_claim};
        move.epoch = world->look_epoch;
        move.lost = (uint8_t)lost;
        move.outcome =
            model_deliver(model, &next, kind, world->look_claim, world->look_epoch, payload);
        if (!lost) {
            next.look = next.look_claim = next.look_epoch = next.look_force = 0;
        }
        model_emit(model, &next, &move);
    }
}

void model_time_moves(model_t *model, const model_world_t *world)
{
    pass_time(model, world);
    look_moves(model, world);
    settle_moves(model, world);
}
