/*
 * The way of a message to the store and back.
 */
#include <string.h>

#include "machine.h"
#include "message.h"
#include "script.h"

static void answer(message_t *message, int error)
{
    link_t *link = message->link;
    once__op_t *op = message_detach(message);

    op->error = error;
    op->next = NULL;
    *link->ready_end = op;
    link->ready_end = &op->next;
    once__loop_wake(link->loop);
}

void message_reply(message_t *message)
{
    link_t *link = message->link;
    once__op_t *copy = &message->copy, *op = message->op;

    message->replies = 0;
    if (op == NULL || link->cut) {
        server_drop(copy);
        return;
    }
    op->outcome = copy->outcome;
    op->now = copy->now;
    op->head = copy->head;
    op->record = copy->record;
    op->records = copy->records;
    op->count = copy->count;
    op->stats = copy->stats;
    op->cursor = copy->cursor;
    if (copy->error == ONCE_OK && op->secrets != NULL && copy->secrets == message->secrets) {
        memcpy(op->secrets, message->secrets, sizeof(message->secrets));
    }
    message_break_reply(link, op);
    answer(message, copy->error);
}

static void reply_arrives(void *data)
{
    message_reply(data);
}

static void reply_too_late(void *data)
{
    message_t *message = data;
    link_t *link = message->link;

    if (message->op == NULL || link->cut) {
        return;
    }
    world_say(link->world, message_key(message), "%s: no reply to %s", link->process->name,
              message_what(message));
    world_count(link->world, COUNT_NO_REPLIES);
    answer(message, ONCE_E_NOREPLY);
}

static void cannot_connect(void *data)
{
    message_t *message = data;

    if (message->op != NULL && !message->link->cut) {
        world_count(message->link->world, COUNT_REFUSED);
        answer(message, ONCE_E_UNAVAILABLE);
    }
}

/* The store has no room: for a new record, or for a response. What needs none is never refused. */
static int finds_no_room(const message_t *message)
{
    world_t *world = message->link->world;
    const sim_key_t *key = ledger_find(world, message->copy.id);
    const once__event_t *event = &message->copy.event;

    if (message->copy.kind != ONCE__OP_EVENT || key == NULL) {
        return 0;
    }
    if (event->kind == ONCE__CLAIM ? key->seen.exists : event->kind != ONCE__COMPLETE) {
        return 0;
    }
    return world_chance(world, world->plan.full);
}

static uint64_t travel_ms(world_t *world)
{
    return world->script != NULL ? 5 : prng_between(&world->prng, 1, world->quiet ? 5 : 25);
}

static void request_arrives(void *data)
{
    message_t *message = data;
    link_t *link = message->link;
    world_t *world = link->world;
    sender_t sender = {link->process, message->op == NULL};

    if (world->now < world->outage_until) {
        return; /* the time-out tells the process */
    }
    /* A reply is all that a reading request is for. */
    if (message->op == NULL && message->copy.kind != ONCE__OP_EVENT &&
        message->copy.kind != ONCE__OP_REAP && message->copy.kind != ONCE__OP_SECRETS_SWAP) {
        return;
    }
    if (sender.late) {
        world_count(world, COUNT_LATE_REQUESTS);
    }
    if (finds_no_room(message)) {
        world_count(world, COUNT_FULL);
        message->copy.error = ONCE_E_FULL;
    } else {
        server_apply(world, &message->copy, &sender);
    }
    if (message->op == NULL || message->reply_lost) {
        if (message->reply_lost) {
            world_say(world, message_key(message), "%s: the reply to %s is lost",
                      link->process->name, message_what(message));
            world_count(world, COUNT_LOST_REPLIES);
        }
        server_drop(&message->copy);
        return;
    }
    message->replies = 1;
    world_after(world, travel_ms(world), reply_arrives, message);
}

/* The same request once more: its reply is dropped. */
static void duplicate_arrives(void *data)
{
    message_t *message = data;
    world_t *world = message->link->world;
    sender_t sender = {message->link->process, 1};
    once__op_t copy = message->copy;

    if (world->now < world->outage_until) {
        return;
    }
    world_say(world, message_key(message), "%s: %s arrives a second time",
              message->link->process->name, message_what(message));
    world_count(world, COUNT_DUPLICATES);
    server_apply(world, &copy, &sender);
    server_drop(&copy);
}

/* As the script says. */
static void launch_scripted(message_t *message)
{
    world_t *world = message->link->world;
    const script_fate_t *fate = NULL;

    if (message->copy.kind == ONCE__OP_EVENT && !world->quiet) {
        fate = script_fate(world, message->link->process->number, message->copy.event.kind);
    }
    message->reply_lost = fate != NULL && fate->kind == FATE_LOSE_REPLY;
    world_after(world, world->plan.reply_timeout, reply_too_late, message);
    if (fate == NULL || fate->kind != FATE_LOSE_REQUEST) {
        world_after(world, fate != NULL && fate->kind == FATE_DELAY ? fate->ms : travel_ms(world),
                    request_arrives, message);
    }
}

static void launch(message_t *message)
{
    world_t *world = message->link->world;
    const plan_t *plan = &world->plan;
    uint64_t late = plan->reply_timeout + prng_between(&world->prng, 1, plan->late_max);

    if (world->now < world->outage_until && world_chance(world, 500)) {
        world_after(world, travel_ms(world), cannot_connect, message);
        return;
    }
    world_after(world, plan->reply_timeout, reply_too_late, message);
    if (world_chance(world, plan->lose_request)) {
        world_say(world, message_key(message), "%s: %s is lost", message->link->process->name,
                  message_what(message));
        world_count(world, COUNT_LOST_REQUESTS);
        return;
    }
    message->reply_lost = world_chance(world, plan->lose_reply);
    world_after(world, world_chance(world, plan->late) ? late : travel_ms(world), request_arrives,
                message);
    if (message->copy.kind == ONCE__OP_EVENT && world_chance(world, plan->duplicate)) {
        world_after(world, late, duplicate_arrives, message);
    }
}

void message_launch(message_t *message)
{
    message_break_request(message);
    if (message->link->world->machine != NULL) {
        writer_take(message);
    } else if (message->link->world->script != NULL) {
        launch_scripted(message);
    } else {
        launch(message);
    }
}
