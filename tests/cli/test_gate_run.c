/*
 * `once gate` with the real nginx, the module, and a backend that counts what it does.
 */
#include "gateway.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define PAYMENT "{\"amount\": 4200}"

static int make(void **state)
{
    gateway_t *gateway = calloc(1, sizeof(*gateway));

    assert_non_null(gateway);
    gateway_make(gateway);
    *state = gateway;
    return 0;
}

static int unmake(void **state)
{
    gateway_t *gateway = *state;

    gateway_remove(gateway);
    free(gateway);
    return 0;
}

static void first_replay_mismatch(void **state)
{
    gateway_t *g = *state;
    reply_t first, again, other, missing, passed;

    gateway_start(g, NULL, NULL);
    process_expect(&g->gate, "once gate: ready\n");
    assert_has(g->gate.text, "guarded  POST and PATCH of every path\n");
    assert_has(g->gate.text, "scope    the header Authorization where there is one");
    assert_has(g->gate.text, g->place.store);
    first = request(g->port, "/payments", "order-1", PAYMENT);
    again = request(g->port, "/payments", "\"order-1\"", PAYMENT);
    other = request(g->port, "/payments", "order-1", "{\"amount\": 9900}");
    missing = request(g->port, "/payments", NULL, PAYMENT);
    passed = request(g->port, "/executions", NULL, NULL);

    assert_int_equal(first.status, 201);
    assert_has(first.text, "\"pay_1\"");
    assert_lacks(first.text, "Idempotent-Replayed");
    assert_int_equal(again.status, 201);
    assert_has(again.text, "\"pay_1\"");
    assert_has(again.text, "Idempotent-Replayed: true\r\n");
    assert_int_equal(other.status, 422);
    assert_has(other.text, "application/problem+json");
    assert_int_equal(missing.status, 400);
    assert_int_equal(passed.status, 200);
    assert_has(passed.text, "{\"executions\":1}");
    process_expect(&g->gate, "once=run key=\"order-1\"");
    process_expect(&g->gate, "once=replay key=\"order-1\"");
    gateway_stop(g, SIGTERM, 0);
    assert_int_equal(executions(g), 1);
}

/* What was answered before is answered by the next gate on the same store. */
static void the_store_remembers(void **state)
{
    gateway_t *g = *state;
    reply_t reply;

    gateway_start(g, NULL, NULL);
    process_expect(&g->gate, "once gate: ready\n");
    assert_int_equal(request(g->port, "/payments", "order-1", PAYMENT).status, 201);
    gateway_stop(g, SIGQUIT, 0);
    gateway_start(g, "--workers", "2", NULL);
    process_expect(&g->gate, "once gate: ready\n");
    reply = request(g->port, "/payments", "order-1", PAYMENT);
    assert_int_equal(reply.status, 201);
    assert_has(reply.text, "Idempotent-Replayed: true");
    gateway_stop(g, SIGINT, 0);
    assert_int_equal(executions(g), 1);
}

static void routes_guard_what_they_name(void **state)
{
    gateway_t *g = *state;

    gateway_start(g, "--route", "POST /payments$ ttl=48h recover=hold wait=2s", "--route",
                  "POST,PATCH /orders require=off", "--set", "once_lease 20s", NULL);
    process_expect(&g->gate, "once gate: ready\n");
    assert_has(g->gate.text, "guarded  POST /payments\n");
    assert_has(g->gate.text, "guarded  POST,PATCH /orders...\n");
    assert_int_equal(request(g->port, "/payments", NULL, PAYMENT).status, 400);
    assert_int_equal(request(g->port, "/payments?x=1", NULL, PAYMENT).status, 400);
    assert_int_equal(request(g->port, "/payments/1", NULL, PAYMENT).status,
                     404); /* the backend's */
    assert_int_equal(request(g->port, "/orders", NULL, PAYMENT).status, 404);
    assert_int_equal(executions(g), 0);
    assert_int_equal(request(g->port, "/payments", "a", PAYMENT).status, 201);
    assert_has(request(g->port, "/payments", "a", PAYMENT).text, "Idempotent-Replayed");
    gateway_stop(g, SIGTERM, 0);
    assert_int_equal(executions(g), 1);
}

static void counters_are_shown(void **state)
{
    gateway_t *g = *state;
    char address[64];
    int port = free_port();
    reply_t reply;

    snprintf(address, sizeof(address), "127.0.0.1:%d", port);
    gateway_start(g, "--status", address, NULL);
    process_expect(&g->gate, "once gate: ready\n");
    assert_int_equal(request(g->port, "/payments", "a", PAYMENT).status, 201);
    reply = request(port, "/metrics", NULL, NULL);
    assert_int_equal(reply.status, 200);
    assert_has(reply.text, "outcome=\"run\"} 1\n");
    assert_int_equal(request(port, "/payments", "b", PAYMENT).status, 404);
    gateway_stop(g, SIGTERM, 0);
    assert_int_equal(executions(g), 1);
}

static void a_scope_that_is_missing_is_refused(void **state)
{
    gateway_t *g = *state;

    gateway_start(g, "--scope", "header:X-Tenant", NULL);
    process_expect(&g->gate, "scope    the header X-Tenant\n");
    process_expect(&g->gate, "once gate: ready\n");
    assert_int_equal(request(g->port, "/payments", "a", PAYMENT).status, 400);
    assert_int_equal(request(g->port, "/payments", "a\r\nX-Tenant: 7", PAYMENT).status, 201);
    assert_int_equal(request(g->port, "/payments", "a\r\nX-Tenant: 8", PAYMENT).status, 201);
    gateway_stop(g, SIGTERM, 0);
    assert_int_equal(executions(g), 2);
}

/* INT and QUIT let the request that is there end; its answer is sent and recorded. */
static void ending_waits_for_requests(void **state)
{
    static const int signals[] = {SIGQUIT, SIGINT};
    gateway_t *g = *state;

    for (int i = 0; i < 2; i++) {
        const char *key = i == 0 ? "slow-0" : "slow-1";
        reply_t reply;
        int fd;
        gateway_start(g, NULL, NULL);
        process_expect(&g->gate, "once gate: ready\n");
        fd = request_send(g->port, "/payments?delay=700", key, PAYMENT);
        process_expect(&g->backend, key); /* it has been forwarded */
        assert_int_equal(kill(g->gate.pid, signals[i]), 0);
        reply = request_receive(fd);
        assert_int_equal(reply.status, 201);
        gateway_stop(g, 0, 0);
    }
    gateway_start(g, NULL, NULL);
    process_expect(&g->gate, "once gate: ready\n");
    assert_has(request(g->port, "/payments?delay=700", "slow-1", PAYMENT).text,
               "Idempotent-Replayed");
    gateway_stop(g, SIGTERM, 0);
    assert_int_equal(executions(g), 2);
}

/* The second INT does not wait, and neither does TERM: what was forwarded is in doubt, and is not forwarded again under hold. */
static void ending_at_once(void **state)
{
    gateway_t *g = *state;
    reply_t reply;
    int fd;

    gateway_start(g, "--set", "once_recover hold", NULL);
    process_expect(&g->gate, "once gate: ready\n");
    fd = request_send(g->port, "/payments?delay=60000", "slow", PAYMENT);
    process_expect(&g->backend, "key slow");
    assert_int_equal(kill(g->gate.pid, SIGINT), 0);
    process_expect(&g->gate, "once gate: ending as soon as");
    gateway_stop(g, SIGINT, 0);
    close(fd);
    gateway_start(g, "--set", "once_recover hold", NULL);
    process_expect(&g->gate, "once gate: ready\n");
    reply = request(g->port, "/payments?delay=60000", "slow", PAYMENT);
    assert_int_equal(reply.status, 409);
    gateway_stop(g, SIGTERM, 0);
    assert_int_equal(executions(g), 1);
}

/* HUP starts new workers and loses nothing. */
static void reloading_keeps_serving(void **state)
{
    gateway_t *g = *state;
    reply_t reply;
    int fd;

    gateway_start(g, "--set", "error_log stderr notice", NULL);
    process_expect(&g->gate, "once gate: ready\n");
    assert_int_equal(request(g->port, "/payments", "before", PAYMENT).status, 201);
    fd = request_send(g->port, "/payments?delay=500", "during", PAYMENT);
    process_expect(&g->backend, "key during");
    assert_int_equal(kill(g->gate.pid, SIGHUP), 0);
    reply = request_receive(fd);
    assert_int_equal(reply.status, 201);
    assert_has(request(g->port, "/payments", "before", PAYMENT).text, "Idempotent-Replayed");
    assert_int_equal(request(g->port, "/payments", "after", PAYMENT).status, 201);
    gateway_stop(g, SIGTERM, 0);
    assert_int_equal(executions(g), 3);
}

/* nginx does not outlive a gate that is killed, and the next one can listen there. */
static void a_killed_gate_takes_nginx_along(void **state)
{
    gateway_t *g = *state;

    gateway_start(g, NULL, NULL);
    process_expect(&g->gate, "once gate: ready\n");
    kill(g->gate.pid, SIGKILL);
    assert_int_equal(process_wait(&g->gate), -SIGKILL);
    while (is_answered(g->port)) { /* until the system has ended it */
    }
    gateway_start(g, NULL, NULL);
    process_expect(&g->gate, "once gate: ready\n");
    assert_int_equal(request(g->port, "/payments", "a", PAYMENT).status, 201);
    kill(g->gate.pid, SIGTERM);
    assert_int_equal(process_wait(&g->gate), 0);
}

static void a_taken_address_is_told(void **state)
{
    gateway_t *g = *state;
    gateway_t other = *g;

    gateway_start(g, NULL, NULL);
    process_expect(&g->gate, "once gate: ready\n");
    gateway_start(&other, NULL, NULL);
    assert_int_equal(process_wait(&other.gate), ONCE__CLI_STORE);
    assert_has(other.gate.text, "another program does; choose another address");
    assert_has(other.gate.text, g->listen);
    assert_lacks(other.gate.text, "ready");
    assert_int_equal(request(g->port, "/payments", "a", PAYMENT).status, 201);
    gateway_stop(g, SIGTERM, 0);
}

static void a_store_that_cannot_be_opened_is_told(void **state)
{
    static const char *const urls[] = {"local:/dev/null", "local:/no/such/place", "nowhere:"};
    gateway_t *g = *state;

    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        int code;
        gateway_start(g, "--store", urls[i], NULL);
        code = process_wait(&g->gate);
        assert_true(code == ONCE__CLI_STORE || code == ONCE__CLI_USAGE);
        assert_has(g->gate.text, "cannot open the store: ");
        assert_int_equal(count_lines(g->gate.text), 1);
        assert_int_equal(count_names(g->scratch), 0);
    }
}

static void what_nginx_refuses_is_told(void **state)
{
    static const char *const directives[][2] = {
        {"once_waat 5s", "unknown directive \"once_waat\""},
        {"once_wait never", "once_wait"},
        {"proxy_next_upstream non_idempotent", "non_idempotent"},
    };
    gateway_t *g = *state;

    for (size_t i = 0; i < sizeof(directives) / sizeof(directives[0]); i++) {
        gateway_start(g, "--set", directives[i][0], NULL);
        assert_int_equal(process_wait(&g->gate), ONCE__CLI_USAGE);
        assert_has(g->gate.text, "nginx does not accept the configuration");
        assert_has(g->gate.text, directives[i][1]);
        assert_lacks(g->gate.text, "/nginx.conf");
        assert_int_equal(count_names(g->scratch), 0);
    }
}

/* A module that is none is told, not logged. */
static void a_wrong_module_is_told(void **state)
{
    gateway_t *g = *state;

    gateway_start(g, "--module", "/dev/null", NULL);
    assert_int_equal(process_wait(&g->gate), ONCE__CLI_USAGE);
    assert_has(g->gate.text, "nginx does not accept the configuration");
    assert_int_equal(count_names(g->scratch), 0);
}

static void sockets_of_the_file_system(void **state)
{
    gateway_t *g = *state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat st;
    int fd;

    snprintf(g->listen, sizeof(g->listen), "unix:%s/s", g->place.top);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", g->listen + 5);
    for (int i = 0; i < 2; i++) { /* the second finds what the first, killed, has left */
        gateway_start(g, NULL, NULL);
        process_expect(&g->gate, "once gate: ready\n");
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(write(fd, "GET /executions HTTP/1.0\r\n\r\n", 28), 28);
        assert_int_equal(request_receive(fd).status, 200);
        if (i == 0) {
            kill(g->gate.pid, SIGKILL);
            process_wait(&g->gate);
            fd = socket(AF_UNIX, SOCK_STREAM, 0);
            while (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0) {
                close(fd); /* until nginx has ended */
                fd = socket(AF_UNIX, SOCK_STREAM, 0);
            }
            close(fd);
        }
    }
    kill(g->gate.pid, SIGTERM);
    assert_int_equal(process_wait(&g->gate), 0);
    assert_int_not_equal(stat(address.sun_path, &st), 0);
}

int main(void)
{
#define WITH_GATEWAY(test) cmocka_unit_test_setup_teardown(test, make, unmake)
    const struct CMUnitTest tests[] = {
        WITH_GATEWAY(first_replay_mismatch),
        WITH_GATEWAY(the_store_remembers),
        WITH_GATEWAY(routes_guard_what_they_name),
        WITH_GATEWAY(counters_are_shown),
        WITH_GATEWAY(a_scope_that_is_missing_is_refused),
        WITH_GATEWAY(ending_waits_for_requests),
        WITH_GATEWAY(ending_at_once),
        WITH_GATEWAY(reloading_keeps_serving),
        WITH_GATEWAY(a_killed_gate_takes_nginx_along),
        WITH_GATEWAY(a_taken_address_is_told),
        WITH_GATEWAY(a_store_that_cannot_be_opened_is_told),
        WITH_GATEWAY(what_nginx_refuses_is_told),
        WITH_GATEWAY(a_wrong_module_is_told),
        WITH_GATEWAY(sockets_of_the_file_system),
    };
    unsetenv("ONCE_STORE");
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
