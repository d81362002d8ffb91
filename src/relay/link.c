#include "relay/link.h"

#include <stdio.h>
#include <string.h>

#include "pg/tcp.h"

#define BACKOFF_MIN_MS 100
#define BACKOFF_MAX_MS 5000
#define CONNECT_MS     10000
#define OPTIONS_MAX    2048
#define DRAIN_MS       600000

void once__link_init(once__link_t *link, const char *url, const char *greeting,
                     uint64_t patience_ms)
{
    memset(link, 0, sizeof(*link));
    link->url = url;
    link->greeting = greeting;
    link->patience_ms = patience_ms;
    link->drain_ms = DRAIN_MS;
}

/* libpq's sentences have several lines; a log has one. */
static void note_trouble(once__link_t *link, const char *text)
{
    snprintf(link->trouble, sizeof(link->trouble), "%.*s%s",
             (int)(strlen(text) - (text[0] != '\0' && text[strlen(text) - 1] == '\n')), text,
             once__pq_tls_advice(&link->tls, text));
    for (char *at = link->trouble; *at != '\0'; at++) {
        if (*at == '\n') {
            *at = at[1] == '\0' ? '\0' : ' ';
        }
    }
}

static void lose(once__link_t *link, uint64_t now_ms, const char *why)
{
    once__link_cb *answer = link->state == ONCE__LINK_BUSY ? link->answer : NULL;

    note_trouble(link, why);
    PQclear(link->result);
    link->result = NULL;
    PQfinish(link->conn);
    link->conn = NULL;
    link->state = ONCE__LINK_DOWN;
    link->backoff_ms = link->backoff_ms == 0 ? BACKOFF_MIN_MS : 2 * link->backoff_ms;
    link->backoff_ms = link->backoff_ms > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : link->backoff_ms;
    link->retry_ms = now_ms + link->backoff_ms;
    if (answer != NULL) {
        answer(link->data, NULL);
    }
}

void once__link_close(once__link_t *link)
{
    PQclear(link->result);
    PQfinish(link->conn);
    link->result = NULL;
    link->conn = NULL;
    link->state = ONCE__LINK_DOWN;
}

static void ignore_notice(void *data, const PGresult *result)
{
}

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
 * SERIALIZABLE, the relay's reads and writes would else make transactions of the application fail. 0, or -1: it does not fit.
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

static void connect_now(once__link_t *link, uint64_t now_ms)
{
#define KEYWORD(keyword, value) keyword,
#define VALUE(keyword, value)   value,
    const char *keywords[] = {ONCE__PG_TCP(KEYWORD) "dbname",
                              "application_name",
                              "target_session_attrs",
                              "client_encoding",
                              NULL,
                              NULL,
                              NULL,
                              NULL};
    const char *values[] = {
        ONCE__PG_TCP(VALUE) link->url, "once relay", "read-write", "UTF8", NULL, NULL, NULL, NULL};
#undef KEYWORD
#undef VALUE
    char options[OPTIONS_MAX];

    if (!link->is_pooled && own_options(link->url, options, sizeof(options)) == 0) {
        keywords[ONCE__PG_TCP_COUNT + 4] = "options";
        values[ONCE__PG_TCP_COUNT + 4] = options;
    }
    once__pq_tls_add(&link->tls, keywords, values);
    link->conn = PQconnectStartParams(keywords, values, 1);
    link->state = ONCE__LINK_CONNECTING;
    link->polling = PGRES_POLLING_WRITING;
    link->deadline_ms = now_ms + CONNECT_MS;
    if (link->conn == NULL || PQstatus(link->conn) == CONNECTION_BAD) {
        lose(link, now_ms, link->conn != NULL ? PQerrorMessage(link->conn) : "out of memory");
        return;
    }
    PQsetNoticeReceiver(link->conn, ignore_notice, NULL);
}

static void connected(once__link_t *link, uint64_t now_ms)
{
    link->connected++;
    link->backoff_ms = 0;
    PQsetnonblocking(link->conn, 1);
    link->state = ONCE__LINK_IDLE;
    if (link->greeting == NULL) {
        return;
    }
    link->state = ONCE__LINK_GREETING;
    link->deadline_ms = now_ms + link->patience_ms;
    if (PQsendQuery(link->conn, link->greeting) == 0) {
        lose(link, now_ms, PQerrorMessage(link->conn));
    }
}

static void go_on_connecting(once__link_t *link, uint64_t now_ms)
{
    link->polling = PQconnectPoll(link->conn);
    if (link->polling == PGRES_POLLING_OK) {
        connected(link, now_ms);
    } else if (link->polling == PGRES_POLLING_FAILED && !link->is_pooled &&
               strstr(PQerrorMessage(link->conn), "unsupported startup parameter") != NULL) {
        link->is_pooled = 1; /* PgBouncer: without options, then */
        PQfinish(link->conn);
        connect_now(link, now_ms);
    } else if (link->polling == PGRES_POLLING_FAILED) {
        lose(link, now_ms, PQerrorMessage(link->conn));
    }
}

static void finish_statement(once__link_t *link, uint64_t now_ms)
{
    PGresult *result = link->result;
    once__link_state_t was = link->state;

    link->result = NULL;
    link->state = ONCE__LINK_IDLE;
    link->drain_ms = DRAIN_MS;
    if (was == ONCE__LINK_BUSY) {
        link->answer(link->data, result);
        return;
    }
    if (was == ONCE__LINK_GREETING && PQresultStatus(result) == PGRES_FATAL_ERROR) {
        lose(link, now_ms, PQresultErrorMessage(result));
    }
    PQclear(result);
}

static void go_on_reading(once__link_t *link, uint64_t now_ms)
{
    PGresult *result;

    if (PQflush(link->conn) < 0 || PQconsumeInput(link->conn) == 0) {
        lose(link, now_ms, PQerrorMessage(link->conn));
        return;
    }
    while (link->state != ONCE__LINK_IDLE && !PQisBusy(link->conn)) {
        result = PQgetResult(link->conn);
        if (result == NULL) {
            finish_statement(link, now_ms);
            return;
        }
        PQclear(link->result);
        link->result = result;
        if (PQstatus(link->conn) == CONNECTION_BAD) {
            lose(link, now_ms, PQerrorMessage(link->conn));
            return;
        }
    }
}

static void be_late(once__link_t *link, uint64_t now_ms)
{
    if (link->state == ONCE__LINK_BUSY) {
        note_trouble(link, "the server does not answer");
        link->state = ONCE__LINK_DRAINING;
        link->deadline_ms = now_ms + link->drain_ms;
        link->answer(link->data, NULL);
        return;
    }
    link->drain_ms *= link->state == ONCE__LINK_DRAINING ? 2 : 1;
    lose(link, now_ms, "the server does not answer");
}

uint64_t once__link_turn(once__link_t *link, uint64_t now_ms)
{
    if (link->state == ONCE__LINK_DOWN && now_ms >= link->retry_ms) {
        connect_now(link, now_ms);
    }
    if (link->state == ONCE__LINK_CONNECTING) {
        go_on_connecting(link, now_ms);
    }
    if (link->state >= ONCE__LINK_GREETING) {
        go_on_reading(link, now_ms);
    }
    if (link->state == ONCE__LINK_IDLE) {
        return UINT64_MAX;
    }
    if (link->state != ONCE__LINK_DOWN && now_ms >= link->deadline_ms) {
        be_late(link, now_ms);
    }
    return link->state == ONCE__LINK_DOWN ? link->retry_ms : link->deadline_ms;
}

struct pollfd once__link_poll(const once__link_t *link)
{
    struct pollfd poll = {.fd = -1};

    if (link->conn == NULL) {
        return poll;
    }
    poll.fd = PQsocket(link->conn);
    poll.events = POLLIN;
    if (link->state == ONCE__LINK_CONNECTING) {
        poll.events = link->polling == PGRES_POLLING_READING ? POLLIN : POLLOUT;
    } else if (link->state != ONCE__LINK_IDLE && PQflush(link->conn) > 0) {
        poll.events = POLLIN | POLLOUT;
    }
    return poll;
}

int once__link_send(once__link_t *link, uint64_t now_ms, const char *statement, int count,
                    const Oid *types, const char *const *values, const int *lengths,
                    const int *formats, int binary_result, once__link_cb *answer, void *data)
{
    link->answer = answer;
    link->data = data;
    link->deadline_ms = now_ms + link->patience_ms;
    if (PQsendQueryParams(link->conn, statement, count, types, values, lengths, formats,
                          binary_result) == 0 ||
        PQflush(link->conn) < 0) {
        lose(link, now_ms, PQerrorMessage(link->conn));
        return -1;
    }
    link->state = ONCE__LINK_BUSY;
    return 0;
}
