/*
 * Asks the store for its dictionaries, and adds to them. Operations whose records need one that is not known wait for the answer,
 * and are then sent again.
 *
 * Invariants:
 *
 * L-1  at most one question is under way.
 * L-2  operations wait only while one is, or is about to be asked.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "store/redis/internal.h"

#define PAUSE_MS 60000 /* between two looks at what the store is given */
#define ABSENT_MS                                                                                  \
    1000 /* so long a dictionary that the store does not have is not asked for again */

static void ask(once__redis_t *redis);

static void assert_learn_state(const once__redis_learn_t *learn)
{
    assert(learn->waiting.first == NULL || learn->is_asked || learn->wanted.count > 0); /* L-2 */
}

/* The answer did not come, or there was one: what waited is asked again. */
static void release(once__redis_t *redis)
{
    if (redis->learn.waiting.first != NULL) {
        once__oplist_move(&redis->queue, &redis->learn.waiting);
        once__loop_wake(redis->loop);
    }
}

static void answered(once__redis_call_t *call, const redisReply *reply)
{
    once__redis_learn_t *learn =
        (once__redis_learn_t *)(void *)((char *)call - offsetof(once__redis_learn_t, call));
    once__redis_t *redis = learn->redis;
    once__redis_dictionaries_t *dictionaries = &redis->dictionaries;

    learn->is_asked = 0;
    if (reply != NULL && reply->type == REDIS_REPLY_STRING &&
        once__redis_dictionaries_read(dictionaries, (const uint8_t *)reply->str,
                                      (size_t)reply->len) == 0) {
        learn->absent = learn->asked;
        learn->absent_at = once__loop_now(redis->loop);
        if (dictionaries->sample_count == ONCE__REDIS_SAMPLES) {
            once__redis_dictionaries_judge(dictionaries);
        }
        if (dictionaries->candidate_len > 0 && learn->tries++ < 3) {
            ask(redis);
        }
    } else if (reply != NULL && reply->type == REDIS_REPLY_ERROR &&
               (strncmp(reply->str, "MOVED ", 6) == 0 || strncmp(reply->str, "ASK ", 4) == 0)) {
        redis->map_wanted = 1;
    }
    release(redis);
    assert_learn_state(learn);
}

/* Asks, with the candidate if there is one. Where that is not possible now, the next turn tries again. */
static void ask(once__redis_t *redis)
{
    once__redis_learn_t *learn = &redis->learn;
    const once__redis_dictionaries_t *dictionaries = &redis->dictionaries;
    once__redis_command_t command = {.argc = 0};
    char key[ONCE__REDIS_MARK_SIZE];
    size_t len = (size_t)snprintf(key, sizeof(key), "%sdictionaries", redis->settings.prefix);
    once__redis_node_t *node;
    int code;

    assert(!learn->is_asked); /* L-1 */
    node = redis->settings.mode == ONCE__REDIS_CLUSTER
               ? once__redis_cluster_route(redis, once__redis_slot(key, len), &code)
               : once__redis_holder(redis, 0, &code);
    if (node == NULL) {
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
    if (once__redis_ask(node, &learn->call, &command) == 0) {
        learn->is_asked = 1;
        learn->asked = learn->wanted;
        learn->wanted.count = 0;
        once__loop_wake(redis->loop);
    }
}

void once__redis_learn(once__redis_t *redis, const void *data, size_t len)
{
    once__redis_learn_t *learn = &redis->learn;
    uint64_t now = once__loop_now(redis->loop);

    if (redis->settings.no_dictionary ||
        !once__redis_dictionaries_offer(&redis->dictionaries, data, len) || learn->is_asked ||
        (learn->looked_at != 0 && now - learn->looked_at < PAUSE_MS)) {
        return;
    }
    learn->tries = 0;
    ask(redis);
    learn->looked_at = learn->is_asked ? now : learn->looked_at;
}

static int has(const once__redis_ids_t *ids, uint16_t id)
{
    for (unsigned i = 0; i < ids->count; i++) {
        if (ids->ids[i] == id) {
            return 1;
        }
    }
    return 0;
}

int once__redis_await_dictionary(once__redis_t *redis, once__op_t *op)
{
    once__redis_learn_t *learn = &redis->learn;
    uint16_t missing = redis->dictionaries.missing;

    if (has(&learn->absent, missing) &&
        once__loop_now(redis->loop) - learn->absent_at < ABSENT_MS) {
        return -1;
    }
    if (!has(&learn->wanted, missing) && learn->wanted.count < ONCE__REDIS_IDS_MAX) {
        learn->wanted.ids[learn->wanted.count++] = missing;
    }
    if (op != NULL) {
        once__oplist_add(&learn->waiting, op);
    }
    once__loop_wake(redis->loop);
    return 0;
}

void once__redis_learn_turn(once__redis_t *redis)
{
    once__redis_learn_t *learn = &redis->learn;

    if (learn->wanted.count > 0 && !learn->is_asked) {
        ask(redis);
    }
    if (!learn->is_asked) {
        learn->wanted.count = 0;
        release(redis); /* no server: each is refused, or waits by itself */
    }
    assert_learn_state(learn);
}
