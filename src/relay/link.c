/*
 * What holds for a statement (the connection asserts its own state, pg/connection.c):
 *   L-1  It is sent over an idle connection, one at a time: the batch of the link is empty.
 *   L-2  It has a function that takes its answer, unless it is the greeting.
 *   L-3  The batch that ends is the link's.
 */
#include "relay/link.h"

#include <assert.h>
#include <once/error.h>
#include <stdio.h>
#include <string.h>

#define CONNECT_MS  10000
#define LOST_MS     100  /* after a connection that was lost */
#define REFUSED_MS  1000 /* after a greeting that failed */
#define OPTIONS_MAX 2048

/* ------------------------------------------------------------------------------------------------------ connecting */

static const char *option_of(const PQconninfoOption *options, const char *keyword)
{
    for (; options != NULL && options->keyword != NULL; options++) {
        if (strcmp(options->keyword, keyword) == 0 && options->val != NULL) {
            return options->val;
        }
    }
    return NULL;
}

/*
 * Each statement of a relay is a transaction of its own, for which READ COMMITTED is right. Where the database's default is
 * SERIALIZABLE, the relay's reads and writes would make transactions of the application fail. Returns 0, or -1: it does not fit.
 */
static int own_options(const char *url, char *out, size_t size)
{
    PQconninfoOption *given = PQconninfoParse(url, NULL), *defaults = PQconndefaults();
    const char *before = option_of(given, "options");
    int len;

    before = before != NULL ? before : option_of(defaults, "options");
    len = snprintf(out, size, "%s -c default_transaction_isolation=read\\ committed",
                   before != NULL ? before : "");
    PQconninfoFree(given);
    PQconninfoFree(defaults);
    return len >= 0 && (size_t)len < size ? 0 : -1;
}

static int make_conninfo(once__relay_link_t *link)
{
    char options[OPTIONS_MAX];
    int code = once__pg_conninfo_begin(&link->conninfo, "once relay", link->url);

    if (code == ONCE_OK && !link->is_pooled &&
        own_options(link->url, options, sizeof(options)) == 0) {
        code = once__pg_conninfo_add(&link->conninfo, "options", options);
    }
    return code == ONCE_OK ? once__pg_conninfo_end(&link->conninfo) : code;
}

static void connected(void *data, once__pg_connection_t *connection)
{
    static const once__pg_params_t none = {.count = 0};
    once__relay_link_t *link = data;

    link->connected++;
    if (link->greeting != NULL) {
        link->is_greeting = 1;
        (void)once__relay_link_send(link, link->greeting, &none, 0, NULL, NULL);
    }
}

static void failed(void *data, once__pg_connection_t *connection)
{
    once__relay_link_t *link = data;

    if (!link->is_pooled && strstr(link->trouble, "unsupported startup parameter") != NULL) {
        link->is_pooled = 1; /* PgBouncer: without options, then */
        once__pg_conninfo_free(&link->conninfo);
        connection->retry_at = make_conninfo(link) == ONCE_OK ? 0 : connection->retry_at;
    }
}

uint64_t once__relay_link_turn(once__relay_link_t *link)
{
    if (link->base.state != ONCE__PG_DOWN) {
        return UINT64_MAX;
    }
    if (once__loop_now(link->base.loop) < link->base.retry_at) {
        return link->base.retry_at;
    }
    link->is_greeting = 0;
    once__pg_connection_open(&link->base, link->conninfo.keywords, link->conninfo.values);
    return UINT64_MAX;
}

/* ------------------------------------------------------------------------------------------------------ statements */

int once__relay_link_is_up(const once__relay_link_t *link)
{
    return link->base.state >= ONCE__PG_IDLE && !link->is_greeting;
}

int once__relay_link_is_idle(const once__relay_link_t *link)
{
    return link->base.state == ONCE__PG_IDLE && !link->is_greeting;
}

int once__relay_link_send(once__relay_link_t *link, const char *statement,
                          const once__pg_params_t *params, int binary, once__relay_link_cb *answer,
                          void *data)
{
    assert(link->base.state == ONCE__PG_IDLE && link->batch.statement_count == 0); /* L-1 */
    assert((answer != NULL) == !link->is_greeting);                                /* L-2 */
    if (once__pg_put_statement(link->base.conn, statement, params, binary) != 0) {
        link->base.retry_at = once__loop_now(link->base.loop) + LOST_MS;
        once__pg_connection_drop(&link->base);
        return -1;
    }
    link->answer = answer;
    link->data = data;
    link->batch.statement_count = 1;
    once__pg_connection_send(&link->base, &link->batch, link->patience_ms);
    return 0;
}

/* Takes what the batch has for the statement: its rows, or its error. */
static PGresult *take_result(once__pg_batch_t *batch)
{
    PGresult *result = batch->failure != NULL ? batch->failure : batch->results[0];

    batch->failure = NULL;
    batch->result_count = 0;
    return result;
}

static void ended(void *data, once__pg_connection_t *connection, once__pg_batch_t *batch,
                  once__pg_end_t end)
{
    once__relay_link_t *link = data;
    PGresult *result = end != ONCE__PG_LOST ? take_result(batch) : NULL;
    int was_late = batch->is_late;

    assert(batch == &link->batch); /* L-3 */
    once__pg_batch_clear(batch);
    if (end == ONCE__PG_LOST) {
        connection->retry_at = once__loop_now(connection->loop) + LOST_MS;
    }
    if (link->is_greeting || was_late) {
        PQclear(result);
        if (link->is_greeting && end == ONCE__PG_ABORTED) {
            connection->retry_at = once__loop_now(connection->loop) + REFUSED_MS;
            once__pg_connection_drop(connection);
        }
        link->is_greeting = 0;
        return;
    }
    link->answer(link->data, result);
}

static void late(void *data, once__pg_connection_t *connection, once__pg_batch_t *batch)
{
    once__relay_link_t *link = data;

    if (!link->is_greeting) {
        link->answer(link->data, NULL);
    }
}

/* -------------------------------------------------------------------------------------------------------- lifetime */

int once__relay_link_open(once__relay_link_t *link, once__loop_t *loop, const char *url,
                          const char *greeting, uint64_t patience_ms)
{
    memset(link, 0, sizeof(*link));
    link->url = url;
    link->greeting = greeting;
    link->patience_ms = patience_ms;
    link->owner = (once__pg_owner_t){.connected = connected,
                                     .failed = failed,
                                     .ended = ended,
                                     .late = late,
                                     .data = link,
                                     .trouble = link->trouble,
                                     .tls = &link->conninfo.tls,
                                     .reports_loss = 1,
                                     .drain_ms = ONCE__PG_DRAIN_MS};
    if (make_conninfo(link) != ONCE_OK ||
        once__pg_connection_init(&link->base, loop, &link->owner, CONNECT_MS) != 0) {
        once__pg_conninfo_free(&link->conninfo);
        memset(link, 0, sizeof(*link));
        return -1;
    }
    return 0;
}

void once__relay_link_close(once__relay_link_t *link)
{
    if (link->base.loop != NULL) {
        once__pg_connection_free(&link->base);
    }
    once__pg_batch_clear(&link->batch);
    once__pg_conninfo_free(&link->conninfo);
}
