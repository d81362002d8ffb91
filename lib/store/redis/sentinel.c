/*
 * Sentinels know which server is the master. One of them is asked whenever the master is unknown or gone, and every second in
 * between: a master that was replaced may still answer.
 */
#include "store/redis/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"

#define POLL_MS 1000

typedef struct sentinel_call {
    once__redis_call_t call;
    once__redis_t *redis;
} sentinel_call_t;

static void next_sentinel(once__redis_t *redis)
{
    redis->sentinel = (redis->sentinel + 1) % redis->sentinel_count;
}

static void use_master(once__redis_t *redis, const char *host, uint16_t port)
{
    once__redis_node_t *node = once__redis_node(redis, host, port), *old = redis->master;

    redis->sentinel_blind = 0;
    if (node == NULL || node == old) {
        return;
    }
    redis->master = node;
    node->connection.retry_at = 0;
    redis->map_version++; /* scans start again */
    if (old != NULL) {
        once__redis_connection_condemn(&old->connection);
    }
    (void)once__redis_connection_is_ready(&node->connection);
}

static void answered(once__redis_call_t *call, const redisReply *reply)
{
    once__redis_t *redis = ((sentinel_call_t *)call)->redis;
    uint64_t port = 0;

    redis->sentinel_asked = 0;
    free(call);
    if (reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
        reply->element[0]->type == REDIS_REPLY_STRING &&
        reply->element[1]->type == REDIS_REPLY_STRING &&
        once__number_parse(reply->element[1]->str, (size_t)reply->element[1]->len, &port) == 0 &&
        port > 0 && port <= UINT16_MAX) {
        use_master(redis, reply->element[0]->str, (uint16_t)port);
    } else if (reply != NULL) {
        redis->sentinel_blind++; /* it does not know */
        next_sentinel(redis);
        (void)snprintf(redis->shared.trouble, ONCE__REDIS_TROUBLE_SIZE,
                       "the sentinels know no master \"%.60s\"%s%.80s", redis->settings.service,
                       reply->type == REDIS_REPLY_ERROR ? ": " : "",
                       reply->type == REDIS_REPLY_ERROR ? reply->str : "");
    }
    once__loop_wake(redis->loop);
}

void once__redis_sentinel_ask(once__redis_t *redis)
{
    once__redis_connection_t *connection = redis->sentinels[redis->sentinel];
    const char *argv[] = {"SENTINEL", "get-master-addr-by-name", redis->settings.service};
    size_t lengths[] = {strlen(argv[0]), strlen(argv[1]), strlen(argv[2])};
    sentinel_call_t *call;

    /* If none of them knows, only the timer asks again. */
    if (redis->sentinel_asked || redis->sentinel_blind >= redis->sentinel_count ||
        !once__redis_connection_is_ready(connection)) {
        return;
    }
    call = calloc(1, sizeof(*call));
    if (call == NULL) {
        return;
    }
    call->redis = redis;
    call->call.done = answered;
    if (once__redis_connection_call(connection, &call->call, 3, argv, lengths) != 0) {
        free(call);
        return;
    }
    redis->sentinel_asked = 1;
    once__redis_connection_flush(connection);
}

int once__redis_sentinel_code(const once__redis_t *redis)
{
    int code = ONCE_E_UNAVAILABLE;

    if (redis->sentinel_blind >= redis->sentinel_count) {
        return ONCE_E_CONFIG;
    }
    for (unsigned i = 0; i < redis->sentinel_count; i++) {
        if (redis->sentinels[i]->state != ONCE__REDIS_DOWN || redis->sentinels[i]->retry_at == 0) {
            return ONCE_OK; /* some have not been tried */
        }
        code = redis->sentinels[i]->refusal == ONCE_E_CONFIG ? ONCE_E_CONFIG : code;
    }
    return code;
}

static void poll_fired(once__timer_t *timer)
{
    once__redis_t *redis =
        (once__redis_t *)(void *)((char *)timer - offsetof(once__redis_t, poll_timer));

    redis->sentinel_blind = 0;
    once__redis_sentinel_ask(redis);
    once__timer_set(redis->loop, timer, once__loop_now(redis->loop) + POLL_MS);
}

int once__redis_sentinel_open(once__redis_t *redis)
{
    for (unsigned i = 0; i < redis->settings.host_count; i++) {
        once__redis_connection_t *connection = calloc(1, sizeof(*connection));
        if (connection == NULL || once__redis_connection_init(connection, &redis->shared,
                                                              &redis->settings.hosts[i], 1) != 0) {
            free(connection);
            return ONCE_E_NOMEM;
        }
        redis->sentinels[redis->sentinel_count++] = connection;
    }
    if (once__timers_reserve(redis->loop) != 0) {
        return ONCE_E_NOMEM;
    }
    redis->poll_timer.fire = poll_fired;
    once__timer_set(redis->loop, &redis->poll_timer, once__loop_now(redis->loop) + POLL_MS);
    return ONCE_OK;
}

void once__redis_sentinel_close(once__redis_t *redis)
{
    if (redis->poll_timer.fire != NULL) {
        once__timer_stop(redis->loop, &redis->poll_timer);
        once__timers_release(redis->loop);
    }
    for (unsigned i = 0; i < redis->sentinel_count; i++) {
        once__redis_connection_free(redis->sentinels[i]);
        free(redis->sentinels[i]);
    }
    redis->sentinel_count = 0;
}
