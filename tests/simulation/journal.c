/*
 * What was decided and may yet be lost, in the order of each record. The ledger hears of it when it cannot be lost any more:
 * when its process has synced, or when another process has that relied on it, or was answered with it.
 */
#include <string.h>

#include "machine.h"
#include "sight.h"

#define DURABLE "durable: nothing acknowledged is lost"

static void pop(machine_t *machine, unsigned number)
{
    machine->journal[number] = machine->journal[number]->next;
    if (machine->journal[number] == NULL) {
        machine->ends[number] = &machine->journal[number];
    }
}

/* The ledger hears of the first `count` entries of the record. */
static void tell_ledger(machine_t *machine, sim_key_t *key, unsigned count)
{
    world_t *world = machine->world;

    for (; count > 0 && machine->journal[key->number] != NULL; count--) {
        const entry_t *entry = machine->journal[key->number];
        sender_t sender = {entry->link->process, entry->link->cut};
        pop(machine, (unsigned)key->number);
        if (!sight_same(&key->seen, &entry->after)) {
            machine->reaped[key->number].exists = 0;
        }
        if (world->property[0] == '\0') {
            observe_decided(world, key, &entry->op, &sender, entry->clock, &entry->after);
        }
    }
}

static void reaped(machine_t *machine, sim_key_t *key, uint64_t clock)
{
    tell_ledger(machine, key, UINT32_MAX);
    machine->reaped[key->number] = key->seen;
    observe_reaped(machine->world, key, clock);
}

/* ---------------------------------------------------------------------------------------------------------- deciding */

static void add(machine_t *machine, const sim_key_t *key, const message_t *message,
                const mirror_t *after)
{
    entry_t *entry = world_alloc(machine->world, sizeof(*entry));

    entry->link = message->link;
    entry->message = message;
    entry->op = message->copy;
    entry->clock = machine_clock(machine);
    entry->after = *after;
    *machine->ends[key->number] = entry;
    machine->ends[key->number] = &entry->next;
}

/* Told nothing that could be wrong: another process is about to sync the record, or a copy of it when its segment goes. */
static int is_put_off(const machine_t *machine, const sim_key_t *key, const message_t *message)
{
    const entry_t *first = machine->journal[key->number];
    const once__op_t *op = &message->copy;

    return op->event.kind == ONCE__CLAIM &&
           (op->outcome == ONCE_OUTCOME_BUSY || op->outcome == ONCE_OUTCOME_MISMATCH) &&
           (first == NULL || first->link != message->link) && machine_is_unsynced(machine, key);
}

static void decided_event(machine_t *machine, sim_key_t *key, const message_t *message,
                          const mirror_t *before, const mirror_t *after)
{
    world_t *world = machine->world;
    const once__op_t *op = &message->copy;
    int changed = !sight_same(before, after);

    if (op->error != ONCE_OK || (!changed && is_put_off(machine, key, message))) {
        if (changed) {
            world_violate(world, key->number, "an answer means what it says",
                          "%s is answered %s, and changed the record", message_what(message),
                          once_error_name(op->error));
        }
        world_count(world, COUNT_PUT_OFF);
        return;
    }
    if (op->event.kind == ONCE__CLAIM && changed) {
        key->glimpsed |= 1u << (unsigned)(ledger_variant(key, &op->event) & 1);
    }
    add(machine, key, message, after);
    if (machine->journal[key->number]->next == NULL && !changed) {
        tell_ledger(machine, key, 1);
    }
}

static void decided_other(machine_t *machine, sim_key_t *key, const message_t *message,
                          const mirror_t *before, const mirror_t *after)
{
    if (before->exists && !after->exists && message->copy.kind == ONCE__OP_REAP) {
        reaped(machine, key, machine_clock(machine));
    } else if (!sight_same(before, after)) {
        world_violate(machine->world, key->number, "I4 stale claim changed the record",
                      "%s, which is not about it, changed it", message_what(message));
    }
}

void journal_decided(machine_t *machine, message_t *message, const mirror_t before[PLAN_KEYS_MAX])
{
    world_t *world = machine->world;
    const once__op_t *op = &message->copy;
    int ready = world->ledger->ready;
    const sim_key_t *named = op->kind == ONCE__OP_EVENT ? ledger_find(world, op->id) : NULL;

    if (op->error == ONCE_OK &&
        (op->kind == ONCE__OP_SECRETS_LOAD || op->kind == ONCE__OP_SECRETS_SWAP)) {
        ledger_secrets(world, op->kind == ONCE__OP_SECRETS_LOAD ? op->secrets : op->secrets_new);
    }
    for (unsigned i = 0; ready && i < world->plan.keys; i++) {
        sim_key_t *key = &world->ledger->keys[i];
        mirror_t after = machine_look(machine, key);
        if (!sight_same(&before[i], &machine->now[i])) {
            world_violate(world, key->number, "I4 stale claim changed the record",
                          "it changed without a write");
        }
        machine->now[i] = after;
        if (key == named) {
            decided_event(machine, key, message, &before[i], &after);
        } else {
            decided_other(machine, key, message, &before[i], &after);
        }
    }
}

/* What stands before it, of another process, was relied upon. */
void journal_synced(machine_t *machine, const link_t *link)
{
    for (unsigned i = 0; i < machine->world->plan.keys; i++) {
        unsigned count = 0, place = 1;
        for (const entry_t *e = machine->journal[i]; e != NULL; e = e->next, place++) {
            count = e->link == link ? place : count;
        }
        tell_ledger(machine, &machine->world->ledger->keys[i], count);
    }
}

/* A renewal is answered before it is durable: a lease ends with the machine anyway. */
void journal_answered(machine_t *machine, const message_t *message)
{
    unsigned count = 0;

    for (unsigned i = 0; i < machine->world->plan.keys; i++) {
        unsigned place = 1;
        for (const entry_t *e = machine->journal[i]; e != NULL; e = e->next, place++) {
            count = e->message == message && e->op.event.kind != ONCE__RENEW ? place : count;
        }
        if (count > 0) {
            tell_ledger(machine, &machine->world->ledger->keys[i], count);
            return;
        }
    }
}

/* ---------------------------------------------------------------------------------------------------------- recovery */

/* Leases end with the machine: they are not compared. */
static int is_same_record(const mirror_t *a, const mirror_t *b)
{
    mirror_t x = *a, y = *b;

    x.head.lease_until = y.head.lease_until = 0;
    return sight_same(&x, &y);
}

/* How much of the journal has survived, in entries. -1: the record is none of what it could be. */
static int survivors(const machine_t *machine, const sim_key_t *key, const mirror_t *is)
{
    int best = is_same_record(&key->seen, is) ? 0 : -1, count = 0;

    for (const entry_t *entry = machine->journal[key->number]; entry != NULL; entry = entry->next) {
        count++;
        best = is_same_record(&entry->after, is) ? count : best;
    }
    return best;
}

/* The rest was lost. */
static void lose_rest(machine_t *machine, const sim_key_t *key)
{
    while (machine->journal[key->number] != NULL) {
        const entry_t *entry = machine->journal[key->number];
        pop(machine, (unsigned)key->number);
        world_count(machine->world, COUNT_LOST_UNSYNCED);
        world_say(machine->world, key->number, "%s of epoch %u is lost",
                  once__event_name(entry->op.event.kind), entry->op.event.claim.epoch);
        if (entry->message->told && entry->op.event.kind != ONCE__RENEW) {
            world_violate(machine->world, key->number, DURABLE,
                          "%s of epoch %u was answered, and is lost",
                          once__event_name(entry->op.event.kind), entry->op.event.claim.epoch);
        }
    }
}

static const char *describe(const mirror_t *mirror, char out[64])
{
    (void)snprintf(out, 64, "%s epoch %u [%02x%02x]",
                   mirror->exists ? once_state_name((once_state_t)mirror->head.state) : "none",
                   mirror->head.claim.epoch, mirror->head.claim.id[0], mirror->head.claim.id[1]);
    return out;
}

static void recover_key(machine_t *machine, sim_key_t *key)
{
    world_t *world = machine->world;
    mirror_t is = machine_look(machine, key);
    int survived = survivors(machine, key, &is);
    char now[64], then[64];

    world_say(world, key->number, "is %s after the crash", describe(&is, now));
    if (survived >= 0) {
        tell_ledger(machine, key, (unsigned)survived);
        lose_rest(machine, key);
    } else if (!is.exists) {
        /* Its segment was being dropped: allowed when its time had come. Now the clock may show less than it did then. */
        reaped(machine, key, machine->died_at);
    } else if (!key->seen.exists && machine->reaped[key->number].exists &&
               is_same_record(&machine->reaped[key->number], &is)) {
        /* The reaper told only the index. Its time is over, as its frame says. */
        lose_rest(machine, key);
        key->life->ended = UINT64_MAX;
        world_count(world, COUNT_CAME_BACK);
    } else {
        world_violate(world, key->number, DURABLE, "it is %s, and was %s", describe(&is, now),
                      describe(&key->seen, then));
    }
    key->seen = machine->now[key->number] = is;
}

void journal_recover(machine_t *machine)
{
    for (unsigned i = 0; machine->world->ledger->ready && i < machine->world->plan.keys; i++) {
        recover_key(machine, &machine->world->ledger->keys[i]);
    }
}
