#include "server.h"

#include <assert.h>
#include <stdlib.h>

void server_open(world_t *world)
{
    static const once__limits_t limits = {1000, 1 << 20};

    world->table = once__table_new(world->broken->rules, &limits);
    assert(world->table != NULL);
}

void server_close(world_t *world)
{
    once__table_free(world->table);
    world->table = NULL;
}

/* BROKEN_EPOCH_ONLY: a caller that names the right epoch counts as the holder. The observer sees what was really named. */
static void apply_epoch_only(world_t *world, once__op_t *op, uint64_t clock)
{
    const sim_key_t *key = ledger_find(world, op->id);
    once__claim_ref_t named = op->event.claim;

    if (op->kind == ONCE__OP_EVENT && op->event.kind != ONCE__CLAIM && key != NULL &&
        key->seen.head.claim.epoch == named.epoch) {
        op->event.claim = key->seen.head.claim;
    }
    once__table_apply(world->table, op, clock);
    op->event.claim = named;
}

void server_apply(world_t *world, once__op_t *op, const sender_t *sender)
{
    uint64_t clock = world_store_clock(world);

    if (world_is_broken(world, BROKEN_EPOCH_ONLY)) {
        apply_epoch_only(world, op, clock);
    } else {
        once__table_apply(world->table, op, clock);
    }
    world_count(world, COUNT_OPS);
    if (op->error == ONCE_OK) {
        observe(world, op, sender, clock);
    }
}

void server_drop(once__op_t *op)
{
    free(op->record);
    for (uint64_t i = 0; op->records != NULL && i < op->count; i++) {
        free(op->records[i]);
    }
    free(op->records);
    op->record = NULL;
    op->records = NULL;
}

void server_jump(world_t *world, int64_t ms)
{
    world->clock_offset += ms;
    if (world->clock_offset > world->clock_highest) {
        world->clock_highest = world->clock_offset;
    }
    world_say(world, -1, "the store's clock jumps by %lld ms", (long long)ms);
    world_count(world, ms < 0 ? COUNT_JUMPS_BACK : COUNT_JUMPS_FORTH);
}
