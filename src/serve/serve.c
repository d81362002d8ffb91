/*
 * The loop of `once serve`: it reads what callers send, hands all of it to the store, and sends what the store has answered. One
 * thread; http.c has the connections.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "serve/internal.h"
#include "service/notify.h"
#include "service/signals.h"

#define KEPT_MAX    100000 /* claims that are renewed for their connections */
#define SPARE_FILES 64     /* descriptors besides those of connections */
#define CLOSE_MS    5000   /* for what the store is yet to be told, at the end */

/* --------------------------------------------------------------------------------------------------------------- the loop */

static void on_daemon(once__source_t *source, uint32_t events)
{
    (void)events;
    once__serve_http_turn(ONCE__CONTAINER(source, once__serve_t, daemon_source));
}

static void on_once(once__source_t *source, uint32_t events)
{
    (void)events;
    ONCE__CONTAINER(source, once__serve_t, once_source)->has_asked = 1;
}

static void stop(once__serve_t *serve)
{
    if (serve->stopping) {
        serve->aborted = 1;
        return;
    }
    once__serve_report(serve, 0, "stopping: answers in flight are finished");
    serve->stopping = 1;
    once__service_notify_stopping();
    serve->stop_at = once__loop_now(serve->loop) + serve->settings->drain_ms;
    once__service_metrics_health(serve->counters.metrics, 0);
    once__serve_http_quiesce(serve);
    for (once__serve_request_t *request = serve->requests; request != NULL;
         request = request->next) {
        once__serve_wait_over(request);
    }
}

static void read_token(once__serve_t *serve)
{
    char token[ONCE__SERVE_TOKEN_MAX + 1], error[300];

    if (serve->settings->token_file == NULL || serve->listener.is_unix) {
        return;
    }
    if (once__serve_token_read(serve->settings->token_file, token, error, sizeof(error)) != 0) {
        once__serve_report(serve, 1, error);
        return;
    }
    memcpy(serve->token, token, sizeof(token));
    explicit_bzero(token, sizeof(token));
    once__serve_report(serve, 0, "the token was read again");
}

static void on_signal(once__source_t *source, uint32_t events)
{
    once__serve_t *serve = ONCE__CONTAINER(source, once__serve_t, signals_source);
    int number;

    (void)events;
    while ((number = once__service_signals_take(source->fd)) != 0) {
        if (number == SIGHUP) {
            read_token(serve);
        } else {
            stop(serve);
        }
    }
}

static void probed(once_t *once, once_answer_t *answer, void *data)
{
    once__serve_t *serve = data;

    (void)once;
    serve->probing = 0;
    once__serve_report_store(serve, once_answer_error(answer));
}

/* While the store fails: does it work again? Nobody may be asking for anything else. */
static void probe(once__serve_t *serve)
{
    static const uint8_t no_record[ONCE_ID_SIZE];

    if (serve->store_error != ONCE_OK && !serve->probing && !serve->stopping) {
        serve->probing = once_record_get(serve->once, no_record, probed, serve) == ONCE_OK;
    }
}

static void on_second(once__timer_t *timer)
{
    once__serve_t *serve = ONCE__CONTAINER(timer, once__serve_t, second_timer);

    (void)once__service_notify_turn();
    probe(serve);
    once__serve_http_tick(serve);
    once__timer_set(serve->loop, timer, once__loop_now(serve->loop) + 1000);
}

static void turn(once__serve_t *serve)
{
    int timeout = once__serve_http_timeout(serve);

    once__loop_turn(serve->loop, timeout);
    if (timeout >= 0) {
        once__serve_http_turn(serve);
    }
    if (serve->has_asked) {
        serve->has_asked = 0;
        (void)once_dispatch(serve->once);
    }
    if (serve->has_answers) {
        once__serve_http_turn(serve);
    }
}

static int run(once__serve_t *serve)
{
    while (!serve->aborted && (!serve->stopping || serve->requests != NULL)) {
        turn(serve);
        if (serve->stopping && once__loop_now(serve->loop) >= serve->stop_at) {
            serve->aborted = 1;
        }
    }
    return serve->requests != NULL ? ONCE__SERVE_ABORTED : ONCE__SERVE_ENDED;
}

/* ------------------------------------------------------------------------------------------------------------------ start */

/* A descriptor for each connection. */
static int raise_limit(size_t connections, char *error, size_t size)
{
    struct rlimit limit;
    rlim_t wanted = connections + SPARE_FILES;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) {
        return 0;
    }
    if (limit.rlim_max >= wanted) {
        limit.rlim_cur = wanted;
    }
    if (limit.rlim_cur < wanted || setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        (void)snprintf(error, size,
                       "--connections %zu needs %zu open files, and this process may have %llu: "
                       "raise the limit (ulimit -n) or serve fewer",
                       connections, connections + SPARE_FILES, (unsigned long long)limit.rlim_max);
        return -1;
    }
    return 0;
}

static int watch(once__serve_t *serve, once__source_t *source, int fd,
                 void (*ready)(once__source_t *source, uint32_t events))
{
    source->ready = ready;
    return fd >= 0 ? once__source_set(serve->loop, source, fd, EPOLLIN) : -1;
}

/* Returns 0, or -1 if memory, descriptors or random bytes are short. The loop is entered for good. */
static int make_parts(once__serve_t *serve)
{
    const once__env_t *env = &once__real_env;
    int code;

    serve->loop = once__loop_new(env, &code);
    if (serve->loop == NULL) {
        return -1;
    }
    once__loop_enter(serve->loop);
    return once__timers_reserve(serve->loop) != 0 || once__hash_init(&serve->kept, KEPT_MAX) != 0 ||
                   once__hash_init(&serve->waiting, serve->settings->connections) != 0 ||
                   env->random(env->data, &serve->seed, sizeof(serve->seed)) != 0 ||
                   once__serve_counters_start(&serve->counters) != 0
               ? -1
               : 0;
}

static int open_door(once__serve_t *serve, char *error, size_t size)
{
    const once__serve_settings_t *set = serve->settings;
    int code = raise_limit(set->connections, error, size);

    if (code != 0) {
        return ONCE__SERVE_WRONG;
    }
    code = once__serve_listen(&serve->listener, set->listen, set->socket_mode, error, size);
    if (code != 0) {
        return code == -1 ? ONCE__SERVE_WRONG : ONCE__SERVE_FAILED;
    }
    if (!serve->listener.is_unix && set->token_file == NULL) {
        (void)snprintf(error, size,
                       "--listen %.100s needs --token-file FILE: every user of this machine can "
                       "connect to a port",
                       set->listen);
        return ONCE__SERVE_WRONG;
    }
    if (!serve->listener.is_unix &&
        (once__serve_token_make(set->token_file, error, size) != 0 ||
         once__serve_token_read(set->token_file, serve->token, error, size) != 0)) {
        return ONCE__SERVE_FAILED;
    }
    return ONCE__SERVE_ENDED;
}

static int start(once__serve_t *serve, char *error, size_t size)
{
    int end;

    if (make_parts(serve) != 0) {
        (void)snprintf(error, size, "out of memory or of descriptors");
        return ONCE__SERVE_FAILED;
    }
    end = open_door(serve, error, size);
    if (end != ONCE__SERVE_ENDED) {
        return end;
    }
    if (serve->settings->metrics != NULL &&
        once__service_metrics_serve(serve->counters.metrics, serve->settings->metrics, error,
                                    size) != 0) {
        return ONCE__SERVE_FAILED;
    }
    serve->second_timer.fire = on_second;
    if (watch(serve, &serve->daemon_source, once__serve_http_start(serve), on_daemon) != 0 ||
        watch(serve, &serve->once_source, once_fd(serve->once), on_once) != 0 ||
        watch(serve, &serve->signals_source, serve->settings->signals, on_signal) != 0) {
        (void)snprintf(error, size, "the event loop cannot be set up");
        return ONCE__SERVE_FAILED;
    }
    once__timer_set(serve->loop, &serve->second_timer, once__loop_now(serve->loop));
    once__service_metrics_health(serve->counters.metrics, 1);
    return ONCE__SERVE_ENDED;
}

/* The store may call back until the handle is closed: requests, and the loop with their timers, live until then. */
static int finish(once__serve_t *serve, int end)
{
    serve->stopping = 1;
    if (serve->daemon != NULL) {
        if (serve->listener.fd >= 0) {
            once__serve_http_quiesce(serve);
        }
        once__serve_http_abort(serve);
        once__serve_http_stop(serve);
    }
    once__serve_listener_close(&serve->listener);
    if (once_close(serve->once, CLOSE_MS) != ONCE_OK && end == ONCE__SERVE_ENDED) {
        end = ONCE__SERVE_ABORTED;
    }
    if (end == ONCE__SERVE_ABORTED) {
        once__serve_report(serve, 1,
                           "some requests in flight were not finished: ask again, with the same "
                           "claim or claim_id");
    }
    once__service_metrics_free(serve->counters.metrics);
    once__hash_free(&serve->kept);
    once__hash_free(&serve->waiting);
    once__loop_free(serve->loop);
    explicit_bzero(serve->token, sizeof(serve->token));
    return end;
}

int once__serve_run(const once__serve_settings_t *settings, once_t *once,
                    const once__service_log_t *log, char *error, size_t size)
{
    once__serve_t *serve = calloc(1, sizeof(*serve));
    int end;

    if (serve == NULL) {
        (void)snprintf(error, size, "out of memory");
        (void)once_close(once, 0);
        return ONCE__SERVE_FAILED;
    }
    serve->settings = settings;
    serve->once = once;
    serve->log = log;
    serve->listener.fd = -1;
    srandom((unsigned)getpid() ^ (unsigned)time(NULL));
    end = start(serve, error, size);
    if (end == ONCE__SERVE_ENDED) {
        once__service_log(
            log, ONCE__SERVICE_LOG_INFO, "listening",
            ONCE__SERVICE_FIELDS(once__service_field_text("address", serve->listener.shown),
                                 once__service_field_text("store", settings->store)));
        end = run(serve);
    }
    end = finish(serve, end);
    free(serve);
    return end;
}
