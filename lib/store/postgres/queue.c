#include "store/postgres/queue.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "pg/sqlstate.h"
#include "store/postgres/answers.h"
#include "store/postgres/session.h"

#define BATCH_MAX   128 /* each new key takes one of the server's locks until the commit */
#define BATCH_LEAST 16  /* a batch costs the server as much as this many operations */
#define PATIENCE_MS 10  /* how long what is not worth a batch waits for those under way */
#define LONG_TIMES  12  /* how many timeouts an operation on the whole table may take */
#define BATCH_BYTES ((size_t)8 << 20) /* payloads in one statement */

/*
 * Payloads in a batch that is sent behind another. The server reads it when the first is committed; until then it should fit
 * into the sockets' buffers: TCP ends a connection whose other side takes nothing for long.
 */
#define BEHIND_BYTES ((size_t)128 << 10)

static int is_single(const once__op_t *op)
{
    return once__postgres_statement_of(op) == ONCE__POSTGRES_SINGLE;
}

/* How many operations of the batch are in the in-flight table; asserts I-1 and I-3. */
static unsigned inflight_of(const once__postgres_connection_t *connection, unsigned i)
{
    const once__postgres_batch_t *batch = &connection->batches[i];

    if (batch->ops.first == NULL) {
        return 0;
    }
    assert(connection->base.first == &batch->base || connection->base.second == &batch->base);
    assert(!batch->base.is_late);
    assert(batch->op_count <= BATCH_MAX);
    if (is_single(batch->ops.first)) {
        assert(batch->op_count == 1);
        return 0;
    }
    return batch->op_count;
}

/* I-1 to I-3 of queue.h. */
static void assert_queue_state(const once__postgres_queue_t *queue)
{
    size_t inflight = 0;

    for (unsigned i = 0; i < queue->connection_count; i++) {
        inflight += inflight_of(&queue->connections[i], 0) + inflight_of(&queue->connections[i], 1);
    }
    assert(inflight == queue->inflight.count); /* I-2 */
}

/* ------------------------------------------------------------------------------------------------------- answering */

static void answer(once__postgres_queue_t *queue, once__op_t *op, int error)
{
    op->error = error;
    once__oplist_add(&queue->answers, op);
    once__loop_wake(queue->loop);
}

/* Everything that waits. */
static void answer_waiting(once__postgres_queue_t *queue, int error)
{
    once__op_t *op = queue->waiting.first;

    once__oplist_init(&queue->waiting);
    while (op != NULL) {
        once__op_t *next = op->next;
        answer(queue, op, error);
        op = next;
    }
}

/* What an operation is answered with. */
typedef int (*error_cb)(const once__postgres_batch_t *batch, const once__op_t *op);

static void answer_batch(once__postgres_queue_t *queue, once__postgres_batch_t *batch,
                         error_cb error_of)
{
    once__op_t *op = batch->ops.first;

    once__oplist_init(&batch->ops);
    while (op != NULL) {
        once__op_t *next = op->next;
        once__postgres_landed(&queue->inflight, op);
        answer(queue, op, error_of(batch, op));
        op = next;
    }
}

static void send_again(once__postgres_queue_t *queue, once__postgres_batch_t *batch)
{
    for (once__op_t *op = batch->ops.first; op != NULL; op = op->next) {
        once__postgres_landed(&queue->inflight, op);
    }
    once__oplist_move(&queue->waiting, &batch->ops);
}

static int is_lost(const once__postgres_batch_t *batch, const once__op_t *op)
{
    return ONCE_E_NOREPLY;
}

static int was_not_sent(const once__postgres_batch_t *batch, const once__op_t *op)
{
    return ONCE_E_UNAVAILABLE;
}

/* After a rollback. Events are repeated whatever the set-up: they must not be lost. */
static int is_rolled_back(const once__postgres_batch_t *batch, const once__op_t *op)
{
    once__pg_fault_t fault = once__pg_fault(batch->base.sqlstate);

    if (fault == ONCE__PG_FAULT_FULL) {
        return ONCE_E_FULL;
    }
    if (fault == ONCE__PG_FAULT_VALUE || fault == ONCE__PG_FAULT_CONSTRAINT) {
        return ONCE_E_INVALID;
    }
    return once__pg_fault_is_setup(fault) && op->kind != ONCE__OP_EVENT ? ONCE_E_CONFIG
                                                                        : ONCE_E_UNAVAILABLE;
}

static void batch_committed(once__postgres_queue_t *queue, once__postgres_batch_t *batch)
{
    once__op_t *op = batch->ops.first;

    once__postgres_answers_read(batch, &queue->inflight);
    once__oplist_init(&batch->ops);
    while (op != NULL) {
        once__op_t *next = op->next;
        once__postgres_landed(&queue->inflight, op);
        if (op->error ==
            ONCE__POSTGRES_UNANSWERED) { /* refused as it was packed, or there is more of it to do */
            once__oplist_add(&queue->waiting, op);
        } else {
            answer(queue, op, op->error);
        }
        op = next;
    }
}

/* How many operations wait; counts no further than `enough`. */
static unsigned count_waiting(const once__postgres_queue_t *queue, unsigned enough)
{
    unsigned count = 0;

    for (const once__op_t *op = queue->waiting.first; op != NULL && count < enough; op = op->next) {
        count++;
    }
    return count;
}

/* Can the operations of a batch that was rolled back be sent once more, in another way? */
static int has_another_way(once__postgres_queue_t *queue, once__postgres_connection_t *connection,
                           const once__postgres_batch_t *batch)
{
    once__pg_fault_t fault = once__pg_fault(batch->base.sqlstate);
    once__op_t *op = batch->ops.first;

    if (once__postgres_session_mistaken(connection, batch)) {
        return 1;
    }
    if ((fault == ONCE__PG_FAULT_VALUE || fault == ONCE__PG_FAULT_CONSTRAINT) && op != NULL &&
        op->next != NULL) { /* each alone: those that are innocent get through */
        queue->alone = batch->op_count + count_waiting(queue, UINT32_MAX - batch->op_count);
        return 1;
    }
    /* A once_monitor may see less, which is enough for a list. */
    if (fault == ONCE__PG_FAULT_RIGHTS && op != NULL && op->kind == ONCE__OP_SCAN && !op->bare) {
        op->bare = 1;
        return 1;
    }
    return 0;
}

static void batch_aborted(once__postgres_queue_t *queue, once__postgres_connection_t *connection,
                          once__postgres_batch_t *batch)
{
    once__pg_fault_t fault = once__pg_fault(batch->base.sqlstate);

    if (has_another_way(queue, connection, batch)) {
        send_again(queue, batch);
        return;
    }
    if (fault == ONCE__PG_FAULT_LOCKS && queue->batch_max > 8) {
        queue->batch_max /= 2;
    }
    answer_batch(queue, batch, is_rolled_back);
    if (fault == ONCE__PG_FAULT_GONE) {
        once__pg_connection_drop(&connection->base);
    }
}

/* --------------------------------------------------------------------------------------------------------- sending */

static uint64_t timeout_of(const once__postgres_queue_t *queue, const once__op_t *op)
{
    int is_long =
        op->kind == ONCE__OP_SCAN || op->kind == ONCE__OP_REAP || op->kind == ONCE__OP_STATS;

    return is_long ? queue->timeout_ms * LONG_TIMES : queue->timeout_ms;
}

static void send_batch(once__postgres_queue_t *queue, once__postgres_connection_t *connection,
                       once__postgres_limit_t limit)
{
    once__postgres_batch_t *batch = once__postgres_batch_free(connection);
    uint64_t timeout_ms;

    assert(batch != NULL);
    limit.ops = queue->alone > 0 ? 1 : limit.ops;
    once__postgres_batch_clear(batch);
    batch->packing = &queue->packing;
    once__postgres_batch_take(batch, limit, &queue->waiting, &queue->inflight);
    if (batch->ops.first == NULL) {
        return;
    }
    queue->alone -= queue->alone > 0 ? 1 : 0;
    queue->prompt -= queue->prompt < batch->op_count ? queue->prompt : batch->op_count;
    timeout_ms = timeout_of(queue, batch->ops.first);
    /* The server gives up first: then it is known that nothing was applied. */
    if (once__postgres_batch_put(batch, connection, &queue->params, timeout_ms * 3 / 4,
                                 queue->level) != 0) {
        /* Memory is short, or the connection is gone: without its sync, what was sent is never applied. */
        answer_batch(queue, batch, was_not_sent);
        once__pg_connection_drop(&connection->base);
        return;
    }
    once__pg_connection_send(&connection->base, &batch->base, timeout_ms);
}

/* ------------------------------------------------------------------------------------------------------ scheduling */

static unsigned count_connections(const once__postgres_queue_t *queue, once__pg_state_t state)
{
    unsigned count = 0;

    for (unsigned i = 0; i < queue->connection_count; i++) {
        count += queue->connections[i].base.state == state;
    }
    return count;
}

static void connect_one(once__postgres_queue_t *queue)
{
    uint64_t now = once__loop_now(queue->loop);

    for (unsigned i = 0; i < queue->connection_count; i++) {
        once__pg_connection_t *connection = &queue->connections[i].base;
        if (connection->state == ONCE__PG_DOWN && connection->retry_at <= now) {
            once__pg_connection_open(connection, queue->conninfo.keywords, queue->conninfo.values);
            return;
        }
    }
}

/* Batches under way. An operation that has a batch to itself may take long (a reaping, a scan) and is not waited for. */
static unsigned under_way(const once__postgres_queue_t *queue)
{
    unsigned count = 0;

    for (unsigned i = 0; i < queue->connection_count; i++) {
        for (unsigned k = 0; k < 2; k++) {
            const once__op_t *op = queue->connections[i].batches[k].ops.first;
            count += op != NULL && !is_single(op);
        }
    }
    return count;
}

/*
 * Does the host submit from inside its callbacks, having nothing else to do? Then it and one batch would take turns, and neither
 * would have anything to do while the disk syncs: two batches are under way. Where answers lead to other work first (in a gateway
 * requests that are passed on and responses that come back), that work fills the time, and large batches one behind the other
 * cost the server less than two small ones in two processes.
 */
static int is_prompt(const once__postgres_queue_t *queue)
{
    return queue->prompt >= BATCH_LEAST;
}

/*
 * How many operations are worth a batch now. Nothing waits for others to come; but what comes while a batch is under way collects
 * behind it, and goes together with what may yet come of answers that have not been given. A third batch, or a second one behind
 * which the host has other things to do, only gets in the way of the others, unless it is full.
 */
static unsigned worth_a_batch(const once__postgres_queue_t *queue)
{
    unsigned busy = under_way(queue);

    if (queue->impatient || (busy == 0 && queue->answers.first == NULL)) {
        return 1;
    }
    return busy == 0 || (busy == 1 && is_prompt(queue)) ? BATCH_LEAST : queue->batch_max;
}

/* Is what waits to be shared by two batches? */
static int is_for_two(const once__postgres_queue_t *queue, unsigned waiting)
{
    return waiting >= 2 * BATCH_LEAST && under_way(queue) == 0 && is_prompt(queue);
}

/*
 * May another batch be sent behind the one under way? Not behind one that changes the session, because that may fail, nor behind
 * one that has taken long: it may be stuck.
 */
static int takes_another(const once__postgres_queue_t *queue,
                         const once__postgres_connection_t *connection, unsigned waiting)
{
    const once__postgres_batch_t *batch = (const once__postgres_batch_t *)connection->base.first;

    if (connection->base.state != ONCE__PG_BUSY || connection->base.second != NULL ||
        connection->session.kind != ONCE__POSTGRES_SESSION_OURS || waiting < batch->op_count ||
        once__loop_now(queue->loop) - batch->base.began > PATIENCE_MS) {
        return 0;
    }
    for (unsigned i = 0; i < batch->base.statement_count; i++) {
        once__postgres_statement_t statement = batch->statements[i];
        if (statement < ONCE__POSTGRES_CLAIM || statement > ONCE__POSTGRES_GET) {
            return 0;
        }
    }
    return 1;
}

/*
 * The batch under way, if it is the only one, gets another behind it when at least as many wait as it has: the server goes on at
 * once, and both stay large. Returns how many are left.
 */
static unsigned send_behind(once__postgres_queue_t *queue, unsigned waiting)
{
    once__postgres_limit_t limit = {queue->batch_max, BEHIND_BYTES};

    for (unsigned i = 0; i < queue->connection_count && under_way(queue) == 1; i++) {
        if (takes_another(queue, &queue->connections[i], waiting)) {
            send_batch(queue, &queue->connections[i], limit);
            return count_waiting(queue, waiting);
        }
    }
    return waiting;
}

/* Sends what is worth it. Returns how many are left. */
static unsigned send_worthy(once__postgres_queue_t *queue, unsigned waiting)
{
    int for_two = is_for_two(queue, waiting) && count_connections(queue, ONCE__PG_IDLE) > 1;
    unsigned part = for_two ? (waiting + 1) / 2 : waiting;
    once__postgres_limit_t limit = {part < queue->batch_max ? part : queue->batch_max, BATCH_BYTES};

    for (unsigned i = 0; i < queue->connection_count && waiting > 0; i++) {
        if (queue->connections[i].base.state != ONCE__PG_IDLE) {
            continue;
        }
        if (waiting < worth_a_batch(queue)) {
            break;
        }
        send_batch(queue, &queue->connections[i], limit);
        waiting = count_waiting(queue, waiting);
    }
    return waiting >= BATCH_LEAST && !is_prompt(queue) ? send_behind(queue, waiting) : waiting;
}

/* Would another connection have something to do? */
static int is_much(const once__postgres_queue_t *queue, unsigned waiting)
{
    unsigned idle = count_connections(queue, ONCE__PG_IDLE);

    return idle == 0 ? waiting >= worth_a_batch(queue) : idle == 1 && is_for_two(queue, waiting);
}

static void set_patience(once__postgres_queue_t *queue, unsigned waiting)
{
    if (waiting == 0) {
        once__timer_stop(queue->loop, &queue->patience);
    } else if (queue->patience.slot == 0) {
        once__timer_set(queue->loop, &queue->patience, once__loop_now(queue->loop) + PATIENCE_MS);
    }
}

/* Is there neither a connection that could take something, nor one that is being made? Draining ones come back by themselves. */
static int is_down(const once__postgres_queue_t *queue)
{
    return count_connections(queue, ONCE__PG_DOWN) + count_connections(queue, ONCE__PG_DRAINING) ==
           queue->connection_count;
}

void once__postgres_queue_pump(once__postgres_queue_t *queue)
{
    unsigned waiting = count_waiting(queue, queue->batch_max * queue->connection_count);
    int wants_more = waiting > 0 && (is_down(queue) || is_much(queue, waiting));

    assert_queue_state(queue);
    queue->freed = 0;
    queue->prompt = queue->prompt < waiting ? queue->prompt : waiting;
    waiting = waiting > 0 ? send_worthy(queue, waiting) : 0;
    set_patience(queue, waiting);
    if (wants_more && count_connections(queue, ONCE__PG_CONNECTING) == 0) {
        connect_one(queue);
    }
    if (waiting > 0 && is_down(queue)) {
        answer_waiting(queue, ONCE_E_UNAVAILABLE);
    }
    assert_queue_state(queue);
}

static void lose_patience(once__timer_t *timer)
{
    once__postgres_queue_t *queue = ONCE__CONTAINER(timer, once__postgres_queue_t, patience);

    queue->impatient = 1;
    once__postgres_queue_pump(queue);
    queue->impatient = 0;
}

/* ---------------------------------------------------------------------------------------- what connections report */

static once__postgres_connection_t *connection_of(once__pg_connection_t *base)
{
    return ONCE__CONTAINER(base, once__postgres_connection_t, base);
}

static once__postgres_batch_t *batch_of(once__pg_batch_t *base)
{
    return ONCE__CONTAINER(base, once__postgres_batch_t, base);
}

static void connected(void *data, once__pg_connection_t *connection)
{
    once__postgres_queue_t *queue = data;
    const char *version = PQparameterStatus(connection->conn, "server_version");

    connection_of(connection)->session = (once__postgres_session_t){0};
    queue->met = 1;
    snprintf(queue->server, sizeof(queue->server), "PostgreSQL %s", version != NULL ? version : "");
    once__postgres_queue_pump(queue);
}

static void failed(void *data, once__pg_connection_t *connection)
{
    once__postgres_queue_t *queue = data;

    queue->refused = 1;
    if (is_down(queue)) {
        answer_waiting(queue, ONCE_E_UNAVAILABLE);
    }
}

/* If the level is another one, every batch asks for the one that it needs from then on. */
static void note_level(once__postgres_queue_t *queue, const once__postgres_batch_t *batch)
{
    for (unsigned i = 0; i < batch->base.result_count; i++) {
        if (batch->statements[i] == ONCE__POSTGRES_TIMEOUT &&
            !once__postgres_is_read_committed(batch->base.results[i])) {
            queue->level = 1;
        }
    }
}

static void ended(void *data, once__pg_connection_t *base, once__pg_batch_t *base_batch,
                  once__pg_end_t end)
{
    once__postgres_queue_t *queue = data;
    once__postgres_connection_t *connection = connection_of(base);
    once__postgres_batch_t *batch = batch_of(base_batch);

    note_level(queue, batch);
    once__postgres_session_learn(connection, batch, end);
    switch (end) {
    case ONCE__PG_COMMITTED:
        /* If it was late, its operations were answered and may be under way again: its results are not for them. */
        if (!batch->base.is_late) {
            batch_committed(queue, batch);
        }
        break;
    case ONCE__PG_ABORTED:
        batch_aborted(queue, connection, batch);
        break;
    case ONCE__PG_LOST:
        answer_batch(queue, batch, is_lost);
        break;
    }
    once__postgres_batch_clear(batch);
    queue->freed = 1;
    once__loop_wake(queue->loop);
}

static void late(void *data, once__pg_connection_t *connection, once__pg_batch_t *batch)
{
    once__postgres_queue_t *queue = data;

    answer_batch(queue, batch_of(batch), is_lost);
    queue->freed = 1;
    once__loop_wake(queue->loop);
}

/* -------------------------------------------------------------------------------------------------------- lifetime */

static void free_all(once__postgres_queue_t *queue)
{
    once__timer_stop(queue->loop, &queue->patience);
    once__timers_release(queue->loop);
    for (unsigned i = 0; i < queue->connection_count; i++) {
        once__pg_connection_free(&queue->connections[i].base);
        once__postgres_batch_clear(&queue->connections[i].batches[0]);
        once__postgres_batch_clear(&queue->connections[i].batches[1]);
    }
    once__hash_free(&queue->inflight);
    once__pg_params_free(&queue->params);
    once__postgres_packing_free(&queue->packing);
    once__pg_conninfo_free(&queue->conninfo);
}

static int init_connections(once__postgres_queue_t *queue, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        once__postgres_connection_t *connection = &queue->connections[i];
        once__oplist_init(&connection->batches[0].ops);
        once__oplist_init(&connection->batches[1].ops);
        if (once__pg_connection_init(&connection->base, queue->loop, &queue->owner,
                                     queue->timeout_ms) != 0) {
            return -1;
        }
        queue->connection_count++;
    }
    return once__hash_init(&queue->inflight, (size_t)2 * BATCH_MAX * count);
}

int once__postgres_queue_open(once__postgres_queue_t *queue, const once__store_config_t *config,
                              once_error_t *err)
{
    once__postgres_options_t options = {0};
    int code;

    queue->loop = config->loop;
    queue->timeout_ms = config->timeout_ms;
    queue->batch_max = BATCH_MAX;
    queue->owner = (once__pg_owner_t){.connected = connected,
                                      .failed = failed,
                                      .ended = ended,
                                      .late = late,
                                      .data = queue,
                                      .trouble = queue->trouble,
                                      .tls = &queue->conninfo.tls,
                                      .drain_ms = ONCE__PG_DRAIN_MS};
    once__oplist_init(&queue->waiting);
    once__oplist_init(&queue->answers);
    queue->patience.fire = lose_patience;
    if (once__timers_reserve(queue->loop) != 0) {
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    code = once__postgres_url_read(&queue->conninfo, &options, config->url, err);
    queue->packing.is_refused = options.no_dictionary;
    if (code == ONCE_OK && init_connections(queue, options.connections) != 0) {
        code = once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    if (code != ONCE_OK) {
        free_all(queue);
    }
    return code;
}

void once__postgres_queue_close(once__postgres_queue_t *queue)
{
    (void)once__oplist_finish(&queue->answers);
    for (unsigned i = 0; i < queue->connection_count; i++) {
        once__oplist_close(&queue->connections[i].batches[0].ops);
        once__oplist_close(&queue->connections[i].batches[1].ops);
    }
    once__oplist_close(&queue->waiting);
    free_all(queue);
}

void once__postgres_queue_abandon(once__postgres_queue_t *queue)
{
    for (unsigned i = 0; i < queue->connection_count; i++) {
        once__pg_connection_abandon(&queue->connections[i].base);
        once__pg_batch_clear(&queue->connections[i].batches[0].base);
        once__pg_batch_clear(&queue->connections[i].batches[1].base);
    }
    once__hash_free(&queue->inflight);
    once__pg_params_free(&queue->params);
    once__postgres_packing_free(&queue->packing);
    once__pg_conninfo_free(&queue->conninfo);
}
