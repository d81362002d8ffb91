/*
 * `once gate` with the real nginx, the module, and a backend that counts what it does.
 */
#include "gateway.h"

#include <arpa/inet.h>
#include <glob.h>
#include <netinet/in.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define PAYMENT "{\"amount\": 4200}"

/* What a command prints. */
static const char *output_of(const char *command)
{
    static char text[4096];
    FILE *pipe = popen(command, "r");

    assert_non_null(pipe);
    text[fread(text, 1, sizeof(text) - 1, pipe)] = '\0';
    pclose(pipe);
    return text;
}

static void first_replay_mismatch(void **state)
{
    gateway_t *g = *state;
    reply_t first, again, other, missing, passed;

    gateway_start(g, NULL, NULL);
    process_expect(&g->gate, "once gate: ready\n");
    assert_has(g->gate.text, "guarded  POST and PATCH on every path\n");
    assert_has(g->gate.text, "scope    the header Authorization\n");
    assert_has(g->gate.text, "           (requests without it get 400; if tokens rotate");
    assert_has(g->gate.text,
               "recover=retry: if a response is lost, a retry runs the operation again");
    assert_lacks(g->gate.text, "does not accept connections yet");
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
    assert_has(g->gate.text, "guarded  POST /payments\n           recover=hold: ");
    assert_has(g->gate.text, "guarded  POST,PATCH /orders...\n           recover=retry: ");
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
    assert_has(reply.text, "\nonce_build_info{program=\"gate\",version=");
    reply = request(port, "/health", NULL, NULL);
    assert_int_equal(reply.status, 200);
    assert_has(reply.text, "\r\n\r\nok\n");
    for (int i = 0; i < 300 && request(port, "/ready", NULL, NULL).status != 200; i++) {
        usleep(100000); /* until the store has been asked */
    }
    assert_has(request(port, "/ready", NULL, NULL).text, "\r\n\r\nok\n");
    assert_has(request(port, "/metrics", NULL, NULL).text, "\nonce_store_up{store=");
    assert_int_equal(request(port, "/payments", "b", PAYMENT).status, 404);
    assert_has(request(port, "/", NULL, NULL).text, "\r\n\r\n/metrics, /health, /ready\n");
    gateway_stop(g, SIGTERM, 0);
    assert_int_equal(executions(g), 1);
}

/* The next line that has this message and this member (NULL: any). Each line up to it is JSON of the same shape. */
static json_t *logged(const char **at, const char *message, const char *member, const char *value)
{
    static const char *const members[] = {"time", "level", "program", "message"};

    for (;;) {
        const char *newline = strchr(*at, '\n');
        json_t *line;
        assert_non_null(newline);
        line = json_loadb(*at, (size_t)(newline - *at), 0, NULL);
        if (line == NULL) {
            fail_msg("not JSON: %.*s", (int)(newline - *at), *at);
        }
        for (size_t i = 0; i < 4; i++) {
            assert_true(json_is_string(json_object_get(line, members[i])));
        }
        assert_string_equal(json_string_value(json_object_get(line, "program")), "gate");
        assert_int_equal(strlen(json_string_value(json_object_get(line, "time"))), 24);
        *at = newline + 1;
        if (strstr(json_string_value(json_object_get(line, "message")), message) != NULL &&
            (member == NULL ||
             strcmp(json_string_value(json_object_get(line, member)), value) == 0)) {
            return line;
        }
        json_decref(line);
    }
}

/* Also what nginx itself reports; whatever clients send, and without their queries. */
static void the_log_is_json(void **state)
{
    gateway_t *g = *state;
    const char *at = g->gate.text, *ready;
    json_t *line;

    gateway_start(g, "--log-json", NULL);
    process_expect(&g->gate, "\"message\":\"ready\"}\n");
    assert_int_equal(request(g->port, "/payments", "a \\\"b", PAYMENT).status, 201);
    request(g->port, "/x%ff%22%0a%7b%22time%22?token=secret-token", NULL, NULL);
    request(g->port, "/payments?then=close&token=secret-token", "c", PAYMENT);
    gateway_stop(g, SIGQUIT, 0);

    json_decref(logged(&at, "started", "upstream", g->upstream));
    json_decref(logged(&at, "ready", NULL, NULL));
    ready = at;
    line = logged(&at, "request", "outcome", "run");
    assert_string_equal(json_string_value(json_object_get(line, "idempotency_key")), "a \\\"b");
    assert_string_equal(json_string_value(json_object_get(line, "method")), "POST");
    assert_int_equal(json_integer_value(json_object_get(line, "status")), 201);
    assert_int_equal(json_integer_value(json_object_get(line, "epoch")), 1);
    assert_true(json_is_real(json_object_get(line, "seconds")));
    json_decref(line);
    line = logged(&at, "request", "path", "/x\xef\xbf\xbd\"\n{\"time\"");
    assert_true(json_is_null(json_object_get(line, "epoch")));
    json_decref(line);
    at = ready; /* two pipes: the access log and the error log have no common order */
    line = logged(&at, "upstream prematurely closed", "level", "error");
    assert_true(json_integer_value(json_object_get(line, "process")) > 1);
    assert_has(json_string_value(json_object_get(line, "context")),
               "request: \"POST /payments HTTP/1.1\"");
    json_decref(line);
    at = ready;
    json_decref(logged(&at, "stopping as soon as", "level", "info"));
    while (*at != '\0') {
        json_decref(logged(&at, "", NULL, NULL));
    }
    assert_lacks(g->gate.text, "secret-token");
    assert_int_equal(executions(g), 2);
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

static void a_taken_address_is_told(void **state)
{
    gateway_t *g = *state;
    gateway_t other = *g;

    gateway_start(g, NULL, NULL);
    process_expect(&g->gate, "once gate: ready\n");
    gateway_start(&other, NULL, NULL);
    assert_int_equal(process_wait(&other.gate), ONCE__CLI_STORE);
    assert_has(other.gate.text, "it is already in use by another program");
    assert_has(other.gate.text, g->listen);
    assert_lacks(other.gate.text, "once gate: ready");
    assert_int_equal(request(g->port, "/payments", "a", PAYMENT).status, 201);
    gateway_stop(g, SIGTERM, 0);
}

static void a_file_in_place_of_a_socket_is_told_and_left(void **state)
{
    gateway_t *g = *state;
    const char *path = g->listen + strlen("unix:");
    struct stat st;

    snprintf(g->listen, sizeof(g->listen), "unix:%s/s", g->place.top);
    write_text(path, "precious");
    gateway_start(g, NULL, NULL);
    assert_int_equal(process_wait(&g->gate), ONCE__CLI_STORE);
    assert_has(g->gate.text, "a file that is not a socket has this name");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 8);
}

/* As an outgoing connection does: there is no listener. */
static void an_address_in_use_without_a_listener_is_told(void **state)
{
    gateway_t *g = *state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)g->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    gateway_start(g, NULL, NULL);
    assert_int_equal(process_wait(&g->gate), ONCE__CLI_STORE);
    assert_has(g->gate.text, "it is already in use, perhaps by an outgoing connection");
    close(fd);
}

/* The user ids of the processes that serve: the children of nginx's master, which is the gate's child. */
static int uid_of_worker(const gateway_t *g)
{
    char command[256];
    int uid = -1;

    snprintf(command, sizeof(command),
             "awk '/^Uid:/ { print $2 == $3 && $3 == $4 && $4 == $5 ? $2 : -2 }' "
             "/proc/$(pgrep -P $(pgrep -P %d -x nginx) -x nginx)/status",
             (int)g->gate.pid);
    assert_int_equal(sscanf(output_of(command), "%d", &uid), 1);
    return uid;
}

/* What parses the requests of strangers is not root's, nor is the store. */
static void workers_are_not_root(void **state)
{
    gateway_t *g = *state;
    const struct passwd *expected = geteuid() == 0 ? getpwnam(WORKERS) : getpwuid(geteuid());
    struct stat st;

    assert_non_null(expected);
    gateway_start(g, NULL, NULL);
    process_expect(&g->gate, "once gate: ready\n");
    assert_int_equal(strstr(g->gate.text, "  user     " WORKERS "\n") != NULL, geteuid() == 0);
    assert_int_equal(uid_of_worker(g), expected->pw_uid);
    assert_int_equal(request(g->port, "/payments", "a", PAYMENT).status, 201);
    assert_int_equal(stat(g->place.store, &st), 0);
    assert_int_equal(st.st_uid, expected->pw_uid);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(stat(inside(&g->place, "segments"), &st), 0);
    assert_int_equal(st.st_uid, expected->pw_uid);
    gateway_stop(g, SIGTERM, 0);
}

/* A body that does not fit into memory is written to nginx's directory by the workers. */
static void workers_reach_their_directory(void **state)
{
    gateway_t *g = *state;
    char body[1500];

    memset(body, ' ', sizeof(body));
    memcpy(body, PAYMENT, strlen(PAYMENT));
    body[sizeof(body) - 1] = '\0';
    gateway_start(g, "--set", "client_body_in_file_only clean", NULL);
    process_expect(&g->gate, "once gate: ready\n");
    assert_int_equal(request(g->port, "/payments", "a", body).status, 201);
    gateway_stop(g, SIGTERM, 0);
}

/* Where there is no default user for root's workers, root must name one. */
static void root_must_name_a_user(void **state)
{
    gateway_t *g = *state;
    int root = geteuid() == 0;

    gateway_start(g, "--user", "root", NULL);
    assert_int_equal(process_wait(&g->gate), ONCE__CLI_USAGE);
    assert_has(g->gate.text,
               root ? "--user must not be root" : "only root can run workers as another");
    gateway_start(g, "--user", "no-such-account", NULL);
    assert_int_equal(process_wait(&g->gate), ONCE__CLI_USAGE);
    assert_has(g->gate.text, "unknown user \"no-such-account\"");
    if (root && getpwnam("once") == NULL) {
        run_t r = run("gate", "--upstream", g->upstream, "--listen", g->listen, "--store",
                      g->place.url, "--module", MODULE, "--nginx", NGINX, NULL);
        assert_run(r, ONCE__CLI_USAGE);
        assert_has(r.err, "started by root, it needs a user");
        assert_has(r.err, "--user NAME");
        run_free(&r);
    }
}

/* A store that its workers cannot reach is reported before anything is served, and nothing is left of it. */
static void a_store_that_workers_cannot_reach_is_told(void **state)
{
    gateway_t *g = *state;
    struct stat st;

    if (geteuid() != 0) {
        return; /* then there is one user only */
    }
    assert_int_equal(chmod(g->place.top, 0700), 0);
    gateway_start(g, NULL, NULL);
    assert_int_equal(process_wait(&g->gate), ONCE__CLI_STORE);
    assert_has(g->gate.text, "cannot open the store: ");
    assert_has(g->gate.text, "requests are served as " WORKERS ", which must be able to write");
    assert_int_not_equal(stat(g->place.store, &st), 0);
}

/* Nobody else's key can be read, probed or blocked by a caller without credentials, or with others. */
static void strangers_have_keys_of_their_own(void **state)
{
    gateway_t *g = *state;
    static const struct {
        const char *headers;
        const char *body;
        int expected;
    } strangers[] = {
        {"Idempotency-Key: order-1\r\n", PAYMENT, 400},
        {"Idempotency-Key: order-1\r\nAuthorization: Bearer mallory\r\n", PAYMENT, 201},
        {"Idempotency-Key: order-2\r\n", "{}", 400},
    };

    gateway_start(g, NULL, NULL);
    process_expect(&g->gate, "once gate: ready\n");
    assert_int_equal(request(g->port, "/payments", "order-1", PAYMENT).status, 201);
    for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++) {
        char text[512];
        reply_t reply;
        snprintf(text, sizeof(text),
                 "POST /payments HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n%sContent-Length: "
                 "%zu\r\n\r\n%s",
                 strangers[i].headers, strlen(strangers[i].body), strangers[i].body);
        reply = request_receive(raw_send(g->port, text));
        assert_int_equal(reply.status, strangers[i].expected);
        assert_lacks(reply.text, "pay_1");
        assert_lacks(reply.text, "Idempotent-Replayed");
    }
    assert_int_equal(request(g->port, "/payments", "order-2", PAYMENT).status, 201);
    gateway_stop(g, SIGTERM, 0);
    assert_int_equal(executions(g), 3);
}

/* A backend that is down is a 502 for every client: the gate says so when it starts. */
static void a_backend_that_is_down_is_told(void **state)
{
    gateway_t *g = *state;

    gateway_start(g, "--upstream", "127.0.0.1:1", NULL);
    process_expect(&g->gate, "once gate: ready\n");
    assert_has(g->gate.text,
               "  backend  does not accept connections yet: requests get 502 until it does\n");
    gateway_stop(g, SIGTERM, 0);
}

/* Where no store can be, the URL is wrong. */
static void a_store_that_cannot_be_opened_is_told(void **state)
{
    gateway_t *g = *state;
    char misspelt[320];
    const char *const urls[] = {"local:/dev/null", "local:/no/such/place",
                                "nowhere:", "local:", misspelt};

    snprintf(misspelt, sizeof(misspelt), "%s?segmant=1m", g->place.url);

    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        gateway_start(g, "--store", urls[i], NULL);
        assert_int_equal(process_wait(&g->gate), ONCE__CLI_USAGE);
        assert_has(g->gate.text, "cannot open the store: ");
        assert_int_equal(count_lines(g->gate.text), 1);
        assert_int_equal(count_names(g->scratch), 0);
    }
}

/* At a bound of the store new keys are refused, and no others. */
static void a_store_has_bounds(void **state)
{
    gateway_t *g = *state;
    char url[320];
    reply_t reply;

    snprintf(url, sizeof(url), "%s?max_records=2&max_bytes=64m", g->place.url);
    gateway_start(g, "--store", url, NULL);
    process_expect(&g->gate, "once gate: ready\n");
    assert_int_equal(request(g->port, "/payments", "a", PAYMENT).status, 201);
    assert_int_equal(request(g->port, "/payments", "b", PAYMENT).status, 201);
    reply = request(g->port, "/payments", "c", PAYMENT);
    assert_int_equal(reply.status, 503);
    assert_has(reply.text, "urn:once:problem:store-unavailable");
    assert_has(request(g->port, "/payments", "a", PAYMENT).text, "Idempotent-Replayed");
    process_expect(&g->gate, "is full: it has 2 records (max_records=2");
    gateway_stop(g, SIGTERM, 0);
    assert_int_equal(executions(g), 2);
}

static void a_store_that_does_not_answer_is_told(void **state)
{
    gateway_t *g = *state;

    gateway_start(g, "--store", "redis://127.0.0.1:1?store_timeout=100ms", NULL);
    assert_int_equal(process_wait(&g->gate), ONCE__CLI_STORE);
    assert_has(g->gate.text, "cannot use the store: ");
    assert_lacks(g->gate.text, "ready");
    assert_int_equal(count_names(g->scratch), 0);
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
        assert_has(g->gate.text, "nginx rejects the configuration");
        assert_has(g->gate.text, directives[i][1]);
        assert_lacks(g->gate.text, "/nginx.conf");
        assert_int_equal(count_names(g->scratch), 0);
    }
}

/* A file that is not a module is an error message, not a line of the log. */
static void a_wrong_module_is_told(void **state)
{
    gateway_t *g = *state;

    gateway_start(g, "--module", "/dev/null", NULL);
    assert_int_equal(process_wait(&g->gate), ONCE__CLI_USAGE);
    assert_has(g->gate.text, "nginx rejects the configuration");
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
        gateway_start(g, "--socket-mode", i == 0 ? "0600" : "0660", NULL);
        process_expect(&g->gate, "once gate: ready\n");
        assert_int_equal(stat(address.sun_path, &st), 0);
        assert_int_equal(st.st_mode & 0777, i == 0 ? 0600 : 0660);
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

static void make_certificate(const gateway_t *g, const char *name)
{
    char command[512];

    snprintf(command, sizeof(command),
             "cd %s && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "
             "-subj /CN=%s -days 2 -keyout key.pem -out cert.pem 2>/dev/null",
             g->place.top, name);
    assert_int_equal(system(command), 0);
}

static const char *pay_with_curl(const gateway_t *g, const char *version)
{
    char command[512];

    snprintf(command, sizeof(command),
             "curl -sk --max-time 20 -w '%%{http_code} HTTP/%%{http_version}' %s "
             "-H 'Idempotency-Key: a' -H 'Authorization: Bearer alice' -d '{\"amount\": 1}' "
             "https://127.0.0.1:%d/payments",
             version, g->port);
    return output_of(command);
}

static const char *certificate_of(const gateway_t *g)
{
    char command[128];

    snprintf(command, sizeof(command),
             "openssl s_client -connect 127.0.0.1:%d </dev/null 2>/dev/null", g->port);
    return output_of(command);
}

/* Both versions of HTTP; HUP reads the certificate again. */
static void tls(void **state)
{
    gateway_t *g = *state;
    char cert[128], key[128];
    int tries = 0;

    make_certificate(g, "first");
    snprintf(cert, sizeof(cert), "%s/cert.pem", g->place.top);
    snprintf(key, sizeof(key), "%s/key.pem", g->place.top);
    gateway_start(g, "--tls-cert", cert, "--tls-key", key, NULL);
    process_expect(&g->gate, "once gate: ready\n");
    assert_has(g->gate.text, "https://127.0.0.1:");
    assert_has(pay_with_curl(g, "--http2"), "201 HTTP/2");
    assert_has(pay_with_curl(g, "--http1.1"), "201 HTTP/1.1");
    assert_has(certificate_of(g), "CN = first");
    make_certificate(g, "second");
    assert_int_equal(kill(g->gate.pid, SIGHUP), 0);
    while (strstr(certificate_of(g), "CN = second") == NULL) {
        assert_true(tries++ < 300);
    }
    gateway_stop(g, SIGTERM, 0);
    assert_int_equal(executions(g), 1);
}

/* A backend without a trusted certificate gets no request, and no credential. */
static void the_certificate_of_the_backend_is_checked(void **state)
{
    gateway_t *g = *state;
    gateway_t front = *g;
    char cert[128], key[128], upstream[64];

    make_certificate(g, "localhost");
    snprintf(cert, sizeof(cert), "%s/cert.pem", g->place.top);
    snprintf(key, sizeof(key), "%s/key.pem", g->place.top);
    gateway_start(g, "--tls-cert", cert, "--tls-key", key, "--store", "memory:", NULL);
    process_expect(&g->gate, "once gate: ready\n");
    snprintf(upstream, sizeof(upstream), "https://localhost:%d", g->port);
    for (int trusted = 0; trusted < 2; trusted++) {
        front.port = free_port();
        snprintf(front.listen, sizeof(front.listen), "127.0.0.1:%d", front.port);
        gateway_start(&front, "--upstream", upstream, trusted ? "--upstream-ca" : NULL, cert, NULL);
        process_expect(&front.gate, "once gate: ready\n");
        assert_int_equal(request(front.port, "/payments", trusted ? "b" : "a", PAYMENT).status,
                         trusted ? 201 : 502);
        kill(front.gate.pid, SIGTERM);
        assert_int_equal(process_wait(&front.gate), 0);
        assert_int_equal(strstr(front.gate.text, "certificate verify error") != NULL, !trusted);
        assert_int_equal(executions(g), trusted);
    }
    gateway_stop(g, SIGTERM, 0);
}

/* The backend answers GET /executions to everybody and knows no /me: the one says yes, the other no. */
static void a_stored_answer_is_for_those_who_may_have_it(void **state)
{
    static const char *const asked[] = {"/executions", "/me"};
    gateway_t *g = *state;
    reply_t told;

    for (int refused = 0; refused < 2; refused++) {
        gateway_start(g, "--auth", asked[refused], NULL);
        process_expect(&g->gate, "before a stored response is sent\n");
        process_expect(&g->gate, "once gate: ready\n");
        if (!refused) {
            assert_int_equal(request(g->port, "/payments", "a", PAYMENT).status, 201);
        }
        told = request(g->port, "/payments", "a", PAYMENT);
        assert_int_equal(told.status, refused ? 404 : 201);
        assert_int_equal(strstr(told.text, "Idempotent-Replayed") != NULL, !refused);
        assert_has(request(g->port, "/payments", NULL, PAYMENT).text,
                   "Link: </once/problems#key-missing>; rel=\"describedby\"");
        kill(g->gate.pid, SIGTERM);
        assert_int_equal(process_wait(&g->gate), 0);
    }
    assert_int_equal(executions(g), 1);
}

/* How many files there are of this name, in which * stands for anything; those of the store's directory and beside it. */
static size_t count_beside(const gateway_t *g, const char *name)
{
    char pattern[512];
    glob_t found;
    size_t count;

    snprintf(pattern, sizeof(pattern), "{%s,%s}/%s", g->place.top, g->place.store, name);
    (void)glob(pattern, GLOB_BRACE, NULL, &found);
    count = found.gl_pathc;
    globfree(&found);
    return count;
}

/* The head of a request of alice's with a body of this length; the connection. */
static int announce(const gateway_t *g, const char *length)
{
    char text[512];

    snprintf(text, sizeof(text),
             "POST /payments HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer alice\r\n"
             "Idempotency-Key: large\r\nExpect: 100-continue\r\nContent-Length: %s\r\n\r\n",
             length);
    return raw_send(g->port, text);
}

static void begins_with(int fd, const char *line)
{
    char text[64] = "";

    assert_int_equal(recv(fd, text, strlen(line), MSG_WAITALL), strlen(line));
    assert_string_equal(text, line);
}

/* Bodies of unauthenticated clients fill neither the memory behind /tmp nor a disk. */
static void bodies_are_bounded_and_beside_the_store(void **state)
{
    gateway_t *g = *state;
    int fd;

    g->no_tmpdir = 1;
    gateway_start(g, "--set", "once_memory 64m", NULL);
    process_expect(&g->gate, "once gate: ready\n");
    assert_int_equal(count_beside(g, "once-gate-*/nginx.conf"), 1);
    assert_int_equal(count_beside(g, "once-gate-*/body"), 1);
    fd = announce(g, "1048576");
    begins_with(fd, "HTTP/1.1 100");
    close(fd);
    fd = announce(g, "1048577");
    begins_with(fd, "HTTP/1.1 413");
    close(fd);
    gateway_stop(g, SIGTERM, 0);
    assert_int_equal(count_beside(g, "once-gate-*"), 0);

    gateway_start(g, "--set", "client_max_body_size 2m", NULL);
    process_expect(&g->gate, "once gate: ready\n");
    fd = announce(g, "1048577");
    begins_with(fd, "HTTP/1.1 100");
    close(fd);
    gateway_stop(g, SIGTERM, 0);
    assert_int_equal(executions(g), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_GATEWAY(first_replay_mismatch),
        WITH_GATEWAY(the_store_remembers),
        WITH_GATEWAY(routes_guard_what_they_name),
        WITH_GATEWAY(counters_are_shown),
        WITH_GATEWAY(the_log_is_json),
        WITH_GATEWAY(a_scope_that_is_missing_is_refused),
        WITH_GATEWAY(a_taken_address_is_told),
        WITH_GATEWAY(a_file_in_place_of_a_socket_is_told_and_left),
        WITH_GATEWAY(an_address_in_use_without_a_listener_is_told),
        WITH_GATEWAY(bodies_are_bounded_and_beside_the_store),
        WITH_GATEWAY(workers_are_not_root),
        WITH_GATEWAY(workers_reach_their_directory),
        WITH_GATEWAY(root_must_name_a_user),
        WITH_GATEWAY(a_store_that_workers_cannot_reach_is_told),
        WITH_GATEWAY(strangers_have_keys_of_their_own),
        WITH_GATEWAY(a_backend_that_is_down_is_told),
        WITH_GATEWAY(a_store_that_cannot_be_opened_is_told),
        WITH_GATEWAY(a_store_has_bounds),
        WITH_GATEWAY(a_store_that_does_not_answer_is_told),
        WITH_GATEWAY(what_nginx_refuses_is_told),
        WITH_GATEWAY(a_wrong_module_is_told),
        WITH_GATEWAY(sockets_of_the_file_system),
        WITH_GATEWAY(tls),
        WITH_GATEWAY(a_stored_answer_is_for_those_who_may_have_it),
        WITH_GATEWAY(the_certificate_of_the_backend_is_checked),
    };
    unsetenv("ONCE_STORE");
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
