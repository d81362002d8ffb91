/*
 * Whatever stands on the command line of `once gate`, it says what it should and nothing else: no value becomes a directive of its
 * own. nginx itself is the judge: it would complain about a directive that does not exist.
 */
#include "gateway.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Every one would end the word, the directive or the block that it stands in, if it were written as it is. */
static const char *const hostile[] = {
    "x; once_evil on",
    "x;once_evil on;",
    "x\";once_evil on;\"",
    "x';once_evil on;'",
    "x\\\";once_evil on;\\\"",
    "x\\",
    "x\\\\",
    "\\",
    "x\nonce_evil on",
    "x\r\nonce_evil on;",
    "x} once_evil on; {",
    "}\nonce_evil on;\nhttp {",
    "x # once_evil",
    "x {once_evil on;}",
    "${once_evil}",
    "x$",
    "\"",
    "'",
    "\"\" ;once_evil on;",
    "",
    " ",
    "x\t;once_evil\ton;",
    "\x80\xff;once_evil on;",
};

#define HOSTILE_COUNT (sizeof(hostile) / sizeof(hostile[0]))

/* Where values stand: before and after each. */
typedef struct place_of {
    const char *option;
    const char *before;
    const char *after;
} place_of_t;

static const place_of_t places[] = {
    {"--upstream", "", ""},
    {"--upstream", "http://", ""},
    {"--upstream", "http://127.0.0.1:80", ""},
    {"--upstream", "http://unix:/", ""},
    {"--upstream", "http://[::1", "]"},
    {"--listen", "", ""},
    {"--listen", "127.0.0.1:8080", ""},
    {"--listen", "unix:/", ""},
    {"--status", "", ""},
    {"--store", "", ""},
    {"--store", "local:", ""},
    {"--store", "local:/tmp/", ""},
    {"--store", "memory:", ""},
    {"--scope", "", ""},
    {"--scope", "header:", ""},
    {"--scope", "cookie:", ""},
    {"--route", "", ""},
    {"--route", "POST /", ""},
    {"--route", "POST /", "$"},
    {"--route", "POST", " /x"},
    {"--route", "POST /x name=", ""},
    {"--route", "POST /x key=", ""},
    {"--route", "POST /x docs=", ""},
    {"--route", "POST /x name='", "'"},
    {"--route", "POST /x name=\"", "\""},
    {"--route", "POST /x ", "=1"},
    {"--route", "POST /x ttl=", ""},
    {"--set", "", ""},
    {"--set", "once_name ", ""},
    {"--set", "once_name \"", "\""},
    {"--set", "once_name '", "'"},
    {"--set", "once_name x ", ""},
};

/* What nginx says about a configuration. */
static char *judge(gateway_t *g, const char *config)
{
    static process_t nginx;
    char path[160];
    const char *arguments[] = {NGINX, "-t", "-p", g->place.top, "-c", path, "-e", "stderr", NULL};

    snprintf(path, sizeof(path), "%s/judged.conf", g->place.top);
    write_text(path, config);
    process_start(&nginx, arguments);
    process_wait(&nginx);
    return nginx.text;
}

static void nothing_is_smuggled(void **state)
{
    gateway_t *g = *state;
    size_t accepted = 0;

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        for (size_t j = 0; j < HOSTILE_COUNT; j++) {
            const char *last = strcmp(places[i].option, "--upstream") == 0 ? NULL : "--upstream";
            char value[256];
            run_t r;
            snprintf(value, sizeof(value), "%s%s%s", places[i].before, hostile[j], places[i].after);
            r = run("gate", "--print-config", "--module", MODULE, places[i].option, value, last,
                    g->upstream, NULL);
            assert_true(is_harmless(r.err));
            if (r.code == ONCE__CLI_OK) {
                const char *says = judge(g, r.out);
                accepted++;
                int smuggled = strstr(says, "directive \"once_evil\"") != NULL ||
                               strstr(says, "unexpected") != NULL;
                if (smuggled) {
                    print_error("%s \"%s\":\n%s%s\n", places[i].option, value, says, r.out);
                }
                assert_false(smuggled);
                assert_null(strstr(says, "dlopen")); /* else nothing was judged */
            } else {
                assert_true(r.code == ONCE__CLI_USAGE || r.code == ONCE__CLI_STORE);
                assert_string_equal(r.out, "");
            }
            run_free(&r);
        }
    }
    assert_true(accepted > 20); /* or nothing was tried */
}

/* A value that is odd and fine comes out as it went in. */
static void odd_values_survive(void **state)
{
    gateway_t *g = *state;
    run_t r =
        run("gate", "--print-config", "--module", MODULE, "--upstream", g->upstream, "--route",
            "POST /a;b{c}\"d\\e'f+g", "--set", "add_header X-Odd 'a\"b\\c;d}'", NULL);

    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "location \"/a;b{c}\\\"d\\\\e'f+g\" {");
    assert_has(r.out, "add_header \"X-Odd\" \"a\\\"b\\\\c;d}\";");
    assert_has(judge(g, r.out), "test is successful");
    run_free(&r);

    gateway_start(g, "--route", "POST /a;b{c}\"d\\e'f+g", "--set",
                  "add_header X-Odd 'a\"b\\c;d}' always", NULL);
    process_expect(&g->gate, "once gate: ready\n");
    {
        reply_t guarded = request(g->port, "/a;b%7bc}%22d%5ce'f+g", NULL, "x");
        reply_t other = request(g->port, "/a;b", NULL, "x");
        assert_int_equal(guarded.status, 400);
        assert_has(guarded.text, "X-Odd: a\"b\\c;d}\r\n");
        assert_int_equal(other.status, 404);
    }
    gateway_stop(g, SIGTERM, 0);
}

/* The configuration that is printed is one that nginx takes, with every option. */
static void what_is_printed_can_be_kept(void **state)
{
    gateway_t *g = *state;
    char cert[160], key[160], make_cert[600];
    run_t r;

    snprintf(cert, sizeof(cert), "%s/cert.pem", g->place.top);
    snprintf(key, sizeof(key), "%s/key.pem", g->place.top);
    snprintf(make_cert, sizeof(make_cert),
             "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=shop "
             "-days 2 -keyout '%s' -out '%s' 2>/dev/null",
             key, cert);
    assert_int_equal(system(make_cert), 0);
    r = run("gate", "--print-config", "--module", MODULE, "--upstream", "https://localhost:4430",
            "--upstream-ca", cert, "--listen", g->listen, "--store", g->place.url, "--tls-cert",
            cert, "--tls-key", key, "--scope", "header:X-Tenant,optional", "--workers", "2",
            "--route",
            "POST,PATCH,PUT,DELETE /a ttl=48h lease=20s recover=hold record=2xx,4xx release=429 "
            "wait=5s,max=4 require=off key=X-Key,strict fingerprint=json,header:X-Account "
            "store_body=64k retry_after=3 "
            "on_store_error=fail replay_header=X-Again replay_headers=ETag,X-B "
            "docs=https://example.com/a,b probe=http://127.0.0.1:3000/outcome,timeout=2s name=a "
            "early_lookup=on scope=none quota=100/1h unknown_max=50 profile=acp mcp=all "
            "error=key-reused,status=400,code=again error_body=$once_error_detail echo_key=X-Key "
            "expires_header=off key_format=uuid scope_path=on",
            "--auth", "https://localhost:4431/me", "--set", "client_max_body_size 1g", NULL);
    assert_run(r, ONCE__CLI_OK);
    assert_has(judge(g, r.out), "test is successful");
    run_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_GATEWAY(nothing_is_smuggled),
        WITH_GATEWAY(odd_values_survive),
        WITH_GATEWAY(what_is_printed_can_be_kept),
    };
    unsetenv("ONCE_STORE");
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
