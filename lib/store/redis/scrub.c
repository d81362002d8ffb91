/*
 * Takes erased texts out of the dictionaries (docs/decisions/erase.md), step by step:
 *
 *   list     the dictionaries of the store are read
 *   sample   and some records; a dictionary with something that too few of them say, of what this program has erased, or, if it
 *            cannot know what was erased, at all
 *   retire   is compressed with no more
 *   rewrite  records that name it are stored without; one that changes meanwhile, or names a dictionary that is not listed yet, is
 *            left for the next pass
 *   drop     when no record names it any more, it goes
 *
 * A program that dies in between leaves a retired dictionary behind, and the next one goes on with it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "store/redis/internal.h"

#define PAGE_KEYS  200
#define PASSES_MAX 16

typedef enum phase { LIST, SAMPLE, RETIRE, REWRITE, DROP } phase_t;

typedef struct scrub {
    once__redis_t *redis;
    once__op_t *op;
    once__redis_node_t *node;
    phase_t phase;
    uint64_t position; /* SCAN's */
    unsigned outstanding;
    unsigned passes;
    uint64_t changed; /* records that were no longer what was read, or could not be, in this pass */
    int error;
    once__pieces_t samples;
    uint8_t ids[ONCE__REDIS_DICTIONARIES_MAX * ONCE__REDIS_ID_SIZE]; /* of those that are retired */
    size_t ids_len;
} scrub_t;

/* One command of it. */
typedef struct step {
    once__redis_call_t call;
    scrub_t *scrub;
    char key[ONCE__REDIS_KEY_SIZE]; /* of its record */
    size_t key_len;
} step_t;

static void go_on(scrub_t *scrub);

static void finish(scrub_t *scrub, int error)
{
    once__pieces_free(&scrub->samples);
    once__redis_answer(scrub->redis, scrub->op, error);
    free(scrub);
}

static void step_over(step_t *step)
{
    scrub_t *scrub = step->scrub;

    free(step);
    if (--scrub->outstanding == 0) {
        go_on(scrub);
    }
}

/* Whether the reply can be used. What is no string is no record. */
static int is_good(scrub_t *scrub, const redisReply *reply)
{
    if (reply == NULL) {
        scrub->error = ONCE_E_UNAVAILABLE;
        return 0;
    }
    if (reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "WRONGTYPE", 9) != 0) {
        scrub->error = once__redis_error_of(reply->str);
    }
    return reply->type != REDIS_REPLY_ERROR;
}

static void send(scrub_t *scrub, const once__redis_command_t *command,
                 void (*done)(once__redis_call_t *call, const redisReply *reply), const char *key,
                 size_t key_len)
{
    step_t *step = calloc(1, sizeof(*step));

    if (step != NULL) {
        step->scrub = scrub;
        step->call.done = done;
        step->key_len = key_len;
        memcpy(step->key, key, key_len);
    }
    if (step == NULL || once__redis_ask(scrub->node, &step->call, command) != 0) {
        free(step);
        scrub->error = ONCE_E_NOMEM;
        return;
    }
    scrub->outstanding++;
}

/* ------------------------------------------------------------------------------------------------------------ the list */

static void list_read(once__redis_call_t *call, const redisReply *reply)
{
    scrub_t *scrub = ((step_t *)call)->scrub;

    if (is_good(scrub, reply) &&
        (reply->type != REDIS_REPLY_STRING ||
         once__redis_dictionaries_read(&scrub->redis->dictionaries, (const uint8_t *)reply->str,
                                       (size_t)reply->len) != 0)) {
        scrub->error = ONCE_E_CORRUPT;
    }
    step_over((step_t *)call);
}

/* Asks for the list; with `act`, after that was done to the dictionaries with those ids. */
static void ask_list(scrub_t *scrub, const char *act)
{
    const once__redis_t *redis = scrub->redis;
    once__redis_command_t command = {.argc = 0};
    char key[ONCE__REDIS_MARK_SIZE];
    size_t len = once__redis_dictionaries_key(&redis->settings, key);

    once__redis_add_text(&command, "EVAL");
    once__redis_add(&command, redis->texts[ONCE__REDIS_DICTIONARIES].text,
                    redis->texts[ONCE__REDIS_DICTIONARIES].len);
    once__redis_add_text(&command, "1");
    once__redis_add(&command, key, len);
    once__redis_add_text(&command, act);
    if (scrub->ids_len > 0) {
        once__redis_add(&command, scrub->ids, scrub->ids_len);
    }
    send(scrub, &command, list_read, "", 0);
}

/* Those that are retired, and with samples those that have to be. */
static void choose(scrub_t *scrub)
{
    const once__redis_dictionaries_t *dictionaries = &scrub->redis->dictionaries;
    int is_sure = dictionaries->has_erased && !dictionaries->is_unsure;

    scrub->ids_len = 0;
    for (unsigned i = 0; i < dictionaries->count; i++) {
        const once__redis_dictionary_t *one = &dictionaries->known[i];
        int have = one->is_retired || one->place == 0
                       ? !one->is_retired
                       : once__pieces_have(&scrub->samples, one->bytes, one->len,
                                           is_sure ? one->touched : NULL);
        if (have < 0) {
            scrub->error = ONCE_E_NOMEM;
        } else if (!have) {
            once__put32(scrub->ids + scrub->ids_len, one->id);
            scrub->ids_len += ONCE__REDIS_ID_SIZE;
        }
    }
    once__pieces_free(&scrub->samples);
}

/* ------------------------------------------------------------------------------------------------------------- records */

static void offer(scrub_t *scrub, const once__record_t *record)
{
    if (once__dictionary_fits(&record->payload)) {
        once__pieces_offer(&scrub->samples, record->payload.data, record->payload.len, 1);
    }
    if (record->about.len >= ONCE__DICTIONARY_LEAST) {
        once__pieces_offer(&scrub->samples, record->about.data, record->about.len, 1);
    }
}

static void replaced(once__redis_call_t *call, const redisReply *reply)
{
    scrub_t *scrub = ((step_t *)call)->scrub;

    scrub->changed +=
        is_good(scrub, reply) && (reply->type != REDIS_REPLY_INTEGER || reply->integer != 1);
    step_over((step_t *)call);
}

static void replace(scrub_t *scrub, const step_t *step, const once__record_t *record,
                    const redisReply *old)
{
    const once__redis_text_t *script = &scrub->redis->texts[ONCE__REDIS_REPLACE];
    once__redis_command_t command = {.argc = 0};
    uint8_t *bytes = malloc(once__redis_pack_bound(record));

    if (bytes == NULL) {
        scrub->error = ONCE_E_NOMEM;
        return;
    }
    once__redis_add_text(&command, "EVAL");
    once__redis_add(&command, script->text, script->len);
    once__redis_add_text(&command, "1");
    once__redis_add(&command, step->key, step->key_len);
    once__redis_add(&command, old->str, (size_t)old->len);
    once__redis_add(&command, bytes, once__redis_pack(bytes, record, NULL));
    send(scrub, &command, replaced, "", 0);
    free(bytes);
}

static void record_read(once__redis_call_t *call, const redisReply *reply)
{
    step_t *step = (step_t *)call;
    scrub_t *scrub = step->scrub;
    once__redis_dictionaries_t *dictionaries = &scrub->redis->dictionaries;
    once__record_t record = {.key = NULL};
    int code = ONCE_E_CORRUPT; /* what is damaged stays as it is */

    dictionaries->met_retired = 0;
    if (is_good(scrub, reply) && reply->type == REDIS_REPLY_STRING) {
        code = once__redis_unpack(&record, dictionaries, (const uint8_t *)reply->str,
                                  (size_t)reply->len);
    }
    if (code == ONCE_OK && scrub->phase == SAMPLE) {
        offer(scrub, &record);
    } else if (code == ONCE_OK && dictionaries->met_retired) {
        replace(scrub, step, &record, reply);
    }
    /* A dictionary that is newer than the list: the description of such a record may need one that is retired. */
    scrub->changed += code == ONCE_E_NOT_FOUND && scrub->phase == REWRITE;
    step_over(step);
}

static void take_keys(scrub_t *scrub, const redisReply *keys)
{
    size_t prefix = strlen(scrub->redis->settings.prefix);

    for (size_t i = 0; i < keys->elements && scrub->error == ONCE_OK; i++) {
        const redisReply *key = keys->element[i];
        once__redis_command_t command = {.argc = 0};
        if (key->type == REDIS_REPLY_STRING && (size_t)key->len == prefix + ONCE__REDIS_NAME_LEN) {
            once__redis_add_text(&command, "GET");
            once__redis_add(&command, key->str, (size_t)key->len);
            send(scrub, &command, record_read, key->str, (size_t)key->len);
        }
    }
}

static void page_read(once__redis_call_t *call, const redisReply *reply)
{
    scrub_t *scrub = ((step_t *)call)->scrub;

    if (is_good(scrub, reply)) {
        if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
            reply->element[0]->type == REDIS_REPLY_STRING &&
            reply->element[1]->type == REDIS_REPLY_ARRAY) {
            scrub->position = strtoull(reply->element[0]->str, NULL, 10);
            take_keys(scrub, reply->element[1]);
        } else {
            scrub->error = ONCE_E_IO;
        }
    }
    step_over((step_t *)call);
}

static void ask_page(scrub_t *scrub)
{
    once__redis_command_t command = {.argc = 0};
    char pattern[ONCE__REDIS_PATTERN_MAX];

    once__redis_pattern(scrub->redis->settings.prefix, pattern);
    once__redis_add_text(&command, "SCAN");
    once__redis_add_number(&command, scrub->position);
    once__redis_add_text(&command, "MATCH");
    once__redis_add_text(&command, pattern);
    once__redis_add_text(&command, "COUNT");
    once__redis_add_number(&command, PAGE_KEYS);
    send(scrub, &command, page_read, "", 0);
}

/* -------------------------------------------------------------------------------------------------------------- phases */

/* The phase after one that has ended. Returns 0 if nothing is left to do. */
static int next_phase(scrub_t *scrub)
{
    switch (scrub->phase) {
    case LIST:
        scrub->phase = SAMPLE;
        return scrub->redis->dictionaries.list_len > 0;
    case SAMPLE:
        choose(scrub);
        scrub->phase = RETIRE;
        return scrub->ids_len > 0;
    case RETIRE:
        scrub->phase = REWRITE;
        return 1;
    case REWRITE:
        scrub->phase =
            scrub->changed > 0 ? RETIRE : DROP; /* once more, with the list as it is now */
        scrub->op->count = scrub->changed;
        scrub->changed = 0;
        return scrub->phase == DROP || ++scrub->passes < PASSES_MAX;
    case DROP:
        break;
    }
    return 0;
}

/* Everything that was asked for is there: the next page, or the next phase. */
static void go_on(scrub_t *scrub)
{
    int is_paged = scrub->phase == SAMPLE || scrub->phase == REWRITE;
    int is_over = !is_paged || scrub->position == 0 ||
                  (scrub->phase == SAMPLE && once__pieces_enough(&scrub->samples));

    if (scrub->error == ONCE_OK && is_over) {
        scrub->position = 0;
        if (!next_phase(scrub)) {
            finish(scrub, scrub->error);
            return;
        }
    }
    if (scrub->error == ONCE_OK && (scrub->phase == SAMPLE || scrub->phase == REWRITE)) {
        ask_page(scrub);
    } else if (scrub->error == ONCE_OK) {
        ask_list(scrub, scrub->phase == RETIRE ? "retire" : "drop");
    }
    if (scrub->outstanding == 0) {
        finish(scrub, scrub->error);
        return;
    }
    once__loop_wake(scrub->redis->loop);
}

void once__redis_scrub(once__redis_t *redis, once__op_t *op)
{
    scrub_t *scrub = NULL;
    int code = ONCE_OK;
    once__redis_node_t *node = once__redis_holder(redis, 0, &code);

    op->count = 0;
    op->damaged = 0;
    /* Where keys have slots nothing is compressed. */
    if (redis->settings.mode == ONCE__REDIS_CLUSTER || redis->is_spread) {
        once__redis_answer(redis, op, ONCE_OK);
        return;
    }
    scrub = node != NULL ? calloc(1, sizeof(*scrub)) : NULL;
    if (scrub == NULL) {
        once__redis_answer(redis, op, node != NULL ? ONCE_E_NOMEM : ONCE_E_UNAVAILABLE);
        return;
    }
    scrub->redis = redis;
    scrub->op = op;
    scrub->node = node;
    scrub->samples.wanted = ONCE__PIECES_MOST;
    ask_list(scrub, "0");
    if (scrub->outstanding == 0) {
        finish(scrub, scrub->error);
    }
}
