#include "message.h"

#include <string.h>

static void *copy_bytes(world_t *world, const void *data, size_t len)
{
    void *copy = world_alloc(world, len + 1);

    if (len > 0) {
        memcpy(copy, data, len);
    }
    return copy;
}

message_t *message_new(link_t *link, once__op_t *op)
{
    world_t *world = link->world;
    message_t *message = world_alloc(world, sizeof(*message));
    once__op_t *copy = &message->copy;

    message->link = link;
    message->sibling = link->messages;
    link->messages = message;
    message->op = op;
    *copy = *op;
    copy->key = copy_bytes(world, op->key, op->key_len);
    copy->payload.data = copy_bytes(world, op->payload.data, op->payload.len);
    copy->about.data = copy_bytes(world, op->about.data, op->about.len);
    copy->cause.data = copy_bytes(world, op->cause.data, op->cause.len);
    copy->mark = op->mark != NULL ? copy_bytes(world, op->mark, ONCE__MARK_SIZE) : NULL;
    if (op->kind == ONCE__OP_SCAN) {
        message->filter = *op->filter;
        copy->filter = &message->filter;
    }
    if (op->kind == ONCE__OP_SECRETS_LOAD || op->kind == ONCE__OP_SECRETS_SWAP) {
        copy->secrets_new = copy_bytes(world, op->secrets_new, strlen(op->secrets_new));
        copy->secrets_old = op->secrets_old != NULL
                                ? copy_bytes(world, op->secrets_old, strlen(op->secrets_old))
                                : "";
        copy->secrets = message->secrets;
    }
    message->next = link->waiting;
    message->place = &link->waiting;
    if (message->next != NULL) {
        message->next->place = &message->next;
    }
    link->waiting = message;
    return message;
}

once__op_t *message_detach(message_t *message)
{
    once__op_t *op = message->op;

    message->op = NULL;
    *message->place = message->next;
    if (message->next != NULL) {
        message->next->place = message->place;
    }
    return op;
}

int message_key(const message_t *message)
{
    const sim_key_t *key = ledger_find(message->link->world, message->copy.id);

    return key != NULL ? key->number : -1;
}

const char *message_what(const message_t *message)
{
    static const char *const names[] = {"event", "get",          "scan",        "reap",
                                        "stats", "load secrets", "swap secrets"};
    const once__op_t *op = &message->copy;

    return op->kind == ONCE__OP_EVENT ? once__event_name(op->event.kind) : names[op->kind];
}

/* ------------------------------------------------------------------------------------------------ a broken behaviour */

/*
 * BROKEN_NEW_CLAIM_ID: as if the library repeated a claim under a new id after a lost reply. The library speaks of the first
 * id as ever; here it is exchanged on the way out and back.
 */
typedef struct renamed {
    struct renamed *next;
    uint8_t library[ONCE_CLAIM_ID_SIZE];
    uint8_t store[ONCE_CLAIM_ID_SIZE];
} renamed_t;

static renamed_t *find_renamed(link_t *link, const uint8_t *id)
{
    renamed_t *renamed = link->renamed;

    while (renamed != NULL && memcmp(renamed->library, id, ONCE_CLAIM_ID_SIZE) != 0) {
        renamed = renamed->next;
    }
    return renamed;
}

static void rename_out(link_t *link, once__op_t *copy)
{
    renamed_t *renamed = find_renamed(link, copy->event.claim.id);

    if (copy->event.kind == ONCE__CLAIM) {
        if (renamed != NULL) {
            prng_fill(&link->world->prng, renamed->store, ONCE_CLAIM_ID_SIZE);
        } else {
            renamed = world_alloc(link->world, sizeof(*renamed));
            memcpy(renamed->library, copy->event.claim.id, ONCE_CLAIM_ID_SIZE);
            memcpy(renamed->store, copy->event.claim.id, ONCE_CLAIM_ID_SIZE);
            renamed->next = link->renamed;
            link->renamed = renamed;
        }
    }
    if (renamed != NULL) {
        memcpy(copy->event.claim.id, renamed->store, ONCE_CLAIM_ID_SIZE);
    }
}

static void rename_back(link_t *link, once__op_t *op)
{
    for (renamed_t *renamed = link->renamed; renamed != NULL; renamed = renamed->next) {
        if (memcmp(renamed->store, op->head.claim.id, ONCE_CLAIM_ID_SIZE) == 0) {
            memcpy(op->head.claim.id, renamed->library, ONCE_CLAIM_ID_SIZE);
            return;
        }
    }
}

void message_break_request(message_t *message)
{
    if (world_is_broken(message->link->world, BROKEN_NEW_CLAIM_ID) &&
        message->copy.kind == ONCE__OP_EVENT) {
        rename_out(message->link, &message->copy);
    }
}

void message_break_reply(link_t *link, once__op_t *op)
{
    if (op->kind != ONCE__OP_EVENT) {
        return;
    }
    if (world_is_broken(link->world, BROKEN_NEW_CLAIM_ID)) {
        rename_back(link, op);
    }
}
