#include "operator.h"

#include <string.h>

#include "base/bytes.h"
#include "core/token.h"
#include "machine.h"
#include "script.h"

struct operator_ {
    world_t *world;
    process_t *process;
    unsigned rotations;
    struct matter *last; /* what it settled last */
    int force;           /* the next look, in a script */
};

typedef struct operator_ operator_t;

/* A record that the operator has looked at. */
typedef struct matter {
    operator_t *operator_;
    sim_key_t *key;
    char token[ONCE_TOKEN_SIZE];
    truth_t verdict;
    response_t response;
    int force;
    unsigned repeats;
} matter_t;

static void settle(void *data);

/* --------------------------------------------------------------------------------------------------------- settling */

static void settle_again(matter_t *matter)
{
    world_t *world = matter->operator_->world;

    matter->repeats++;
    world_after(world, prng_between(&world->prng, 1, 3 * world->plan.lease), settle, matter);
}

static void on_settled(once_answer_t *told, void *data)
{
    matter_t *matter = data;
    world_t *world = matter->operator_->world;

    world_say(world, matter->key->number, "operator: settle is answered %s",
              once_answer_error(told) == ONCE_OK ? once_outcome_name(once_answer_outcome(told))
                                                 : once_error_name(once_answer_error(told)));
    if (world->script == NULL && matter->repeats < 3 &&
        (once_answer_error(told) != ONCE_OK || world_chance(world, 200))) {
        settle_again(matter);
    }
}

/* BROKEN_RENAMING_OPERATOR: the verdict is old, the claim that it names is not. */
static void rename_claim(matter_t *matter)
{
    const mirror_t *seen = &matter->key->seen;

    if (seen->exists && world_is_broken(matter->operator_->world, BROKEN_RENAMING_OPERATOR)) {
        once__token_write(matter->token, matter->key->id, &seen->head.claim);
    }
}

static void settle(void *data)
{
    matter_t *matter = data;
    operator_t *operator_ = matter->operator_;
    once_response_t response = ONCE_RESPONSE_INIT;
    once_settle_t settlement = ONCE_SETTLE_INIT;
    call_t *call;
    int code;

    if (!operator_->process->alive) {
        return;
    }
    rename_claim(matter);
    operator_->last = matter;
    call = call_new(operator_->process, "settle", on_settled, matter);
    response.status = matter->response.status;
    response.body = once__slice(matter->response.body, strlen(matter->response.body));
    world_say(operator_->world, matter->key->number, "operator: settles to %s%s",
              matter->verdict == TRUTH_HAPPENED ? "completed" : "failed",
              matter->force ? ", by force" : "");
    settlement.token = matter->token;
    settlement.response = matter->verdict == TRUTH_HAPPENED ? &response : NULL;
    settlement.note = once__slice("looked it up", 12);
    settlement.force = matter->force;
    code = once_record_settle(operator_->process->handle, &settlement, call_back, call);
    if (!call_accepted(call, code)) {
        world_violate(operator_->world, -1, "calls", "settle is refused: %s",
                      once_error_name(code));
    }
}

/* A failed record is a fence: what a transactional backend has not committed by then, it cannot commit any more. */
static truth_t find_out(const matter_t *matter, response_t *response)
{
    world_t *world = matter->operator_->world;
    truth_t truth = ledger_truth(matter->key, response);

    if (truth == TRUTH_OPEN &&
        ((matter->key->recover == ONCE_RECOVER_TRANSACTIONAL && prng_chance(&world->prng, 300)) ||
         world_is_broken(world, BROKEN_HASTY_OPERATOR))) {
        return TRUTH_NEVER;
    }
    return truth;
}

static void look_into(void *data)
{
    matter_t *matter = data;
    const life_t *life = ledger_life(matter->key);
    uint8_t id[ONCE_ID_SIZE];
    once__claim_ref_t ref;

    /* The record moved on while we were looking: what we know now is not about the claim that we would name. */
    if (once__token_read(matter->token, id, &ref) != 0 || life == NULL ||
        memcmp(life->grants->ref.id, ref.id, ONCE_CLAIM_ID_SIZE) != 0) {
        return;
    }
    matter->verdict = find_out(matter, &matter->response);
    if (matter->verdict != TRUTH_OPEN) {
        settle(matter);
    }
}

/* --------------------------------------------------------------------------------------------------------- scanning */

/* A scan under way: its records and its end share one pointer. */
typedef struct scan {
    operator_t *operator_;
    call_t *call;
} scan_t;

static int on_stuck(once_t *once, const once_record_t *record, void *data)
{
    operator_t *operator_ = ((scan_t *)data)->operator_;
    world_t *world = operator_->world;
    matter_t *matter = world_alloc(world, sizeof(*matter));

    matter->operator_ = operator_;
    matter->key = ledger_find(world, once_record_id(record));
    if (matter->key == NULL) {
        world_violate(world, -1, "record ids", "a scan shows a record that was never claimed");
        return 1;
    }
    once_record_token(record, matter->token);
    matter->force = world->script != NULL ? operator_->force : world_chance(world, 200);
    world_after(world,
                world->script != NULL
                    ? 0
                    : prng_between(&world->prng, 0, world->quiet ? 5 : world->plan.lease / 2),
                look_into, matter);
    return 0;
}

/* Removes one. By force only what certainly never happened; without, what may have happened must be refused. */
static int on_any(once_t *once, const once_record_t *record, void *data)
{
    operator_t *operator_ = ((scan_t *)data)->operator_;
    const sim_key_t *key = ledger_find(operator_->world, once_record_id(record));
    call_t *call = call_new(operator_->process, "purge", NULL, NULL);
    char token[ONCE_TOKEN_SIZE];
    response_t ignored;
    int force = key != NULL && ledger_truth(key, &ignored) == TRUTH_NEVER;

    once_record_token(record, token);
    (void)call_accepted(call, once_record_purge(once, token, force, call_back, call));
    return 1;
}

static void on_scanned(once_t *once, once_answer_t *told, void *data)
{
    call_back(once, told, ((scan_t *)data)->call);
}

static void scan(operator_t *operator_, int stuck)
{
    scan_t *state = world_alloc(operator_->world, sizeof(*state));
    once_filter_t filter = ONCE_FILTER_INIT;
    int code;

    state->operator_ = operator_;
    state->call = call_new(operator_->process, "scan", NULL, NULL);
    filter.stuck = stuck;
    code = once_record_scan(operator_->process->handle, &filter, stuck ? on_stuck : on_any,
                            on_scanned, state);
    if (!call_accepted(state->call, code)) {
        world_violate(operator_->world, -1, "calls", "scan is refused: %s", once_error_name(code));
    }
}

/* --------------------------------------------------------------------------------------------------------- rotating */

static void on_rotated(once_answer_t *told, void *data)
{
    operator_t *operator_ = data;

    world_say(operator_->world, -1, "operator: rotation is answered %s",
              once_error_name(once_answer_error(told)));
    if (once_answer_error(told) == ONCE_OK) {
        world_count(operator_->world, COUNT_ROTATIONS);
    }
}

static void rotate(operator_t *operator_)
{
    call_t *call = call_new(operator_->process, "rotate", on_rotated, operator_);
    int code = once_secret_rotate(operator_->process->handle, 24u * 3600 * 1000, call_back, call);

    if (call_accepted(call, code)) {
        operator_->rotations++;
    }
}

void operator_look(world_t *world, int force)
{
    world->operator_->force = force;
    scan(world->operator_, 1);
}

void operator_look_again(world_t *world)
{
    if (world->operator_->last != NULL) {
        settle(world->operator_->last);
    }
}

static void tick(void *data)
{
    operator_t *operator_ = data;
    world_t *world = operator_->world;

    if (operator_->process->alive) {
        if (world->plan.operator_) {
            scan(operator_, 1);
        }
        if (world_chance(world, world->plan.purge)) {
            scan(operator_, 0);
        }
        if (operator_->rotations < world->plan.rotations && world_chance(world, 150)) {
            rotate(operator_);
        }
    }
    world_after(world, prng_between(&world->prng, world->plan.lease / 8, world->plan.lease), tick,
                operator_);
}

static void start_again(void *data)
{
    operator_t *operator_ = data;

    if (machine_is_down(operator_->world)) {
        world_after(operator_->world, 1, start_again, operator_);
        return;
    }
    operator_->process =
        process_start(operator_->world, "operator", SCRIPT_OPERATOR, start_again, operator_);
}

void operator_crash(world_t *world)
{
    process_crash(world->operator_->process);
}

void operator_start(world_t *world)
{
    operator_t *operator_ = world_alloc(world, sizeof(*operator_));

    world->operator_ = operator_;
    operator_->world = world;
    start_again(operator_);
    world_after(world, world->plan.lease, tick, operator_);
}
