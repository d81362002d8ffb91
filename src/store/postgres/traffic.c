#include "store/postgres/traffic.h"

#include <stdlib.h>
#include <string.h>

#include "core/units.h"
#include "store/postgres/batch.h"

#define LINKS_DEFAULT 4
#define BATCH_MAX     128 /* each new key takes one of the server's locks until the commit */
#define BATCH_SHARE                                                                                \
    16 /* so many are not worth a second connection, which mostly waits for the disk */
#define LONG_TIMES 12 /* whole-table operations may take so many timeouts */

/* ------------------------------------------------------------------------------------------------------- answering */

static void answer(once__traffic_t *pg, once__op_t *op, int error)
{
    op->error = error;
    once__oplist_add(&pg->answers, op);
    once__loop_wake(pg->loop);
}

static void answer_all(once__traffic_t *pg, once__oplist_t *list, int error)
{
    once__op_t *op = list->first;

    once__oplist_init(list);
    while (op != NULL) {
        once__op_t *next = op->next;
        once__flight_land(&pg->flight, op);
        answer(pg, op, error);
        op = next;
    }
}

/* The class of an SQLSTATE says what kind of trouble it is. */
static int is_class(const char *sqlstate, const char *class)
{
    return strncmp(sqlstate, class, 2) == 0;
}

/* The schema is missing, or this user may not use it. */
static int is_not_installed(const char *sqlstate)
{
    return is_class(sqlstate, "42") || strcmp(sqlstate, "3F000") == 0;
}

/* The server does not like what it was asked, and will not like it next time. */
static int is_refusal(const char *sqlstate)
{
    return is_class(sqlstate, "22") || is_class(sqlstate, "23") || is_class(sqlstate, "54");
}

/* What an operation is told whose transaction was rolled back. Events are repeated: they must not be lost. */
static int error_of(const once__pg_link_t *link, const once__op_t *op)
{
    if (strcmp(link->sqlstate, "53100") == 0) {
        return ONCE_E_FULL;
    }
    if (is_not_installed(link->sqlstate) && op->kind != ONCE__OP_EVENT) {
        return ONCE_E_CONFIG;
    }
    return is_refusal(link->sqlstate) ? ONCE_E_INVALID : ONCE_E_UNAVAILABLE;
}

static once__op_t *find_flying(void *data, const uint8_t *id)
{
    once__op_t *op = once__flight_find(data, id);

    return op != NULL && op->error == ONCE__PG_UNANSWERED ? op : NULL; /* the first answer counts */
}

static void take_committed(once__traffic_t *pg, once__pg_link_t *link)
{
    once__op_t *op;

    for (unsigned i = 0; i < link->result_count; i++) {
        switch (link->statements[i]) {
        case ONCE__PG_LEVEL:
        case ONCE__PG_TIMEOUT:
            break;
        case ONCE__PG_SINGLE:
            if (once__pg_read_single(link->results[i], link->sent.first)) {
                once__oplist_move(&pg->queue, &link->sent); /* there is more of it to do */
                return;
            }
            break;
        default:
            once__pg_read_batch(link->results[i], find_flying, &pg->flight);
            break;
        }
    }
    op = link->sent.first;
    once__oplist_init(&link->sent);
    while (op != NULL) {
        once__op_t *next = op->next;
        once__flight_land(&pg->flight, op);
        if (op->error == ONCE__PG_UNANSWERED) {
            once__pg_answer_absent(op);
        }
        answer(pg, op, op->error);
        op = next;
    }
}

static unsigned queue_length(const once__traffic_t *pg, unsigned enough)
{
    unsigned count = 0;

    for (const once__op_t *op = pg->queue.first; op != NULL && count < enough; op = op->next) {
        count++;
    }
    return count;
}

/* Back into the queue, to travel alone: those that are innocent get through. */
static void send_apart(once__traffic_t *pg, once__pg_link_t *link)
{
    for (once__op_t *op = link->sent.first; op != NULL; op = op->next) {
        once__flight_land(&pg->flight, op);
    }
    once__oplist_move(&pg->queue, &link->sent);
    pg->alone = queue_length(pg, UINT32_MAX);
}

static void take_aborted(once__traffic_t *pg, once__pg_link_t *link)
{
    once__op_t *op = link->sent.first;

    if (is_refusal(link->sqlstate) && op != NULL && op->next != NULL) {
        send_apart(pg, link);
        return;
    }
    /* Out of shared memory: fewer locks at a time. */
    if (strcmp(link->sqlstate, "53200") == 0 && pg->batch_max > 8) {
        pg->batch_max /= 2;
    }
    once__oplist_init(&link->sent);
    while (op != NULL) {
        once__op_t *next = op->next;
        once__flight_land(&pg->flight, op);
        answer(pg, op, error_of(link, op));
        op = next;
    }
    /* A server that takes no writes any more: look for the one that does. */
    if (strcmp(link->sqlstate, "25006") == 0 || strncmp(link->sqlstate, "57P", 3) == 0 ||
        is_class(link->sqlstate, "08")) {
        once__pg_link_drop(link);
    }
}

/* --------------------------------------------------------------------------------------------------------- sending */

static uint64_t timeout_of(const once__traffic_t *pg, const once__op_t *op)
{
    int is_long =
        op->kind == ONCE__OP_SCAN || op->kind == ONCE__OP_REAP || op->kind == ONCE__OP_STATS;

    return is_long ? pg->timeout_ms * LONG_TIMES : pg->timeout_ms;
}

static void send_batch(once__traffic_t *pg, once__pg_link_t *link, unsigned limit)
{
    once__pg_batch_t batch;
    uint64_t timeout_ms;

    once__pg_link_clear(link);
    once__pg_batch_take(&batch, pg->alone > 0 ? 1 : limit, &pg->queue, &pg->flight, &link->sent);
    if (link->sent.first == NULL) {
        return;
    }
    pg->alone -= pg->alone > 0 ? 1 : 0;
    timeout_ms = timeout_of(pg, link->sent.first);
    /* The server gives up first: then it is known that nothing was applied. */
    if (once__pg_batch_put(&batch, link, &pg->params, timeout_ms * 3 / 4, pg->level) != 0) {
        /* Out of memory, or the connection is gone: without its sync, what was sent never happens. */
        answer_all(pg, &link->sent, ONCE_E_UNAVAILABLE);
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

/* What waits is shared among the idle connections, in parts that are worth a transaction. */
static unsigned share(const once__traffic_t *pg)
{
    unsigned idle = count_links(pg, ONCE__PG_IDLE);
    unsigned waiting = queue_length(pg, pg->batch_max * pg->link_count);
    unsigned part = idle > 0 ? (waiting + idle - 1) / idle : waiting;

    part = part < BATCH_SHARE ? BATCH_SHARE : part;
    return part < pg->batch_max ? part : pg->batch_max;
}

void once__traffic_pump(once__traffic_t *pg)
{
    unsigned limit = pg->queue.first != NULL ? share(pg) : 0;

    for (unsigned i = 0; i < pg->link_count && pg->queue.first != NULL; i++) {
        if (pg->links[i].state == ONCE__PG_IDLE) {
            send_batch(pg, &pg->links[i], limit);
        }
    }
    if (pg->queue.first == NULL || count_links(pg, ONCE__PG_CONNECTING) > 0) {
        return;
    }
    /* A further connection only for a batch's worth of waiting, or when there is none. */
    if (count_links(pg, ONCE__PG_DOWN) == pg->link_count ||
        queue_length(pg, BATCH_SHARE) == BATCH_SHARE) {
        connect_one(pg);
    }
    if (count_links(pg, ONCE__PG_DOWN) == pg->link_count) {
        answer_all(pg, &pg->queue, ONCE_E_UNAVAILABLE);
    }
}

static void link_connected(void *data, once__pg_link_t *link)
{
    once__traffic_pump(data);
}

static void link_failed(void *data, once__pg_link_t *link)
{
    once__traffic_t *pg = data;

    if (count_links(pg, ONCE__PG_DOWN) == pg->link_count) {
        answer_all(pg, &pg->queue, ONCE_E_UNAVAILABLE);
    }
}

/* From then on every batch asks for the level that it needs. */
static void note_level(once__traffic_t *pg, const once__pg_link_t *link)
{
    for (unsigned i = 0; i < link->result_count; i++) {
        if (link->statements[i] == ONCE__PG_TIMEOUT &&
            !once__pg_is_read_committed(link->results[i])) {
            pg->level = 1;
        }
    }
}

static void link_ended(void *data, once__pg_link_t *link, once__pg_end_t end)
{
    once__traffic_t *pg = data;

    note_level(pg, link);
    switch (end) {
    case ONCE__PG_COMMITTED:
        take_committed(pg, link);
        break;
    case ONCE__PG_ABORTED:
        take_aborted(pg, link);
        break;
    case ONCE__PG_LOST:
        answer_all(pg, &link->sent, ONCE_E_NOREPLY);
        break;
    }
    once__pg_link_clear(link);
    once__loop_wake(pg->loop); /* callbacks first: what they submit travels with what waits */
}

/* -------------------------------------------------------------------------------------------------------- lifetime */

static void free_links(once__traffic_t *pg)
{
    for (unsigned i = 0; i < pg->link_count; i++) {
        once__pg_link_free(&pg->links[i]);
    }
    once__pg_params_free(&pg->params);
    once__conninfo_free(&pg->conninfo);
}

static int read_links(const once__store_config_t *config, once__traffic_t *pg, once_error_t *err)
{
    const char *text = once__url_take(config->url, "connections");
    uint64_t count = LINKS_DEFAULT;

    if (text != NULL && (once__number_parse(text, strlen(text), &count) != 0 || count < 1 ||
                         count > ONCE__PG_LINKS_MAX)) {
        return once__fail(err, ONCE_E_CONFIG, "connections: \"%.40s\" is not a number from 1 to %d",
                          text, ONCE__PG_LINKS_MAX);
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
    pg->owner = (once__pg_owner_t){link_connected, link_failed, link_ended, pg, pg->trouble};
    once__oplist_init(&pg->queue);
    once__oplist_init(&pg->answers);
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
        once__oplist_close(&pg->links[i].sent);
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
