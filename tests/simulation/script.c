#include "script.h"

#include <string.h>

#include "client.h"
#include "gateway.h"
#include "operator.h"

/* The gateways have their secrets by then. */
#define WARM_UP_MS 100

void script_plan(const script_t *script, plan_t *plan)
{
    memset(plan, 0, sizeof(*plan));
    plan->keys = 1;
    plan->gateways = 2;
    plan->recover[0] = script->recover;
    plan->lease = 1000;
    plan->reply_timeout = 200;
    plan->upstream_timeout = 600;
    plan->client_timeout = 5000;
    plan->late_max = 1;
    plan->store_timeout = script->store_timeout != 0 ? script->store_timeout : 500;
    plan->ttl = script->ttl != 0 ? script->ttl : 3600 * 1000;
    plan->reap = script->reap;
    plan->horizon = WARM_UP_MS + script->horizon;
}

const script_fate_t *script_fate(world_t *world, unsigned who, once__event_kind_t event)
{
    unsigned nth = ++world->script_sent[who == SCRIPT_OPERATOR ? PLAN_GATEWAYS_MAX : who][event];

    for (unsigned i = 0; i < SCRIPT_FATES; i++) {
        const script_fate_t *fate = &world->script->fates[i];
        if (fate->kind != FATE_NONE && fate->who == who && fate->event == event &&
            nth >= fate->first && nth <= fate->last) {
            return fate;
        }
    }
    return NULL;
}

const script_course_t *script_next_course(world_t *world)
{
    static const script_course_t good = {.effect_at = 5, .answer_at = 10, .status = 201};
    const script_course_t *course =
        &world->script->courses[world->script_courses++ % SCRIPT_COURSES];

    return world->quiet || world->script_courses > SCRIPT_COURSES || course->status == 0 ? &good
                                                                                         : course;
}

/* A step that waits for its time. */
typedef struct waiting_step {
    world_t *world;
    const script_step_t *step;
} waiting_step_t;

static void take_step(void *data)
{
    waiting_step_t *waiting = data;
    const script_step_t *step = waiting->step;
    world_t *world = waiting->world;

    switch (step->act) {
    case SCRIPT_ASK:
        client_ask_once(world, step->who, (int)step->value);
        break;
    case SCRIPT_CRASH:
        gateway_crash(&world->gateways[step->who]);
        break;
    case SCRIPT_PAUSE:
        process_pause(world->gateways[step->who].process, step->value);
        break;
    case SCRIPT_LOOK:
        operator_look(world, (int)step->value);
        break;
    case SCRIPT_LOOK_AGAIN:
        operator_look_again(world);
        break;
    case SCRIPT_END:
        break;
    }
}

void script_start(world_t *world)
{
    for (unsigned i = 0; i < SCRIPT_STEPS && world->script->steps[i].act != SCRIPT_END; i++) {
        waiting_step_t *waiting = world_alloc(world, sizeof(*waiting));
        waiting->world = world;
        waiting->step = &world->script->steps[i];
        world_after(world, WARM_UP_MS + waiting->step->at, take_step, waiting);
    }
}

void script_check(world_t *world)
{
    const script_t *script = world->script;
    const sim_key_t *key = &world->ledger->keys[0];
    once_state_t state = key->seen.exists ? (once_state_t)key->seen.head.state : ONCE_STATE_NONE;
    unsigned effects = 0;

    for (const life_t *life = key->life; life != NULL; life = life->next) {
        effects += life->effects;
    }
    if (effects != script->effects || state != script->state) {
        world_violate(world, 0, "as the script says", "%u effects and %s, not %u and %s", effects,
                      once_state_name(state), script->effects, once_state_name(script->state));
    }
}
