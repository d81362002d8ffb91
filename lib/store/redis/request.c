/*
 * Simple operations in flight. An operation is sent as one call of a script, alone or with others of its kind (a request). It
 * may be sent again: to another server if its slot is there (MOVED, ASK), with the text of its script (NOSCRIPT), without
 * compression (DICTIONARY), or by itself if something in front of several servers refuses keys of different slots in one call
 * (CROSSSLOT).
 *
 * An answer may have to wait for two things: that replicas have the change (the batch of its turn and connection, ended by
 * WAIT), and that the store's secrets are the caller's (the check of its turn; only where keys have slots, else the script
 * compares them).
 *
 * Invariants:
 *
 * R-1  a request has 1 to ONCE__REDIS_GROUP_MAX operations; several only where keys have no slots, and of one kind.
 * R-2  a request has a batch only if the settings ask for replicas, and a check only if it is a claim in a store with slots.
 * R-3  it was redirected at most HOPS_MAX times, and is a guest only in a cluster.
 * R-4  a batch or a check has a user for each request that refers to it; after it ended, it holds no operation.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "store/redis/internal.h"

#define HOPS_MAX 8 /* redirections of one operation */

/* An operation in flight, or several of one kind that share a command. */
struct once__redis_request {
    once__redis_call_t call;
    once__redis_t *redis;
    once__redis_batch_t *batch;
    once__redis_check_t *check;
    int hops;
    int is_apart; /* its keys may have a slot of their own */
    int is_plain; /* the store did not hold the dictionary: nothing is compressed */
    int is_guest; /* its slot is moving: it was sent to the new server, after ASKING */
    unsigned count;
    once__op_t *ops[];
};

typedef once__redis_request_t request_t;

/* Events of one turn on one connection, which all wait until the replicas have them. */
struct once__redis_batch {
    once__redis_call_t call; /* WAIT */
    once__redis_t *redis;
    once__redis_check_t *check; /* of the claims among them */
    unsigned users;
    int is_broken;
    once__oplist_t unreported; /* answered by Redis, but not passed on yet */
};

/*
 * Where keys have slots, the server that decides a claim does not know the store's secrets. Their mark is fetched together with
 * the claims of a turn, and no claim is answered before the secrets are known to be the caller's.
 */
struct once__redis_check {
    once__redis_call_t call; /* GET */
    once__redis_t *redis;
    unsigned users;
    int hops;
    int is_answered;
    int code; /* the answer for claims that were granted, refused or replayed */
    uint8_t mark[ONCE__MARK_SIZE];
    once__oplist_t unreported; /* answered by Redis, but not passed on yet */
};

static void send_op(once__redis_t *redis, once__redis_node_t *node, request_t *request, int text);
static int say_asking(once__redis_node_t *node);
static int is_checked(const once__op_t *op);

/* ------------------------------------------------------------------------------------------------------------- states */

static void assert_batch_state(const once__redis_batch_t *batch)
{
    assert(batch->users > 0 && (!batch->is_broken || batch->unreported.first == NULL)); /* */
}

static void assert_check_state(const once__redis_check_t *check)
{
    assert(check->users > 0 && (!check->is_answered || check->unreported.first == NULL)); /* */
}

static void assert_request_state(const request_t *request)
{
    const once__redis_settings_t *settings = &request->redis->settings;

    assert(request->count >= 1 && request->count <= ONCE__REDIS_GROUP_MAX); /* */
    assert(request->count == 1 || (settings->mode != ONCE__REDIS_CLUSTER &&
                                   request->ops[0]->event.kind == request->ops[1]->event.kind));
    assert(request->batch == NULL || settings->wait > 0); /* */
    assert(request->check == NULL || (request->is_apart && is_checked(request->ops[0])));
    assert(request->hops <= HOPS_MAX); /* */
    assert(!request->is_guest || settings->mode == ONCE__REDIS_CLUSTER);
    if (request->batch != NULL) {
        assert_batch_state(request->batch);
    }
    if (request->check != NULL) {
        assert_check_state(request->check);
    }
}

/* ---------------------------------------------------------------------------------------------------------- answering */

/* What was stored is a sample. What was only asked is not: a claim that is refused may name what was erased. */
static void learn(once__redis_t *redis, const once__op_t *op)
{
    if (op->event.kind == ONCE__CLAIM && op->outcome == ONCE_OUTCOME_RUN) {
        once__redis_learn(redis, op->about.data, op->about.len);
    } else if (op->outcome == ONCE_OUTCOME_DONE && once__dictionary_fits(&op->payload)) {
        once__redis_learn(redis, op->payload.data, op->payload.len);
    }
}

void once__redis_answer(once__redis_t *redis, once__op_t *op, int error)
{
    if (op->kind == ONCE__OP_EVENT && error == ONCE_OK) {
        learn(redis, op);
    }
    op->error = error;
    once__oplist_add(&redis->answers, op);
    once__loop_wake(redis->loop);
}

void once__redis_refuse(once__redis_t *redis, once__op_t *op, int error)
{
    once__op_clear(op);
    once__redis_answer(redis, op, error);
}

/* Applied, but not where it must be: counts as not answered. */
static void take_back(once__op_t *op)
{
    free(op->record);
    free(op->lines);
    once__op_clear(op);
}

/* ---------------------------------------------------------------------------------- the secrets, where keys have slots */

static int is_checked(const once__op_t *op)
{
    return op->kind == ONCE__OP_EVENT && op->event.kind == ONCE__CLAIM && op->mark != NULL;
}

static void leave_check(once__redis_check_t *check)
{
    if (check != NULL && --check->users == 0) {
        free(check);
    }
}

/* Answers an operation, or keeps it until the secrets are known to be the caller's. */
static void pass(once__redis_t *redis, once__redis_check_t *check, once__op_t *op, int error)
{
    if (check == NULL || error != ONCE_OK || !is_checked(op)) {
        once__redis_answer(redis, op, error);
    } else if (!check->is_answered) {
        op->error = ONCE_OK;
        once__oplist_add(&check->unreported, op);
    } else {
        if (check->code != ONCE_OK) {
            take_back(op);
        }
        once__redis_answer(redis, op, check->code);
    }
}

static void end_check(once__redis_check_t *check, int code)
{
    once__op_t *op = check->unreported.first;

    once__oplist_init(&check->unreported);
    check->is_answered = 1;
    check->code = code;
    while (op != NULL) {
        once__op_t *next = op->next;
        pass(check->redis, check, op, ONCE_OK);
        op = next;
    }
    leave_check(check);
}

static void checked(once__redis_call_t *call, const redisReply *reply);

static int ask_check(once__redis_check_t *check, once__redis_node_t *node)
{
    once__redis_command_t command = {.argc = 0};
    char key[ONCE__REDIS_MARK_SIZE];

    once__redis_add_text(&command, "GET");
    once__redis_add(&command, key, once__redis_mark_key(&check->redis->settings, key));
    check->call.done = checked;
    return once__redis_ask(node, &check->call, &command);
}

/* The slot of the secrets is elsewhere. Returns 1 if they are asked for there. */
static int follow_check(once__redis_check_t *check, const char *text)
{
    once__redis_t *redis = check->redis;
    once__redis_node_t *node = NULL;

    if (strncmp(text, "MOVED ", 6) == 0 || strncmp(text, "ASK ", 4) == 0) {
        node = once__redis_redirect(redis, check->call.connection, text);
    }
    redis->map_wanted |= node == NULL;
    if (node == NULL || ++check->hops > HOPS_MAX ||
        !once__redis_connection_is_ready(&node->connection) ||
        (text[0] == 'A' && say_asking(node) != 0) || ask_check(check, node) != 0) {
        return 0;
    }
    once__loop_wake(redis->loop);
    return 1;
}

static void checked(once__redis_call_t *call, const redisReply *reply)
{
    once__redis_check_t *check =
        (once__redis_check_t *)(void *)((char *)call - offsetof(once__redis_check_t, call));

    if (reply != NULL && reply->type == REDIS_REPLY_ERROR && follow_check(check, reply->str)) {
        return;
    }
    if (reply == NULL || (reply->type != REDIS_REPLY_STRING && reply->type != REDIS_REPLY_NIL)) {
        end_check(check, ONCE_E_NOREPLY);
    } else {
        end_check(check, reply->type == REDIS_REPLY_STRING && reply->len == ONCE__MARK_SIZE &&
                                 memcmp(reply->str, check->mark, ONCE__MARK_SIZE) == 0
                             ? ONCE_OK
                             : ONCE_E_SECRET);
    }
}

/* The check of this turn. NULL if the mark cannot be asked for. `near` is the server that the claim goes to. */
static once__redis_check_t *join_check(once__redis_t *redis, once__redis_node_t *near,
                                       const once__op_t *op)
{
    once__redis_node_t *node = near;
    char key[ONCE__REDIS_MARK_SIZE];
    int code;

    if (redis->check == NULL) {
        once__redis_check_t *check = calloc(1, sizeof(*check));
        if (redis->settings.mode == ONCE__REDIS_CLUSTER) {
            size_t len = once__redis_mark_key(&redis->settings, key);
            node = once__redis_cluster_route(redis, once__redis_slot(key, len), &code);
        }
        if (check == NULL || node == NULL) {
            free(check);
            return NULL;
        }
        check->redis = redis;
        check->users = 2; /* the turn and the question */
        memcpy(check->mark, op->mark, ONCE__MARK_SIZE);
        once__oplist_init(&check->unreported);
        if (ask_check(check, node) != 0) {
            free(check);
            return NULL;
        }
        redis->check = check;
    }
    redis->check->users++;
    return redis->check;
}

void once__redis_end_turn(once__redis_t *redis)
{
    leave_check(redis->check);
    redis->check = NULL;
}

/* ---------------------------------------------------------------------------------------------- waiting for replicas */

static void leave_batch(once__redis_batch_t *batch)
{
    if (--batch->users == 0) {
        leave_check(batch->check);
        free(batch);
    }
}

static void end_batch(once__redis_batch_t *batch, int is_replicated)
{
    once__op_t *op = batch->unreported.first;

    once__oplist_init(&batch->unreported);
    batch->is_broken = !is_replicated;
    while (op != NULL) {
        once__op_t *next = op->next;
        if (!is_replicated) {
            take_back(op);
        }
        pass(batch->redis, batch->check, op, is_replicated ? op->error : ONCE_E_NOREPLY);
        op = next;
    }
    leave_batch(batch);
}

static void waited(once__redis_call_t *call, const redisReply *reply)
{
    once__redis_batch_t *batch =
        (once__redis_batch_t *)(void *)((char *)call - offsetof(once__redis_batch_t, call));

    end_batch(batch, reply != NULL && reply->type == REDIS_REPLY_INTEGER &&
                         reply->integer >= (long long)batch->redis->settings.wait);
}

static once__redis_batch_t *join_batch(once__redis_t *redis, once__redis_node_t *node)
{
    if (node->batch == NULL) {
        node->batch = calloc(1, sizeof(*node->batch));
        if (node->batch == NULL) {
            return NULL;
        }
        node->batch->redis = redis;
        node->batch->users = 1;
        once__oplist_init(&node->batch->unreported);
    }
    node->batch->users++;
    return node->batch;
}

static void close_batch(once__redis_t *redis, once__redis_node_t *node)
{
    once__redis_batch_t *batch = node->batch;
    once__redis_command_t command = {.argc = 0};

    node->batch = NULL;
    if (batch == NULL) {
        return;
    }
    once__redis_add_text(&command, "WAIT");
    once__redis_add_number(&command, redis->settings.wait);
    once__redis_add_number(&command, redis->settings.wait_ms);
    batch->call.done = waited;
    if (once__redis_connection_call(&node->connection, &batch->call, command.argc, command.argv,
                                    command.lengths) != 0) {
        end_batch(batch, 0);
        once__redis_connection_condemn(&node->connection);
    }
}

/* ------------------------------------------------------------------------------------------------------------ sending */

int once__redis_ask(once__redis_node_t *node, once__redis_call_t *call,
                    const once__redis_command_t *command)
{
    const char *argv[ONCE__REDIS_ARGS_MAX];

    memcpy(argv, command->argv, (size_t)command->argc * sizeof(argv[0]));
    if (once__redis_connection_call(&node->connection, call, command->argc, argv,
                                    command->lengths) != 0) {
        return -1;
    }
    node->is_dirty = 1;
    return 0;
}

static void answer(const request_t *request, once__op_t *op, int error)
{
    once__redis_batch_t *batch = request->batch;

    if (batch != NULL && error == ONCE_OK && !batch->is_broken) {
        op->error = ONCE_OK;
        once__oplist_add(&batch->unreported, op);
        return;
    }
    if (batch != NULL && error == ONCE_OK) {
        take_back(op);
        error = ONCE_E_NOREPLY;
    }
    pass(request->redis, request->check, op, error);
}

static void free_request(request_t *request)
{
    if (request->batch != NULL) {
        leave_batch(request->batch);
    }
    leave_check(request->check);
    free(request);
}

static void finish(request_t *request, int error)
{
    for (unsigned i = 0; i < request->count; i++) {
        answer(request, request->ops[i], error);
    }
    free_request(request);
}

/* The same operation, to another server or in another form: it leaves its batch and its check. */
static void send_again(request_t *request, once__redis_node_t *node, int text)
{
    once__redis_t *redis = request->redis;

    if (request->batch != NULL) {
        leave_batch(request->batch);
        request->batch = NULL;
    }
    leave_check(request->check);
    request->check = NULL;
    request->hops++;
    send_op(redis, node, request, text);
    once__loop_wake(redis->loop);
}

static void ignore(once__redis_call_t *call, const redisReply *reply)
{
    free(call);
}

static int say_asking(once__redis_node_t *node)
{
    once__redis_call_t *call = calloc(1, sizeof(*call));
    once__redis_command_t command = {.argc = 0};

    if (call == NULL) {
        return -1;
    }
    call->done = ignore;
    once__redis_add_text(&command, "ASKING");
    if (once__redis_ask(node, call, &command) != 0) {
        free(call);
        return -1;
    }
    return 0;
}

/* The slot is on another server, or just moving there. */
static void follow(request_t *request, const char *text)
{
    once__redis_t *redis = request->redis;
    once__redis_node_t *node;

    if (redis->settings.mode != ONCE__REDIS_CLUSTER) {
        once__redis_connection_complain(request->call.connection,
                                        "is part of a cluster: redis+cluster://");
        finish(request, ONCE_E_CONFIG);
        return;
    }
    node = once__redis_redirect(redis, request->call.connection, text);
    redis->map_wanted |= node == NULL;
    request->is_guest = strncmp(text, "ASK", 3) == 0;
    if (node == NULL || request->hops >= HOPS_MAX ||
        !once__redis_connection_is_ready(&node->connection) ||
        (request->is_guest && say_asking(node) != 0)) {
        finish(request, ONCE_E_UNAVAILABLE); /* certainly not applied: it will be repeated */
        return;
    }
    send_again(request, node, 0);
}

/* Nothing was decided: once more to the same server, as `text` and is_plain say. */
static void repeat(request_t *request, int text)
{
    once__redis_node_t *node = (once__redis_node_t *)request->call.connection;

    if (request->hops >= HOPS_MAX || node->connection.condemned ||
        (request->is_guest && say_asking(node) != 0)) {
        finish(request, ONCE_E_UNAVAILABLE);
        return;
    }
    send_again(request, node, text);
}

/* The code for an operation whose command was refused. */
static int judge_error(const request_t *request, const char *text)
{
    once__redis_connection_t *connection = request->call.connection;
    int code = once__redis_error_of(text);

    if (strncmp(text, "READONLY", 8) == 0 || strncmp(text, "MASTERDOWN", 10) == 0) {
        once__redis_connection_condemn(connection); /* there is another master by now */
    } else if (strncmp(text, "CLUSTERDOWN", 11) == 0) {
        request->redis->map_wanted = 1;
    }
    if (code == ONCE_E_CONFIG) {
        once__redis_connection_complain(connection, text); /* an administrator has to act */
    }
    return code;
}

/* Has room for `most` operations. NULL: out of memory. */
static request_t *new_request(once__redis_t *redis, once__redis_node_t *node, size_t most)
{
    request_t *request = calloc(1, sizeof(*request) + most * sizeof(once__op_t *));

    if (request != NULL) {
        request->redis = redis;
        request->call.connection = &node->connection;
    }
    return request;
}

static void send_alone(once__redis_t *redis, once__redis_node_t *node, once__op_t *op)
{
    request_t *request = new_request(redis, node, 1);

    if (request == NULL) {
        once__redis_refuse(redis, op, ONCE_E_UNAVAILABLE);
        return;
    }
    request->ops[request->count++] = op;
    send_op(redis, node, request, 0);
}

/* Something in front of several servers spreads keys over them: nothing was decided. From now on each is sent by itself. */
static void split(request_t *request)
{
    once__redis_t *redis = request->redis;

    redis->is_spread = 1;
    for (unsigned i = 0; i < request->count; i++) {
        send_alone(redis, (once__redis_node_t *)request->call.connection, request->ops[i]);
    }
    free_request(request);
    once__loop_wake(redis->loop);
}

static void take_error(request_t *request, const char *text)
{
    if (!request->is_apart && strncmp(text, "CROSSSLOT", 9) == 0) {
        split(request);
        return;
    }
    if (strncmp(text, "NOSCRIPT", 8) == 0) {
        repeat(request, 1);
        return;
    }
    if (!request->is_plain && strncmp(text, "DICTIONARY ", 11) == 0) {
        once__redis_doubt(request->redis);
        request->is_plain = 1;
        repeat(request, 0);
        return;
    }
    if (strncmp(text, "MOVED ", 6) == 0 || strncmp(text, "ASK ", 4) == 0) {
        follow(request, text);
        return;
    }
    finish(request, judge_error(request, text));
}

static void take_answer(const request_t *request, once__op_t *op, const redisReply *reply)
{
    once__redis_t *redis = request->redis;
    int read, code;

    if (reply->type == REDIS_REPLY_ERROR) {
        answer(request, op, judge_error(request, reply->str));
        return;
    }
    read = once__redis_read(op, &redis->dictionaries, reply);
    if (read > 0) {
        code = once__redis_await_dictionary(redis, op);
        if (code != ONCE_OK) {
            take_back(op);
            answer(request, op, code);
        }
        return; /* it is sent again, with the same claim id */
    }
    if (read < 0) {
        /* This was no Redis: what became of the operation is not known. */
        take_back(op);
        once__redis_connection_distrust(request->call.connection);
        answer(request, op, ONCE_E_NOREPLY);
        return;
    }
    once__redis_connection_content(request->call.connection);
    answer(request, op, op->error);
}

static void replied(once__redis_call_t *call, const redisReply *reply)
{
    request_t *request = (request_t *)call;

    assert_request_state(request);
    if (reply == NULL) {
        finish(request, call->sent ? ONCE_E_NOREPLY : ONCE_E_UNAVAILABLE);
        return;
    }
    if (reply->type == REDIS_REPLY_ERROR) {
        take_error(request, reply->str);
        return;
    }
    if (request->count > 1 &&
        (reply->type != REDIS_REPLY_ARRAY || reply->elements != request->count)) {
        once__redis_connection_distrust(call->connection);
        finish(request, ONCE_E_NOREPLY);
        return;
    }
    for (unsigned i = 0; i < request->count; i++) {
        take_answer(request, request->ops[i], request->count > 1 ? reply->element[i] : reply);
    }
    free_request(request);
}

static int needs_replicas(const once__redis_t *redis, const once__op_t *op)
{
    return redis->settings.wait > 0 && op->kind != ONCE__OP_GET && op->kind != ONCE__OP_AUDIT_READ;
}

/* A store that loses its secrets after the check has lost the claim as well. Returns 0, or -1 if it could not join. */
static int join(once__redis_t *redis, once__redis_node_t *node, request_t *request)
{
    const once__op_t *op = request->ops[0];

    if (request->is_apart && is_checked(op)) {
        request->check = join_check(redis, node, op);
        if (request->check == NULL) {
            return -1;
        }
    }
    if (!needs_replicas(redis, op)) {
        return 0;
    }
    request->batch = join_batch(redis, node);
    if (request->batch != NULL && request->batch->check == NULL && request->check != NULL) {
        request->batch->check = request->check;
        request->check->users++;
    }
    return request->batch != NULL ? 0 : -1;
}

/* `text`: with the text of the script. */
static void send_op(once__redis_t *redis, once__redis_node_t *node, request_t *request, int text)
{
    once__redis_command_t command;

    for (unsigned i = 0; i < request->count; i++) {
        once__op_clear(request->ops[i]);
    }
    request->is_apart = redis->settings.mode == ONCE__REDIS_CLUSTER || redis->is_spread;
    if (join(redis, node, request) != 0) {
        finish(request, ONCE_E_UNAVAILABLE);
        return;
    }
    once__redis_command_of(&command, request->ops, request->count, &redis->settings, redis->texts,
                           request->is_apart || request->is_plain ? NULL : &redis->dictionaries,
                           text, request->is_apart);
    request->call.done = replied;
    assert_request_state(request);
    if (once__redis_ask(node, &request->call, &command) != 0) {
        finish(request, ONCE_E_UNAVAILABLE);
    }
}

/* -------------------------------------------------------------------------------------------------------------- groups */

static void send_group(once__redis_t *redis, request_t **group)
{
    request_t *request = *group;

    *group = NULL;
    if (request != NULL) {
        send_op(redis, (once__redis_node_t *)request->call.connection, request, 0);
    }
}

/* Completions first: a claim of the same key in the same turn must find the response. */
void once__redis_send_groups(once__redis_t *redis, once__redis_groups_t *groups)
{
    send_group(redis, &groups->completions);
    send_group(redis, &groups->claims);
}

void once__redis_send(once__redis_t *redis, once__redis_node_t *node, once__op_t *op,
                      once__redis_groups_t *groups)
{
    request_t **group = op->event.kind == ONCE__CLAIM ? &groups->claims : &groups->completions;

    if (redis->settings.mode == ONCE__REDIS_CLUSTER || redis->is_spread ||
        !once__redis_is_groupable(op)) {
        send_alone(redis, node, op);
        return;
    }
    if (*group == NULL) {
        *group = new_request(redis, node, ONCE__REDIS_GROUP_MAX);
    }
    if (*group == NULL) {
        once__redis_refuse(redis, op, ONCE_E_UNAVAILABLE);
        return;
    }
    (*group)->ops[(*group)->count++] = op;
    if ((*group)->count == ONCE__REDIS_GROUP_MAX) {
        once__redis_send_groups(redis, groups);
    }
}

void once__redis_flush(once__redis_t *redis)
{
    once__redis_end_turn(redis);
    for (unsigned i = 0; i < redis->node_count; i++) {
        once__redis_node_t *node = redis->nodes[i];
        if (node->batch != NULL) {
            close_batch(redis, node);
        }
        if (node->is_dirty) {
            node->is_dirty = 0;
            once__redis_connection_flush(&node->connection);
        }
    }
}
