#include "support/world.h"

#include "support/testing.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

typedef struct world_store {
    once__store_t base;
    world_t *world;
    once__loop_t *loop;
    once__op_t *first, **last;
} world_store_t;

/* ------------------------------------------------------------------------------------------------------------ store */

static void answer(world_t *world, once__op_t *op)
{
    world_fault_t fault = world->plan != NULL ? world->plan(world, op) : WORLD_OK;

    world->ops++;
    op->record = NULL;
    op->records = NULL;
    op->lines = NULL;
    op->count = 0;
    if (fault == WORLD_OK || fault == WORLD_LOSE_REPLY) {
        once__table_apply(world->table, op, world->wall_ms);
    }
    if (fault == WORLD_LOSE_REPLY) {
        free(op->record);
        op->record = NULL;
        for (uint64_t i = 0; i < op->count && op->records != NULL; i++) {
            free(op->records[i]);
        }
        free(op->records);
        op->records = NULL;
        free(op->lines);
        op->lines = NULL;
        op->count = 0;
    }
    switch (fault) {
    case WORLD_LOSE_REQUEST:
    case WORLD_LOSE_REPLY:
        op->error = ONCE_E_NOREPLY;
        break;
    case WORLD_AWAY:
        op->error = ONCE_E_UNAVAILABLE;
        break;
    case WORLD_FULL:
        op->error = ONCE_E_FULL;
        break;
    case WORLD_NOMEM:
        op->error = ONCE_E_NOMEM;
        break;
    default:
        break;
    }
    op->done(op);
}

static void store_submit(once__store_t *base, once__op_t *op)
{
    world_store_t *store = (world_store_t *)base;

    op->next = NULL;
    *store->last = op;
    store->last = &op->next;
    once__loop_wake(store->loop);
}

static int store_dispatch(once__store_t *base)
{
    world_store_t *store = (world_store_t *)base;
    once__op_t *op = store->first;
    int count = 0;

    if (store->world->hang) {
        return 0;
    }
    store->first = NULL;
    store->last = &store->first;
    while (op != NULL) {
        once__op_t *next = op->next;
        answer(store->world, op);
        op = next;
        count++;
    }
    return count;
}

static void store_close(once__store_t *base)
{
    world_store_t *store = (world_store_t *)base;

    while (store->first != NULL) {
        once__op_t *op = store->first;
        store->first = op->next;
        if (store->first == NULL) {
            store->last = &store->first;
        }
        op->error = ONCE_E_CLOSED;
        op->record = NULL;
        op->done(op);
    }
    free(store);
}

static void store_abandon(once__store_t *base)
{
    free(base);
}

static const once__store_vt_t world_store_vt = {
    .scheme = "world",
    .submit = store_submit,
    .dispatch = store_dispatch,
    .close = store_close,
    .abandon = store_abandon,
};

/* ------------------------------------------------------------------------------------------------------------ world */

static uint64_t get_monotonic(void *data)
{
    return ((world_t *)data)->monotonic_ms;
}

static uint64_t get_wall(void *data)
{
    return ((world_t *)data)->wall_ms;
}

static int get_random(void *data, void *out, size_t len)
{
    world_t *world = data;

    for (size_t i = 0; i < len; i++) {
        world->random = world->random * 6364136223846793005u + 1442695040888963407u;
        ((uint8_t *)out)[i] = (uint8_t)(world->random >> 56);
    }
    return 0;
}

void world_init(world_t *world)
{
    static const once__limits_t limits = {100000, (uint64_t)1 << 30};

    memset(world, 0, sizeof(*world));
    world->monotonic_ms = 1000;
    world->wall_ms = 1700000000000;
    world->random = 1;
    world->table = once__table_new(&once__rules, &limits);
    assert_non_null(world->table);
}

void world_free(world_t *world)
{
    once__table_free(world->table);
}

once_t *world_open(world_t *world, const char *options)
{
    once__env_t env = {.monotonic_ms = get_monotonic,
                       .wall_ms = get_wall,
                       .random = get_random,
                       .simulated = 1,
                       .data = world};
    world_store_t *store = calloc(1, sizeof(*store));
    once_options_t parsed;
    once_error_t err = {0, ""};
    char text[256] = "world:?";
    once__url_t url;
    once_t *once;
    int code;

    assert_non_null(store);
    strncat(text, options != NULL ? options : "", sizeof(text) - 8);
    once__options_init(&parsed);
    assert_int_equal(once__url_parse(&url, "store URL", text, 0, &err), ONCE_OK);
    assert_int_equal(once__options_from_url(&parsed, &url, &err), ONCE_OK);
    once__url_free(&url);
    store->base.vt = &world_store_vt;
    store->world = world;
    store->last = &store->first;
    store->loop = once__loop_new(&env, &code);
    assert_non_null(store->loop);
    assert_int_equal(once__open_over(store->loop, &store->base, &parsed, &once, &err), ONCE_OK);
    return once;
}

void world_run(world_t *world, once_t *once)
{
    (void)once_dispatch(once); /* also what hung until now */
    for (int i = 0; once__due(once) <= world->monotonic_ms && i < 1000; i++) {
        if (world->hang && once__due(once) == 0) {
            (void)once_dispatch(once);
            return;
        }
        assert_true(once_dispatch(once) >= 0);
    }
}

void world_pass(world_t *world, once_t *once, uint64_t ms)
{
    uint64_t end = world->monotonic_ms + ms;

    world_run(world, once);
    while (once__due(once) <= end && once__due(once) > world->monotonic_ms) {
        uint64_t step = once__due(once) - world->monotonic_ms;
        world->monotonic_ms += step;
        world->wall_ms += step;
        world_run(world, once);
    }
    world->wall_ms += end - world->monotonic_ms;
    world->monotonic_ms = end;
    world_run(world, once);
}

/* ----------------------------------------------------------------------------------------------------------- asking */

void seen_cb(once_t *once, once_answer_t *answered, void *data)
{
    const once_record_t *record = once_answer_record(answered);
    seen_t *seen = data;
    once_response_t response = ONCE_RESPONSE_INIT;

    seen->calls++;
    seen->error = once_answer_error(answered);
    seen->outcome = once_answer_outcome(answered);
    seen->claim = once_answer_take_claim(answered);
    seen->body[0] = '\0';
    if (record != NULL) {
        seen->state = once_record_state(record);
        seen->status = once_record_status(record);
        seen->epoch = once_record_epoch(record);
        if (once_record_response(record, &response) == ONCE_OK &&
            response.body.len < sizeof(seen->body)) {
            memcpy(seen->body, response.body.data, response.body.len);
            seen->body[response.body.len] = '\0';
        }
    }
}

int world_ask(once_t *once, const char *key, const char *policy_text, const uint8_t *claim_id,
              seen_t *seen)
{
    once_policy_t *policy = once_policy_new();
    once_ask_t ask = ONCE_ASK_INIT;
    int code;

    memset(seen, 0, sizeof(*seen));
    assert_non_null(policy);
    assert_int_equal(once_policy_parse(policy, policy_text != NULL ? policy_text : "", NULL),
                     ONCE_OK);
    ask.key = once__slice(key, strlen(key));
    ask.method = once__slice("POST", 4);
    ask.target = once__slice("/", 1);
    ask.policy = policy;
    ask.claim_id = claim_id;
    code = once_begin(once, &ask, seen_cb, seen);
    once_policy_free(policy);
    return code;
}

once_response_t world_response(int status, const char *body)
{
    once_response_t response = ONCE_RESPONSE_INIT;

    response.status = status;
    response.body = once__slice(body, strlen(body));
    return response;
}

const once__record_t *world_record(world_t *world, once_t *once, const char *key)
{
    uint8_t id[ONCE_ID_SIZE];

    assert_int_equal(once_record_id_of(once, once__slice("", 0), once__slice(key, strlen(key)), id),
                     ONCE_OK);
    return once__table_peek(world->table, id);
}
