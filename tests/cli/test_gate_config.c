/*
 * Options in a file: what is read, what is refused, and a gate that reads it again.
 */
#include "gateway.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define PAYMENT "{\"amount\": 4200}"

static const char *file(const gateway_t *g, const char *name)
{
    static char path[100];

    snprintf(path, sizeof(path), "%s/%s", g->place.top, name);
    return path;
}

static void write_config(const gateway_t *g, const char *text)
{
    write_text(file(g, "gate.conf"), text);
}

/* A file says what a command line says. */
static void same_as_options(void **state)
{
    gateway_t *g = *state;
    run_t options = run("gate", "--upstream", "3000", "--module", "/dev/null", "--route",
                        "POST /payments recover=hold", "--route", "PATCH /orders/$ ttl=2h", "--set",
                        "once_wait 5s", "--log-json", "--print-config", NULL);
    run_t config;

    write_config(g, "# a gate for tests\n"
                    "\n"
                    "upstream 3000\n"
                    "  module\t/dev/null  \r\n"
                    "route  POST /payments recover=hold\n"
                    "route  PATCH /orders/$ ttl=2h\n"
                    "set once_wait 5s\n"
                    "log-json\n");
    config = run("gate", "--config", file(g, "gate.conf"), "--print-config", NULL);
    assert_run(options, ONCE__CLI_OK);
    assert_run(config, ONCE__CLI_OK);
    assert_string_equal(options.out, config.out);
    run_free(&options);
    run_free(&config);
}

/* What the command line says wins, wherever it stands; lists are joined. */
static void command_line_wins(void **state)
{
    gateway_t *g = *state;
    run_t r;

    write_config(g, "upstream 3000\nmodule /dev/null\nroute POST /a\n");
    r = run("gate", "--upstream", "4000", "--route", "POST /b", "-c", file(g, "gate.conf"),
            "--print-config", NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "127.0.0.1:4000");
    assert_lacks(r.out, "127.0.0.1:3000");
    assert_has(r.out, "/a");
    assert_has(r.out, "/b");
    run_free(&r);
}

static void mistakes(void **state)
{
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"upstraem 3000\n", "did you mean --upstream?"},
        {"upstream 3000\n\nrout POST /a\n", "that is line 3 of"},
        {"--upstream 3000\n", "line 1: write a name without dashes"},
        {"upstream=3000\n", "line 1: write a name without dashes"},
        {"log-json yes\n", "--log-json takes no value"},
        {"workers many\n", "--workers needs a whole number"},
        {"config other.conf\n", "line 1: a configuration does not read another one"},
        {"upstream 3000\nstore @/nowhere/at-all\n",
         "line 2: the file of this value cannot be read"},
        {"tls-key ${CREDENTIALS_DIRECTORY}/key\n", "CREDENTIALS_DIRECTORY is not set"},
    };
    gateway_t *g = *state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        run_t r;
        write_config(g, cases[i].text);
        r = run("gate", "--config", file(g, "gate.conf"), "--print-config", NULL);
        assert_true(r.code == ONCE__CLI_USAGE || r.code == ONCE__CLI_STORE);
        assert_has(r.err, cases[i].expected);
        run_free(&r);
    }
}

static void files_that_are_none(void **state)
{
    gateway_t *g = *state;
    run_t r = run("gate", "--config", file(g, "missing.conf"), NULL);

    assert_run(r, ONCE__CLI_STORE);
    assert_has(r.err, "missing.conf");
    run_free(&r);
    r = run("gate", "--config", "/", NULL);
    assert_run(r, ONCE__CLI_STORE);
    run_free(&r);
    r = run("gate", "--config", NULL);
    assert_run(r, ONCE__CLI_USAGE);
    assert_has(r.err, "--config needs a value");
    run_free(&r);
    r = run("gate", "--config", file(g, "missing.conf"), "--help", NULL); /* help always works */
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);
}

/* Passwords and keys come from files that systemd has put there. */
static void credentials(void **state)
{
    gateway_t *g = *state;
    run_t r;

    write_text(file(g, "store-url"), "postgres://once:pass%20word@127.0.0.1/shop\nnot this\n");
    write_text(file(g, "ca.pem"), "");
    assert_int_equal(setenv("CREDENTIALS_DIRECTORY", g->place.top, 1), 0);
    write_config(g, "upstream https://localhost\nmodule /dev/null\nstore @store-url\n"
                    "upstream-ca ${CREDENTIALS_DIRECTORY}/ca.pem\n");
    r = run("gate", "--config", file(g, "gate.conf"), "--print-config", NULL);
    unsetenv("CREDENTIALS_DIRECTORY");
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "postgres://once:pass%20word@127.0.0.1/shop");
    assert_has(r.out, file(g, "ca.pem"));
    run_free(&r);
}

/* Operands have the names of the usage. */
static void operands(void **state)
{
    gateway_t *g = *state;
    run_t r;

    write_config(g, "from nonsense://host/topic\nto http://127.0.0.1:1/\n");
    r = run("consume", "--config", file(g, "gate.conf"), NULL);
    assert_run(r, ONCE__CLI_USAGE);
    assert_lacks(r.err, "missing operand");
    assert_has(r.err, "kafka://");
    run_free(&r);
    write_config(g, "from a:b\nfrom c:d\n");
    r = run("relay", "--config", file(g, "gate.conf"), NULL);
    assert_run(r, ONCE__CLI_USAGE);
    assert_has(r.err, "line 2: this was given before");
    run_free(&r);
    write_config(g, "store memory:\nlisten nowhere\n");
    r = run("ui", "--config", file(g, "gate.conf"), NULL);
    assert_run(r, ONCE__CLI_STORE);
    assert_has(r.err, "not nowhere"); /* and not that the store is missing */
    run_free(&r);
}

static void checking(void **state)
{
    gateway_t *g = *state;
    run_t r;
    char text[512];

    snprintf(text, sizeof(text), "upstream 3000\nmodule %s\nnginx %s\nuser " WORKERS "\n", MODULE,
             NGINX);
    write_config(g, text);
    r = run("gate", "--config", file(g, "gate.conf"), "--check", "--store", g->place.url, NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "the configuration is good");
    assert_int_equal(access(g->place.store, F_OK), -1); /* nothing was made */
    run_free(&r);
    r = run("gate", "--config", file(g, "gate.conf"), "--check", "--set", "once_wait forever",
            "--store", g->place.url, NULL);
    assert_run(r, ONCE__CLI_USAGE);
    assert_has(r.err, "forever");
    run_free(&r);
}

static int status_of(const gateway_t *g, const char *target, const char *key)
{
    return request(g->port, target, key, PAYMENT).status;
}

/* HUP reads the file again. What is wrong with it, or needs a restart, changes nothing. */
static void reloading(void **state)
{
    gateway_t *g = *state;

    write_config(g, "route POST /payments\n");
    gateway_start(g, "--config", file(g, "gate.conf"), NULL);
    process_expect(&g->gate, "once gate: ready\n");
    assert_int_equal(status_of(g, "/payments", NULL), 400);
    assert_int_equal(status_of(g, "/payments", "before"), 201);

    write_config(g, "route POST /payments require=off\n");
    kill(g->gate.pid, SIGHUP);
    process_expect(&g->gate, "once gate: reloaded\n");
    while (status_of(g, "/payments", NULL) != 201) { /* old workers accept until they are told */
    }
    assert_has(request(g->port, "/payments", "before", PAYMENT).text, "Idempotent-Replayed");

    write_config(g, "route POST /payments ttl=never\n");
    kill(g->gate.pid, SIGHUP);
    process_expect(&g->gate, "ttl");
    process_expect(&g->gate, "once gate: not reloaded: it goes on as it was\n");
    assert_int_equal(status_of(g, "/payments", "after"), 201);

    write_config(g, "route POST /payments\nlisten 127.0.0.1:1\n");
    kill(g->gate.pid, SIGHUP);
    process_expect(&g->gate, "only a restart of the gate changes it");
    assert_int_equal(status_of(g, "/payments", "at last"), 201);
    gateway_stop(g, SIGTERM, 0);
}

/* A HUP that comes while nginx starts is not forgotten: the file may have changed since it was read. */
static void reloading_before_ready(void **state)
{
    gateway_t *g = *state;
    char text[512], fifo[100], wrapper[100];
    int fd;

    snprintf(fifo, sizeof(fifo), "%s", file(g, "start"));
    snprintf(wrapper, sizeof(wrapper), "%s", file(g, "nginx"));
    assert_int_equal(mkfifo(fifo, 0600), 0);
    snprintf(text, sizeof(text),
             "#!/bin/sh\ncase \"$*\" in *-tq*|-v) ;; *) cat %s ;; esac\nexec %s \"$@\"\n", fifo,
             NGINX);
    write_text(wrapper, text);
    assert_int_equal(chmod(wrapper, 0755), 0);
    write_config(g, "route POST /payments\n");
    gateway_start(g, "--config", file(g, "gate.conf"), "--nginx", wrapper, NULL);
    fd = open(fifo, O_WRONLY | O_CLOEXEC); /* until nginx is about to start */
    assert_true(fd >= 0);
    write_config(g, "route POST /payments require=off\n");
    kill(g->gate.pid, SIGHUP);
    close(fd);
    process_expect(&g->gate, "once gate: reloaded\n");
    while (status_of(g, "/payments", NULL) != 201) {
    }
    gateway_stop(g, SIGTERM, 0);
}

static void expect_notice(int fd, const char *expected)
{
    char text[64];
    ssize_t got = recv(fd, text, sizeof(text) - 1, 0);

    assert_true(got > 0);
    text[got] = '\0';
    assert_string_equal(text, expected);
}

/* What a unit of systemd with Type=notify and WatchdogSec= hears. */
static void notices(void **state)
{
    gateway_t *g = *state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", file(g, "notify"));
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    setenv("NOTIFY_SOCKET", address.sun_path, 1);
    setenv("WATCHDOG_USEC", "200000", 1);
    gateway_start(g, NULL, NULL);
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    expect_notice(fd, "READY=1");
    for (int i = 0; i < 3; i++) {
        expect_notice(fd, "WATCHDOG=1");
    }
    gateway_stop(g, SIGQUIT, 0);
    for (int i = 0;; i++) {
        char text[64] = "";
        assert_true(recv(fd, text, sizeof(text) - 1, 0) > 0);
        if (strcmp(text, "STOPPING=1") == 0) {
            break;
        }
        assert_string_equal(text, "WATCHDOG=1");
        assert_true(i < 1000);
    }
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_GATEWAY(same_as_options),
        WITH_GATEWAY(command_line_wins),
        WITH_GATEWAY(mistakes),
        WITH_GATEWAY(files_that_are_none),
        WITH_GATEWAY(credentials),
        WITH_GATEWAY(operands),
        WITH_GATEWAY(checking),
        WITH_GATEWAY(reloading),
        WITH_GATEWAY(reloading_before_ready),
        WITH_GATEWAY(notices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
