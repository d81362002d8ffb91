#include "store/postgres/traffic.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"
#include "store/postgres/batch.h"
#include "store/postgres/landing.h"
#include "store/postgres/session.h"

#define LINKS_DEFAULT 4
#define BATCH_MAX     128 /* each new key takes one of the server's locks until the commit */
#define BATCH_LEAST   16  /* a batch costs the server as much as so many operations */
#define PATIENCE_MS   10  /* what is not worth a batch waits no longer for those under way */
#define LONG_TIMES    12  /* whole-table operations may take so many timeouts */
#define BATCH_BYTES   ((size_t)8 << 20) /* payloads in one statement */

/*
 * Payloads in a batch that is sent behind another. The server reads it when the first is committed; until then it should fit
 * into the sockets' buffers: TCP ends a connection whose other side takes nothing for long.
 */
#define BEHIND_BYTES ((size_t)128 << 10)

/* --------------------------------------------------------------------------------------------------------- sending */

static uint64_t timeout_of(const once__traffic_t *pg, const once__op_t *op)
{
    int is_long =
        op->kind == ONCE__OP_SCAN || op->kind == ONCE__OP_REAP || op->kind == ONCE__OP_STATS;

    return is_long ? pg->timeout_ms * LONG_TIMES : pg->timeout_ms;
}

static void send_batch(once__traffic_t *pg, once__pg_link_t *link, unsigned limit, size_t bytes)
{
    once__pg_batch_t batch = {.limit = pg->alone > 0 ? 1 : limit, .bytes_limit = bytes};
    uint64_t timeout_ms;

    once__pg_link_clear(link);
    once__pg_batch_take(&batch, &pg->queue, &pg->flight, &link->trip.sent);
    if (link->trip.sent.first == NULL) {
        return;
    }
    link->trip.op_count = batch.taken;
    pg->alone -= pg->alone > 0 ? 1 : 0;
    pg->prompt -= pg->prompt < batch.taken ? pg->prompt : batch.taken;
    timeout_ms = timeout_of(pg, link->trip.sent.first);
    /* The server gives up first: then it is known that nothing was applied. */
    if (once__pg_batch_put(&batch, link, &pg->params, timeout_ms * 3 / 4, pg->level) != 0) {
        /* Out of memory, or the connection is gone: without its sync, what was sent never happens. */
        once__traffic_answer_all(pg, &link->trip.sent, ONCE_E_UNAVAILABLE);
        once__pg_link_drop(link);
        return;
    }
    once__pg_link_flush(link, timeout_ms);
}

/* ------------------------------------------------------------------------------------------------------ scheduling */

static unsigned count_links(const once__traffic_t *pg, once__pg_link_state_t state)
{
    unsigned count = 0;

    for (unsigned i = 0; i < pg->link_count; i++) {
        count += pg->links[i].state == state;
    }
    return count;
}

static void connect_one(once__traffic_t *pg)
{
    uint64_t now = once__loop_now(pg->loop);

    for (unsigned i = 0; i < pg->link_count; i++) {
        once__pg_link_t *link = &pg->links[i];
        if (link->state == ONCE__PG_DOWN && link->retry_at <= now) {
            once__pg_link_connect(link, pg->conninfo.keywords, pg->conninfo.values);
            return;
        }
    }
}

/* Batches under way. What travels alone may take long (a reaping, a scan) and is not waited for. */
static unsigned under_way(const once__traffic_t *pg)
{
    unsigned count = 0;

    for (unsigned i = 0; i < pg->link_count; i++) {
        const once__op_t *op = pg->links[i].trip.sent.first;
        count += op != NULL && once__pg_statement_of(op) != ONCE__PG_SINGLE;
        count += pg->links[i].behind.sent.first != NULL;
    }
    return count;
}

/*
 * Does the host submit from inside its callbacks, having nothing else to do? Then it and one batch would take turns, and neither
 * would have anything to do while the disk syncs: two batches are under way. Where answers lead to other work first (a gateway's:
 * requests that are passed on and responses that come back), that work fills the time, and large batches one behind the other cost
 * the server less than two small ones do in two processes.
 */
static int is_prompt(const once__traffic_t *pg)
{
    return pg->prompt >= BATCH_LEAST;
}

/*
 * How many operations are worth a batch now. Nothing waits for others to come; but what comes while a batch is under way collects
 * behind it, and what may yet come of answers that are there travels with what waits. A third batch, or a second one behind which
 * the host has other things to do, only gets in the others' way, unless it is full.
 */
static unsigned worth_a_batch(const once__traffic_t *pg)
{
    unsigned busy = under_way(pg);

    if (pg->impatient || (busy == 0 && pg->answers.first == NULL)) {
        return 1;
    }
    return busy == 0 || (busy == 1 && is_prompt(pg)) ? BATCH_LEAST : pg->batch_max;
}

/* Is what waits to be shared by two batches? */
static int is_for_two(const once__traffic_t *pg, unsigned waiting)
{
    return waiting >= 2 * BATCH_LEAST && under_way(pg) == 0 && is_prompt(pg);
}

/*
 * The batch under way, if it is the only one, gets another behind it when as many wait as it has: the server goes on at once, and
 * both stay large. Returns how much is left.
 */
static unsigned send_behind(once__traffic_t *pg, unsigned waiting)
{
    for (unsigned i = 0; i < pg->link_count && under_way(pg) == 1; i++) {
        once__pg_link_t *link = &pg->links[i];
        if (waiting >= link->trip.op_count && once__pg_link_takes_another(link, PATIENCE_MS)) {
            once__pg_link_swap(link);
            send_batch(pg, link, pg->batch_max, BEHIND_BYTES);
            once__pg_link_swap(link);
            return once__traffic_waiting(pg, waiting);
        }
    }
    return waiting;
}

/* Returns how much is left. */
static unsigned send_worthy(once__traffic_t *pg, unsigned waiting)
{
    int for_two = is_for_two(pg, waiting) && count_links(pg, ONCE__PG_IDLE) > 1;
    unsigned part = for_two ? (waiting + 1) / 2 : waiting;

    part = part < pg->batch_max ? part : pg->batch_max;
    for (unsigned i = 0; i < pg->link_count && waiting > 0; i++) {
        if (pg->links[i].state != ONCE__PG_IDLE) {
            continue;
        }
        if (waiting < worth_a_batch(pg)) {
            break;
        }
        send_batch(pg, &pg->links[i], part, BATCH_BYTES);
        waiting = once__traffic_waiting(pg, waiting);
    }
    return waiting >= BATCH_LEAST && !is_prompt(pg) ? send_behind(pg, waiting) : waiting;
}

/* Would another connection have something to do? */
static int is_much(const once__traffic_t *pg, unsigned waiting)
{
    unsigned idle = count_links(pg, ONCE__PG_IDLE);

    return idle == 0 ? waiting >= worth_a_batch(pg) : idle == 1 && is_for_two(pg, waiting);
}

static void mind_patience(once__traffic_t *pg, unsigned waiting)
{
    if (waiting == 0) {
        once__timer_stop(pg->loop, &pg->patience);
    } else if (pg->patience.slot == 0) {
        once__timer_set(pg->loop, &pg->patience, once__loop_now(pg->loop) + PATIENCE_MS);
    }
}

/* Is there neither a connection that could take something, nor one that is being made? Draining ones come back by themselves. */
static int is_down(const once__traffic_t *pg)
{
    return count_links(pg, ONCE__PG_DOWN) + count_links(pg, ONCE__PG_DRAINING) == pg->link_count;
}

void once__traffic_pump(once__traffic_t *pg)
{
    unsigned waiting = once__traffic_waiting(pg, pg->batch_max * pg->link_count);
    int wants_more = waiting > 0 && (is_down(pg) || is_much(pg, waiting));

    pg->freed = 0;
    pg->prompt = pg->prompt < waiting ? pg->prompt : waiting;
    waiting = waiting > 0 ? send_worthy(pg, waiting) : 0;
    mind_patience(pg, waiting);
    if (wants_more && count_links(pg, ONCE__PG_CONNECTING) == 0) {
        connect_one(pg);
    }
    if (waiting > 0 && is_down(pg)) {
        once__traffic_answer_all(pg, &pg->queue, ONCE_E_UNAVAILABLE);
    }
}

static void lose_patience(once__timer_t *timer)
{
    once__traffic_t *pg =
        (once__traffic_t *)(void *)((char *)timer - offsetof(once__traffic_t, patience));

    pg->impatient = 1;
    once__traffic_pump(pg);
    pg->impatient = 0;
}

static void link_connected(void *data, once__pg_link_t *link)
{
    ((once__traffic_t *)data)->met = 1;
    once__traffic_pump(data);
}

static void link_failed(void *data, once__pg_link_t *link)
{
    once__traffic_t *pg = data;

    pg->refused = 1;
    if (is_down(pg)) {
        once__traffic_answer_all(pg, &pg->queue, ONCE_E_UNAVAILABLE);
    }
}

/* From then on every batch asks for the level that it needs. */
static void note_level(once__traffic_t *pg, const once__pg_link_t *link)
{
    for (unsigned i = 0; i < link->trip.result_count; i++) {
        if (link->trip.statements[i] == ONCE__PG_TIMEOUT &&
            !once__pg_is_read_committed(link->trip.results[i])) {
            pg->level = 1;
        }
    }
}

static void link_ended(void *data, once__pg_link_t *link, once__pg_end_t end)
{
    once__traffic_t *pg = data;

    note_level(pg, link);
    once__pg_session_learn(link, end);
    switch (end) {
    case ONCE__PG_COMMITTED:
        once__traffic_committed(pg, link);
        break;
    case ONCE__PG_ABORTED:
        once__traffic_aborted(pg, link);
        break;
    case ONCE__PG_LOST:
        once__traffic_answer_all(pg, &link->trip.sent, ONCE_E_NOREPLY);
        break;
    }
    once__pg_link_clear(link);
    pg->freed = 1;
    once__loop_wake(pg->loop);
}

/* From now on the link's lists are empty: what its results say is about operations that may be under way elsewhere. */
static void link_late(void *data, once__pg_link_t *link)
{
    once__traffic_t *pg = data;

    once__traffic_answer_all(pg, &link->trip.sent, ONCE_E_NOREPLY);
    once__traffic_answer_all(pg, &link->behind.sent, ONCE_E_NOREPLY);
    pg->freed = 1;
    once__loop_wake(pg->loop);
}

/* -------------------------------------------------------------------------------------------------------- lifetime */

static void free_links(once__traffic_t *pg)
{
    once__timer_stop(pg->loop, &pg->patience);
    once__timers_release(pg->loop);
    for (unsigned i = 0; i < pg->link_count; i++) {
        once__pg_link_free(&pg->links[i]);
    }
    once__pg_params_free(&pg->params);
    once__conninfo_free(&pg->conninfo);
}

static int take_count(once__url_t *url, uint64_t *count, once_error_t *err)
{
    const char *text = once__url_take(url, "connections");

    *count = LINKS_DEFAULT;
    if (text != NULL && (once__number_parse(text, strlen(text), count) != 0 || *count < 1 ||
                         *count > ONCE__PG_LINKS_MAX)) {
        return once__fail(err, ONCE_E_CONFIG, "connections: \"%.40s\" is not a number from 1 to %d",
                          text, ONCE__PG_LINKS_MAX);
    }
    return ONCE_OK;
}

int once__traffic_check(const once__store_config_t *config, once_error_t *err)
{
    once__conninfo_t conninfo;
    uint64_t count;
    int code = once__conninfo_read(&conninfo, config->url, err);

    if (code == ONCE_OK) {
        once__conninfo_free(&conninfo);
        code = take_count(config->url, &count, err);
    }
    return code;
}

static int read_links(const once__store_config_t *config, once__traffic_t *pg, once_error_t *err)
{
    uint64_t count;
    int code = take_count(config->url, &count, err);

    if (code != ONCE_OK) {
        return code;
    }
    for (unsigned i = 0; i < count; i++) {
        if (once__pg_link_init(&pg->links[i], config->loop, &pg->owner, config->timeout_ms) != 0) {
            return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
        }
        pg->link_count++;
    }
    return ONCE_OK;
}

int once__traffic_open(once__traffic_t *pg, const once__store_config_t *config, once_error_t *err)
{
    int code;

    pg->loop = config->loop;
    pg->timeout_ms = config->timeout_ms;
    pg->batch_max = BATCH_MAX;
    pg->owner =
        (once__pg_owner_t){link_connected, link_failed,       link_ended,       link_late, pg,
                           pg->trouble,    &pg->conninfo.tls, ONCE__PG_DRAIN_MS};
    once__oplist_init(&pg->queue);
    once__oplist_init(&pg->answers);
    pg->patience.fire = lose_patience;
    if (once__timers_reserve(pg->loop) != 0) {
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    code = once__conninfo_read(&pg->conninfo, config->url, err);
    code = code == ONCE_OK ? read_links(config, pg, err) : code;
    if (code != ONCE_OK) {
        free_links(pg);
    }
    return code;
}

void once__traffic_close(once__traffic_t *pg)
{
    (void)once__oplist_finish(&pg->answers);
    for (unsigned i = 0; i < pg->link_count; i++) {
        once__oplist_close(&pg->links[i].trip.sent);
        once__oplist_close(&pg->links[i].behind.sent);
    }
    once__oplist_close(&pg->queue);
    free_links(pg);
}

void once__traffic_abandon(once__traffic_t *pg)
{
    for (unsigned i = 0; i < pg->link_count; i++) {
        once__pg_link_abandon(&pg->links[i]);
    }
    once__pg_params_free(&pg->params);
    once__conninfo_free(&pg->conninfo);
}
