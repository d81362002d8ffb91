#include "store/redis/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/units.h"

#define REFRESH_MS 100 /* not more often */

/* ------------------------------------------------------------------------------------------------------------- slots */

/* CRC-16/XMODEM, which maps keys to slots. */
static unsigned crc16(const char *data, size_t len)
{
    unsigned crc = 0;

    for (size_t i = 0; i < len; i++) {
        crc ^= (unsigned)(unsigned char)data[i] << 8;
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc & 0x8000) != 0 ? crc << 1 ^ 0x1021 : crc << 1;
        }
    }
    return crc & 0xffff;
}

/* Of a key with {...}, which only the prefix can have, the part between the braces counts. */
unsigned once__redis_slot(const char *key, size_t len)
{
    const char *open = memchr(key, '{', len);
    const char *close = open != NULL ? memchr(open, '}', len - (size_t)(open - key)) : NULL;

    if (close != NULL && close > open + 1) {
        return crc16(open + 1, (size_t)(close - open - 1)) % ONCE__REDIS_SLOTS;
    }
    return crc16(key, len) % ONCE__REDIS_SLOTS;
}

/* --------------------------------------------------------------------------------------------------------------- map */

typedef struct map_call {
    once__redis_call_t call;
    once__redis_t *redis;
} map_call_t;

static unsigned index_of(const once__redis_t *redis, const once__redis_node_t *node)
{
    unsigned i = 0;

    while (redis->nodes[i] != node) {
        i++;
    }
    return i;
}

/* One line of CLUSTER SLOTS: first, last, the master, its replicas. Returns the master's node, or NULL. */
static once__redis_node_t *range_master(once__redis_t *redis, const once__redis_connection_t *from,
                                        const redisReply *range)
{
    const redisReply *at;
    const char *host;

    if (range->type != REDIS_REPLY_ARRAY || range->elements < 3 ||
        range->element[0]->type != REDIS_REPLY_INTEGER ||
        range->element[1]->type != REDIS_REPLY_INTEGER ||
        range->element[2]->type != REDIS_REPLY_ARRAY || range->element[2]->elements < 2) {
        return NULL;
    }
    at = range->element[2];
    if (at->element[1]->type != REDIS_REPLY_INTEGER || at->element[1]->integer <= 0 ||
        at->element[1]->integer > UINT16_MAX) {
        return NULL;
    }
    /* A server that does not know its own address is the one that was asked. */
    host = at->element[0]->type == REDIS_REPLY_STRING && at->element[0]->len > 0
               ? at->element[0]->str
               : from->host.name;
    return once__redis_node(redis, host, (uint16_t)at->element[1]->integer);
}

static int take_map(once__redis_t *redis, const once__redis_connection_t *from,
                    const redisReply *reply)
{
    static _Thread_local uint16_t slots[ONCE__REDIS_SLOTS];
    int is_mapped[ONCE__REDIS_NODES_MAX] = {0};

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0) {
        return -1;
    }
    memset(slots, 0, sizeof(slots));
    for (size_t i = 0; i < reply->elements; i++) {
        once__redis_node_t *node = range_master(redis, from, reply->element[i]);
        long long slot, last;
        if (node == NULL) {
            return -1;
        }
        slot = reply->element[i]->element[0]->integer;
        last = reply->element[i]->element[1]->integer;
        is_mapped[index_of(redis, node)] = 1;
        for (; slot >= 0 && slot <= last && slot < ONCE__REDIS_SLOTS; slot++) {
            slots[slot] = (uint16_t)(index_of(redis, node) + 1);
        }
    }
    if (redis->map_version == 0 || memcmp(slots, redis->slots, sizeof(slots)) != 0) {
        memcpy(redis->slots, slots, sizeof(slots));
        redis->map_version++;
    }
    for (unsigned i = 0; i < redis->node_count; i++) {
        redis->nodes[i]->is_mapped = is_mapped[i];
    }
    return 0;
}

static void map_answered(once__redis_call_t *call, const redisReply *reply)
{
    once__redis_t *redis = ((map_call_t *)call)->redis;
    once__redis_connection_t *connection = call->connection;

    redis->map_asked = 0;
    if (reply != NULL && take_map(redis, connection, reply) != 0) {
        redis->map_wanted = 1;
        once__redis_connection_condemn(connection); /* another one may know more */
    } else if (reply == NULL) {
        redis->map_wanted = 1;
    }
    free(call);
    once__loop_wake(redis->loop);
}

static void ask_for_map(once__redis_t *redis, once__redis_node_t *node)
{
    map_call_t *call = calloc(1, sizeof(*call));
    once__redis_command_t command = {.argc = 0};

    if (call == NULL) {
        return;
    }
    once__redis_add_text(&command, "CLUSTER");
    once__redis_add_text(&command, "SLOTS");
    call->redis = redis;
    call->call.done = map_answered;
    if (once__redis_ask(node, &call->call, &command) != 0) {
        free(call);
        return;
    }
    redis->map_asked = 1;
    redis->map_wanted = 0;
    redis->map_asked_at = once__loop_now(redis->loop);
}

void once__redis_map_refresh(once__redis_t *redis)
{
    uint64_t now = once__loop_now(redis->loop);
    unsigned start =
        (unsigned)(redis->map_asked_at % (redis->node_count > 0 ? redis->node_count : 1));

    if (!redis->map_wanted || redis->map_asked ||
        (redis->map_version != 0 && now < redis->map_asked_at + REFRESH_MS)) {
        return;
    }
    for (unsigned i = 0; i < redis->node_count; i++) {
        once__redis_node_t *node = redis->nodes[(start + i) % redis->node_count];
        if (once__redis_connection_is_ready(&node->connection)) {
            ask_for_map(redis, node);
            return;
        }
    }
}

/* No map yet: operations wait as long as a server may still be reached. */
static int code_without_map(const once__redis_t *redis)
{
    int code = ONCE_E_UNAVAILABLE;

    if (redis->map_asked) {
        return ONCE_OK;
    }
    for (unsigned i = 0; i < redis->node_count; i++) {
        int one = once__redis_node_code(redis->nodes[i]);
        if (one == ONCE_OK) {
            return ONCE_OK;
        }
        code = one == ONCE_E_CONFIG ? one : code;
    }
    return code;
}

once__redis_node_t *once__redis_cluster_route(once__redis_t *redis, unsigned slot, int *code)
{
    once__redis_node_t *node;

    *code = ONCE_OK;
    if (redis->map_version == 0) {
        redis->map_wanted = 1;
        once__redis_map_refresh(redis);
        *code = code_without_map(redis);
        return NULL;
    }
    if (redis->slots[slot] == 0) {
        redis->map_wanted = 1;
        *code = ONCE_E_UNAVAILABLE;
        return NULL;
    }
    node = redis->nodes[redis->slots[slot] - 1];
    if (once__redis_connection_is_ready(&node->connection)) {
        return node;
    }
    *code = once__redis_node_code(node);
    redis->map_wanted |= *code != ONCE_OK;
    return NULL;
}

/* "MOVED 3999 127.0.0.1:6381", "ASK 3999 [::1]:6381", "MOVED 3999 :6381" for the host that said it. */
once__redis_node_t *once__redis_redirect(once__redis_t *redis, const once__redis_connection_t *from,
                                         const char *text)
{
    const char *slot_text = strchr(text, ' ');
    const char *host = slot_text != NULL ? strchr(slot_text + 1, ' ') : NULL;
    const char *colon = host != NULL ? strrchr(host + 1, ':') : NULL;
    char name[ONCE__REDIS_HOST_SIZE];
    once__redis_node_t *node;
    uint64_t slot, port;
    size_t len;

    if (colon == NULL || once__number_parse(colon + 1, strlen(colon + 1), &port) != 0 ||
        once__number_parse(slot_text + 1, (size_t)(host - slot_text - 1), &slot) != 0 ||
        port == 0 || port > UINT16_MAX || slot >= ONCE__REDIS_SLOTS) {
        return NULL;
    }
    host++;
    len = (size_t)(colon - host);
    if (len >= sizeof(name) || (len == 1 && *host == '?')) {
        return NULL;
    }
    memcpy(name, host, len);
    name[len] = '\0';
    node = once__redis_node(redis, len > 0 ? name : from->host.name, (uint16_t)port);
    if (node != NULL && strncmp(text, "MOVED", 5) == 0) {
        redis->slots[slot] = (uint16_t)(index_of(redis, node) + 1);
        node->is_mapped = 1;
        redis->map_version++;
        redis->map_wanted = 1;
    }
    return node;
}
