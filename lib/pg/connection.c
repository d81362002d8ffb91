#include "pg/connection.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/backoff.h"
#include "base/hash.h"

#define PAUSE_MIN_MS 100
#define PAUSE_MAX_MS 5000

static void assert_batch_state(const once__pg_connection_t *connection,
                               const once__pg_batch_t *batch)
{
    if (batch != NULL) {
        assert(batch->is_late == (connection->state == ONCE__PG_DRAINING)); /* I-4 */
        assert(batch->result_count <= batch->statement_count);              /* I-5 */
        assert(batch->statement_count <= ONCE__PG_STATEMENTS_MAX);
    }
}

/* I-1 to I-5 of connection.h. */
static void assert_connection_state(const once__pg_connection_t *connection)
{
    int waits = connection->state == ONCE__PG_BUSY || connection->state == ONCE__PG_DRAINING;

    assert(connection->state != ONCE__PG_DOWN || connection->conn == NULL);
    assert(connection->state < ONCE__PG_DRAINING || connection->conn != NULL);
    assert(waits == (connection->first != NULL));
    assert(connection->first != NULL || connection->second == NULL);
    assert((waits || connection->state == ONCE__PG_CONNECTING) == (connection->timer.slot != 0));
    assert_batch_state(connection, connection->first);
    assert_batch_state(connection, connection->second);
}

static uint64_t now_of(const once__pg_connection_t *connection)
{
    return once__loop_now(connection->loop);
}

/* Keeps a complaint: libpq's have several lines, some of them indented with a tab, and a log has one. */
static void complain(const once__pg_connection_t *connection, const char *text)
{
    char *out = connection->owner->trouble, *end = out;
    size_t len = strlen(text);

    len -= len > 0 && text[len - 1] == '\n';
    snprintf(out, ONCE__PG_TROUBLE_SIZE, "%.*s%s", (int)len, text,
             once__pg_tls_advice(connection->owner->tls, text));
    for (const char *at = out; *at != '\0'; at++) {
        if (*at != '\n' && *at != '\t') {
            *end++ = *at;
        } else if (end > out && end[-1] != ' ') {
            *end++ = ' ';
        }
    }
    *end = '\0';
}

/* ----------------------------------------------------------------------------------------------------- descriptor */

static void watch(once__pg_connection_t *connection, uint32_t events)
{
    int fd = PQsocket(connection->conn);

    if (fd >= 0 && (fd != connection->source.fd || events != connection->watched)) {
        (void)once__source_set(connection->loop, &connection->source, fd, events);
        connection->watched = events;
    }
}

static void disconnect(once__pg_connection_t *connection)
{
    if (connection->conn != NULL) {
        if (connection->source.fd >= 0) {
            (void)once__source_set(connection->loop, &connection->source, connection->source.fd, 0);
        }
        PQfinish(connection->conn);
    }
    connection->conn = NULL;
    connection->source.fd = -1;
    connection->watched = 0;
    connection->state = ONCE__PG_DOWN;
    once__timer_stop(connection->loop, &connection->timer);
}

/* ------------------------------------------------------------------------------------------------------ connecting */

static void connect_failed(once__pg_connection_t *connection)
{
    const once__env_t *env = once__loop_env(connection->loop);
    uint32_t bits = 0;

    complain(connection, connection->conn != NULL && PQstatus(connection->conn) == CONNECTION_BAD
                             ? PQerrorMessage(connection->conn)
                             : "no connection in time");
    disconnect(connection);
    (void)env->random(env->data, &bits, sizeof(bits));
    connection->retry_at = now_of(connection) +
                           once__backoff(connection->failures++, PAUSE_MIN_MS, PAUSE_MAX_MS, bits);
    connection->owner->failed(connection->owner->data, connection);
}

static void connect_done(once__pg_connection_t *connection)
{
    if (PQsetnonblocking(connection->conn, 1) != 0 || PQenterPipelineMode(connection->conn) != 1) {
        connect_failed(connection);
        return;
    }
    connection->failures = 0;
    connection->is_broken = 0;
    connection->retry_at = 0;
    connection->state = ONCE__PG_IDLE;
    once__timer_stop(connection->loop, &connection->timer);
    watch(connection, EPOLLIN);
    connection->owner->connected(connection->owner->data, connection);
}

static void connect_step(once__pg_connection_t *connection)
{
    PostgresPollingStatusType status = PQconnectPoll(connection->conn);

    switch (status) {
    case PGRES_POLLING_READING:
    case PGRES_POLLING_WRITING:
        /* libpq may have gone on to the next host: another socket with the same number. */
        connection->source.fd = -1;
        watch(connection, status == PGRES_POLLING_READING ? EPOLLIN : EPOLLOUT);
        break;
    case PGRES_POLLING_OK:
        connect_done(connection);
        break;
    default:
        connect_failed(connection);
        break;
    }
}

/* libpq would write notices to standard error, which is the host's. */
static void ignore_notice(void *data, const PGresult *result)
{
}

void once__pg_connection_open(once__pg_connection_t *connection, const char *const *keywords,
                              const char *const *values)
{
    assert_connection_state(connection);
    assert(connection->state == ONCE__PG_DOWN);
    connection->conn = PQconnectStartParams(keywords, values, 1);
    connection->state = ONCE__PG_CONNECTING;
    once__timer_set(connection->loop, &connection->timer,
                    now_of(connection) + connection->connect_ms);
    if (connection->conn == NULL || PQstatus(connection->conn) == CONNECTION_BAD) {
        once__timer_set(connection->loop, &connection->timer, 0); /* reported from the loop */
        return;
    }
    (void)PQsetNoticeReceiver(connection->conn, ignore_notice, NULL);
    watch(connection, EPOLLOUT);
}

/* --------------------------------------------------------------------------------------------------------- batches */

void once__pg_batch_clear(once__pg_batch_t *batch)
{
    for (unsigned i = 0; i < batch->result_count; i++) {
        PQclear(batch->results[i]);
    }
    PQclear(batch->failure);
    memset(batch, 0, sizeof(*batch));
}

static int is_waiting(const once__pg_connection_t *connection)
{
    return connection->first != NULL;
}

static once__pg_batch_t *take_first(once__pg_connection_t *connection)
{
    once__pg_batch_t *batch = connection->first;

    connection->first = connection->second;
    connection->second = NULL;
    return batch;
}

void once__pg_connection_drop(once__pg_connection_t *connection)
{
    disconnect(connection);
    while (connection->first != NULL) {
        once__pg_batch_t *batch = take_first(connection);
        connection->owner->ended(connection->owner->data, connection, batch, ONCE__PG_LOST);
    }
    assert_connection_state(connection);
}

/* Sends what the socket takes. Returns 0, or -1 if the connection is gone. */
static int flush(once__pg_connection_t *connection)
{
    int left = PQflush(connection->conn);

    if (left < 0) {
        return -1;
    }
    watch(connection, left > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN);
    return 0;
}

void once__pg_connection_send(once__pg_connection_t *connection, once__pg_batch_t *batch,
                              uint64_t timeout_ms)
{
    assert_connection_state(connection);
    assert(connection->state >= ONCE__PG_IDLE && connection->second == NULL);
    batch->began = now_of(connection);
    batch->due = batch->began + timeout_ms;
    if (connection->first == NULL) {
        connection->first = batch;
        connection->state = ONCE__PG_BUSY;
        once__timer_set(connection->loop, &connection->timer, batch->due);
    } else {
        connection->second = batch;
    }
    if (PQpipelineSync(connection->conn) != 1 || flush(connection) != 0) {
        connection->is_broken = 1;
        once__timer_set(connection->loop, &connection->timer, 0); /* reported from the loop */
    }
    assert_connection_state(connection);
}

static void note_failure(once__pg_connection_t *connection, PGresult *result)
{
    once__pg_batch_t *batch = connection->first;
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

    connection->is_broken |= severity == NULL || strcmp(severity, "ERROR") != 0;
    if (batch->failure != NULL) {
        PQclear(result);
        return;
    }
    batch->failure = result;
    complain(connection, text != NULL ? text : "");
    if (state != NULL && strlen(state) == 5) {
        memcpy(batch->sqlstate, state, 6);
    }
}

/* Takes one result. Returns whether it was the end of the batch. */
static int take_result(once__pg_connection_t *connection, PGresult *result)
{
    once__pg_batch_t *batch = connection->first;

    switch (PQresultStatus(result)) {
    case PGRES_PIPELINE_SYNC:
        PQclear(result);
        return 1;
    case PGRES_TUPLES_OK:
    case PGRES_COMMAND_OK:
        if (batch->result_count < batch->statement_count) {
            batch->results[batch->result_count++] = result;
            return 0;
        }
        break;
    case PGRES_PIPELINE_ABORTED:
        break;
    default:
        note_failure(connection, result);
        return 0;
    }
    PQclear(result);
    return 0;
}

static void end_batch(once__pg_connection_t *connection)
{
    once__pg_batch_t *batch = take_first(connection);
    int whole = batch->failure == NULL && batch->result_count == batch->statement_count;

    if (whole) {
        connection->owner->trouble[0] = '\0';
    }
    if (connection->first == NULL) {
        if (connection->state == ONCE__PG_DRAINING) {
            connection->owner->drain_ms = ONCE__PG_DRAIN_MS;
        }
        connection->state = ONCE__PG_IDLE;
        once__timer_stop(connection->loop, &connection->timer);
    } else if (connection->state == ONCE__PG_BUSY) {
        once__timer_set(connection->loop, &connection->timer, connection->first->due);
    }
    connection->owner->ended(connection->owner->data, connection, batch,
                             whole ? ONCE__PG_COMMITTED : ONCE__PG_ABORTED);
}

/* Reads what is there. Between two statements libpq answers NULL; after the sync there is nothing to come. */
static void read_results(once__pg_connection_t *connection)
{
    unsigned nothing = 0;

    while (is_waiting(connection) && !PQisBusy(connection->conn)) {
        PGresult *result = PQgetResult(connection->conn);
        if (result == NULL) {
            if (++nothing > 2) {
                return;
            }
            continue;
        }
        nothing = 0;
        if (take_result(connection, result)) {
            end_batch(connection);
        }
    }
}

static void exchange(once__pg_connection_t *connection, uint32_t events)
{
    int good = 1;

    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) {
        good = PQconsumeInput(connection->conn);
    }
    read_results(connection); /* what came before the connection broke counts */
    if (connection->conn == NULL) {
        return;
    }
    if (!good || PQstatus(connection->conn) == CONNECTION_BAD || connection->is_broken ||
        (is_waiting(connection) && flush(connection) != 0)) {
        if (connection->state == ONCE__PG_DRAINING) {
            connection->owner->drain_ms = ONCE__PG_DRAIN_MS;
        }
        if (connection->owner->reports_loss && connection->owner->trouble[0] == '\0') {
            complain(connection, PQerrorMessage(connection->conn));
        }
        once__pg_connection_drop(connection);
    }
}

static void ready(once__source_t *source, uint32_t events)
{
    once__pg_connection_t *connection = ONCE__CONTAINER(source, once__pg_connection_t, source);

    if (connection->conn == NULL) {
        return;
    }
    assert_connection_state(connection);
    if (connection->state == ONCE__PG_CONNECTING) {
        connect_step(connection);
    } else {
        exchange(connection, events);
    }
    assert_connection_state(connection);
}

/* -------------------------------------------------------------------------------------------------------- too late */

static void start_draining(once__pg_connection_t *connection)
{
    once__pg_batch_t *batches[] = {connection->first, connection->second};

    complain(connection,
             "the server does not answer; its connection is kept until it does (a commit waits "
             "for a synchronous standby as long as that takes)");
    connection->state = ONCE__PG_DRAINING;
    connection->drain_from = now_of(connection);
    once__timer_set(connection->loop, &connection->timer,
                    connection->drain_from + connection->owner->drain_ms);
    for (unsigned i = 0; i < 2 && batches[i] != NULL; i++) {
        batches[i]->is_late = 1;
    }
    for (unsigned i = 0; i < 2 && batches[i] != NULL; i++) {
        connection->owner->late(connection->owner->data, connection, batches[i]);
    }
}

static void end_draining(once__pg_connection_t *connection)
{
    uint64_t due = connection->drain_from + connection->owner->drain_ms;

    if (now_of(connection) < due) { /* another connection was given up meanwhile */
        once__timer_set(connection->loop, &connection->timer, due);
        return;
    }
    connection->owner->drain_ms *= 2;
    once__pg_connection_drop(connection);
}

static void too_late(once__timer_t *timer)
{
    once__pg_connection_t *connection = ONCE__CONTAINER(timer, once__pg_connection_t, timer);

    if (connection->state == ONCE__PG_CONNECTING) {
        connect_failed(connection);
    } else if (connection->is_broken || PQstatus(connection->conn) == CONNECTION_BAD) {
        once__pg_connection_drop(connection);
    } else if (connection->state == ONCE__PG_BUSY) {
        start_draining(connection);
    } else {
        end_draining(connection);
    }
    assert_connection_state(connection);
}

/* -------------------------------------------------------------------------------------------------------- lifetime */

int once__pg_connection_init(once__pg_connection_t *connection, once__loop_t *loop,
                             once__pg_owner_t *owner, uint64_t connect_ms)
{
    memset(connection, 0, sizeof(*connection));
    connection->loop = loop;
    connection->owner = owner;
    connection->connect_ms = connect_ms;
    connection->source.ready = ready;
    connection->source.fd = -1;
    connection->timer.fire = too_late;
    return once__timers_reserve(loop);
}

void once__pg_connection_free(once__pg_connection_t *connection)
{
    disconnect(connection);
    connection->first = connection->second = NULL;
    once__timers_release(connection->loop);
}

void once__pg_connection_abandon(once__pg_connection_t *connection)
{
    int fd = connection->conn != NULL ? PQsocket(connection->conn) : -1;
    int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);

    /* libpq says goodbye to the server when it closes a connection: not over the parent's. */
    if (fd >= 0 && nowhere >= 0 && dup2(nowhere, fd) == fd) {
        PQfinish(connection->conn);
    }
    if (nowhere >= 0) {
        (void)close(nowhere);
    }
}
