/*
 * The process's end of a connection: store.h's side.
 */
#include "machine.h"

static void link_submit(once__store_t *store, once__op_t *op)
{
    link_t *link = (link_t *)store;

    if (link->cut) {
        op->next = link->held;
        link->held = op;
        return;
    }
    message_launch(message_new(link, op));
}

static int link_dispatch(once__store_t *store)
{
    link_t *link = (link_t *)store;
    once__op_t *op = link->ready;
    int count = 0;

    link->ready = NULL;
    link->ready_end = &link->ready;
    while (op != NULL) {
        once__op_t *next = op->next; /* done may submit the operation again */
        op->done(op);
        op = next;
        count++;
    }
    return count;
}

static void end_op(once__op_t *op)
{
    op->error = ONCE_E_CLOSED;
    op->done(op);
}

static void link_close(once__store_t *store)
{
    link_t *link = (link_t *)store;

    writer_end(link);
    link->cut = 1;
    while (link->waiting != NULL || link->ready != NULL || link->held != NULL) {
        once__op_t *op;
        if (link->waiting != NULL) {
            end_op(message_detach(link->waiting));
            continue;
        }
        op = link->ready != NULL ? link->ready : link->held;
        if (op == link->ready) {
            link->ready = op->next;
            link->ready_end = link->ready != NULL ? link->ready_end : &link->ready;
            if (op->error == ONCE_OK) {
                server_drop(op);
            }
        } else {
            link->held = op->next;
        }
        end_op(op);
    }
}

static const once__store_vt_t link_vt = {
    .scheme = "simulated",
    .submit = link_submit,
    .dispatch = link_dispatch,
    .close = link_close,
    .abandon = link_close,
};

link_t *link_new(process_t *process, once__loop_t *loop)
{
    link_t *link = world_alloc(process->world, sizeof(*link));

    link->base.vt = &link_vt;
    link->world = process->world;
    link->process = process;
    link->loop = loop;
    link->ready_end = &link->ready;
    link->queue_end = &link->queue;
    if (link->world->machine != NULL) {
        link->local = machine_attach(process, loop);
    }
    return link;
}

once__store_t *link_store(link_t *link)
{
    return &link->base;
}

void link_cut(link_t *link)
{
    link->cut = 1;
}

void link_free(link_t *link)
{
    for (message_t *message = link->messages; message != NULL; message = message->sibling) {
        if (message->replies) {
            server_drop(&message->copy);
        }
    }
}
