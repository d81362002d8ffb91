#include "plan.h"

#include <string.h>

#include <once/policy.h>

/* 0 in half of the schedules, else up to `high`. */
static unsigned maybe(prng_t *prng, unsigned high)
{
    unsigned value = (unsigned)prng_between(prng, 1, high);

    return prng_chance(prng, 500) ? value : 0;
}

static void draw_policies(plan_t *plan, prng_t *prng)
{
    static const unsigned weights[] = {
        [ONCE_RECOVER_RETRY] = 3, [ONCE_RECOVER_TRANSACTIONAL] = 3, [ONCE_RECOVER_HOLD] = 4};

    for (unsigned i = 0; i < PLAN_KEYS_MAX; i++) {
        plan->recover[i] = prng_pick(prng, weights, 3);
    }
}

static void draw_times(plan_t *plan, prng_t *prng)
{
    plan->lease = prng_between(prng, 300, 2000);
    plan->short_ttl = prng_chance(prng, 400);
    plan->ttl = plan->short_ttl ? prng_between(prng, 1000, 4 * plan->lease + 1000) : 3600 * 1000;
    plan->horizon = prng_between(prng, 6, 14) * plan->lease;
    plan->reply_timeout = prng_between(prng, 50, plan->lease);
    plan->store_timeout = prng_between(prng, plan->lease / 4, 3 * plan->lease);
    plan->upstream_timeout = prng_between(prng, plan->lease / 2, 3 * plan->lease);
    plan->client_timeout = prng_between(prng, plan->lease / 2, 5 * plan->lease);
    plan->reap = prng_chance(prng, 800) ? prng_between(prng, plan->lease, 4 * plan->lease) : 0;
    plan->late_max = 3 * plan->lease;
}

static void draw_network(plan_t *plan, prng_t *prng)
{
    plan->lose_request = maybe(prng, 150);
    plan->lose_reply = maybe(prng, 200);
    plan->late = maybe(prng, 80);
    plan->duplicate = maybe(prng, 80);
    plan->full = maybe(prng, 30);
    plan->outage = maybe(prng, 80);
}

static void draw_processes(plan_t *plan, prng_t *prng)
{
    plan->crash = maybe(prng, 60);
    plan->stall = maybe(prng, 100);
    plan->kill = maybe(prng, 60);
    plan->pause = maybe(prng, 150);
    plan->shutdown = maybe(prng, 60);
    plan->forget = maybe(prng, 20);
    plan->no_connection = maybe(prng, 150);
    plan->slow_connection = maybe(prng, 300);
}

/*
 * The contract assumes that no request to the store arrives later than a ttl: a claim that does would find its record gone and
 * begin a new one in the name of a holder that ended long ago. Delays are kept below the ttl, and a store clock that jumps (and
 * so ends a ttl at once) is not combined with short ones and late requests; nor is a purge.
 */
static void respect_ttl(plan_t *plan)
{
    if (plan->reply_timeout + plan->late_max >= plan->ttl) {
        plan->late_max = plan->ttl > plan->reply_timeout ? plan->ttl - plan->reply_timeout - 1 : 0;
    }
    if (plan->late_max == 0) {
        plan->late = plan->duplicate = 0;
    }
    if (plan->late != 0 || plan->duplicate != 0) {
        plan->purge = 0;
        plan->jump = plan->short_ttl ? 0 : plan->jump;
    }
}

void plan_draw(plan_t *plan, prng_t *prng)
{
    memset(plan, 0, sizeof(*plan));
    plan->keys = (unsigned)prng_between(prng, 1, PLAN_KEYS_MAX);
    plan->gateways = (unsigned)prng_between(prng, 2, PLAN_GATEWAYS_MAX);
    plan->clients = (unsigned)prng_between(prng, 2, PLAN_CLIENTS_MAX);
    plan->calm = prng_chance(prng, 50);
    plan->operator_ = prng_chance(prng, 600);
    draw_policies(plan, prng);
    draw_times(plan, prng);
    plan->other_body = maybe(prng, 150);
    plan->twins = maybe(prng, 300);
    plan->impatient = maybe(prng, 200);
    plan->trouble = (unsigned)prng_between(prng, 100, 700);
    if (plan->calm) {
        plan->trouble = 0;
        plan->upstream_timeout = plan->client_timeout = 10 * plan->lease;
        return;
    }
    draw_network(plan, prng);
    draw_processes(plan, prng);
    plan->jump = maybe(prng, 60);
    plan->purge = maybe(prng, 200);
    plan->mixed = prng_chance(prng, 200);
    plan->rotations = prng_chance(prng, 300) ? (unsigned)prng_between(prng, 1, 3) : 0;
    respect_ttl(plan);
}

/* A backend cannot complete a record of a local store in its own transaction: it would be another store's. */
void plan_draw_local(plan_t *plan, prng_t *prng)
{
    for (unsigned i = 0; i < PLAN_KEYS_MAX; i++) {
        plan->recover[i] =
            plan->recover[i] == ONCE_RECOVER_TRANSACTIONAL ? ONCE_RECOVER_RETRY : plan->recover[i];
    }
    plan->lose_request = plan->lose_reply = plan->late = plan->duplicate = plan->full = 0;
    if (plan->calm) {
        return;
    }
    plan->power = maybe(prng, 100);
    plan->power_at_sync = maybe(prng, 20);
    plan->disk_error = maybe(prng, 15);
}
