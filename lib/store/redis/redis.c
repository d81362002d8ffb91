#include "store/redis/redis.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/redis/internal.h"

#define CALLS_MAX 8192               /* in flight on one connection; the rest waits */
#define BYTES_MAX ((size_t)32 << 20) /* likewise for bytes that are not sent yet */

/*
 * Left alone, Redis and the host work in turns: each works on everything that the other sent at once, and then waits. So a long
 * turn is cut: SEND_AT operations are sent while the host collects the next ones, and after TELL_MAX callbacks the host handles
 * what has arrived meanwhile.
 */
#define SEND_AT  32
#define TELL_MAX 16

/* --------------------------------------------------------------------------------------------------------- scheduling */

static int is_full(const once__redis_node_t *node)
{
    return node->connection.calls.count >= CALLS_MAX ||
           node->connection.wire.len + node->connection.plain.len >= BYTES_MAX;
}

/* Sends one operation, or adds it to its group. Returns 0, or 1 if it has to wait. */
static int start(once__redis_t *redis, once__op_t *op, once__redis_groups_t *groups)
{
    once__redis_node_t *node;
    int code;

    if (!once__redis_is_simple(op)) {
        node = once__redis_holder(redis, 0, &code);
        if (node != NULL) {
            once__redis_scan(redis, op);
            return 0;
        }
    } else {
        node = once__redis_route(redis, op, &code);
    }
    if (node == NULL) {
        if (code != ONCE_OK) {
            once__redis_refuse(redis, op, code);
        }
        return code == ONCE_OK;
    }
    if (is_full(node)) {
        return 1;
    }
    once__redis_send(redis, node, op, groups);
    return 0;
}

static void pump(once__redis_t *redis)
{
    once__redis_groups_t groups = {NULL, NULL};
    once__op_t *op;

    once__redis_learn_turn(redis);
    op = redis->queue.first;
    once__oplist_init(&redis->queue);
    while (op != NULL) {
        once__op_t *next = op->next;
        if (start(redis, op, &groups)) {
            once__oplist_add(&redis->queue, op);
        }
        op = next;
    }
    once__redis_send_groups(redis, &groups);
    if (redis->settings.mode == ONCE__REDIS_CLUSTER) {
        once__redis_map_refresh(redis);
    }
    once__redis_flush(redis);
    if (redis->queue.first == NULL) {
        redis->collected = 0;
    }
}

static void redis_submit(once__store_t *store, once__op_t *op)
{
    once__redis_t *redis = (once__redis_t *)store;

    if (redis->is_closing) {
        once__redis_refuse(redis, op, ONCE_E_CLOSED);
        return;
    }
    once__oplist_add(&redis->queue, op);
    redis->collected++;
    /* WAIT is sent once a turn: the connection takes no other command meanwhile. */
    if (redis->collected == SEND_AT && redis->settings.wait == 0) {
        pump(redis);
    }
    if (redis->queue.first != NULL) {
        once__loop_wake(redis->loop);
    }
}

static int redis_dispatch(once__store_t *store)
{
    once__redis_t *redis = (once__redis_t *)store;
    int count;

    pump(redis);
    count = once__oplist_finish_some(&redis->answers, TELL_MAX);
    pump(redis);
    if (redis->answers.first != NULL) {
        once__loop_pause(redis->loop);
    }
    return count;
}

/* ------------------------------------------------------------------------------------------------------------ lifetime */

static void free_store(once__redis_t *redis)
{
    once__redis_scan_close(redis);
    for (unsigned i = 0; i < redis->node_count; i++) {
        free(redis->nodes[i]);
    }
    once__redis_dictionaries_free(&redis->dictionaries);
    SSL_CTX_free(redis->shared.tls);
    once__redis_settings_free(&redis->settings);
    free(redis);
}

static void redis_close(once__store_t *store)
{
    once__redis_t *redis = (once__redis_t *)store;

    redis->is_closing = 1;
    (void)once__oplist_finish(&redis->answers);
    once__redis_end_turn(redis);
    for (unsigned i = 0; i < redis->node_count; i++) {
        once__redis_connection_free(&redis->nodes[i]->connection);
    }
    once__redis_sentinel_close(redis);
    once__oplist_close(&redis->queue);
    once__oplist_close(&redis->learn.waiting);
    once__oplist_close(&redis->answers);
    free_store(redis);
}

static void redis_abandon(once__store_t *store)
{
    once__redis_t *redis = (once__redis_t *)store;

    for (unsigned i = 0; i < redis->node_count; i++) {
        once__redis_connection_abandon(&redis->nodes[i]->connection);
    }
    for (unsigned i = 0; i < redis->sentinel_count; i++) {
        once__redis_connection_abandon(redis->sentinels[i]);
        free(redis->sentinels[i]);
    }
    free_store(redis);
}

/* Where keys have slots, all keys of a script must be in one of them. */
static int check_prefix(const once__redis_settings_t *settings, once_error_t *err)
{
    const once__op_t secrets = {.kind = ONCE__OP_SECRETS_LOAD};
    char key[ONCE__REDIS_KEY_SIZE], mark[ONCE__REDIS_MARK_SIZE];
    size_t len = once__redis_key(settings, &secrets, key);
    size_t mark_len = once__redis_mark_key(settings, mark);

    return once__redis_slot(key, len) == once__redis_slot(mark, mark_len)
               ? ONCE_OK
               : once__fail(err, ONCE_E_CONFIG,
                            "prefix: a { needs its }, with something between them, and a } its {");
}

/* Connections and timers for the servers in the URL. */
static int open_connections(once__redis_t *redis)
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

static int redis_check(const once__store_config_t *config, once_error_t *err)
{
    once__redis_settings_t settings;
    once__limits_t limits = {0};
    int code = once__redis_settings_read(&settings, config->url, config->timeout_ms, err);

    if (code != ONCE_OK) {
        return code;
    }
    code = once__limits_take(&limits, config->url, err);
    code = code == ONCE_OK ? check_prefix(&settings, err) : code;
    once__redis_settings_free(&settings);
    return code;
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
    redis->shared.changed = once__redis_connection_changed;
    redis->shared.data = redis;
    once__oplist_init(&redis->queue);
    once__oplist_init(&redis->answers);
    once__oplist_init(&redis->learn.waiting);
    once__redis_scripts_load(redis->texts);
    code = once__redis_settings_read(&redis->settings, config->url, config->timeout_ms, err);
    code = code == ONCE_OK ? once__limits_take(&redis->base.limits, config->url, err) : code;
    code = code == ONCE_OK ? check_prefix(&redis->settings, err) : code;
    if (code == ONCE_OK && redis->settings.tls) {
        code = once__redis_tls_context(&redis->shared.tls, &redis->settings, err);
    }
    if (code == ONCE_OK && open_connections(redis) != ONCE_OK) {
        code = once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    if (code != ONCE_OK) {
        redis_close(&redis->base);
        return code;
    }
    *store = &redis->base;
    return ONCE_OK;
}

static const char *redis_server(const once__store_t *store)
{
    return ((const once__redis_t *)store)->shared.server;
}

static const char *redis_trouble(const once__store_t *store)
{
    return ((const once__redis_t *)store)->shared.trouble;
}

static int redis_is_away(const once__store_t *store)
{
    const once__redis_t *redis = (const once__redis_t *)store;

    return !redis->shared.met && redis->shared.refused >= redis->settings.host_count;
}

#define STORE(name, text)                                                                          \
    static int name##_open(const once__store_config_t *config, once__store_t **store,              \
                           once_error_t *err)                                                      \
    {                                                                                              \
        return open_any(config, &once__##name##_store, store, err);                                \
    }                                                                                              \
    const once__store_vt_t once__##name##_store = {                                                \
        .scheme = (text),                                                                          \
        .audit_unit = ONCE__AUDIT_LINES,                                                           \
        .scrubs = 1,                                                                               \
        .check = redis_check,                                                                      \
        .open = name##_open,                                                                       \
        .submit = redis_submit,                                                                    \
        .dispatch = redis_dispatch,                                                                \
        .close = redis_close,                                                                      \
        .abandon = redis_abandon,                                                                  \
        .trouble = redis_trouble,                                                                  \
        .server = redis_server,                                                                    \
        .is_away = redis_is_away,                                                                  \
    };

STORE(redis, "redis")
STORE(rediss, "rediss")
STORE(redis_sentinel, "redis+sentinel")
STORE(redis_cluster, "redis+cluster")
