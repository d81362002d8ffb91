#include "store/redis/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A place in the table: a new one, or that of a server that is no longer needed. */
static once__redis_node_t **place_for_node(once__redis_t *redis)
{
    if (redis->node_count < ONCE__REDIS_NODES_MAX) {
        return &redis->nodes[redis->node_count++];
    }
    for (unsigned i = 0; i < redis->node_count; i++) {
        once__redis_node_t *node = redis->nodes[i];
        if (!node->is_mapped && node != redis->master && node->batch == NULL &&
            node->connection.state == ONCE__REDIS_DOWN) {
            once__redis_connection_free(&node->connection);
            free(node);
            return &redis->nodes[i];
        }
    }
    return NULL;
}

once__redis_node_t *once__redis_node(once__redis_t *redis, const char *host, uint16_t port)
{
    once__redis_host_t address = {.port = port};
    once__redis_node_t *node, **place;

    for (unsigned i = 0; i < redis->node_count; i++) {
        const once__redis_host_t *known = &redis->nodes[i]->connection.host;
        if (known->port == port && strcmp(known->name, host) == 0) {
            return redis->nodes[i];
        }
    }
    if (snprintf(address.name, sizeof(address.name), "%s", host) >= (int)sizeof(address.name)) {
        return NULL;
    }
    node = calloc(1, sizeof(*node));
    if (node == NULL ||
        once__redis_connection_init(&node->connection, &redis->shared, &address, 0) != 0) {
        free(node);
        return NULL;
    }
    place = place_for_node(redis);
    if (place == NULL) {
        once__redis_connection_free(&node->connection);
        free(node);
        return NULL;
    }
    *place = node;
    return node;
}

int once__redis_node_code(const once__redis_node_t *node)
{
    if (node->connection.state != ONCE__REDIS_DOWN) {
        return ONCE_OK;
    }
    return node->connection.refusal != ONCE_OK ? node->connection.refusal : ONCE_E_UNAVAILABLE;
}

static once__redis_node_t *master(once__redis_t *redis, int *code)
{
    once__redis_node_t *node = redis->master;

    *code = ONCE_OK;
    if (node != NULL && once__redis_connection_is_ready(&node->connection)) {
        return node;
    }
    if (redis->settings.mode == ONCE__REDIS_SENTINEL) {
        once__redis_sentinel_ask(redis);
    }
    *code = node != NULL ? once__redis_node_code(node) : once__redis_sentinel_code(redis);
    return NULL;
}

once__redis_node_t *once__redis_route(once__redis_t *redis, const once__op_t *op, int *code)
{
    if (redis->settings.mode == ONCE__REDIS_CLUSTER) {
        char key[ONCE__REDIS_KEY_SIZE];
        size_t len = once__redis_key(&redis->settings, op, key);
        return once__redis_cluster_route(redis, once__redis_slot(key, len), code);
    }
    return master(redis, code);
}

once__redis_node_t *once__redis_holder(once__redis_t *redis, unsigned i, int *code)
{
    unsigned mapped = 0;

    if (redis->settings.mode != ONCE__REDIS_CLUSTER) {
        *code = ONCE_E_NOT_FOUND;
        return i == 0 ? master(redis, code) : NULL;
    }
    if (redis->map_version == 0) {
        return once__redis_cluster_route(redis, 0, code);
    }
    for (unsigned n = 0; n < redis->node_count; n++) {
        once__redis_node_t *node = redis->nodes[n];
        if (!node->is_mapped || mapped++ != i) {
            continue;
        }
        *code = ONCE_OK;
        if (once__redis_connection_is_ready(&node->connection)) {
            return node;
        }
        *code = once__redis_node_code(node);
        return NULL;
    }
    *code = ONCE_E_NOT_FOUND;
    return NULL;
}

void once__redis_connection_changed(void *data, once__redis_connection_t *connection)
{
    once__redis_t *redis = data;

    /* A server that is gone may have been replaced. */
    if (connection->state == ONCE__REDIS_DOWN && redis->settings.mode == ONCE__REDIS_CLUSTER) {
        redis->map_wanted = 1;
    }
    /* This one is gone, or named a server that is gone or no master: the others may know more. */
    if (connection->state == ONCE__REDIS_DOWN && redis->sentinel_count > 0 &&
        (connection->is_sentinel
             ? connection == redis->sentinels[redis->sentinel]
             : redis->master != NULL && connection == &redis->master->connection)) {
        redis->sentinel = (redis->sentinel + 1) % redis->sentinel_count;
    }
    if (connection->is_sentinel && connection->state == ONCE__REDIS_READY) {
        once__redis_sentinel_ask(redis);
    }
    once__loop_wake(redis->loop);
}
