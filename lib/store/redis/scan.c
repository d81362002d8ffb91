/*
 * Visits all records with SCAN, a page at a time, server after server, for scan, stats and reap. A page takes two round trips:
 * one for the keys, one to read or reap each of them.
 *
 * SCAN may return a key twice while its table shrinks, and a record may move from a server that is yet to be visited to one
 * that has been. So a pass remembers the records that it has met, and starts again if the cluster changed meanwhile.
 *
 * What holds for a step between two replies (assert_scan_state):
 *   S-1  It has a server, and commands outstanding there.
 *   S-2  It keeps no more records than the page has met, and has a place for each.
 *   S-3  Its pass is being walked, so that nothing else uses or drops it. The reaper's own pass may have two steps.
 */
#include "store/redis/internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "store/redis/handshake.h"

#define PAGE_KEYS  500  /* roughly, if no records are kept in memory */
#define REAP_KEYS  1000 /* each time the programs' own reaper runs */
#define ROUNDS_MAX 10
#define PASSES_MAX 16

/* One step of an operation. */
typedef struct scan {
    once__redis_t *redis;
    once__op_t *op;
    once__redis_pass_t *pass;
    once__redis_node_t *node;
    uint64_t next_position;
    unsigned outstanding;
    int error;
    once__record_t **records;
    size_t count;
    once__redis_met_t *met; /* in this page */
} scan_t;

/* One command of it; `id` is the id of its record. */
typedef struct step {
    once__redis_call_t call;
    scan_t *scan;
    uint8_t id[ONCE_ID_SIZE];
} step_t;

static void begin_page(scan_t *scan);

static void assert_scan_state(const scan_t *scan)
{
    assert(scan->node != NULL && scan->outstanding > 0);                      /* S-1 */
    assert(scan->count == 0 || (scan->met != NULL && scan->records != NULL)); /* S-2 */
    assert(scan->met == NULL || scan->count <= scan->met->count);
    assert(scan->pass->is_walked || scan->pass == &scan->redis->reap_pass); /* S-3 */
}

/* ------------------------------------------------------------------------------------------------------------- passes */

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
    once__hash_free(&pass->seen);
    while (pass->met != NULL) {
        once__redis_met_t *met = pass->met;
        pass->met = met->next;
        free(met);
    }
    free(pass);
}

/* A caller that abandons a scan does not say so: if there are many, the least recently used one is dropped. */
static void forget_oldest(once__redis_t *redis)
{
    once__redis_pass_t *oldest = NULL;
    unsigned count = 0;

    for (once__redis_pass_t *pass = redis->passes; pass != NULL; pass = pass->next) {
        if (!pass->is_walked && (oldest == NULL || pass->used_at < oldest->used_at)) {
            oldest = pass;
        }
        count++;
    }
    if (count >= PASSES_MAX && oldest != NULL) {
        free_pass(redis, oldest);
    }
}

static once__redis_pass_t *new_pass(once__redis_t *redis)
{
    once__redis_pass_t *pass;

    forget_oldest(redis);
    pass = calloc(1, sizeof(*pass));
    if (pass == NULL || once__hash_init(&pass->seen, SIZE_MAX) != 0) {
        free(pass);
        return NULL;
    }
    pass->number = ++redis->pass_number;
    pass->map_version = redis->map_version;
    pass->next = redis->passes;
    redis->passes = pass;
    return pass;
}

/* The pass that the cursor of a scan names. NULL: `*code` says why. */
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
    *code = op->looks != 0 ? ONCE_E_NOT_FOUND : ONCE_E_UNAVAILABLE;
    return pass != NULL && !pass->is_walked ? pass : NULL; /* a cursor may come twice at once */
}

/* -------------------------------------------------------------------------------------------------------------- ending */

static void drop_records(scan_t *scan)
{
    for (size_t i = 0; i < scan->count; i++) {
        free(scan->records[i]);
    }
    free(scan->records);
    scan->records = NULL;
    scan->count = 0;
}

static void end_scan(scan_t *scan, int error)
{
    once__redis_t *redis = scan->redis;
    once__op_t *op = scan->op;

    assert(scan->outstanding == 0); /* a reply would come to a step that is gone */
    if (error != ONCE_OK) {
        drop_records(scan);
    }
    scan->pass->is_walked = 0;
    /* The pass of a scan stays for the next step, or for this one again. */
    if (op->kind != ONCE__OP_SCAN || (error == ONCE_OK && op->cursor.end)) {
        free_pass(redis, scan->pass);
    }
    free(scan->met);
    once__redis_answer(redis, op, error);
    free(scan);
}

/* Whether the pass is over. It starts again if records moved. */
static int is_over(scan_t *scan)
{
    once__redis_t *redis = scan->redis;
    once__redis_pass_t *pass = scan->pass;
    int code = ONCE_OK;

    (void)once__redis_holder(redis, pass->node, &code);
    if (code != ONCE_E_NOT_FOUND) {
        return 0;
    }
    if (scan->op->kind == ONCE__OP_SCAN && pass->rounds < ROUNDS_MAX &&
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

/* The pass remembers the records of the page: they are shown now. */
static void keep_met(scan_t *scan)
{
    once__redis_met_t *met = scan->met;

    if (met == NULL || met->count == 0) {
        return;
    }
    for (size_t i = 0; i < met->count; i++) {
        (void)once__hash_add(&scan->pass->seen, &met->records[i], met->records[i].hash);
    }
    met->next = scan->pass->met;
    scan->pass->met = met;
    scan->met = NULL;
}

static void end_scan_step(scan_t *scan, int over)
{
    once__op_t *op = scan->op;

    keep_met(scan);
    op->records = scan->records;
    op->count = scan->count;
    once__put64(op->cursor.bytes, scan->pass->number);
    op->cursor.end = over;
    end_scan(scan, ONCE_OK);
}

static void end_page(scan_t *scan)
{
    once__op_t *op = scan->op;
    once__redis_pass_t *pass = scan->pass;
    int over;

    if (scan->error != ONCE_OK) {
        end_scan(scan, scan->error);
        return;
    }
    pass->position = scan->next_position;
    pass->node += pass->position == 0;
    over = is_over(scan);
    if (op->kind == ONCE__OP_SCAN) {
        end_scan_step(scan, over);
        return;
    }
    if (op->kind == ONCE__OP_REAP && (!op->thorough || (op->limit > 0 && op->count >= op->limit))) {
        over = 1;
    }
    if (over) {
        op->stats.max_bytes = scan->redis->shared.max_bytes;
        end_scan(scan, ONCE_OK);
    } else {
        begin_page(scan);
    }
}

static void step_over(scan_t *scan)
{
    assert_scan_state(scan);
    if (--scan->outstanding == 0) {
        end_page(scan);
    }
}

/* -------------------------------------------------------------------------------------------------------------- a page */

static int send_step(scan_t *scan, const uint8_t *id, const once__redis_command_t *command,
                     void (*done)(once__redis_call_t *call, const redisReply *reply))
{
    step_t *step = calloc(1, sizeof(*step));

    if (step == NULL) {
        return -1;
    }
    step->scan = scan;
    step->call.done = done;
    if (id != NULL) {
        memcpy(step->id, id, ONCE_ID_SIZE);
    }
    if (once__redis_ask(scan->node, &step->call, command) != 0) {
        free(step);
        return -1;
    }
    scan->outstanding++;
    return 0;
}

/* Whether the reply can be used. A record that is moving, or has moved, is met on another server. */
static int is_good(scan_t *scan, const redisReply *reply)
{
    if (reply == NULL) {
        scan->error = ONCE_E_UNAVAILABLE;
        return 0;
    }
    if (reply->type != REDIS_REPLY_ERROR) {
        return 1;
    }
    if (strncmp(reply->str, "MOVED ", 6) == 0 || strncmp(reply->str, "ASK ", 4) == 0) {
        scan->pass->is_disturbed = 1;
        scan->redis->map_wanted = 1;
    } else if (strncmp(reply->str, "WRONGTYPE", 9) != 0) {
        scan->error = once__redis_error_of(reply->str);
    }
    return 0;
}

static void clock_read(once__redis_call_t *call, const redisReply *reply)
{
    scan_t *scan = ((step_t *)call)->scan;

    if (is_good(scan, reply) && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
        reply->element[0]->type == REDIS_REPLY_STRING &&
        reply->element[1]->type == REDIS_REPLY_STRING) {
        scan->op->now = strtoull(reply->element[0]->str, NULL, 10) * 1000 +
                        strtoull(reply->element[1]->str, NULL, 10) / 1000;
    }
    free(call);
    step_over(scan);
}

static void record_read(once__redis_call_t *call, const redisReply *reply)
{
    step_t *step = (step_t *)call;
    scan_t *scan = step->scan;
    once__record_t record = {.key = NULL};
    int is_there = is_good(scan, reply) && reply->type == REDIS_REPLY_STRING;
    int code = ONCE_E_CORRUPT, waits;

    memcpy(record.id, step->id, ONCE_ID_SIZE);
    if (is_there) {
        code = once__redis_unpack(&record, &scan->redis->dictionaries, (const uint8_t *)reply->str,
                                  (size_t)reply->len);
    }
    waits =
        code == ONCE_E_NOT_FOUND ? once__redis_await_dictionary(scan->redis, NULL) : ONCE_E_CORRUPT;
    if (waits != ONCE_E_CORRUPT) {
        /* The page is read again when the dictionary is there. */
        scan->error = waits == ONCE_OK ? ONCE_E_UNAVAILABLE : waits;
    } else if (is_there) {
        int is_damaged = code != ONCE_OK && code != ONCE_E_NEWER;
        scan->met->records[scan->met->count++].hash = once__get64(step->id);
        scan->op->damaged += is_damaged;
        if (!is_damaged && once__filter_passes(scan->op->filter, &record, scan->op->now)) {
            scan->records[scan->count] = once__record_clone(&record);
            scan->error = scan->records[scan->count] == NULL ? ONCE_E_NOMEM : scan->error;
            scan->count += scan->records[scan->count] != NULL;
        }
    }
    free(step);
    step_over(scan);
}

static void head_read(once__redis_call_t *call, const redisReply *reply)
{
    scan_t *scan = ((step_t *)call)->scan;
    once__record_t record = {.key = NULL};

    /* GETRANGE of a record that has gone meanwhile is empty. */
    if (is_good(scan, reply) && reply->type == REDIS_REPLY_STRING && reply->len > 0) {
        if (once__redis_unpack_head(&record, (const uint8_t *)reply->str, (size_t)reply->len) !=
            ONCE_E_CORRUPT) {
            once__stats_add(&scan->op->stats, &record, scan->op->now);
        } else {
            scan->op->stats.damaged++;
        }
    }
    free(call);
    step_over(scan);
}

/* If MEMORY is not permitted the size is unknown, which is not an error. */
static void memory_read(once__redis_call_t *call, const redisReply *reply)
{
    scan_t *scan = ((step_t *)call)->scan;

    if (reply != NULL && reply->type == REDIS_REPLY_INTEGER && reply->integer > 0) {
        scan->op->stats.bytes += (uint64_t)reply->integer;
    }
    free(call);
    step_over(scan);
}

static int send_reap(scan_t *scan, const uint8_t *id, const char *key, size_t len, int text);

static void reaped(once__redis_call_t *call, const redisReply *reply)
{
    step_t *step = (step_t *)call;
    scan_t *scan = step->scan;
    char key[ONCE__REDIS_KEY_SIZE];

    if (reply != NULL && reply->type == REDIS_REPLY_ERROR &&
        strncmp(reply->str, "NOSCRIPT", 8) == 0) {
        size_t len = once__redis_record_key(&scan->redis->settings, step->id, key);
        if (send_reap(scan, step->id, key, len, 1) != 0) {
            scan->error = ONCE_E_UNAVAILABLE;
        }
    } else if (is_good(scan, reply) && reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
               reply->element[0]->integer == ONCE_OUTCOME_DONE) {
        scan->op->count++;
    }
    free(step);
    step_over(scan);
}

static int send_reap(scan_t *scan, const uint8_t *id, const char *key, size_t len, int text)
{
    once__redis_command_t command = {.argc = 0};

    once__redis_command_reap(&command, scan->redis->texts, text, key, len);
    return send_step(scan, id, &command, reaped);
}

/* The command for one key. */
static int send_key(scan_t *scan, const uint8_t *id, const char *key, size_t len)
{
    once__redis_command_t command = {.argc = 0}, size = {.argc = 0};

    if (scan->op->kind == ONCE__OP_REAP) {
        return send_reap(scan, id, key, len, 0);
    }
    if (scan->op->kind == ONCE__OP_SCAN) {
        once__redis_add_text(&command, "GET");
        once__redis_add(&command, key, len);
        return send_step(scan, id, &command, record_read);
    }
    once__redis_add_text(&command, "GETRANGE");
    once__redis_add(&command, key, len);
    once__redis_add_number(&command, 0);
    once__redis_add_number(&command, ONCE__REDIS_HEAD_ROOM - 1);
    once__redis_add_text(&size, "MEMORY");
    once__redis_add_text(&size, "USAGE");
    once__redis_add(&size, key, len);
    return send_step(scan, id, &command, head_read) != 0 ||
                   send_step(scan, id, &size, memory_read) != 0
               ? -1
               : 0;
}

/* A server that was reconfigured and would now evict records: a new handshake will refuse it. */
static void info_read(once__redis_call_t *call, const redisReply *reply)
{
    scan_t *scan = ((step_t *)call)->scan;
    once__redis_shared_t *shared = &scan->redis->shared;
    char trouble[ONCE__REDIS_TROUBLE_SIZE];
    int is_info = reply != NULL && reply->type == REDIS_REPLY_STRING;

    if (is_info && scan->op->kind == ONCE__OP_STATS) {
        once__redis_add_size(reply->str, shared->settings->database, &scan->op->count,
                             &scan->op->stats.bytes);
    } else if (scan->op->kind == ONCE__OP_STATS) {
        scan->error = ONCE_E_UNAVAILABLE;
    }
    if (is_info && once__redis_judge_info(reply->str, shared->settings, trouble,
                                          &shared->max_bytes) != ONCE_OK) {
        once__redis_connection_condemn(call->connection);
    }
    free(call);
    step_over(scan);
}

static int send_info(scan_t *scan)
{
    once__redis_command_t command = {.argc = 0};

    once__redis_add_text(&command, "INFO");
    return send_step(scan, NULL, &command, info_read);
}

static int send_clock(scan_t *scan)
{
    once__redis_command_t command = {.argc = 0};

    once__redis_add_text(&command, "TIME");
    return send_step(scan, NULL, &command, clock_read);
}

/* Sends the command for each key of the page that names a record and was not met before. */
static void take_keys(scan_t *scan, const redisReply *keys)
{
    size_t prefix = strlen(scan->redis->settings.prefix);

    if (scan->op->kind == ONCE__OP_SCAN) {
        free(scan->met);
        drop_records(scan);
        scan->met = calloc(1, sizeof(*scan->met) + keys->elements * sizeof(scan->met->records[0]));
        scan->records = calloc(keys->elements + 1, sizeof(once__record_t *));
        if (scan->met == NULL || scan->records == NULL) {
            scan->error = ONCE_E_NOMEM;
            return;
        }
    }
    if (send_clock(scan) != 0) {
        scan->error = ONCE_E_UNAVAILABLE;
    }
    for (size_t i = 0; i < keys->elements && scan->error == ONCE_OK; i++) {
        const redisReply *key = keys->element[i];
        uint8_t id[ONCE_ID_SIZE];
        if (key->type != REDIS_REPLY_STRING || (size_t)key->len != prefix + ONCE__REDIS_NAME_LEN ||
            once__unbase64url(id, sizeof(id), key->str + prefix, ONCE__REDIS_NAME_LEN) != 0) {
            continue;
        }
        if (scan->op->kind == ONCE__OP_SCAN &&
            once__hash_first(&scan->pass->seen, once__get64(id)) != NULL) {
            continue;
        }
        if (send_key(scan, id, key->str, (size_t)key->len) != 0) {
            scan->error = ONCE_E_UNAVAILABLE;
        }
    }
}

static void listed(once__redis_call_t *call, const redisReply *reply)
{
    scan_t *scan = ((step_t *)call)->scan;

    if (is_good(scan, reply)) {
        if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
            reply->element[0]->type == REDIS_REPLY_STRING &&
            reply->element[1]->type == REDIS_REPLY_ARRAY) {
            scan->next_position = strtoull(reply->element[0]->str, NULL, 10);
            take_keys(scan, reply->element[1]);
        } else {
            scan->error = ONCE_E_IO;
        }
    }
    free(call);
    step_over(scan);
}

/* The prefix, escaped, and then as many characters as the name of a record has. */
void once__redis_pattern(const char *prefix, char out[ONCE__REDIS_PATTERN_MAX])
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

static void begin_page(scan_t *scan)
{
    once__redis_t *redis = scan->redis;
    once__op_t *op = scan->op;
    once__redis_command_t command = {.argc = 0};
    char pattern[ONCE__REDIS_PATTERN_MAX];
    int code;

    scan->node = once__redis_holder(redis, scan->pass->node, &code);
    if (scan->node == NULL) {
        scan->pass->node = code == ONCE_E_NOT_FOUND ? 0 : scan->pass->node;
        end_scan(scan, ONCE_E_UNAVAILABLE); /* it will be repeated */
        return;
    }
    scan->pass->used_at = once__loop_now(redis->loop);
    if (op->kind == ONCE__OP_STATS && !op->thorough) {
        if (send_info(scan) != 0) {
            end_scan(scan, ONCE_E_UNAVAILABLE);
        }
        return;
    }
    once__redis_pattern(redis->settings.prefix, pattern);
    once__redis_add_text(&command, "SCAN");
    once__redis_add_number(&command, scan->pass->position);
    once__redis_add_text(&command, "MATCH");
    once__redis_add_text(&command, pattern);
    once__redis_add_text(&command, "COUNT");
    once__redis_add_number(&command, op->kind == ONCE__OP_SCAN                    ? op->limit
                                     : op->kind == ONCE__OP_REAP && !op->thorough ? REAP_KEYS
                                                                                  : PAGE_KEYS);
    if (send_step(scan, NULL, &command, listed) != 0) {
        end_scan(scan, ONCE_E_UNAVAILABLE);
    } else if (op->kind == ONCE__OP_REAP && scan->pass->position == 0) {
        (void)send_info(scan); /* the reaper runs every minute */
    }
}

void once__redis_scan(once__redis_t *redis, once__op_t *op)
{
    scan_t *scan;
    int code = ONCE_E_NOMEM;

    if (op->scrub) {
        once__redis_scrub(redis, op);
        return;
    }
    scan = calloc(1, sizeof(*scan));
    op->record = NULL;
    op->records = NULL;
    op->count = 0;
    op->damaged = 0;
    memset(&op->stats, 0, sizeof(op->stats));
    if (scan != NULL) {
        scan->pass = pass_of(redis, op, &code);
    }
    if (scan == NULL || scan->pass == NULL) {
        free(scan);
        once__redis_answer(redis, op, code);
        return;
    }
    scan->redis = redis;
    scan->op = op;
    scan->pass->is_walked = 1;
    begin_page(scan);
}

void once__redis_scan_close(once__redis_t *redis)
{
    while (redis->passes != NULL) {
        free_pass(redis, redis->passes);
    }
}
