/*
 * What travels between a process and the store: a copy of an operation, which may outlive the operation itself.
 */
#ifndef SIMULATION_MESSAGE_H
#define SIMULATION_MESSAGE_H

#include "network.h"
#include "server.h"

typedef struct message message_t;

struct link {
    once__store_t base;
    world_t *world;
    process_t *process;
    once__loop_t *loop;
    int cut;
    message_t *messages;            /* all of them */
    message_t *waiting;             /* whose operation is not answered yet */
    once__op_t *ready, **ready_end; /* answered, for the next dispatch */
    once__op_t *held;               /* submitted after the cut: answered by close */
    struct renamed *renamed;        /* claim ids, see rename_out */

    /* Of a process on a machine with a local store (machine.h). */
    once__store_t *local;          /* its handle; NULL: there is none */
    message_t *queue, **queue_end; /* for its writer */
    int busy;                      /* the writer is about to work, or waits for its sync */
    int failed;                    /* a sync of it did */
};

struct message {
    link_t *link;
    message_t *sibling;       /* in link->messages */
    message_t *next, **place; /* in link->waiting */
    once__op_t *op;           /* the library's; NULL: it was answered */
    once__op_t copy;          /* what travels */
    once_filter_t filter;
    char secrets[ONCE__SECRETS_TEXT_SIZE];
    int reply_lost;
    int replies;            /* the reply is on its way */
    message_t *queued;      /* behind it, in link->queue */
    int told;               /* something certain */
    const mirror_t *before; /* the records before it was decided; NULL: it has been */
};

message_t *message_new(link_t *link, once__op_t *op);

/* The operation is no longer the message's. */
once__op_t *message_detach(message_t *message);

/* For the trace: the number of its key, and its kind. */
int message_key(const message_t *message);
const char *message_what(const message_t *message);

/* network.c: sets out, and meets whatever it meets. */
void message_launch(message_t *message);

/* network.c: the process hears what the copy holds, if it still listens. */
void message_reply(message_t *message);

/* Broken libraries, by exchanging what they say and hear (broken.h). */
void message_break_request(message_t *message);
void message_break_reply(link_t *link, once__op_t *op);

#endif
