/*
 * The client: its loop, its journal, and the functions of once/client.h.
 *
 * One descriptor: libcurl's sockets, the timers of calls and the descriptor of the journal's handle are in one epoll set.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/error.h"
#include "base/hash.h"
#include "client/internal.h"

#define CONNECTIONS  64
#define TIMEOUT_MS   60000
#define CONNECT_MS   10000
#define PAUSE_MS     500
#define PAUSE_MAX_MS 60000
#define TURNS_MAX    64
#define CLOSE_MS     5000
#define REAP_MAX     1000 /* records, whenever a client is opened */

const char *once_client_end_name(once_client_end_t end)
{
    static const char *const names[] = {"none", "answered", "unknown",  "denied", "unsent",
                                        "open", "late",     "mismatch", "failed", "redirected"};

    return (size_t)end < sizeof(names) / sizeof(names[0]) ? names[end] : "none";
}

/* ------------------------------------------------------------------------------------------------------ open and close */

static void on_journal(once__source_t *source, uint32_t events)
{
    once_client_t *client = ONCE__CONTAINER(source, once_client_t, journal_source);

    (void)once_dispatch(client->journal);
}

static void on_transfer(void *data, CURL *easy, CURLcode result)
{
    once__client_call_t *call = NULL;

    curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&call);
    assert(call->client == data);
    once__client_call_sent(call, result);
}

/* The texts of the options that the client keeps. */
static const size_t texts[] = {
    offsetof(once_client_options_t, ca_file),
    offsetof(once_client_options_t, cert_file),
    offsetof(once_client_options_t, cert_key_file),
    offsetof(once_client_options_t, proxy),
};
#define TEXTS (sizeof(texts) / sizeof(texts[0]))

static const char **text_of(once_client_options_t *options, size_t i)
{
    return (const char **)(void *)((char *)options + texts[i]);
}

static int copy_options(once_client_t *client, const once_client_options_t *options)
{
    once_client_options_t *mine = &client->options;
    int bad = 0;

    *mine = *options;
    mine->journal = NULL;
    for (size_t i = 0; i < TEXTS; i++) {
        const char **text = text_of(mine, i);
        if (*text != NULL) {
            *text = strdup(*text);
            bad |= *text == NULL;
        }
    }
    mine->connections = mine->connections != 0 ? mine->connections : CONNECTIONS;
    mine->timeout_ms = mine->timeout_ms != 0 ? mine->timeout_ms : TIMEOUT_MS;
    mine->connect_ms = mine->connect_ms != 0 ? mine->connect_ms : CONNECT_MS;
    mine->pause_ms = mine->pause_ms != 0 ? mine->pause_ms : PAUSE_MS;
    mine->pause_max_ms = mine->pause_max_ms != 0 ? mine->pause_max_ms : PAUSE_MAX_MS;
    return bad ? ONCE_E_NOMEM : ONCE_OK;
}

/* A process that makes one call does not live until the journal's handle would reap by itself. */
static void was_reaped(once_t *journal, once_answer_t *answer, void *data)
{
}

static int open_journal(once_client_t *client, const char *url, once_error_t *err)
{
    char *made;
    int code = once__client_journal_url(url, &made, err);

    if (code == ONCE_OK) {
        code = once_open(made, NULL, &client->journal, err);
    }
    free(made);
    client->journal_source.ready = on_journal;
    if (code == ONCE_OK && once__source_set(client->loop, &client->journal_source,
                                            once_fd(client->journal), EPOLLIN) != 0) {
        code = once__fail(err, ONCE_E_IO, "the journal cannot be watched");
    }
    if (code == ONCE_OK) {
        code = once_store_reap(client->journal, REAP_MAX, was_reaped, NULL);
    }
    return code;
}

static int prepare(once_client_t *client, const once_client_options_t *options, once_error_t *err)
{
    int code = copy_options(client, options);

    if (code == ONCE_OK && curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        return once__fail(err, ONCE_E_IO, "libcurl cannot be used");
    }
    client->loop = code == ONCE_OK ? once__loop_new(&once__real_env, &code) : NULL;
    if (client->loop != NULL) {
        client->http = once__http_client_new(client->loop, on_transfer, client);
        code = client->http != NULL ? ONCE_OK : ONCE_E_NOMEM;
    }
    if (code != ONCE_OK) {
        return once__fail(err, code, "%s", once_error_text(code));
    }
    once__client_budget_init(&client->budget, client->options.connections,
                             once__loop_now(client->loop));
    curl_multi_setopt(once__http_client_multi(client->http), CURLMOPT_MAX_TOTAL_CONNECTIONS,
                      (long)client->options.connections);
    return open_journal(client, options->journal, err);
}

int once_client_open(const once_client_options_t *options, once_client_t **out, once_error_t *err)
{
    static const once_client_options_t defaults = ONCE_CLIENT_OPTIONS_INIT;
    once_client_t *client;
    int code;

    if (out == NULL || (options != NULL && options->size < sizeof(*options))) {
        return once__fail(err, ONCE_E_INVALID, "%s", once_error_text(ONCE_E_INVALID));
    }
    *out = NULL;
    client = calloc(1, sizeof(*client));
    if (client == NULL) {
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    code = prepare(client, options != NULL ? options : &defaults, err);
    if (code != ONCE_OK) {
        once_client_close(client);
        return code;
    }
    *out = client;
    return ONCE_OK;
}

void once_client_close(once_client_t *client)
{
    if (client == NULL || client->inside) {
        return;
    }
    client->closing = client->inside = 1;
    for (once__client_call_t *call = client->calls, *next; call != NULL; call = next) {
        next = call->next;
        once__client_call_abandon(call);
    }
    if (client->journal != NULL) {
        (void)once__source_set(client->loop, &client->journal_source, once_fd(client->journal), 0);
        (void)once_close(client->journal, CLOSE_MS);
    }
    assert(client->calls == NULL);
    once__http_client_free(client->http);
    if (client->loop != NULL) {
        once__loop_free(client->loop);
    }
    for (size_t i = 0; i < TEXTS; i++) {
        free((void *)(uintptr_t)*text_of(&client->options, i));
    }
    free(client);
}

int once_client_fd(const once_client_t *client)
{
    return once__loop_fd(client->loop);
}

int once_client_dispatch(once_client_t *client)
{
    if (client->inside) {
        return ONCE_E_REENTRANT;
    }
    client->inside = 1;
    once__loop_enter(client->loop);
    for (int turns = 0; turns < TURNS_MAX && once__loop_run(client->loop); turns++) {
        once__http_client_turn_over(client->http);
    }
    once__loop_leave(client->loop);
    client->inside = 0;
    return ONCE_OK;
}

int once_client_wait(once_client_t *client, int timeout_ms)
{
    if (client->inside) {
        return ONCE_E_REENTRANT;
    }
    if (once__loop_wait(client->loop, timeout_ms) != 0) {
        return ONCE_E_IO;
    }
    return once_client_dispatch(client);
}

/* ------------------------------------------------------------------------------------------------------------- calls */

int once_client_call(once_client_t *client, const once_client_request_t *request, once_client_cb cb,
                     void *data, once_error_t *err)
{
    once__client_call_t *call;
    int code;

    if (client == NULL || cb == NULL) {
        return once__fail(err, ONCE_E_INVALID, "%s", once_error_text(ONCE_E_INVALID));
    }
    if (client->closing) {
        return once__fail(err, ONCE_E_CLOSED, "%s", once_error_text(ONCE_E_CLOSED));
    }
    code = once__client_call_new(client, request, &call, err);
    if (code != ONCE_OK) {
        return code;
    }
    call->cb = cb;
    call->data = data;
    code = once__client_call_start(call);
    if (code != ONCE_OK) {
        once__client_call_free(call);
        return once__fail(err, code, "%s", once_error_text(code));
    }
    call->next = client->calls;
    call->place = &client->calls;
    if (call->next != NULL) {
        call->next->place = &call->next;
    }
    client->calls = call;
    return ONCE_OK;
}

typedef struct waiting {
    once_client_cb cb;
    void *data;
    int done;
} waiting_t;

static void pass_on(once_client_t *client, const once_client_outcome_t *outcome, void *data)
{
    waiting_t *waiting = data;

    waiting->done = 1;
    waiting->cb(client, outcome, waiting->data);
}

int once_client_call_sync(once_client_t *client, const once_client_request_t *request,
                          once_client_cb cb, void *data, once_error_t *err)
{
    waiting_t waiting = {cb, data, 0};
    int code;

    if (client == NULL || cb == NULL) {
        return once__fail(err, ONCE_E_INVALID, "%s", once_error_text(ONCE_E_INVALID));
    }
    if (client->inside) {
        return once__fail(err, ONCE_E_REENTRANT, "%s", once_error_text(ONCE_E_REENTRANT));
    }
    code = once_client_call(client, request, pass_on, &waiting, err);
    while (code == ONCE_OK && !waiting.done) {
        (void)once_client_wait(client, -1);
    }
    return code;
}
