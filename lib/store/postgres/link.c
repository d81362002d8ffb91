#include "store/postgres/link.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define PAUSE_MIN_MS 100
#define PAUSE_MAX_MS 5000

#define LINK_OF(member, pointer)                                                                   \
    ((once__pg_link_t *)(void *)((char *)(pointer)-offsetof(once__pg_link_t, member)))

/* ----------------------------------------------------------------------------------------------------- descriptor */

static void watch(once__pg_link_t *link, uint32_t events)
{
    int fd = PQsocket(link->conn);

    if (fd < 0) {
        return;
    }
    if (fd != link->source.fd || events != link->events) {
        (void)once__source_set(link->loop, &link->source, fd, events);
        link->events = events;
    }
}

void once__pg_link_clear(once__pg_link_t *link)
{
    for (unsigned i = 0; i < link->trip.result_count; i++) {
        PQclear(link->trip.results[i]);
        link->trip.results[i] = NULL;
    }
    link->trip.statement_count = link->trip.result_count = 0;
    link->trip.trusting = link->trip.error = link->trip.fatal = 0;
    memset(link->trip.sqlstate, 0, sizeof(link->trip.sqlstate));
}

void once__pg_link_swap(once__pg_link_t *link)
{
    once__pg_trip_t trip = link->trip;
    once__oplist_t first, second; /* lists cannot be copied */

    once__oplist_init(&first);
    once__oplist_init(&second);
    once__oplist_move(&first, &link->trip.sent);
    once__oplist_move(&second, &link->behind.sent);
    link->trip = link->behind;
    link->behind = trip;
    once__oplist_init(&link->trip.sent);
    once__oplist_init(&link->behind.sent);
    once__oplist_move(&link->trip.sent, &second);
    once__oplist_move(&link->behind.sent, &first);
}

static int has_behind(const once__pg_link_t *link)
{
    return link->behind.statement_count > 0;
}

/* Are there results to come? */
static int is_waiting(const once__pg_link_t *link)
{
    return link->state == ONCE__PG_BUSY || link->state == ONCE__PG_DRAINING;
}

static void disconnect(once__pg_link_t *link)
{
    if (link->conn != NULL) {
        if (link->source.fd >= 0) {
            (void)once__source_set(link->loop, &link->source, link->source.fd, 0);
        }
        PQfinish(link->conn);
    }
    link->conn = NULL;
    link->source.fd = -1;
    link->events = 0;
    link->state = ONCE__PG_DOWN;
    once__timer_stop(link->loop, &link->timer);
}

void once__pg_link_drop(once__pg_link_t *link)
{
    int busy = is_waiting(link);

    disconnect(link);
    if (busy) {
        link->owner->ended(link->owner->data, link, ONCE__PG_LOST);
    }
    if (has_behind(link)) {
        once__pg_link_clear(link);
        once__pg_link_swap(link);
        link->owner->ended(link->owner->data, link, ONCE__PG_LOST);
    }
}

/* Keeps the first line of a complaint. */
static void complain(const once__pg_link_t *link, const char *text, const char *advice)
{
    size_t len = text != NULL ? strcspn(text, "\n") : 0;

    snprintf(link->owner->trouble, ONCE__PG_TROUBLE_SIZE, "%.*s%s", (int)len,
             text != NULL ? text : "", advice);
}

/* ----------------------------------------------------------------------------------------------------- connecting */

static void connect_failed(once__pg_link_t *link)
{
    uint64_t pause = PAUSE_MIN_MS;
    uint8_t jitter = 0;
    const once__env_t *env = once__loop_env(link->loop);

    const char *why = link->conn != NULL && PQstatus(link->conn) == CONNECTION_BAD
                          ? PQerrorMessage(link->conn)
                          : "no connection in time";

    complain(link, why, once__pq_tls_advice(link->owner->tls, why));
    disconnect(link);
    for (unsigned i = 0; i < link->failures && pause < PAUSE_MAX_MS; i++) {
        pause *= 2;
    }
    (void)env->random(env->data, &jitter, 1);
    link->failures++;
    link->retry_at = once__loop_now(link->loop) + pause + pause * jitter / 512;
    link->owner->failed(link->owner->data, link);
}

static void connect_done(once__pg_link_t *link)
{
    if (PQsetnonblocking(link->conn, 1) != 0 || PQenterPipelineMode(link->conn) != 1) {
        connect_failed(link);
        return;
    }
    link->failures = 0;
    link->broken = 0;
    link->session = (once__pg_session_t){0};
    link->retry_at = 0;
    link->state = ONCE__PG_IDLE;
    once__timer_stop(link->loop, &link->timer);
    watch(link, EPOLLIN);
    link->owner->connected(link->owner->data, link);
}

static void connect_step(once__pg_link_t *link)
{
    switch (PQconnectPoll(link->conn)) {
    case PGRES_POLLING_READING:
        link->source.fd =
            -1; /* libpq may have gone to the next host: another socket with the same number */
        watch(link, EPOLLIN);
        break;
    case PGRES_POLLING_WRITING:
        link->source.fd = -1;
        watch(link, EPOLLOUT);
        break;
    case PGRES_POLLING_OK:
        connect_done(link);
        break;
    default:
        connect_failed(link);
        break;
    }
}

/* libpq would write to standard error, which is the host's. */
static void be_quiet(void *data, const char *text)
{
}

void once__pg_link_connect(once__pg_link_t *link, const char *const *keywords,
                           const char *const *values)
{
    link->conn = PQconnectStartParams(keywords, values, 1);
    link->state = ONCE__PG_CONNECTING;
    once__timer_set(link->loop, &link->timer, once__loop_now(link->loop) + link->connect_ms);
    if (link->conn == NULL || PQstatus(link->conn) == CONNECTION_BAD) {
        once__timer_set(link->loop, &link->timer, 0); /* told from the loop, like every failure */
        return;
    }
    (void)PQsetNoticeProcessor(link->conn, be_quiet, NULL);
    watch(link, EPOLLOUT);
}

/* --------------------------------------------------------------------------------------------------------- a batch */

void once__pg_link_add(once__pg_link_t *link, once__pg_statement_t statement)
{
    link->trip.statements[link->trip.statement_count++] = statement;
}

/* Sends what the socket takes. 0, or -1: the connection is gone. */
static int flush(once__pg_link_t *link)
{
    int left = PQflush(link->conn);

    if (left < 0) {
        return -1;
    }
    watch(link, left > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN);
    return 0;
}

void once__pg_link_flush(once__pg_link_t *link, uint64_t timeout_ms)
{
    link->trip.began = once__loop_now(link->loop);
    link->trip.due = link->trip.began + timeout_ms;
    if (link->state != ONCE__PG_BUSY) {
        link->state = ONCE__PG_BUSY;
        once__timer_set(link->loop, &link->timer, link->trip.due);
    }
    if (PQpipelineSync(link->conn) != 1 || flush(link) != 0) {
        link->broken = 1;
        once__timer_set(link->loop, &link->timer, 0);
    }
}

int once__pg_link_takes_another(const once__pg_link_t *link, uint64_t patience_ms)
{
    if (link->state != ONCE__PG_BUSY || has_behind(link) ||
        link->session.kind != ONCE__PG_SESSION_OURS ||
        once__loop_now(link->loop) - link->trip.began > patience_ms) {
        return 0;
    }
    for (unsigned i = 0; i < link->trip.statement_count; i++) {
        once__pg_statement_t statement = link->trip.statements[i];
        if (statement < ONCE__PG_CLAIM || statement > ONCE__PG_GET) {
            return 0;
        }
    }
    return 1;
}

static void note_error(once__pg_link_t *link, const PGresult *result)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);

    if (!link->trip.error) {
        complain(link, PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY), "");
    }
    link->trip.error = 1;
    link->trip.fatal |= severity == NULL || strcmp(severity, "ERROR") != 0;
    if (link->trip.sqlstate[0] == '\0' && state != NULL && strlen(state) == 5) {
        memcpy(link->trip.sqlstate, state, 6);
    }
}

/* Takes one result; 1: it was the end of the batch. */
static int take_result(once__pg_link_t *link, PGresult *result)
{
    switch (PQresultStatus(result)) {
    case PGRES_PIPELINE_SYNC:
        PQclear(result);
        return 1;
    case PGRES_TUPLES_OK:
    case PGRES_COMMAND_OK:
        if (link->trip.result_count < link->trip.statement_count) {
            link->trip.results[link->trip.result_count++] = result;
            return 0;
        }
        break;
    case PGRES_PIPELINE_ABORTED:
        break;
    default:
        note_error(link, result);
        break;
    }
    PQclear(result);
    return 0;
}

static void drain(once__pg_link_t *link)
{
    link->state = ONCE__PG_DRAINING;
    link->drain_from = once__loop_now(link->loop);
    once__timer_set(link->loop, &link->timer, link->drain_from + link->owner->drain_ms);
}

static void end_batch(once__pg_link_t *link)
{
    int whole = !link->trip.error && link->trip.result_count == link->trip.statement_count;
    int drains = link->state == ONCE__PG_DRAINING;

    if (whole) {
        complain(link, "", "");
    }
    once__timer_stop(link->loop, &link->timer);
    link->state = ONCE__PG_IDLE;
    link->owner->ended(link->owner->data, link, whole ? ONCE__PG_COMMITTED : ONCE__PG_ABORTED);
    if (has_behind(link)) { /* gone, if the connection was given up */
        once__pg_link_clear(link);
        once__pg_link_swap(link);
        if (drains) {
            drain(link);
        } else {
            link->state = ONCE__PG_BUSY;
            once__timer_set(link->loop, &link->timer, link->trip.due);
        }
    } else if (drains) {
        link->owner->drain_ms = ONCE__PG_DRAIN_MS;
    }
}

/* Reads what is there. Between two statements libpq answers NULL; after the sync there is nothing to come. */
static void read_results(once__pg_link_t *link)
{
    unsigned nothing = 0;

    while (is_waiting(link) && !PQisBusy(link->conn)) {
        PGresult *result = PQgetResult(link->conn);
        if (result == NULL) {
            if (++nothing > 2) {
                return;
            }
            continue;
        }
        nothing = 0;
        if (take_result(link, result)) {
            end_batch(link);
        }
    }
}

static void exchange(once__pg_link_t *link, uint32_t events)
{
    int good = 1;

    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) {
        good = PQconsumeInput(link->conn);
    }
    /* What came before the connection broke still counts. */
    if (is_waiting(link)) {
        read_results(link);
    }
    if (link->conn == NULL) {
        return;
    }
    if (!good || PQstatus(link->conn) == CONNECTION_BAD || link->trip.fatal ||
        (is_waiting(link) && flush(link) != 0)) {
        if (link->state == ONCE__PG_DRAINING) {
            link->owner->drain_ms = ONCE__PG_DRAIN_MS;
        }
        once__pg_link_drop(link);
    }
}

static void ready(once__source_t *source, uint32_t events)
{
    once__pg_link_t *link = LINK_OF(source, source);

    if (link->conn == NULL) {
        return;
    }
    if (link->state == ONCE__PG_CONNECTING) {
        connect_step(link);
    } else {
        exchange(link, events);
    }
}

static void give_up_batch(once__pg_link_t *link)
{
    if (link->broken || PQstatus(link->conn) == CONNECTION_BAD) {
        once__pg_link_drop(link);
        return;
    }
    complain(link,
             "the server does not answer; its connection is kept until it does (a commit waits for "
             "a synchronous standby as long as that takes)",
             "");
    drain(link);
    link->owner->late(link->owner->data, link);
}

static void give_up_draining(once__pg_link_t *link)
{
    uint64_t due = link->drain_from + link->owner->drain_ms; /* another link may have given up */

    if (once__loop_now(link->loop) < due) {
        once__timer_set(link->loop, &link->timer, due);
        return;
    }
    link->owner->drain_ms *= 2;
    once__pg_link_drop(link);
}

static void too_late(once__timer_t *timer)
{
    once__pg_link_t *link = LINK_OF(timer, timer);

    switch (link->state) {
    case ONCE__PG_CONNECTING:
        connect_failed(link);
        break;
    case ONCE__PG_BUSY:
        give_up_batch(link);
        break;
    case ONCE__PG_DRAINING:
        give_up_draining(link);
        break;
    default:
        break;
    }
}

/* ------------------------------------------------------------------------------------------------------- lifetime */

int once__pg_link_init(once__pg_link_t *link, once__loop_t *loop, once__pg_owner_t *owner,
                       uint64_t connect_ms)
{
    memset(link, 0, sizeof(*link));
    link->loop = loop;
    link->owner = owner;
    link->connect_ms = connect_ms;
    link->source.ready = ready;
    link->source.fd = -1;
    link->timer.fire = too_late;
    once__oplist_init(&link->trip.sent);
    once__oplist_init(&link->behind.sent);
    return once__timers_reserve(loop);
}

static void clear_both(once__pg_link_t *link)
{
    once__pg_link_clear(link);
    once__pg_link_swap(link);
    once__pg_link_clear(link);
}

void once__pg_link_free(once__pg_link_t *link)
{
    clear_both(link);
    disconnect(link);
    once__timers_release(link->loop);
}

void once__pg_link_abandon(once__pg_link_t *link)
{
    int fd = link->conn != NULL ? PQsocket(link->conn) : -1;
    int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);

    clear_both(link);
    /* libpq says goodbye to the server when it ends a connection: not over the parent's. */
    if (fd >= 0 && nowhere >= 0 && dup2(nowhere, fd) == fd) {
        PQfinish(link->conn);
    }
    if (nowhere >= 0) {
        (void)close(nowhere);
    }
}
