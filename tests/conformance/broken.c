#include "conformance/broken.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "api/handle.h"
#include "store/memory/table.h"

struct broken {
    pthread_mutex_t lock;
    broken_fault_t fault;
    once__table_t *table;
    uint64_t now;
    unsigned completions;
};

/* One handle's way into it. */
typedef struct door {
    once__store_t base;
    broken_t *broken;
    once__loop_t *loop;
    once__op_t *first, **last;
} door_t;

/* ----------------------------------------------------------------------------------------------------------- faults */

/* Two processes that found nothing both write their own: the second replaces the first one's. */
static void check_then_put(broken_t *broken, once__op_t *op)
{
    const once__record_t *record = once__table_peek(broken->table, op->id);
    int was_there = record != NULL;

    (void)pthread_mutex_unlock(&broken->lock);
    for (int i = 0; i < 20; i++) {
        (void)sched_yield();
    }
    (void)pthread_mutex_lock(&broken->lock);
    record = once__table_peek(broken->table, op->id);
    if (!was_there && record != NULL) {
        once__op_t purge = {.kind = ONCE__OP_EVENT};
        memcpy(purge.id, op->id, ONCE_ID_SIZE);
        purge.event.kind = ONCE__PURGE;
        purge.event.claim = record->head.claim;
        purge.event.force = 1;
        once__table_apply(broken->table, &purge, broken->now);
        free(purge.record);
    }
    once__table_apply(broken->table, op, broken->now);
}

/* The scope is left out of the id: the key alone, as far as it fits. */
static void forget_scope(once__op_t *op)
{
    size_t len = op->key_len < ONCE_ID_SIZE ? op->key_len : ONCE_ID_SIZE;

    memset(op->id, 0, ONCE_ID_SIZE);
    memcpy(op->id, op->key, len);
}

static void change_bit(once__op_t *op)
{
    once__record_t *record = op->record;

    if (record != NULL && record->payload.kind == ONCE__PAYLOAD_RESPONSE &&
        record->payload.len > 0) {
        uint8_t *bytes = (uint8_t *)record + (record->payload.data - (const uint8_t *)record);
        bytes[record->payload.len - 1] ^= 1;
    }
}

static void spoil_scan(broken_fault_t fault, once__op_t *op)
{
    if (fault == BROKEN_SHOWS_TWICE && op->count > 0 && op->count < op->limit) {
        op->records[op->count] = once__record_clone(op->records[0]);
        op->count += op->records[op->count] != NULL;
    } else if (fault == BROKEN_HIDES_LAST && op->count > 0) {
        free(op->records[--op->count]);
    }
}

static void apply_event(broken_t *broken, once__op_t *op)
{
    int is_claim = op->event.kind == ONCE__CLAIM;

    if (broken->fault == BROKEN_ONE_SCOPE && is_claim) {
        forget_scope(op);
    }
    if (broken->fault == BROKEN_CHECK_THEN_PUT && is_claim) {
        check_then_put(broken, op);
    } else if (broken->fault == BROKEN_FORGETS_WRITES && op->event.kind == ONCE__COMPLETE &&
               ++broken->completions % 3 == 0) {
        op->error = ONCE_OK;
        op->outcome = ONCE_OUTCOME_DONE;
    } else {
        once__table_apply(broken->table, op, broken->now);
    }
}

static void apply(broken_t *broken, once__op_t *op)
{
    switch (op->kind) {
    case ONCE__OP_EVENT:
        apply_event(broken, op);
        break;
    case ONCE__OP_REAP:
        op->limit = broken->fault == BROKEN_REAPS_LIMIT ? 0 : op->limit;
        if (broken->fault == BROKEN_NEVER_REAPS) {
            op->error = ONCE_OK;
            op->count = 0;
            break;
        }
        once__table_apply(broken->table, op, broken->now);
        break;
    default:
        once__table_apply(broken->table, op, broken->now);
        break;
    }
    if (broken->fault == BROKEN_OTHER_BYTES) {
        change_bit(op);
    }
    if (op->kind == ONCE__OP_SCAN) {
        spoil_scan(broken->fault, op);
    }
}

/* ------------------------------------------------------------------------------------------------------------ store */

static void door_submit(once__store_t *store, once__op_t *op)
{
    door_t *door = (door_t *)store;

    op->next = NULL;
    *door->last = op;
    door->last = &op->next;
    once__loop_wake(door->loop);
}

static once__op_t *take_all(door_t *door)
{
    once__op_t *first = door->first;

    door->first = NULL;
    door->last = &door->first;
    return first;
}

static int finish(once__op_t *op)
{
    int count = 0;

    while (op != NULL) {
        once__op_t *next = op->next;
        op->done(op);
        op = next;
        count++;
    }
    return count;
}

static int door_dispatch(once__store_t *store)
{
    door_t *door = (door_t *)store;
    once__op_t *first = take_all(door);

    (void)pthread_mutex_lock(&door->broken->lock);
    for (once__op_t *op = first; op != NULL; op = op->next) {
        apply(door->broken, op);
    }
    (void)pthread_mutex_unlock(&door->broken->lock);
    return finish(first);
}

static void door_close(once__store_t *store)
{
    door_t *door = (door_t *)store;

    while (door->first != NULL) {
        once__op_t *first = take_all(door);
        for (once__op_t *op = first; op != NULL; op = op->next) {
            op->error = ONCE_E_CLOSED;
        }
        (void)finish(first);
    }
    free(door);
}

static void door_abandon(once__store_t *store)
{
    free(store);
}

static const once__store_vt_t door_vt = {
    .scheme = "broken",
    .submit = door_submit,
    .dispatch = door_dispatch,
    .close = door_close,
    .abandon = door_abandon,
};

/* ------------------------------------------------------------------------------------------------------------- whole */

broken_t *broken_new(const once__rules_t *rules, broken_fault_t fault)
{
    static const once__limits_t limits = {1000000, (uint64_t)1 << 30};
    broken_t *broken = calloc(1, sizeof(*broken));

    if (broken == NULL) {
        return NULL;
    }
    broken->fault = fault;
    broken->now = 1700000000000;
    broken->table = once__table_new(rules, &limits);
    if (broken->table == NULL || pthread_mutex_init(&broken->lock, NULL) != 0) {
        once__table_free(broken->table);
        free(broken);
        return NULL;
    }
    return broken;
}

void broken_free(broken_t *broken)
{
    (void)pthread_mutex_destroy(&broken->lock);
    once__table_free(broken->table);
    free(broken);
}

int broken_open(const char *url, const once_options_t *options, once_t **handle, once_error_t *err,
                void *data)
{
    door_t *door = calloc(1, sizeof(*door));
    int code = ONCE_E_NOMEM;

    if (door == NULL) {
        return code;
    }
    door->base.vt = &door_vt;
    door->broken = data;
    door->last = &door->first;
    door->loop = once__loop_new(&once__real_env, &code);
    if (door->loop == NULL) {
        free(door);
        return code;
    }
    return once__open_over(door->loop, &door->base, options, handle, err);
}

void broken_wait(uint64_t ms, void *data)
{
    broken_t *broken = data;

    (void)pthread_mutex_lock(&broken->lock);
    broken->now += ms;
    (void)pthread_mutex_unlock(&broken->lock);
}
