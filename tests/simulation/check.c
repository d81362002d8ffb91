#include "check.h"

#include <string.h>

#include "core/token.h"

#define TRANSACTIONAL "I1 transactional: at most one effect"
#define HOLD          "I2 hold: at most one effect"
#define RETRY         "I3 retry: a second effect needs a cause"
#define OWN_CLAIM     "each effect has its own claim"
#define ANSWER        "I4 an answer is what the record holds"
#define STUCK         "I5 nothing stays stuck"
#define NEVER_SENT    "I6 unknown though nothing was sent"
#define TWO           "I9 two bodies under one key"

/* --------------------------------------------------------------------------------------------------------- gateways */

grant_t *check_run(world_t *world, sim_key_t *key, const char *token)
{
    uint8_t id[ONCE_ID_SIZE];
    once__claim_ref_t ref;
    grant_t *grant = NULL;

    if (once__token_read(token, id, &ref) == 0 && memcmp(id, key->id, ONCE_ID_SIZE) == 0) {
        grant = ledger_grant(key, &ref);
    }
    if (grant == NULL) {
        world_violate(world, key->number, "run: only what was granted",
                      "run is answered to a claim that the store never granted");
        return NULL;
    }
    grant->runs++;
    if (grant->runs > 1) {
        world_violate(world, key->number, "run: told once", "epoch %u is answered run twice",
                      ref.epoch);
        return NULL;
    }
    return grant;
}

/* Half the lease, and what a clock may run wrong meanwhile. */
static uint64_t half(const world_t *world)
{
    return world->plan.lease / 2 + world->plan.lease / 50 + 2;
}

void check_forward(world_t *world, sim_key_t *key, grant_t *grant, int variant)
{
    uint64_t age = world->now - grant->fresh_at;

    world_count(world, COUNT_FORWARDS);
    grant->forwards++;
    if (grant->forwards > 1) {
        world_violate(world, key->number, "forward: once per claim", "epoch %u is forwarded twice",
                      grant->ref.epoch);
    } else if (age > half(world)) {
        world_violate(world, key->number, "forward: in the first half of the lease",
                      "epoch %u is forwarded %llu ms into a lease of %llu ms", grant->ref.epoch,
                      (unsigned long long)age, (unsigned long long)world->plan.lease);
    } else if (variant != grant->life->variant) {
        world_violate(world, key->number, TWO, "epoch %u is forwarded with another body",
                      grant->ref.epoch);
    }
}

/* --------------------------------------------------------------------------------------------------------- backends */

static int has_cause(const grant_t *grant)
{
    return grant->doubted || grant->lease_over || grant->reason == REASON_5XX ||
           grant->reason == REASON_ASKED;
}

/* Of two claims that both took effect, the older one must have given cause to grant the younger. Under hold nothing does. */
static void check_pair(world_t *world, sim_key_t *key, const grant_t *a, const grant_t *b)
{
    const grant_t *older = a->ref.epoch < b->ref.epoch ? a : b;

    if (older->held) {
        world_violate(world, key->number, HOLD, "epochs %u and %u took effect", a->ref.epoch,
                      b->ref.epoch);
    } else if (!has_cause(older)) {
        world_violate(world, key->number, RETRY,
                      "epochs %u and %u took effect; epoch %u was not in doubt, not over, and not "
                      "released by the backend's wish or a 5xx",
                      a->ref.epoch, b->ref.epoch, older->ref.epoch);
    }
    world_count(world, COUNT_EFFECTS_SECOND);
}

static void check_promise(world_t *world, sim_key_t *key, const grant_t *grant)
{
    if (grant->life->effects < 2) {
        return;
    }
    if (key->recover == ONCE_RECOVER_TRANSACTIONAL) {
        world_violate(world, key->number, TRANSACTIONAL, "effect %u is by epoch %u",
                      grant->life->effects, grant->ref.epoch);
        return;
    }
    for (const grant_t *other = grant->life->grants; other != NULL; other = other->next) {
        if (other != grant && other->effects > 0) {
            check_pair(world, key, other, grant);
        }
    }
}

void check_effect(world_t *world, sim_key_t *key, grant_t *grant, int variant,
                  const response_t *response)
{
    world_count(world, COUNT_EFFECTS);
    if (grant == NULL) {
        world_say(world, key->number, "EFFECT without a claim");
        world_violate(world, key->number, OWN_CLAIM, "an effect without any claim");
        return;
    }
    world_say(world, key->number, "EFFECT of epoch %u", grant->ref.epoch);
    if (grant->life != ledger_life(key) || grant != grant->life->grants) {
        world_count(world, COUNT_EFFECTS_STALE);
    }
    grant->effects++;
    grant->life->effects++;
    grant->effect = *response;
    check_promise(world, key, grant);
    if (grant->effects > 1) {
        world_violate(world, key->number, OWN_CLAIM, "epoch %u took effect twice",
                      grant->ref.epoch);
    } else if (variant != grant->life->variant) {
        world_violate(world, key->number, TWO, "the effect is of another body");
    } else if (key->recover != ONCE_RECOVER_TRANSACTIONAL &&
               (grant->reason == REASON_NOT_SENT || grant->reason == REASON_BEFORE_EFFECT)) {
        world_violate(world, key->number, "release: certainly no effect",
                      "epoch %u was released as not executed", grant->ref.epoch);
    }
}

/* ---------------------------------------------------------------------------------------------------------- clients */

/* A life that could be seen since the client asked. */
static int overlaps(const life_t *life, const request_t *request)
{
    return life->ended >= request->asked_at;
}

static int is_recorded(const request_t *request, const response_t *response)
{
    for (const life_t *life = request->key->life; life != NULL; life = life->next) {
        if (overlaps(life, request) && life->completed && life->variant == request->variant &&
            life->response.status == response->status &&
            strcmp(life->response.body, response->body) == 0) {
            return 1;
        }
    }
    return 0;
}

static int is_other_body(const request_t *request)
{
    if ((request->key->glimpsed & ~(1u << (unsigned)request->variant)) != 0) {
        return 1;
    }
    for (const life_t *life = request->key->life; life != NULL; life = life->next) {
        if (overlaps(life, request) && life->variant != request->variant) {
            return 1;
        }
    }
    return 0;
}

void check_answer(const request_t *request, answer_kind_t kind, const response_t *response)
{
    world_t *world = request->world;
    const sim_key_t *key = request->key;

    switch (kind) {
    case ANSWER_RECORDED:
    case ANSWER_REPLAYED:
        if (!is_recorded(request, response)) {
            world_violate(world, key->number, ANSWER, "a client gets \"%d %s\", recorded is %s%s",
                          response->status, response->body, key->life->completed ? "" : "nothing",
                          key->life->response.body);
        }
        break;
    case ANSWER_MISMATCH:
        if (!is_other_body(request)) {
            world_violate(world, key->number, TWO,
                          "a client gets mismatch, but the record has its body");
        }
        break;
    case ANSWER_UNKNOWN:
        if (key->recover != ONCE_RECOVER_HOLD && !world->plan.mixed) {
            world_violate(world, key->number, STUCK, "a client gets unknown under %s",
                          once_recover_name(key->recover));
        }
        break;
    default:
        break;
    }
}

/* -------------------------------------------------------------------------------------------------------------- end */

/* Unknown although nothing was ever sent: only a crash, a gateway that forgets, or a late claim excuses it. */
static void check_never_sent(world_t *world, const sim_key_t *key, const grant_t *grant)
{
    if (grant->forwards > 0 || grant->life->tainted) {
        return; /* it was sent, or an earlier claim was */
    }
    world_count(world, COUNT_NEVER_RAN);
    if (!grant->late && !grant->dropped && (grant->process == NULL || !grant->process->crashed)) {
        world_violate(world, key->number, NEVER_SENT,
                      "epoch %u was never forwarded, and %s did not crash", grant->ref.epoch,
                      grant->process != NULL ? grant->process->name : "nobody");
    }
}

void check_end(world_t *world)
{
    for (unsigned i = 0; i < world->plan.keys; i++) {
        const sim_key_t *key = &world->ledger->keys[i];
        once_state_t state = (once_state_t)key->seen.head.state;
        if (!key->seen.exists || state == ONCE_STATE_COMPLETED) {
            continue;
        }
        if (state == ONCE_STATE_UNKNOWN && !world->plan.operator_ &&
            (key->recover == ONCE_RECOVER_HOLD || world->plan.mixed)) {
            world_count(world, COUNT_STUCK_UNKNOWN);
            check_never_sent(world, key, key->life->grants);
            continue;
        }
        world_violate(world, key->number, STUCK, "the record is %s under %s at the end",
                      once_state_name(state), once_recover_name(key->recover));
    }
    if (!world->plan.calm) {
        return;
    }
    for (unsigned i = 0; i < world->plan.keys; i++) {
        for (const life_t *life = world->ledger->keys[i].life; life != NULL; life = life->next) {
            for (const grant_t *grant = life->grants; grant != NULL; grant = grant->next) {
                if (grant->lease_over) {
                    world_violate(world, (int)i, "leases of the living are renewed",
                                  "the lease of epoch %u ran out and nothing was wrong",
                                  grant->ref.epoch);
                }
            }
        }
    }
}

void check_reaped(world_t *world)
{
    for (unsigned i = 0; i < world->plan.keys; i++) {
        const sim_key_t *key = &world->ledger->keys[i];
        once_state_t state = (once_state_t)key->seen.head.state;
        int held = key->seen.head.recover == ONCE_RECOVER_HOLD &&
                   (state == ONCE_STATE_UNKNOWN || state == ONCE_STATE_PENDING);
        if (key->seen.exists && !held) {
            world_violate(world, key->number, "expired records are removed",
                          "the record is still %s long after its ttl", once_state_name(state));
        }
    }
}
