#include "http/client.h"

#include <stdlib.h>
#include <sys/epoll.h>

#include "base/hash.h"

typedef struct connection {
    struct connection *next;
    once__source_t source;
    once__http_client_t *client;
} connection_t;

struct once__http_client {
    once__loop_t *loop;
    CURLM *multi;
    once__timer_t timer;
    once__http_done_cb *done;
    void *data;
    connection_t *gone; /* freed when the turn is over */
};

static void collect(once__http_client_t *client)
{
    CURLMsg *message;
    int left;

    while ((message = curl_multi_info_read(client->multi, &left)) != NULL) {
        CURL *easy = message->easy_handle;
        CURLcode result = message->data.result;
        if (message->msg == CURLMSG_DONE) {
            curl_multi_remove_handle(client->multi, easy);
            client->done(client->data, easy, result);
        }
    }
}

static void on_timer(once__timer_t *timer)
{
    once__http_client_t *client = ONCE__CONTAINER(timer, once__http_client_t, timer);
    int running;

    curl_multi_socket_action(client->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    collect(client);
}

static void on_socket(once__source_t *source, uint32_t events)
{
    once__http_client_t *client = ONCE__CONTAINER(source, connection_t, source)->client;
    int running, flags = (events & (EPOLLIN | EPOLLHUP) ? CURL_CSELECT_IN : 0) |
                         (events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                         (events & EPOLLERR ? CURL_CSELECT_ERR : 0);

    curl_multi_socket_action(client->multi, source->fd, flags, &running);
    collect(client);
}

/* libcurl closed it earlier in the same turn. */
static void on_gone(once__source_t *source, uint32_t events)
{
}

static int set_timer(CURLM *multi, long timeout_ms, void *data)
{
    once__http_client_t *client = data;

    if (timeout_ms < 0) {
        once__timer_stop(client->loop, &client->timer);
    } else {
        once__timer_set(client->loop, &client->timer,
                        once__loop_now(client->loop) + (uint64_t)timeout_ms);
    }
    return 0;
}

static int set_socket(CURL *easy, curl_socket_t fd, int what, void *data, void *known)
{
    once__http_client_t *client = data;
    connection_t *connection = known;
    uint32_t events = (what & CURL_POLL_IN ? (uint32_t)EPOLLIN : 0) |
                      (what & CURL_POLL_OUT ? (uint32_t)EPOLLOUT : 0);

    if (what == CURL_POLL_REMOVE) {
        if (connection != NULL) {
            (void)once__source_set(client->loop, &connection->source, fd, 0);
            connection->source.ready = on_gone;
            curl_multi_assign(client->multi, fd, NULL);
            connection->next = client->gone;
            client->gone = connection;
        }
        return 0;
    }
    if (connection == NULL) {
        connection = calloc(1, sizeof(*connection));
        if (connection == NULL) {
            return -1;
        }
        connection->client = client;
        connection->source.ready = on_socket;
        curl_multi_assign(client->multi, fd, connection);
    }
    return once__source_set(client->loop, &connection->source, fd, events);
}

once__http_client_t *once__http_client_new(once__loop_t *loop, once__http_done_cb *done, void *data)
{
    once__http_client_t *client = calloc(1, sizeof(*client));

    if (client == NULL || once__timers_reserve(loop) != 0) {
        free(client);
        return NULL;
    }
    client->loop = loop;
    client->timer.fire = on_timer;
    client->done = done;
    client->data = data;
    client->multi = curl_multi_init();
    if (client->multi == NULL) {
        once__http_client_free(client);
        return NULL;
    }
    curl_multi_setopt(client->multi, CURLMOPT_SOCKETFUNCTION, set_socket);
    curl_multi_setopt(client->multi, CURLMOPT_SOCKETDATA, client);
    curl_multi_setopt(client->multi, CURLMOPT_TIMERFUNCTION, set_timer);
    curl_multi_setopt(client->multi, CURLMOPT_TIMERDATA, client);
    return client;
}

void once__http_client_free(once__http_client_t *client)
{
    if (client != NULL) {
        curl_multi_cleanup(client->multi);
        once__http_client_turn_over(client);
        once__timer_stop(client->loop, &client->timer);
        once__timers_release(client->loop);
        free(client);
    }
}

CURLM *once__http_client_multi(const once__http_client_t *client)
{
    return client->multi;
}

void once__http_client_turn_over(once__http_client_t *client)
{
    while (client->gone != NULL) {
        connection_t *connection = client->gone;
        client->gone = connection->next;
        free(connection);
    }
}
