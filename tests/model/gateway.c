/*
 * The gateways: what a request in a slot does next, what a crash ends, and which of their messages arrive a second time.
 *
 * A gateway never assumes: a claim or write whose reply was lost is repeated as it was. Writes that come back already or
 * lost are answered from the record.
 */
#include "model.h"
#include "support/mutants.h"

#include <string.h>

static int can(const model_t *model, unsigned what)
{
    return (model->scenario->can & what) != 0;
}

/* Copies of this message may arrive later. */
static void note_sent(const model_t *model, model_world_t *world, once__event_kind_t kind,
                      unsigned claim, unsigned answer)
{
    if (can(model, kind == ONCE__CLAIM ? MODEL_LATE_CLAIMS | MODEL_LATE_OWN : MODEL_LATE_WRITES)) {
        world->sent[claim] |= (uint8_t)(1u << kind | answer << 5);
    }
}

static void ask_as(const model_t *model, model_world_t *world, model_slot_t *slot, uint8_t policy,
                   int other)
{
    memset(slot, 0, sizeof(*slot));
    slot->phase = MODEL_ASKING;
    slot->claim = ++world->ids;
    world->policy[slot->claim] = policy;
    world->other |= other ? model_bit(slot->claim) : 0;
    note_sent(model, world, ONCE__CLAIM, slot->claim, 0);
}

/* The same request under a new claim id, as far as there are any left. */
static void ask_anew(const model_t *model, model_world_t *world, model_slot_t *slot)
{
    uint8_t claim = slot->claim;
    int gave_up = slot->flags & MODEL_GAVE_UP;

    memset(slot, 0, sizeof(*slot));
    if (world->ids < model->scenario->ids && !gave_up) {
        ask_as(model, world, slot, world->policy[claim], world->other & model_bit(claim));
    }
}

static void idle_moves(model_t *model, const model_world_t *world, unsigned who)
{
    const model_scenario_t *scenario = model->scenario;

    /* Gateways are alike: a request comes to the first that is free. */
    if (world->ids == scenario->ids || (who == 1 && world->slots[0].phase == MODEL_IDLE)) {
        return;
    }
    for (unsigned other = 0; other == 0 || other < scenario->fingerprints; other++) {
        for (unsigned policy = ONCE_RECOVER_RETRY; policy <= ONCE_RECOVER_HOLD; policy++) {
            if (scenario->policies & 1u << policy) {
                model_world_t next = *world;
                model_move_t move = {
                    .act = MODEL_ARRIVES, .who = (uint8_t)who, .kind = (uint8_t)policy};
                ask_as(model, &next, &next.slots[who], (uint8_t)policy, (int)other);
                move.claim = next.ids;
                move.detail = (uint8_t)other;
                model_emit(model, &next, &move);
            }
        }
    }
}

/* Releases are early unless the backend may have acted: `answer` is MODEL_NOTE then. */
static void begin_write(const model_t *model, model_world_t *world, model_slot_t *slot,
                        unsigned phase, unsigned answer)
{
    static const once__event_kind_t kinds[] = {[MODEL_COMPLETING] = ONCE__COMPLETE,
                                               [MODEL_RELEASING] = ONCE__RELEASE,
                                               [MODEL_DOUBTING] = ONCE__DOUBT};
    int loose = answer == MODEL_NOTE && !(model->behaviour & MUTANT_ALWAYS_EARLY);

    slot->phase = (uint8_t)phase;
    slot->answer = (uint8_t)answer;
    slot->flags &= MODEL_ANEW;
    if (phase == MODEL_RELEASING) {
        slot->answer = loose ? MODEL_NOTE : MODEL_EARLY_NOTE;
        answer = loose ? 0 : 4;
    }
    note_sent(model, world, kinds[phase], slot->claim, answer);
}

void model_end_job(const model_t *model, model_world_t *world, unsigned who, unsigned phase,
                   unsigned answer)
{
    begin_write(model, world, &world->slots[who], phase, answer);
}

static void hear_claim(model_t *model, model_world_t *world, model_slot_t *slot, uint8_t outcome)
{
    switch (outcome) {
    case ONCE_OUTCOME_RUN:
        world->epoch[slot->claim] = world->record.epoch;
        slot->phase = MODEL_GRANTED;
        if (slot->flags & MODEL_GAVE_UP) {
            begin_write(model, world, slot, MODEL_RELEASING, 0);
        }
        break;
    case ONCE__MINE:
        world->epoch[slot->claim] = world->record.epoch;
        slot->flags |= slot->flags & MODEL_GAVE_UP ? 0 : MODEL_ANEW;
        begin_write(model, world, slot, MODEL_RELEASING, 0);
        break;
    case ONCE_OUTCOME_LOST:
        ask_anew(model, world, slot);
        break;
    case ONCE_OUTCOME_REPLAY:
        model_check_told(model, world, world->record.payload);
        memset(slot, 0, sizeof(*slot));
        break;
    default:
        memset(slot, 0, sizeof(*slot));
        break;
    }
}

/* Does the move cost one of the grants whose reply may be lost, and is there one left? */
static int pay_for_grant(model_world_t *next, const model_world_t *world)
{
    if (next->record.epoch == world->record.epoch && next->record.claim == world->record.claim) {
        return 1;
    }
    if (next->losses == 0) {
        return 0;
    }
    next->losses--;
    return 1;
}

static void asking_moves(model_t *model, const model_world_t *world, unsigned who)
{
    uint8_t claim = world->slots[who].claim;

    for (int lost = 0; lost <= 1; lost++) {
        model_world_t next = *world;
        model_move_t move = {
            .act = MODEL_ASKS, .who = (uint8_t)who, .claim = claim, .lost = (uint8_t)lost};
        note_sent(model, &next, ONCE__CLAIM, claim, 0);
        move.outcome = model_deliver(model, &next, ONCE__CLAIM, claim, 0, 0);
        move.epoch = next.record.epoch;
        if (!lost) {
            hear_claim(model, &next, &next.slots[who], move.outcome);
        } else if (!pay_for_grant(&next, world)) {
            model->broken = NULL;
            continue;
        }
        model_emit(model, &next, &move);
    }
    if (can(model, MODEL_GIVING_UP) && !(world->slots[who].flags & MODEL_GAVE_UP)) {
        model_world_t next = *world;
        next.slots[who].flags |= MODEL_GAVE_UP;
        model_emit(model, &next,
                   &(model_move_t){.act = MODEL_GIVES_UP, .who = (uint8_t)who, .claim = claim});
    }
}

static void granted_moves(model_t *model, const model_world_t *world, unsigned who)
{
    const model_slot_t *slot = &world->slots[who];
    int late = slot->flags & MODEL_LATE;
    model_move_t move = {
        .who = (uint8_t)who, .claim = slot->claim, .epoch = world->epoch[slot->claim]};

    if (!late) {
        model_world_t next = *world;
        move.act = MODEL_FORWARDS;
        next.slots[who].phase = MODEL_FORWARDED;
        next.job[slot->claim] = MODEL_OPEN;
        next.forwarded |= model_bit(slot->claim);
        model_emit(model, &next, &move);
    }
    if (late || can(model, MODEL_CONNECT)) {
        model_world_t next = *world;
        move.act = MODEL_SENDS_NOTHING;
        begin_write(model, &next, &next.slots[who], MODEL_RELEASING, 0);
        model_emit(model, &next, &move);
    }
    if (late && can(model, MODEL_CONFIRM)) {
        model_world_t next = *world;
        move.act = MODEL_WRITES;
        move.kind = ONCE__RENEW;
        move.outcome = model_deliver(model, &next, ONCE__RENEW, slot->claim, move.epoch, 0);
        if (move.outcome == ONCE_OUTCOME_DONE && next.record.state == ONCE_STATE_PENDING) {
            next.slots[who].flags &= (uint8_t)~MODEL_LATE;
        }
        model_emit(model, &next, &move);
    }
}

static void hear_write(model_t *model, model_world_t *world, model_slot_t *slot, uint8_t outcome)
{
    uint8_t own = (uint8_t)(slot->claim << 3 | slot->answer);
    const model_record_t *record = &world->record;

    if (slot->phase == MODEL_COMPLETING) {
        if (outcome == ONCE_OUTCOME_DONE || (model->behaviour & MUTANT_OWN_ANSWER)) {
            model_check_told(model, world, own);
        } else if (model_exists(world) && record->state == ONCE_STATE_COMPLETED) {
            model_check_told(model, world, record->payload);
        }
    }
    if (slot->flags & MODEL_ANEW) {
        ask_anew(model, world, slot);
    } else {
        memset(slot, 0, sizeof(*slot));
    }
}

static void writing_moves(model_t *model, const model_world_t *world, unsigned who)
{
    static const once__event_kind_t kinds[] = {[MODEL_COMPLETING] = ONCE__COMPLETE,
                                               [MODEL_RELEASING] = ONCE__RELEASE,
                                               [MODEL_DOUBTING] = ONCE__DOUBT};
    const model_slot_t *slot = &world->slots[who];
    once__event_kind_t kind = kinds[slot->phase];
    uint8_t answer = kind == ONCE__DOUBT ? MODEL_NOTE : slot->answer;
    uint8_t payload = (uint8_t)(slot->claim << 3 | answer);

    for (int lost = 0; lost <= can(model, MODEL_LOSE); lost++) {
        model_world_t next = *world;
        model_move_t move = {
            .act = MODEL_WRITES, .who = (uint8_t)who, .claim = slot->claim, .kind = kind};
        move.lost = (uint8_t)lost;
        move.epoch = world->epoch[slot->claim];
        move.outcome = model_deliver(model, &next, kind, slot->claim, move.epoch, payload);
        if (!lost) {
            hear_write(model, &next, &next.slots[who], move.outcome);
        }
        model_emit(model, &next, &move);
    }
    if ((model->behaviour & MUTANT_FAILED_WRITE_RELEASES) && kind == ONCE__COMPLETE) {
        model_world_t next = *world;
        begin_write(model, &next, &next.slots[who], MODEL_RELEASING, MODEL_NOTE);
        model_emit(model, &next,
                   &(model_move_t){.act = MODEL_SENDS_NOTHING,
                                   .who = (uint8_t)who,
                                   .claim = slot->claim,
                                   .detail = 1});
    }
}

static void renew_moves(model_t *model, const model_world_t *world, unsigned who)
{
    const model_slot_t *slot = &world->slots[who];
    model_world_t next = *world;
    model_move_t move = {
        .act = MODEL_WRITES, .who = (uint8_t)who, .claim = slot->claim, .kind = ONCE__RENEW};

    if (!can(model, MODEL_RENEW) || slot->phase < MODEL_GRANTED) {
        return;
    }
    note_sent(model, &next, ONCE__RENEW, slot->claim, 0);
    move.epoch = world->epoch[slot->claim];
    move.outcome = model_deliver(model, &next, ONCE__RENEW, slot->claim, move.epoch, 0);
    model_emit(model, &next, &move);
}

static void slot_moves(model_t *model, const model_world_t *world, unsigned who)
{
    const model_slot_t *slot = &world->slots[who];

    switch (slot->phase) {
    case MODEL_IDLE:
        idle_moves(model, world, who);
        break;
    case MODEL_ASKING:
        asking_moves(model, world, who);
        break;
    case MODEL_GRANTED:
        granted_moves(model, world, who);
        break;
    case MODEL_FORWARDED: {
        model_world_t next = *world;
        begin_write(model, &next, &next.slots[who], MODEL_DOUBTING, 0);
        model_emit(model, &next,
                   &(model_move_t){.act = MODEL_TIMES_OUT,
                                   .who = (uint8_t)who,
                                   .claim = slot->claim,
                                   .epoch = world->epoch[slot->claim]});
        break;
    }
    default:
        writing_moves(model, world, who);
        break;
    }
    renew_moves(model, world, who);
}

static void crash_moves(model_t *model, const model_world_t *world)
{
    for (unsigned gateway = 0; gateway < 2 && world->crashes > 0; gateway++) {
        model_world_t next = *world;
        int busy = 0;
        for (unsigned who = gateway; who < model->scenario->slots; who += 2) {
            busy |= next.slots[who].phase != MODEL_IDLE;
            memset(&next.slots[who], 0, sizeof(next.slots[who]));
        }
        next.crashes--;
        if (busy) {
            model_emit(model, &next,
                       &(model_move_t){.act = MODEL_CRASHES, .who = (uint8_t)gateway});
        }
    }
}

static int may_arrive(const model_t *model, const model_world_t *world, unsigned kind,
                      unsigned claim)
{
    int own = kind != ONCE__CLAIM || can(model, MODEL_LATE_CLAIMS) || world->record.claim == claim;
    return own && (world->sent[claim] & 1u << kind);
}

static void late_moves(model_t *model, const model_world_t *world)
{
    for (unsigned claim = 1; claim <= world->ids; claim++) {
        for (unsigned kind = ONCE__CLAIM; kind <= ONCE__RENEW; kind++) {
            model_world_t next = *world;
            model_move_t move = {
                .act = MODEL_LATE_COPY, .claim = (uint8_t)claim, .kind = (uint8_t)kind};
            uint8_t answer = world->sent[claim] >> 5;
            uint8_t payload;
            if (kind != ONCE__COMPLETE) {
                answer = kind == ONCE__RELEASE && (answer & 4) ? MODEL_EARLY_NOTE : MODEL_NOTE;
            }
            payload = (uint8_t)(claim << 3 | (kind == ONCE__COMPLETE ? answer & 3 : answer));
            if (may_arrive(model, world, kind, claim)) {
                move.epoch = world->epoch[claim];
                move.outcome = model_deliver(model, &next, (once__event_kind_t)kind, claim,
                                             move.epoch, payload);
                if (!pay_for_grant(&next, world)) {
                    model->broken = NULL;
                    continue;
                }
                model_emit(model, &next, &move);
            }
        }
    }
}

void model_gateway_moves(model_t *model, const model_world_t *world)
{
    for (unsigned who = 0; who < model->scenario->slots; who++) {
        slot_moves(model, world, who);
    }
    crash_moves(model, world);
    late_moves(model, world);
}
