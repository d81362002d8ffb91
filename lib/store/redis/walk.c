/*
 * Going through all records with SCAN, a page at a time, server after server: scan, stats and reap. A page is two round trips:
 * which keys there are, and then what is to be known or done about each.
 *
 * SCAN may name a key twice when its table shrinks, and a record may move from a server that is still to be visited to one that
 * was. So a scan remembers which records it has met, and begins once more when the cluster changed under it.
 */
#include "store/redis/inside.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "store/redis/greet.h"

#define PAGE_KEYS   500  /* about so many, where no answer is held in memory */
#define REAP_KEYS   1000 /* of the reaper that nobody asked for, each time */
#define ROUNDS_MAX  10
#define PASSES_MAX  16
#define SEEN_MIN    256
#define PATTERN_MAX (2 * ONCE__REDIS_PREFIX_MAX + ONCE__REDIS_NAME_LEN + 1)

/* One step of an operation. */
typedef struct walk {
    once__redis_t *redis;
    once__op_t *op;
    once__redis_pass_t *pass;
    once__redis_node_t *node;
    uint64_t next_position;
    unsigned outstanding;
    int error;
    once__record_t **records;
    uint64_t *met; /* ids of this page */
    size_t count, met_count;
} walk_t;

/* A command of it; `id` is the record's that it is about. */
typedef struct step {
    once__redis_call_t call;
    walk_t *walk;
    uint8_t id[ONCE_ID_SIZE];
} step_t;

static void begin_page(walk_t *walk);

/* ------------------------------------------------------------------------------------------------------------- passes */

static uint64_t mark_of(const uint8_t *id)
{
    uint64_t mark = once__get64(id);

    return mark != 0 ? mark : 1;
}

static int was_seen(const once__redis_pass_t *pass, uint64_t mark)
{
    for (size_t i = mark & (pass->seen_room - 1); pass->seen_room > 0 && pass->seen[i] != 0;
         i = (i + 1) & (pass->seen_room - 1)) {
        if (pass->seen[i] == mark) {
            return 1;
        }
    }
    return 0;
}

static void put_seen(uint64_t *seen, size_t room, uint64_t mark)
{
    size_t i = mark & (room - 1);

    while (seen[i] != 0) {
        i = (i + 1) & (room - 1);
    }
    seen[i] = mark;
}

/* Room for `more`. 0, or -1: out of memory. */
static int grow_seen(once__redis_pass_t *pass, size_t more)
{
    size_t room = pass->seen_room > 0 ? pass->seen_room : SEEN_MIN;
    uint64_t *seen;

    while ((pass->seen_count + more) * 2 > room) {
        room *= 2;
    }
    if (room == pass->seen_room) {
        return 0;
    }
    seen = calloc(room, sizeof(*seen));
    if (seen == NULL) {
        return -1;
    }
    for (size_t i = 0; i < pass->seen_room; i++) {
        if (pass->seen[i] != 0) {
            put_seen(seen, room, pass->seen[i]);
        }
    }
    free(pass->seen);
    pass->seen = seen;
    pass->seen_room = room;
    return 0;
}

static void free_pass(once__redis_t *redis, once__redis_pass_t *pass)
{
    once__redis_pass_t **place = &redis->passes;

    if (pass == &redis->reap_pass) {
        return;
    }
    while (*place != pass) {
        place = &(*place)->next;
    }
    *place = pass->next;
    free(pass->seen);
    free(pass);
}

/* Who stops listening to a scan does not say so: of many, the one that was not used for the longest time is given up. */
static void forget_oldest(once__redis_t *redis)
{
    once__redis_pass_t *oldest = redis->passes;
    unsigned count = 0;

    for (once__redis_pass_t *pass = redis->passes; pass != NULL; pass = pass->next) {
        oldest = pass->used_at < oldest->used_at ? pass : oldest;
        count++;
    }
    if (count >= PASSES_MAX) {
        free_pass(redis, oldest);
    }
}

static once__redis_pass_t *new_pass(once__redis_t *redis)
{
    once__redis_pass_t *pass;

    forget_oldest(redis);
    pass = calloc(1, sizeof(*pass));
    if (pass != NULL) {
        pass->number = ++redis->pass_number;
        pass->map_version = redis->map_version;
        pass->next = redis->passes;
        redis->passes = pass;
    }
    return pass;
}

/* A scan goes on where its cursor says. NULL: `*code` says why. */
static once__redis_pass_t *pass_of(once__redis_t *redis, const once__op_t *op, int *code)
{
    uint64_t number = op->kind == ONCE__OP_SCAN ? once__get64(op->cursor.bytes) : 0;
    once__redis_pass_t *pass = redis->passes;

    *code = ONCE_E_NOMEM;
    if (op->kind == ONCE__OP_REAP && !op->thorough) {
        return &redis->reap_pass;
    }
    if (number == 0) {
        return new_pass(redis);
    }
    while (pass != NULL && pass->number != number) {
        pass = pass->next;
    }
    *code = ONCE_E_UNAVAILABLE;
    return pass;
}

/* -------------------------------------------------------------------------------------------------------------- ending */

static void drop_records(walk_t *walk)
{
    for (size_t i = 0; i < walk->count; i++) {
        free(walk->records[i]);
    }
    free(walk->records);
    walk->records = NULL;
    walk->count = 0;
}

static void end_walk(walk_t *walk, int error)
{
    once__redis_t *redis = walk->redis;
    once__op_t *op = walk->op;

    if (error != ONCE_OK) {
        drop_records(walk);
    }
    /* A scan's pass stays for the next step, or for the next try of this one. */
    if (walk->pass != NULL && (op->kind != ONCE__OP_SCAN || (error == ONCE_OK && op->cursor.end))) {
        free_pass(redis, walk->pass);
    }
    free(walk->met);
    once__redis_answer(redis, op, error);
    free(walk);
}

/* Whether the pass is over. It begins once more when something moved. */
static int is_over(walk_t *walk)
{
    once__redis_t *redis = walk->redis;
    once__redis_pass_t *pass = walk->pass;
    int code = ONCE_OK;

    (void)once__redis_holder(redis, pass->node, &code);
    if (code != ONCE_E_NOT_FOUND) {
        return 0;
    }
    if (walk->op->kind == ONCE__OP_SCAN && pass->rounds < ROUNDS_MAX &&
        (pass->is_disturbed || pass->map_version != redis->map_version)) {
        pass->rounds++;
        pass->is_disturbed = 0;
        pass->map_version = redis->map_version;
        pass->node = 0;
        pass->position = 0;
        return 0;
    }
    pass->node = 0;
    pass->position = 0;
    return 1;
}

static void end_scan_step(walk_t *walk, int over)
{
    once__op_t *op = walk->op;

    if (grow_seen(walk->pass, walk->met_count) != 0) {
        end_walk(walk, ONCE_E_NOMEM);
        return;
    }
    for (size_t i = 0; i < walk->met_count; i++) {
        put_seen(walk->pass->seen, walk->pass->seen_room, walk->met[i]);
    }
    walk->pass->seen_count += walk->met_count;
    op->records = walk->records;
    op->count = walk->count;
    once__put64(op->cursor.bytes, walk->pass->number);
    op->cursor.end = over;
    end_walk(walk, ONCE_OK);
}

static void end_page(walk_t *walk)
{
    once__op_t *op = walk->op;
    once__redis_pass_t *pass = walk->pass;
    int over;

    if (walk->error != ONCE_OK) {
        end_walk(walk, walk->error);
        return;
    }
    pass->position = walk->next_position;
    pass->node += pass->position == 0;
    over = is_over(walk);
    if (op->kind == ONCE__OP_SCAN) {
        end_scan_step(walk, over);
        return;
    }
    if (op->kind == ONCE__OP_REAP && (!op->thorough || (op->limit > 0 && op->count >= op->limit))) {
        over = 1;
    }
    if (over) {
        op->stats.max_bytes = walk->redis->shared.max_bytes;
        end_walk(walk, ONCE_OK);
    } else {
        begin_page(walk);
    }
}

static void step_over(walk_t *walk)
{
    if (--walk->outstanding == 0) {
        end_page(walk);
    }
}

/* -------------------------------------------------------------------------------------------------------------- a page */

static int send_step(walk_t *walk, const uint8_t *id, const once__redis_command_t *command,
                     void (*done)(once__redis_call_t *call, const redisReply *reply))
{
    step_t *step = calloc(1, sizeof(*step));

    if (step == NULL) {
        return -1;
    }
    step->walk = walk;
    step->call.done = done;
    if (id != NULL) {
        memcpy(step->id, id, ONCE_ID_SIZE);
    }
    if (once__redis_ask(walk->node, &step->call, command) != 0) {
        free(step);
        return -1;
    }
    walk->outstanding++;
    return 0;
}

/* 1: the reply can be used. A record that is moving, or has moved, is met elsewhere. */
static int is_good(walk_t *walk, const redisReply *reply)
{
    if (reply == NULL) {
        walk->error = ONCE_E_UNAVAILABLE;
        return 0;
    }
    if (reply->type != REDIS_REPLY_ERROR) {
        return 1;
    }
    if (strncmp(reply->str, "MOVED ", 6) == 0 || strncmp(reply->str, "ASK ", 4) == 0) {
        walk->pass->is_disturbed = 1;
        walk->redis->map_wanted = 1;
    } else if (strncmp(reply->str, "WRONGTYPE", 9) != 0) {
        walk->error = once__redis_error_of(reply->str);
    }
    return 0;
}

static void clock_read(once__redis_call_t *call, const redisReply *reply)
{
    walk_t *walk = ((step_t *)call)->walk;

    if (is_good(walk, reply) && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
        reply->element[0]->type == REDIS_REPLY_STRING &&
        reply->element[1]->type == REDIS_REPLY_STRING) {
        walk->op->now = strtoull(reply->element[0]->str, NULL, 10) * 1000 +
                        strtoull(reply->element[1]->str, NULL, 10) / 1000;
    }
    free(call);
    step_over(walk);
}

static void record_read(once__redis_call_t *call, const redisReply *reply)
{
    step_t *step = (step_t *)call;
    walk_t *walk = step->walk;
    once__record_t record = {.key = NULL};

    memcpy(record.id, step->id, ONCE_ID_SIZE);
    if (is_good(walk, reply) && reply->type == REDIS_REPLY_STRING &&
        once__redis_read_record(&record, reply->str, (size_t)reply->len) != ONCE_E_CORRUPT) {
        walk->met[walk->met_count++] = mark_of(step->id);
        if (once__filter_passes(walk->op->filter, &record, walk->op->now)) {
            walk->records[walk->count] = once__record_clone(&record);
            walk->error = walk->records[walk->count] == NULL ? ONCE_E_NOMEM : walk->error;
            walk->count += walk->records[walk->count] != NULL;
        }
    }
    free(step);
    step_over(walk);
}

static void head_read(once__redis_call_t *call, const redisReply *reply)
{
    walk_t *walk = ((step_t *)call)->walk;
    once__record_t record = {.key = NULL};

    if (is_good(walk, reply) && reply->type == REDIS_REPLY_STRING &&
        once__redis_read_head(&record, reply->str, (size_t)reply->len) != ONCE_E_CORRUPT) {
        once__stats_add(&walk->op->stats, &record, walk->op->now);
    }
    free(call);
    step_over(walk);
}

/* Where MEMORY is forbidden, the size is not known: that is no failure. */
static void memory_read(once__redis_call_t *call, const redisReply *reply)
{
    walk_t *walk = ((step_t *)call)->walk;

    if (reply != NULL && reply->type == REDIS_REPLY_INTEGER && reply->integer > 0) {
        walk->op->stats.bytes += (uint64_t)reply->integer;
    }
    free(call);
    step_over(walk);
}

static int send_reap(walk_t *walk, const uint8_t *id, const char *key, size_t len, int text);

static void reaped(once__redis_call_t *call, const redisReply *reply)
{
    step_t *step = (step_t *)call;
    walk_t *walk = step->walk;
    char key[ONCE__REDIS_KEY_SIZE];

    if (reply != NULL && reply->type == REDIS_REPLY_ERROR &&
        strncmp(reply->str, "NOSCRIPT", 8) == 0) {
        size_t len = once__redis_record_key(&walk->redis->settings, step->id, key);
        if (send_reap(walk, step->id, key, len, 1) != 0) {
            walk->error = ONCE_E_UNAVAILABLE;
        }
    } else if (is_good(walk, reply) && reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
               reply->element[0]->integer == ONCE_OUTCOME_DONE) {
        walk->op->count++;
    }
    free(step);
    step_over(walk);
}

static int send_reap(walk_t *walk, const uint8_t *id, const char *key, size_t len, int text)
{
    once__redis_command_t command = {.argc = 0};

    once__redis_command_reap(&command, walk->redis->texts, text, key, len);
    return send_step(walk, id, &command, reaped);
}

/* What is to be known or done about one key. */
static int send_key(walk_t *walk, const uint8_t *id, const char *key, size_t len)
{
    once__redis_command_t command = {.argc = 0}, size = {.argc = 0};

    if (walk->op->kind == ONCE__OP_REAP) {
        return send_reap(walk, id, key, len, 0);
    }
    if (walk->op->kind == ONCE__OP_SCAN) {
        once__redis_add_text(&command, "GET");
        once__redis_add(&command, key, len);
        return send_step(walk, id, &command, record_read);
    }
    once__redis_add_text(&command, "GETRANGE");
    once__redis_add(&command, key, len);
    once__redis_add_number(&command, 0);
    once__redis_add_number(&command, ONCE__REDIS_HEAD_SIZE - 1);
    once__redis_add_text(&size, "MEMORY");
    once__redis_add_text(&size, "USAGE");
    once__redis_add(&size, key, len);
    return send_step(walk, id, &command, head_read) != 0 ||
                   send_step(walk, id, &size, memory_read) != 0
               ? -1
               : 0;
}

/* A server that is set otherwise meanwhile, and would forget records now: it is greeted anew, and refused for it. */
static void info_read(once__redis_call_t *call, const redisReply *reply)
{
    walk_t *walk = ((step_t *)call)->walk;
    once__redis_shared_t *shared = &walk->redis->shared;
    char trouble[ONCE__REDIS_TROUBLE_SIZE];
    int is_info = reply != NULL && reply->type == REDIS_REPLY_STRING;

    if (is_info && walk->op->kind == ONCE__OP_STATS) {
        once__redis_add_size(reply->str, shared->settings->database, &walk->op->count,
                             &walk->op->stats.bytes);
    } else if (walk->op->kind == ONCE__OP_STATS) {
        walk->error = ONCE_E_UNAVAILABLE;
    }
    if (is_info && once__redis_judge_info(reply->str, shared->settings, trouble,
                                          &shared->max_bytes) != ONCE_OK) {
        once__redis_link_condemn(call->link);
    }
    free(call);
    step_over(walk);
}

static int send_info(walk_t *walk)
{
    once__redis_command_t command = {.argc = 0};

    once__redis_add_text(&command, "INFO");
    return send_step(walk, NULL, &command, info_read);
}

static int send_clock(walk_t *walk)
{
    once__redis_command_t command = {.argc = 0};

    once__redis_add_text(&command, "TIME");
    return send_step(walk, NULL, &command, clock_read);
}

/* Asks about each key of the page that is a record's and was not met before. */
static void take_keys(walk_t *walk, const redisReply *keys)
{
    size_t prefix = strlen(walk->redis->settings.prefix);

    if (walk->op->kind == ONCE__OP_SCAN) {
        free(walk->met);
        drop_records(walk);
        walk->met = calloc(keys->elements + 1, sizeof(*walk->met));
        walk->records = calloc(keys->elements + 1, sizeof(once__record_t *));
        walk->met_count = 0;
        if (walk->met == NULL || walk->records == NULL) {
            walk->error = ONCE_E_NOMEM;
            return;
        }
    }
    if (send_clock(walk) != 0) {
        walk->error = ONCE_E_UNAVAILABLE;
    }
    for (size_t i = 0; i < keys->elements && walk->error == ONCE_OK; i++) {
        const redisReply *key = keys->element[i];
        uint8_t id[ONCE_ID_SIZE];
        if (key->type != REDIS_REPLY_STRING || (size_t)key->len != prefix + ONCE__REDIS_NAME_LEN ||
            once__unbase64url(id, sizeof(id), key->str + prefix, ONCE__REDIS_NAME_LEN) != 0) {
            continue;
        }
        if (walk->op->kind == ONCE__OP_SCAN && was_seen(walk->pass, mark_of(id))) {
            continue;
        }
        if (send_key(walk, id, key->str, (size_t)key->len) != 0) {
            walk->error = ONCE_E_UNAVAILABLE;
        }
    }
}

static void listed(once__redis_call_t *call, const redisReply *reply)
{
    walk_t *walk = ((step_t *)call)->walk;

    if (is_good(walk, reply)) {
        if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
            reply->element[0]->type == REDIS_REPLY_STRING &&
            reply->element[1]->type == REDIS_REPLY_ARRAY) {
            walk->next_position = strtoull(reply->element[0]->str, NULL, 10);
            take_keys(walk, reply->element[1]);
        } else {
            walk->error = ONCE_E_IO;
        }
    }
    free(call);
    step_over(walk);
}

/* The prefix as it is, and then as many characters as a record's name has. */
static void write_pattern(const char *prefix, char out[PATTERN_MAX])
{
    for (; *prefix != '\0'; prefix++) {
        if (strchr("*?[]^\\", *prefix) != NULL) {
            *out++ = '\\';
        }
        *out++ = *prefix;
    }
    memset(out, '?', ONCE__REDIS_NAME_LEN);
    out[ONCE__REDIS_NAME_LEN] = '\0';
}

static void begin_page(walk_t *walk)
{
    once__redis_t *redis = walk->redis;
    once__op_t *op = walk->op;
    once__redis_command_t command = {.argc = 0};
    char pattern[PATTERN_MAX];
    int code;

    walk->node = once__redis_holder(redis, walk->pass->node, &code);
    if (walk->node == NULL) {
        walk->pass->node = code == ONCE_E_NOT_FOUND ? 0 : walk->pass->node;
        end_walk(walk, ONCE_E_UNAVAILABLE); /* it is asked again */
        return;
    }
    walk->pass->used_at = once__loop_now(redis->loop);
    if (op->kind == ONCE__OP_STATS && !op->thorough) {
        if (send_info(walk) != 0) {
            end_walk(walk, ONCE_E_UNAVAILABLE);
        }
        return;
    }
    write_pattern(redis->settings.prefix, pattern);
    once__redis_add_text(&command, "SCAN");
    once__redis_add_number(&command, walk->pass->position);
    once__redis_add_text(&command, "MATCH");
    once__redis_add_text(&command, pattern);
    once__redis_add_text(&command, "COUNT");
    once__redis_add_number(&command, op->kind == ONCE__OP_SCAN                    ? op->limit
                                     : op->kind == ONCE__OP_REAP && !op->thorough ? REAP_KEYS
                                                                                  : PAGE_KEYS);
    if (send_step(walk, NULL, &command, listed) != 0) {
        end_walk(walk, ONCE_E_UNAVAILABLE);
    } else if (op->kind == ONCE__OP_REAP && walk->pass->position == 0) {
        (void)send_info(walk); /* the reaper comes by every minute */
    }
}

void once__redis_walk(once__redis_t *redis, once__op_t *op)
{
    walk_t *walk = calloc(1, sizeof(*walk));
    int code = ONCE_E_NOMEM;

    op->record = NULL;
    op->records = NULL;
    op->count = 0;
    memset(&op->stats, 0, sizeof(op->stats));
    if (walk != NULL) {
        walk->pass = pass_of(redis, op, &code);
    }
    if (walk == NULL || walk->pass == NULL) {
        free(walk);
        once__redis_answer(redis, op, code);
        return;
    }
    walk->redis = redis;
    walk->op = op;
    begin_page(walk);
}

void once__redis_walk_close(once__redis_t *redis)
{
    while (redis->passes != NULL) {
        free_pass(redis, redis->passes);
    }
}
