/*
 * States: where a scenario begins, what can happen next, and when two states are the same.
 */
#include "model.h"

#include <string.h>

void model_begin(const model_scenario_t *scenario, model_world_t *world)
{
    memset(world, 0, sizeof(*world));
    world->crashes = scenario->crashes;
    world->looks = scenario->looks;
    world->losses = scenario->losses;
}

void model_moves(model_t *model, const model_world_t *world)
{
    model_gateway_moves(model, world);
    model_backend_moves(model, world);
    model_time_moves(model, world);
}

/* Claims that can still do something: asked for, at work, named by the record or the operator, or with copies under way. */
static uint8_t claims_at_large(const model_world_t *world)
{
    unsigned mask = 1u << world->record.claim | 1u << world->look_claim;

    for (unsigned i = 0; i < MODEL_SLOTS; i++) {
        mask |= 1u << world->slots[i].claim;
    }
    for (unsigned claim = 1; claim <= world->ids; claim++) {
        mask |= world->job[claim] != MODEL_NO_JOB || world->sent[claim] != 0 ? 1u << claim : 0;
    }
    return (uint8_t)mask;
}

/* Numbers the lives that claims still refer to 1, 2, 3... The record's is the last of them while it exists. */
static void renumber_lives(model_world_t *world)
{
    uint8_t number[MODEL_CLAIMS + 2] = {0};
    uint8_t excused = 0, next = 0;

    for (unsigned claim = 1; claim <= world->ids; claim++) {
        number[world->lives[claim]] = 1;
    }
    number[0] = 0;
    for (unsigned life = 1; life <= world->life; life++) {
        if (number[life] || (life == world->life && model_lives(world))) {
            number[life] = ++next;
            excused |= world->excused & model_bit(life) ? model_bit(next) : 0;
        }
    }
    for (unsigned claim = 1; claim <= world->ids; claim++) {
        world->lives[claim] = number[world->lives[claim]];
    }
    world->excused = excused;
    world->life = next;
}

/*
 * Forgets what can matter no more, so that states that differ only in such things are one. What a claim did in the
 * record's present life matters as long as that life lasts; what it did in an earlier one as long as a claim of that life
 * is at large.
 */
static void forget(model_world_t *world)
{
    uint8_t large = claims_at_large(world);
    unsigned wanted = 0;

    for (unsigned claim = 1; claim <= world->ids; claim++) {
        wanted |= large & model_bit(claim) ? 1u << world->lives[claim] : 0;
    }
    wanted |= model_lives(world) ? 1u << world->life : 0;
    for (unsigned claim = 1; claim <= world->ids; claim++) {
        uint8_t bit = model_bit(claim);
        int life_goes_on = (wanted & 1u << world->lives[claim]) != 0;
        int at_large = (large & bit) != 0;
        if (!at_large) {
            world->policy[claim] = world->epoch[claim] = 0;
            world->forwarded &= (uint8_t)~bit;
        }
        if (!at_large &&
            !(life_goes_on && ((world->acted | world->doubtful | world->loose) & bit))) {
            world->lives[claim] = 0;
            world->acted &= (uint8_t)~bit;
            world->doubtful &= (uint8_t)~bit;
            world->loose &= (uint8_t)~bit;
            world->other &= (uint8_t)~bit;
        }
        if (world->lives[claim] == 0) {
            world->held &= (uint8_t)~bit;
        }
    }
    if (!model_lives(world)) {
        world->told = 0;
    }
    renumber_lives(world);
}

void model_emit(model_t *model, const model_world_t *next, const model_move_t *move)
{
    model_world_t world = *next;

    model_check_world(model, next);
    forget(&world);
    model->emit(model->data, &world, move, model->broken);
    model->broken = NULL;
}
