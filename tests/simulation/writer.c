/*
 * The writer thread of a process: it decides what was submitted, and some time later syncs. In between the others act.
 */
#include "machine.h"

static void commit(void *data);
static void turn(void *data);

/* Can it work now? If it merely stands still, `fire` is put off. */
static int works(link_t *link, event_fn fire)
{
    world_t *world = link->world;
    uint64_t until = link->process->paused_until;

    if (link->cut || link->local == NULL || world->machine->down || world->property[0] != '\0') {
        return 0;
    }
    if (until > world->now) { /* in small steps: it may go on earlier than planned */
        world_after(world, until - world->now < 20 ? until - world->now : 20, fire, link);
    }
    return until <= world->now;
}

/* After a failed sync the handle is of no use any more: the process is restarted. */
static void give_up(void *data)
{
    process_t *process = data;

    process_crash(process);
}

/* The journal hears of it once: when the writer has decided it, or when it was answered without one. */
static void tell_journal(message_t *message)
{
    const mirror_t *before = message->before;

    if (before != NULL) {
        message->before = NULL;
        world_count(message->link->world, COUNT_OPS);
        journal_decided(message->link->world->machine, message, before);
    }
}

static void answered(once__op_t *op)
{
    message_t *message = (message_t *)(void *)((char *)op - offsetof(message_t, copy));
    link_t *link = message->link;

    message->replies = 0;
    if (message->op == NULL || link->cut || link->world->machine->down) {
        server_drop(op);
        return;
    }
    tell_journal(message);
    if (op->error == ONCE_E_UNAVAILABLE && !link->failed) {
        link->failed = 1;
        world_after(link->world, prng_between(&link->world->prng, 1, link->world->plan.lease / 2),
                    give_up, link->process);
    }
    message->told = op->error == ONCE_OK;
    if (message->told) {
        journal_answered(link->world->machine, message);
    }
    message_reply(message);
}

/* BROKEN_EARLY_ACK: a caller that waits for the sync is answered before it. */
static void tell_early(message_t *message)
{
    if (message->replies && message->op != NULL && message->copy.error == ONCE_OK &&
        message->copy.record == NULL) {
        message->told = 1;
        message_reply(message);
        message->replies = 1; /* the store has it still */
    }
}

/* BROKEN_UNSYNCED: what is written counts as synced. */
static void believe_all(const machine_t *machine)
{
    const once__index_t *index = machine->directory.log.index;

    for (unsigned i = 0; i < machine->world->plan.keys; i++) {
        once__entry_t entry;
        if (once__index_find(index, machine->world->ledger->keys[i].id, &entry)) {
            _Atomic uint64_t *synced = &once__index_segment(index, entry.place.slot)->synced;
            uint64_t end = entry.place.offset + 1;
            atomic_store(synced, atomic_load(synced) > end ? atomic_load(synced) : end);
        }
    }
}

static void decide(message_t *message)
{
    link_t *link = message->link;
    world_t *world = link->world;
    machine_t *machine = world->machine;
    mirror_t before[PLAN_KEYS_MAX] = {{0}};

    for (unsigned i = 0; world->ledger->ready && i < world->plan.keys; i++) {
        before[i] = machine_look(machine, &world->ledger->keys[i]);
    }
    message->before = before;
    message->replies = 1;
    message->copy.done = answered;
    message->copy.record = NULL;
    message->copy.records = NULL;
    link->local->vt->submit(link->local, &message->copy);
    (void)link->local->vt->dispatch(link->local);
    once__local_decide(link->local);
    if (machine->down) {
        message->before = NULL;
        return;
    }
    tell_journal(message);
    (void)link->local->vt->dispatch(link->local);
    if (world_is_broken(world, BROKEN_EARLY_ACK)) {
        tell_early(message);
    }
    if (world_is_broken(world, BROKEN_UNSYNCED)) {
        believe_all(machine);
    }
}

static void turn(void *data)
{
    link_t *link = data;
    world_t *world = link->world;
    message_t *message;

    if (!works(link, turn)) {
        return;
    }
    while ((message = link->queue) != NULL && works(link, turn)) {
        link->queue = message->queued;
        decide(message);
    }
    link->queue_end = &link->queue;
    world_after(world, prng_between(&world->prng, 0, world->quiet ? 3 : 25), commit, link);
}

static void commit(void *data)
{
    link_t *link = data;
    machine_t *machine = link->world->machine;
    unsigned fails = machine->disk_fails;

    if (!works(link, commit)) {
        return;
    }
    once__local_commit(link->local);
    if (machine->down) {
        return;
    }
    if (machine->disk_fails == fails && !link->failed) {
        journal_synced(machine, link);
    }
    (void)link->local->vt->dispatch(link->local);
    link->busy = link->queue != NULL;
    if (link->busy) {
        world_after(link->world, 0, turn, link);
    }
}

void writer_take(message_t *message)
{
    link_t *link = message->link;
    world_t *world = link->world;

    *link->queue_end = message;
    link->queue_end = &message->queued;
    if (!link->busy) {
        link->busy = 1;
        world_after(world, prng_between(&world->prng, 0, world->quiet ? 1 : 10), turn, link);
    }
}

/* A process that ends in good order closes its store; one that was killed leaves it as it is. */
void writer_end(link_t *link)
{
    once__store_t *local = link->local;

    link->local = NULL;
    if (local == NULL) {
        return;
    }
    if (link->cut || link->world->machine->down) {
        local->vt->abandon(local);
    } else {
        local->vt->close(local);
    }
}
