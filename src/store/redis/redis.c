#include "store/redis/redis.h"

#include <stdlib.h>
#include <string.h>

#include "core/units.h"
#include "store/redis/inside.h"

#define HOPS_MAX  8                  /* redirections of one operation */
#define CALLS_MAX 8192               /* under way on one connection; the rest waits */
#define BYTES_MAX ((size_t)32 << 20) /* the same for what was not sent yet */

/* An operation under way as a command. */
typedef struct request {
    once__redis_call_t call;
    once__redis_t *redis;
    once__op_t *op;
    once__redis_batch_t *batch;
    int hops;
    int is_guest; /* its slot is moving: it was sent where the slot will be, after ASKING */
} request_t;

/* Events of one turn on one connection, which all wait until their replicas have them. */
struct once__redis_batch {
    once__redis_call_t call; /* WAIT */
    once__redis_t *redis;
    unsigned users;
    int is_broken;
    once__oplist_t held; /* answered, but not told yet */
};

static void send_op(once__redis_t *redis, once__redis_node_t *node, request_t *request, int text);

/* ---------------------------------------------------------------------------------------------------------- answering */

void once__redis_answer(once__redis_t *redis, once__op_t *op, int error)
{
    op->error = error;
    once__oplist_add(&redis->answers, op);
    once__loop_wake(redis->loop);
}

static void clear_answer(once__op_t *op)
{
    op->error = ONCE_OK;
    op->outcome = ONCE_NO_OUTCOME;
    op->now = 0;
    op->record = NULL;
    op->records = NULL;
    op->count = 0;
    memset(&op->head, 0, sizeof(op->head));
}

/* Applied, but not where it must be: as good as not answered. */
static void take_back(once__op_t *op)
{
    free(op->record);
    clear_answer(op);
}

/* ---------------------------------------------------------------------------------------------- waiting for replicas */

static void leave_batch(once__redis_batch_t *batch)
{
    if (--batch->users == 0) {
        free(batch);
    }
}

static void end_batch(once__redis_batch_t *batch, int is_replicated)
{
    once__op_t *op = batch->held.first;

    once__oplist_init(&batch->held);
    batch->is_broken = !is_replicated;
    while (op != NULL) {
        once__op_t *next = op->next;
        if (!is_replicated) {
            take_back(op);
        }
        once__redis_answer(batch->redis, op, is_replicated ? op->error : ONCE_E_NOREPLY);
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
        once__oplist_init(&node->batch->held);
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
    if (once__redis_link_call(&node->link, &batch->call, command.argc, command.argv,
                              command.lengths) != 0) {
        end_batch(batch, 0);
        once__redis_link_condemn(&node->link);
    }
}

/* ------------------------------------------------------------------------------------------------------------ sending */

int once__redis_ask(once__redis_node_t *node, once__redis_call_t *call,
                    const once__redis_command_t *command)
{
    const char *argv[ONCE__REDIS_ARGS_MAX];

    memcpy(argv, command->argv, sizeof(argv));
    if (once__redis_link_call(&node->link, call, command->argc, argv, command->lengths) != 0) {
        return -1;
    }
    node->is_dirty = 1;
    return 0;
}

static void finish(request_t *request, int error)
{
    once__redis_batch_t *batch = request->batch;

    if (batch != NULL && error == ONCE_OK && !batch->is_broken) {
        request->op->error = ONCE_OK;
        once__oplist_add(&batch->held, request->op);
    } else {
        if (batch != NULL && error == ONCE_OK) {
            take_back(request->op);
            error = ONCE_E_NOREPLY;
        }
        once__redis_answer(request->redis, request->op, error);
    }
    if (batch != NULL) {
        leave_batch(batch);
    }
    free(request);
}

/* The same operation, somewhere else or in another form: it does not belong to its batch any more. */
static void send_again(request_t *request, once__redis_node_t *node, int text)
{
    once__redis_t *redis = request->redis;

    if (request->batch != NULL) {
        leave_batch(request->batch);
        request->batch = NULL;
    }
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

/* Refused for a reason that somebody has to do something about. */
static void refuse(request_t *request, int code, const char *text)
{
    once__redis_link_complain(request->call.link, text);
    finish(request, code);
}

/* The slot is elsewhere, or just moving there. */
static void follow(request_t *request, const char *text)
{
    once__redis_t *redis = request->redis;
    once__redis_node_t *node;

    if (redis->settings.mode != ONCE__REDIS_CLUSTER) {
        refuse(request, ONCE_E_CONFIG, "is part of a cluster: redis+cluster://");
        return;
    }
    node = once__redis_redirect(redis, request->call.link, text);
    redis->map_wanted |= node == NULL;
    request->is_guest = strncmp(text, "ASK", 3) == 0;
    if (node == NULL || request->hops >= HOPS_MAX || !once__redis_link_is_ready(&node->link) ||
        (request->is_guest && say_asking(node) != 0)) {
        finish(request, ONCE_E_UNAVAILABLE); /* certainly not applied: it comes again */
        return;
    }
    send_again(request, node, 0);
}

/* The script is not known there: once more, with its text. */
static void send_script(request_t *request)
{
    once__redis_node_t *node = (once__redis_node_t *)request->call.link;

    if (request->hops >= HOPS_MAX || node->link.condemned ||
        (request->is_guest && say_asking(node) != 0)) {
        finish(request, ONCE_E_UNAVAILABLE);
        return;
    }
    send_again(request, node, 1);
}

static void take_error(request_t *request, const char *text)
{
    once__redis_link_t *link = request->call.link;
    int code;

    if (strncmp(text, "NOSCRIPT", 8) == 0) {
        send_script(request);
        return;
    }
    if (strncmp(text, "MOVED ", 6) == 0 || strncmp(text, "ASK ", 4) == 0) {
        follow(request, text);
        return;
    }
    if (strncmp(text, "READONLY", 8) == 0 || strncmp(text, "MASTERDOWN", 10) == 0) {
        once__redis_link_condemn(link); /* the master is another one by now */
    } else if (strncmp(text, "CLUSTERDOWN", 11) == 0) {
        request->redis->map_wanted = 1;
    }
    code = once__redis_error_of(text);
    if (code == ONCE_E_CONFIG) {
        refuse(request, code, text);
    } else {
        finish(request, code);
    }
}

static void replied(once__redis_call_t *call, const redisReply *reply)
{
    request_t *request = (request_t *)call;
    once__op_t *op = request->op;

    if (reply == NULL) {
        finish(request, call->sent ? ONCE_E_NOREPLY : ONCE_E_UNAVAILABLE);
        return;
    }
    if (reply->type == REDIS_REPLY_ERROR) {
        take_error(request, reply->str);
        return;
    }
    if (once__redis_read(op, reply) != 0) {
        /* Whatever it was that answered: what became of the operation is not known. */
        take_back(op);
        once__redis_link_distrust(call->link);
        finish(request, ONCE_E_NOREPLY);
        return;
    }
    once__redis_link_content(call->link);
    finish(request, op->error);
}

static int needs_replicas(const once__redis_t *redis, const once__op_t *op)
{
    return redis->settings.wait > 0 && op->kind != ONCE__OP_GET;
}

/* `text`: with the script's text. */
static void send_op(once__redis_t *redis, once__redis_node_t *node, request_t *request, int text)
{
    once__redis_command_t command;
    char key[ONCE__REDIS_KEY_SIZE];
    size_t len = once__redis_key(&redis->settings, request->op, key);

    clear_answer(request->op);
    if (needs_replicas(redis, request->op)) {
        request->batch = join_batch(redis, node);
        if (request->batch == NULL) {
            finish(request, ONCE_E_UNAVAILABLE);
            return;
        }
    }
    once__redis_command_of(&command, request->op, key, len, &redis->settings, redis->shas, text);
    request->call.done = replied;
    if (once__redis_ask(node, &request->call, &command) != 0) {
        finish(request, ONCE_E_UNAVAILABLE);
    }
}

/* --------------------------------------------------------------------------------------------------------- scheduling */

static int is_full(const once__redis_node_t *node)
{
    return node->link.call_count >= CALLS_MAX ||
           node->link.wire.len + node->link.plain.len >= BYTES_MAX;
}

/* Sends one operation. 0: done with, 1: it has to wait. */
static int start(once__redis_t *redis, once__op_t *op)
{
    char key[ONCE__REDIS_KEY_SIZE];
    once__redis_node_t *node;
    request_t *request;
    int code;

    if (!once__redis_is_simple(op)) {
        node = once__redis_holder(redis, 0, &code);
        if (node != NULL) {
            once__redis_walk(redis, op);
            return 0;
        }
    } else {
        node = once__redis_route(redis, key, once__redis_key(&redis->settings, op, key), &code);
    }
    if (node == NULL) {
        if (code != ONCE_OK) {
            clear_answer(op);
            once__redis_answer(redis, op, code);
        }
        return code == ONCE_OK;
    }
    if (is_full(node)) {
        return 1;
    }
    request = calloc(1, sizeof(*request));
    if (request == NULL) {
        clear_answer(op);
        once__redis_answer(redis, op, ONCE_E_UNAVAILABLE);
        return 0;
    }
    request->redis = redis;
    request->op = op;
    send_op(redis, node, request, 0);
    return 0;
}

static void flush_all(once__redis_t *redis)
{
    for (unsigned i = 0; i < redis->node_count; i++) {
        once__redis_node_t *node = redis->nodes[i];
        if (node->batch != NULL) {
            close_batch(redis, node);
        }
        if (node->is_dirty) {
            node->is_dirty = 0;
            once__redis_link_flush(&node->link);
        }
    }
}

static void pump(once__redis_t *redis)
{
    once__op_t *op = redis->queue.first;

    once__oplist_init(&redis->queue);
    while (op != NULL) {
        once__op_t *next = op->next;
        if (start(redis, op)) {
            once__oplist_add(&redis->queue, op);
        }
        op = next;
    }
    if (redis->settings.mode == ONCE__REDIS_CLUSTER) {
        once__redis_map_refresh(redis);
    }
    flush_all(redis);
}

static void redis_submit(once__store_t *store, once__op_t *op)
{
    once__redis_t *redis = (once__redis_t *)store;

    if (redis->is_closing) {
        clear_answer(op);
        once__redis_answer(redis, op, ONCE_E_CLOSED);
        return;
    }
    once__oplist_add(&redis->queue, op);
    once__loop_wake(redis->loop);
}

static int redis_dispatch(once__store_t *store)
{
    once__redis_t *redis = (once__redis_t *)store;
    int count = once__oplist_finish(&redis->answers);

    pump(redis);
    return count;
}

/* ------------------------------------------------------------------------------------------------------------ lifetime */

static void free_store(once__redis_t *redis)
{
    once__redis_walk_close(redis);
    for (unsigned i = 0; i < redis->node_count; i++) {
        free(redis->nodes[i]);
    }
    SSL_CTX_free(redis->shared.tls);
    once__redis_settings_free(&redis->settings);
    free(redis);
}

static void redis_close(once__store_t *store)
{
    once__redis_t *redis = (once__redis_t *)store;

    redis->is_closing = 1;
    (void)once__oplist_finish(&redis->answers);
    for (unsigned i = 0; i < redis->node_count; i++) {
        once__redis_link_free(&redis->nodes[i]->link);
    }
    once__redis_sentinel_close(redis);
    once__oplist_close(&redis->queue);
    once__oplist_close(&redis->answers);
    free_store(redis);
}

static void redis_abandon(once__store_t *store)
{
    once__redis_t *redis = (once__redis_t *)store;

    for (unsigned i = 0; i < redis->node_count; i++) {
        once__redis_link_abandon(&redis->nodes[i]->link);
    }
    for (unsigned i = 0; i < redis->sentinel_count; i++) {
        once__redis_link_abandon(redis->sentinels[i]);
        free(redis->sentinels[i]);
    }
    free_store(redis);
}

/* Links and timers for what the URL names. */
static int open_links(once__redis_t *redis)
{
    if (redis->settings.mode == ONCE__REDIS_SENTINEL) {
        return once__redis_sentinel_open(redis);
    }
    for (unsigned i = 0; i < redis->settings.host_count; i++) {
        const once__redis_host_t *host = &redis->settings.hosts[i];
        if (once__redis_node(redis, host->name, host->port) == NULL) {
            return ONCE_E_NOMEM;
        }
    }
    if (redis->settings.mode == ONCE__REDIS_SINGLE) {
        redis->master = redis->nodes[0];
    }
    return ONCE_OK;
}

static int open_any(const once__store_config_t *config, const once__store_vt_t *vt,
                    once__store_t **store, once_error_t *err)
{
    once__redis_t *redis = calloc(1, sizeof(*redis));
    int code;

    if (redis == NULL) {
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    redis->base.vt = vt;
    redis->loop = redis->shared.loop = config->loop;
    redis->shared.settings = &redis->settings;
    redis->shared.changed = once__redis_link_changed;
    redis->shared.data = redis;
    once__oplist_init(&redis->queue);
    once__oplist_init(&redis->answers);
    for (int i = 0; i < ONCE__REDIS_SCRIPT_COUNT; i++) {
        once__redis_script_sha((once__redis_script_t)i, redis->shas[i]);
    }
    code = once__redis_settings_read(&redis->settings, config->url, config->timeout_ms, err);
    if (code == ONCE_OK && redis->settings.tls) {
        code = once__tls_context(&redis->shared.tls, &redis->settings, err);
    }
    if (code == ONCE_OK && open_links(redis) != ONCE_OK) {
        code = once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    if (code != ONCE_OK) {
        redis_close(&redis->base);
        return code;
    }
    *store = &redis->base;
    return ONCE_OK;
}

static const char *redis_trouble(const once__store_t *store)
{
    return ((const once__redis_t *)store)->shared.trouble;
}

#define STORE(name, text)                                                                          \
    static int name##_open(const once__store_config_t *config, once__store_t **store,              \
                           once_error_t *err)                                                      \
    {                                                                                              \
        return open_any(config, &once__##name##_store, store, err);                                \
    }                                                                                              \
    const once__store_vt_t once__##name##_store = {                                                \
        .scheme = (text),                                                                          \
        .shared = 1,                                                                               \
        .open = name##_open,                                                                       \
        .submit = redis_submit,                                                                    \
        .dispatch = redis_dispatch,                                                                \
        .close = redis_close,                                                                      \
        .abandon = redis_abandon,                                                                  \
        .trouble = redis_trouble,                                                                  \
    };

STORE(redis, "redis")
STORE(rediss, "rediss")
STORE(redis_sentinel, "redis+sentinel")
STORE(redis_cluster, "redis+cluster")
