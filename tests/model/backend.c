/*
 * The backend: what becomes of a forwarded request.
 *
 * Plain door: it takes effect at any time, or never, and answers or not; a gateway that has stopped waiting changes nothing
 * about that. Transactional door: the effect and the record commit in one step, through the same event as the gateway's
 * complete, and only `done` commits.
 */
#include "model.h"
#include "support/mutants.h"

static int can(const model_t *model, unsigned what)
{
    return (model->scenario->can & what) != 0;
}

static model_move_t about(const model_world_t *world, unsigned act, unsigned claim)
{
    return (model_move_t){
        .act = (uint8_t)act, .claim = (uint8_t)claim, .epoch = world->epoch[claim]};
}

/* The slot that waits for the answer under this claim, or -1. */
static int waiting(const model_world_t *world, unsigned claim)
{
    for (int i = 0; i < MODEL_SLOTS; i++) {
        if (world->slots[i].phase == MODEL_FORWARDED && world->slots[i].claim == claim) {
            return i;
        }
    }
    return -1;
}

static void says(model_t *model, const model_world_t *world, unsigned claim, unsigned what,
                 unsigned phase, unsigned answer)
{
    model_world_t next = *world;
    model_move_t move = about(world, MODEL_ANSWERED, claim);
    int who = waiting(world, claim);

    move.kind = (uint8_t)what;
    move.detail = (world->acted & model_bit(claim)) != 0;
    if (model->scenario->door == MODEL_PLAIN) {
        next.job[claim] = MODEL_NO_JOB;
    }
    if (phase == MODEL_RELEASING && what != MODEL_SAYS_401) {
        next.excused |= model_bit(next.lives[claim]);
    }
    model_end_job(model, &next, (unsigned)who, phase, answer);
    model_emit(model, &next, &move);
}

/* By the stricter of the record's and the route's policy, or what happens if only the route's is looked at. */
static int judged_as_hold(const model_t *model, const model_world_t *world, unsigned claim)
{
    int held = (world->held & model_bit(claim)) && !can(model, MODEL_BY_ASKER);
    return held || world->policy[claim] == ONCE_RECOVER_HOLD;
}

static void plain_answers(model_t *model, const model_world_t *world, unsigned claim)
{
    int acted = world->job[claim] == MODEL_ACTED;
    int hold = judged_as_hold(model, world, claim);

    if (acted) {
        says(model, world, claim, MODEL_SAYS_2XX, MODEL_COMPLETING, MODEL_2XX);
    } else {
        says(model, world, claim, MODEL_SAYS_4XX, MODEL_COMPLETING, MODEL_4XX);
    }
    if (can(model, MODEL_5XX)) {
        says(model, world, claim, MODEL_SAYS_5XX, hold ? MODEL_DOUBTING : MODEL_RELEASING,
             MODEL_NOTE);
    }
    if (acted ? can(model, MODEL_DIRTY_401) : can(model, MODEL_401 | MODEL_DIRTY_401)) {
        says(model, world, claim, MODEL_SAYS_401, MODEL_RELEASING, 0);
    }
    /* Under hold a backend that asks for a release has not acted: part of the promise. */
    if (can(model, MODEL_ASKED) && !(hold && acted)) {
        says(model, world, claim, MODEL_SAYS_RETRY, MODEL_RELEASING, MODEL_NOTE);
    }
}

static void plain_moves(model_t *model, const model_world_t *world, unsigned claim)
{
    int heard = waiting(world, claim) >= 0;
    model_world_t next = *world;
    model_move_t move;

    if (world->job[claim] == MODEL_OPEN) {
        move = about(world, MODEL_TAKES_EFFECT, claim);
        model_check_effect(model, world, claim);
        next.acted |= model_bit(claim);
        next.job[claim] = heard ? MODEL_ACTED : MODEL_NO_JOB;
        model_emit(model, &next, &move);
    }
    next = *world;
    next.job[claim] = MODEL_NO_JOB;
    move = about(world, MODEL_DIES, claim);
    model_emit(model, &next, &move);
    if (heard) {
        plain_answers(model, world, claim);
    }
}

static void commit(model_t *model, const model_world_t *world, unsigned claim)
{
    model_world_t next = *world;
    model_move_t move = about(world, MODEL_COMMITS, claim);
    uint8_t payload = (uint8_t)(claim << 3 | MODEL_TX);

    move.outcome = model_deliver(model, &next, ONCE__COMPLETE, claim, world->epoch[claim], payload);
    if (move.outcome == ONCE_OUTCOME_DONE ||
        (move.outcome == ONCE_OUTCOME_ALREADY && (model->behaviour & MUTANT_IDEMPOTENT_SQL))) {
        model_check_effect(model, world, claim);
        next.acted |= model_bit(claim);
    }
    if (!can(model, MODEL_REPEAT_TX)) {
        next.job[claim] = MODEL_ACTED;
    }
    model_emit(model, &next, &move);
}

static void sql_moves(model_t *model, const model_world_t *world, unsigned claim)
{
    int heard = waiting(world, claim) >= 0;
    model_world_t next = *world;
    model_move_t move = about(world, MODEL_DIES, claim);

    if (world->job[claim] == MODEL_OPEN) {
        commit(model, world, claim);
    }
    next.job[claim] = MODEL_NO_JOB;
    model_emit(model, &next, &move);
    if (!heard) {
        return;
    }
    if (world->acted & model_bit(claim)) {
        says(model, world, claim, MODEL_SAYS_2XX, MODEL_COMPLETING, MODEL_2XX);
    } else {
        says(model, world, claim, MODEL_SAYS_4XX, MODEL_COMPLETING, MODEL_4XX);
    }
    /* The answer to a transaction that may still run: whether it is released or doubted must not matter. */
    if (can(model, MODEL_5XX)) {
        says(model, world, claim, MODEL_SAYS_5XX, MODEL_RELEASING, MODEL_NOTE);
        says(model, world, claim, MODEL_SAYS_5XX_DOUBT, MODEL_DOUBTING, 0);
    }
    if (can(model, MODEL_401)) {
        says(model, world, claim, MODEL_SAYS_401, MODEL_RELEASING, 0);
    }
}

void model_backend_moves(model_t *model, const model_world_t *world)
{
    for (unsigned claim = 1; claim <= world->ids; claim++) {
        if (world->job[claim] == MODEL_NO_JOB) {
            continue;
        }
        if (model->scenario->door == MODEL_SQL) {
            sql_moves(model, world, claim);
        } else {
            plain_moves(model, world, claim);
        }
    }
}
