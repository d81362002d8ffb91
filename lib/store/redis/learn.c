/*
 * Asks the store for its dictionaries, and adds to them. Operations whose records need one that is not known wait for the answer,
 * and are then sent again.
 *
 * Invariants:
 *
 * L-1  at most one question is under way.
 * L-2  operations wait only while one is, or is about to be asked.
 * L-3  a list that cannot be read is asked for once in PAUSE_MS, however many operations need it.
 */
#include <assert.h>
#include <string.h>

#include "store/redis/internal.h"

#define LOOK_MS  60000 /* between two looks at what the store is given */
#define PAUSE_MS 1000  /* before what failed, or was not there, is asked for again */

static void ask(once__redis_t *redis);

static void assert_learn_state(const once__redis_learn_t *learn)
{
    assert(learn->waiting.first == NULL || learn->is_asked || learn->wanted.count > 0); /* L-2 */
}

static int is_recent(const once__redis_t *redis, uint64_t when)
{
    return when != 0 && once__loop_now(redis->loop) - when < PAUSE_MS;
}

static int has(const once__redis_ids_t *ids, uint32_t id)
{
    for (unsigned i = 0; i < ids->count; i++) {
        if (ids->ids[i] == id) {
            return 1;
        }
    }
    return 0;
}

/* Returns 0, or -1: there is no room. */
static int add(once__redis_ids_t *ids, uint32_t id)
{
    if (!has(ids, id)) {
        if (ids->count == ONCE__REDIS_IDS_MAX) {
            return -1;
        }
        ids->ids[ids->count++] = id;
    }
    return 0;
}

/* The list cannot be read: what waits for it is refused, and nothing asks again for a while (L-3). */
static void fail(once__redis_t *redis, int code)
{
    once__redis_learn_t *learn = &redis->learn;
    once__op_t *op = learn->waiting.first;

    learn->code = code;
    learn->answered_at = once__loop_now(redis->loop);
    learn->wanted.count = 0;
    once__oplist_init(&learn->waiting);
    while (op != NULL) {
        once__op_t *next = op->next;
        once__redis_refuse(redis, op, code);
        op = next;
    }
}

/* A script sees only the slot of its record: where keys have slots, nothing is compressed. */
static int writes(const once__redis_t *redis)
{
    return !redis->settings.no_dictionary && redis->settings.mode != ONCE__REDIS_CLUSTER &&
           !redis->is_spread;
}

/* What the answer is: ONCE_OK if it is a list, which is taken. */
static int read_list(once__redis_t *redis, const redisReply *reply)
{
    once__redis_connection_t *connection = redis->learn.call.connection;
    int code;

    if (reply == NULL) {
        return ONCE_E_UNAVAILABLE;
    }
    if (reply->type == REDIS_REPLY_ERROR) {
        code = once__redis_error_of(reply->str);
        redis->map_wanted |=
            strncmp(reply->str, "MOVED ", 6) == 0 || strncmp(reply->str, "ASK ", 4) == 0;
        if (code != ONCE_E_UNAVAILABLE) {
            once__redis_connection_complain(connection, reply->str);
        }
        return code;
    }
    if (reply->type != REDIS_REPLY_STRING ||
        once__redis_dictionaries_read(&redis->dictionaries, (const uint8_t *)reply->str,
                                      (size_t)reply->len) != 0) {
        once__redis_connection_complain(connection, "the list of dictionaries is damaged");
        return ONCE_E_CORRUPT;
    }
    return ONCE_OK;
}

/* What was asked for and is not known now is not there. */
static void note_absent(once__redis_t *redis)
{
    once__redis_learn_t *learn = &redis->learn;

    if (!is_recent(redis, learn->absent_at)) {
        learn->absent.count = 0;
        learn->absent_at = once__loop_now(redis->loop);
    }
    for (unsigned i = 0; i < learn->asked.count; i++) {
        (void)add(&learn->absent, learn->asked.ids[i]);
    }
}

static void answered(once__redis_call_t *call, const redisReply *reply)
{
    once__redis_learn_t *learn =
        (once__redis_learn_t *)(void *)((char *)call - offsetof(once__redis_learn_t, call));
    once__redis_t *redis = learn->redis;
    once__redis_dictionaries_t *dictionaries = &redis->dictionaries;
    int code = read_list(redis, reply);

    learn->is_asked = 0;
    if (code != ONCE_OK) {
        fail(redis, code);
        return;
    }
    learn->code = ONCE_OK;
    learn->answered_at = once__loop_now(redis->loop);
    learn->is_doubted = 0;
    note_absent(redis);
    if (once__pieces_enough(&dictionaries->samples)) {
        once__redis_dictionaries_judge(dictionaries);
    }
    if (learn->waiting.first != NULL) {
        once__oplist_move(&redis->queue, &learn->waiting);
        once__loop_wake(redis->loop);
    }
    if (dictionaries->candidate_len > 0 && writes(redis) && learn->tries++ < 3) {
        ask(redis);
    }
    assert_learn_state(learn);
}

/* Asks, with the candidate if there is one. While its server is being connected to, the next turn tries again. */
static void ask(once__redis_t *redis)
{
    once__redis_learn_t *learn = &redis->learn;
    const once__redis_dictionaries_t *dictionaries = &redis->dictionaries;
    once__redis_command_t command = {.argc = 0};
    char key[ONCE__REDIS_MARK_SIZE];
    size_t len = once__redis_dictionaries_key(&redis->settings, key);
    once__redis_node_t *node;
    int code;

    assert(!learn->is_asked); /* L-1 */
    node = redis->settings.mode == ONCE__REDIS_CLUSTER
               ? once__redis_cluster_route(redis, once__redis_slot(key, len), &code)
               : once__redis_holder(redis, 0, &code);
    if (node == NULL) {
        if (code != ONCE_OK) {
            fail(redis, code);
        }
        return;
    }
    once__redis_add_text(&command, "EVAL");
    once__redis_add(&command, redis->texts[ONCE__REDIS_DICTIONARIES].text,
                    redis->texts[ONCE__REDIS_DICTIONARIES].len);
    once__redis_add_text(&command, "1");
    once__redis_add(&command, key, len);
    once__redis_add_number(&command, dictionaries->list_len);
    if (dictionaries->candidate_len > 0) {
        once__redis_add(&command, dictionaries->candidate, dictionaries->candidate_len);
    }
    learn->redis = redis;
    learn->call.done = answered;
    if (once__redis_ask(node, &learn->call, &command) != 0) {
        fail(redis, ONCE_E_UNAVAILABLE);
        return;
    }
    learn->is_asked = 1;
    learn->asked = learn->wanted;
    learn->wanted.count = 0;
    once__loop_wake(redis->loop);
}

void once__redis_learn(once__redis_t *redis, const void *data, size_t len)
{
    once__redis_learn_t *learn = &redis->learn;
    uint64_t now = once__loop_now(redis->loop);

    if (!writes(redis) || !once__redis_dictionaries_offer(&redis->dictionaries, data, len) ||
        learn->is_asked || (learn->looked_at != 0 && now - learn->looked_at < LOOK_MS)) {
        return;
    }
    learn->tries = 0;
    ask(redis);
    learn->looked_at = learn->is_asked ? now : learn->looked_at;
}

int once__redis_await_dictionary(once__redis_t *redis, once__op_t *op)
{
    once__redis_learn_t *learn = &redis->learn;

    if (learn->code != ONCE_OK && is_recent(redis, learn->answered_at)) {
        return learn->code; /* L-3 */
    }
    if (is_recent(redis, learn->absent_at) && has(&learn->absent, redis->dictionaries.missing)) {
        return ONCE_E_CORRUPT;
    }
    if (add(&learn->wanted, redis->dictionaries.missing) != 0) {
        return ONCE_E_UNAVAILABLE;
    }
    if (op != NULL) {
        once__oplist_add(&learn->waiting, op);
    }
    once__loop_wake(redis->loop);
    return ONCE_OK;
}

void once__redis_doubt(once__redis_t *redis)
{
    once__redis_dictionaries_doubt(&redis->dictionaries);
    redis->learn.is_doubted = 1;
}

void once__redis_learn_turn(once__redis_t *redis)
{
    once__redis_learn_t *learn = &redis->learn;

    if (!learn->is_asked &&
        (learn->wanted.count > 0 || (learn->is_doubted && !is_recent(redis, learn->answered_at)))) {
        learn->tries = 0;
        ask(redis);
    }
    assert_learn_state(learn);
}
