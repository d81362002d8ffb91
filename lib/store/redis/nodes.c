#include "store/redis/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A place in the table: a new one, or that of a server that is not needed any more. */
static once__redis_node_t **place_for_node(once__redis_t *redis)
{
    if (redis->node_count < ONCE__REDIS_NODES_MAX) {
        return &redis->nodes[redis->node_count++];
    }
    for (unsigned i = 0; i < redis->node_count; i++) {
        once__redis_node_t *node = redis->nodes[i];
        if (!node->is_mapped && node != redis->master && node->batch == NULL &&
            node->link.state == ONCE__REDIS_DOWN) {
            once__redis_link_free(&node->link);
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
        const once__redis_host_t *known = &redis->nodes[i]->link.host;
        if (known->port == port && strcmp(known->name, host) == 0) {
            return redis->nodes[i];
        }
    }
    if (snprintf(address.name, sizeof(address.name), "%s", host) >= (int)sizeof(address.name)) {
        return NULL;
    }
    node = calloc(1, sizeof(*node));
    if (node == NULL || once__redis_link_init(&node->link, &redis->shared, &address, 0) != 0) {
        free(node);
        return NULL;
    }
    place = place_for_node(redis);
    if (place == NULL) {
        once__redis_link_free(&node->link);
        free(node);
        return NULL;
    }
    *place = node;
    return node;
}

int once__redis_node_code(const once__redis_node_t *node)
{
    if (node->link.state != ONCE__REDIS_DOWN) {
        return ONCE_OK;
    }
    return node->link.refusal != ONCE_OK ? node->link.refusal : ONCE_E_UNAVAILABLE;
}

static once__redis_node_t *master(once__redis_t *redis, int *code)
{
    once__redis_node_t *node = redis->master;

    *code = ONCE_OK;
    if (node != NULL && once__redis_link_is_ready(&node->link)) {
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
        if (once__redis_link_is_ready(&node->link)) {
            return node;
        }
        *code = once__redis_node_code(node);
        return NULL;
    }
    *code = ONCE_E_NOT_FOUND;
    return NULL;
}

void once__redis_link_changed(void *data, once__redis_link_t *link)
{
    once__redis_t *redis = data;

    /* A server that went away may have been replaced. */
    if (link->state == ONCE__REDIS_DOWN && redis->settings.mode == ONCE__REDIS_CLUSTER) {
        redis->map_wanted = 1;
    }
    /* One that is gone; or one that sent us to a server that is gone or no master: the others may have heard more. */
    if (link->state == ONCE__REDIS_DOWN && redis->sentinel_count > 0 &&
        (link->is_sentinel ? link == redis->sentinels[redis->sentinel]
                           : redis->master != NULL && link == &redis->master->link)) {
        redis->sentinel = (redis->sentinel + 1) % redis->sentinel_count;
    }
    if (link->is_sentinel && link->state == ONCE__REDIS_READY) {
        once__redis_sentinel_ask(redis);
    }
    once__loop_wake(redis->loop);
}
