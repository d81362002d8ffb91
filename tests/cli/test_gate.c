/*
 * The command line of `once gate`: what is refused, and what configuration comes of the rest. No nginx is run here.
 */
#include "harness.h"
#include "gate/internal.h"
#include "local.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where a module must be named and none is loaded. */
#define MODULE   "--module", "/dev/null"
#define UPSTREAM "--upstream", "http://127.0.0.1:3000"

typedef struct mistake {
    const char *arguments[6];
    const char *expected; /* part of what is said */
} mistake_t;

static const mistake_t mistakes[] = {
    {{"--upstream", "127.0.0.1"}, "\"127.0.0.1\" is not an HTTP URL; expected http://HOST"},
    {{"--upstream", "127.0.0.1:0"}, "is not an HTTP URL"},
    {{"--upstream", "70000"}, "is not an HTTP URL"},
    {{"--upstream", "ftp://127.0.0.1"}, "is not an HTTP URL"},
    {{"--upstream", ""}, "is not an HTTP URL"},
    {{"--upstream", "http://"}, "it has no host"},
    {{"--upstream", "http://:3000"}, "it has no host"},
    {{"--upstream", "http://127.0.0.1:0"}, "a port must be between"},
    {{"--upstream", "http://127.0.0.1:70000"}, "a port must be between"},
    {{"--upstream", "http://127.0.0.1:30x"}, "a port must be between"},
    {{"--upstream", "http://127.0.0.1:3000/base"}, "requests keep their own path"},
    {{"--upstream", "http://127.0.0.1:3000?x"}, "requests keep their own path"},
    {{"--upstream", "http://me:secret@127.0.0.1"}, "a user name or password"},
    {{"--upstream", "http://[::1"}, "no host"},
    {{"--upstream", "http://[::g]:80"}, "do not contain an IPv6 address"},
    {{"--upstream", "http://a b"}, "a host name may have"},
    {{"--upstream", "http://$host"}, "a host name may have"},
    {{"--upstream", "http://unix:relative"}, "the path of a socket"},
    {{"--upstream", "http://unix:/run/x:/y"}, "the path of a socket"},
    {{UPSTREAM, "--listen", "nowhere"}, "--listen needs an address"},
    {{UPSTREAM, "--listen", "0"}, "--listen needs an address"},
    {{UPSTREAM, "--listen", "1.2.3:80"}, "--listen needs an address"},
    {{UPSTREAM, "--listen", "127.0.0.1:"}, "--listen needs an address"},
    {{UPSTREAM, "--listen", "127.0.0.1:8080 ssl"}, "--listen needs an address"},
    {{UPSTREAM, "--listen", "[::1]"}, "--listen needs an address"},
    {{UPSTREAM, "--listen", "unix:x"}, "--listen needs an address"},
    {{UPSTREAM, "--status", "x"}, "--status needs an address"},
    {{UPSTREAM, "--status", "127.0.0.1:8080"}, "--status needs an address of its own"},
    {{UPSTREAM, "--listen", "*:81", "--status", "0.0.0.0:81"}, "--listen already has 0.0.0.0:81"},
    {{UPSTREAM, "--listen", "*:8080"}, "--listen 0.0.0.0:8080 is open to other machines"},
    {{UPSTREAM, "--listen", "10.0.0.5:8080"}, "--scope header:X-Api-Key"},
    {{UPSTREAM, "--listen", "[::]:8080"}, "or --scope none"},
    {{UPSTREAM, "--listen", "*:81", "--route", "POST /a"},
     "needs --scope, which says whose key it is"},
    {{UPSTREAM, "--socket-mode", "0999"}, "--socket-mode needs a mode such as 0660"},
    {{UPSTREAM, "--socket-mode", "66"}, "--socket-mode needs a mode such as 0660"},
    {{UPSTREAM, "--socket-mode", "4777"}, "--socket-mode needs a mode such as 0660"},
    {{UPSTREAM, "--upstream-ca", "/dev/null"}, "--upstream-ca is only for https://"},
    {{UPSTREAM, "--log-keys", "some"}, "--log-keys is text, hash or off"},
    {{UPSTREAM, "--set", "once_profile acp"}, "use --profile"},
    {{UPSTREAM, "--auth", ""}, "--auth: it is empty"},
    {{UPSTREAM, "--auth", "http://localhost"}, "--auth: it has no path"},
    {{UPSTREAM, "--auth", "localhost/me"}, "--auth: it has no path"},
    {{UPSTREAM, "--auth", "ftp://localhost/me"}, "is not an HTTP URL"},
    {{UPSTREAM, "--auth", "http://a b/me"}, "--auth: a host name may have"},
    {{UPSTREAM, "--auth", "http://u:p@localhost/me"}, "--auth: it must not have a user name"},
    {{UPSTREAM, "--auth", "http://unix:/run/x/me"}, "--auth: a unix socket cannot have a path"},
    {{UPSTREAM, "--auth", "/me$uri"}, "--auth: its path has characters"},
    {{UPSTREAM, "--auth", "/me; return 200"}, "--auth: its path has characters"},
    {{UPSTREAM, "--set", "once_authorize /x"}, "use --auth"},
    {{UPSTREAM, "--scope", ""}, "a scope is header:NAME"},
    {{UPSTREAM, "--scope", "header:"}, "a scope is header:NAME"},
    {{UPSTREAM, "--scope", "header:X_Y"}, "a scope is header:NAME"},
    {{UPSTREAM, "--scope", "header:A,"}, "a scope is header:NAME"},
    {{UPSTREAM, "--scope", "header:A;B"}, "a scope is header:NAME"},
    {{UPSTREAM, "--scope", "cookie:a-b"}, "a scope is header:NAME"},
    {{UPSTREAM, "--scope", "$remote_user"}, "a scope is header:NAME"},
    {{UPSTREAM, "--scope", "X-Api-Key"}, "did you mean header:X-Api-Key?"},
    {{UPSTREAM, "--store", "data"}, "did you mean local:data?"},
    {{UPSTREAM, "--route", "POST /a quantum=1"}, "known are scope, describe, docs, early_lookup, "},
    {{UPSTREAM, "--route", "POST /a quantum=1"}, ", wait"},
    {{UPSTREAM, "--route", ""}, "a route is METHODS PATH"},
    {{UPSTREAM, "--route", "/payments"}, "a route is METHODS PATH"},
    {{UPSTREAM, "--route", "GET /payments"}, "methods must be"},
    {{UPSTREAM, "--route", "post /payments"}, "methods must be"},
    {{UPSTREAM, "--route", "POST, /payments"}, "methods must be"},
    {{UPSTREAM, "--route", "POST payments"}, "its path must begin with /"},
    {{UPSTREAM, "--route", "POST /a?b"}, "compared decoded"},
    {{UPSTREAM, "--route", "POST /a%20b"}, "compared decoded"},
    {{UPSTREAM, "--route", "POST /a$b"}, "$ is allowed only at the end"},
    {{UPSTREAM, "--route", "POST /a ttl"}, "NAME=VALUE"},
    {{UPSTREAM, "--route", "POST /a ttl="}, "NAME=VALUE"},
    {{UPSTREAM, "--route", "POST /a =1"}, "NAME=VALUE"},
    {{UPSTREAM, "--route", "POST /a tll=1h"}, "did you mean ttl?"},
    {{UPSTREAM, "--route", "POST /a quantum=1"}, "unknown setting \"quantum\""},
    {{UPSTREAM, "--route", "POST /a ttl=soon"}, "ttl"},
    {{UPSTREAM, "--route", "POST /a recover=maybe"}, "recover"},
    {{UPSTREAM, "--route", "POST /a record=2xy"}, "record"},
    {{UPSTREAM, "--route", "POST /a scope=whose"}, "a scope is header:NAME"},
    {{UPSTREAM, "--route", "POST /a", "--route", "PATCH /a"}, "two routes for /a"},
    {{UPSTREAM, "--set", "once_wait"}, "a directive needs a name and a value"},
    {{UPSTREAM, "--set", "Once 5s"}, "the name of a directive"},
    {{UPSTREAM, "--set", "once_wait \"5s"}, "a quote is not closed"},
    {{UPSTREAM, "--set", "once_wait \"5s\"x"}, "a quote is not closed"},
    {{UPSTREAM, "--set", "once_wait 5s\n"}, "control characters"},
    {{UPSTREAM, "--set", "once off"}, "use --route"},
    {{UPSTREAM, "--set", "once_methods PUT"}, "use --route, which has the methods"},
    {{UPSTREAM, "--set", "once_scope none"}, "use --scope, or scope="},
    {{UPSTREAM, "--set", "once_store memory:"}, "use --store"},
    {{UPSTREAM, "--workers", "0"}, "--workers must be between 1 and"},
    {{UPSTREAM, "--workers", "2", "--store", "memory:"},
     "--workers must be 1 with a store in memory"},
    {{UPSTREAM, "--store", "memory:", "--route", "POST /a recover=hold"},
     "recover=hold needs a store"},
    {{UPSTREAM, "--store", "memory:x", "--set", "once_recover transactional"},
     "recover=transactional needs a store"},
    {{UPSTREAM, "--tls-cert", "/dev/null"}, "must be given together"},
    {{UPSTREAM, "--tls-key", "/dev/null"}, "must be given together"},
    {{UPSTREAM, "extra"}, "unexpected operand"},
    {{"--print-config"}, "missing --upstream"},
};

static run_t print_config(const char *const a[6])
{
    return run("gate", "--print-config", MODULE, a[0], a[1], a[2], a[3], a[4], a[5], NULL);
}

static void every_mistake_is_told(void **state)
{
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        run_t r = print_config(mistakes[i].arguments);
        if (r.code != ONCE__CLI_USAGE || strstr(r.err, mistakes[i].expected) == NULL) {
            print_error("mistake %zu: %s %s\n", i, mistakes[i].arguments[0],
                        mistakes[i].arguments[1]);
        }
        assert_run(r, ONCE__CLI_USAGE);
        assert_has(r.err, mistakes[i].expected);
        assert_string_equal(r.out, "");
        assert_lacks(r.err, "secret");
        assert_true(is_harmless(r.err));
        run_free(&r);
    }
}

/* The user of the workers: this one, and where that is root, another one. */
static const char *workers(void)
{
    return geteuid() == 0 ? "nobody" : getpwuid(geteuid())->pw_name;
}

static void what_is_not_there_is_told(void **state)
{
    run_t module =
        run("gate", UPSTREAM, "--module", "/nonexistent/m.so", "--user", workers(), NULL);
    run_t nginx =
        run("gate", UPSTREAM, MODULE, "--nginx", "/nonexistent/nginx", "--user", workers(), NULL);
    run_t cert = run("gate", UPSTREAM, MODULE, "--tls-cert", "/nonexistent/c", "--tls-key",
                     "/nonexistent/k", NULL);
    run_t host = run("gate", "--upstream", "http://no..host", MODULE, NULL);

    assert_run(module, ONCE__CLI_STORE);
    assert_has(module.err, "cannot read the module /nonexistent/m.so: No such file");
    assert_run(nginx, ONCE__CLI_STORE);
    assert_has(nginx.err, "cannot run /nonexistent/nginx: No such file");
    assert_run(cert, ONCE__CLI_STORE);
    assert_has(cert.err, "cannot read the certificate /nonexistent/c");
    assert_run(host, ONCE__CLI_STORE);
    assert_has(host.err, "cannot find the host no..host");
    run_free(&module);
    run_free(&nginx);
    run_free(&cert);
    run_free(&host);
}

/* The key itself, the record's id, or neither. */
static void keys_in_the_log(void **state)
{
    run_t text = run("gate", "--print-config", MODULE, UPSTREAM, NULL);
    run_t hash = run("gate", "--print-config", MODULE, UPSTREAM, "--log-keys", "hash", NULL);
    run_t off = run("gate", "--print-config", MODULE, UPSTREAM, "--log-keys", "off", NULL);

    assert_has(text.out, "once=$once_outcome key=\"$once_key\" epoch=$once_epoch");
    assert_has(hash.out, "once=$once_outcome id=$once_id epoch=$once_epoch");
    assert_has(off.out, "once=$once_outcome epoch=$once_epoch");
    run_free(&text);
    run_free(&hash);
    run_free(&off);
    text = run("gate", "--print-config", MODULE, UPSTREAM, "--log-json", NULL);
    hash =
        run("gate", "--print-config", MODULE, UPSTREAM, "--log-json", "--log-keys", "hash", NULL);
    off = run("gate", "--print-config", MODULE, UPSTREAM, "--log-json", "--log-keys", "off", NULL);
    assert_has(text.out, "\"idempotency_key\":\"$once_key\",\"epoch\"");
    assert_lacks(text.out, "$once_id");
    assert_has(hash.out, "\"id\":\"$once_id\",\"epoch\"");
    assert_lacks(hash.out, "$once_key");
    assert_has(off.out, "\"$once_outcome\",\"epoch\"");
    run_free(&text);
    run_free(&hash);
    run_free(&off);
}

static void without_routes_everything_is_guarded(void **state)
{
    run_t r = run("gate", "--print-config", MODULE, UPSTREAM, NULL);

    assert_run(r, ONCE__CLI_OK);
    assert_string_equal(r.err, "");
    assert_has(r.out, "listen \"127.0.0.1:8080\";\n");
    assert_has(r.out, "server \"127.0.0.1:3000\";\n");
    assert_has(r.out, "once_scope $http_authorization;\n");
    assert_has(r.out,
               "location / {\n            once on;\n            proxy_pass http://once_upstream;");
    assert_lacks(r.out,
                 "proxy_ignore_client_abort"); /* the module does it, for guarded requests alone */
    assert_lacks(r.out, "non_idempotent");
    assert_lacks(r.out, "ssl");
    assert_lacks(r.out, "once_status");
    assert_has(r.out, "worker_processes 1;\n");
    run_free(&r);
}

static void routes_become_locations(void **state)
{
    run_t r = run("gate", "--print-config", MODULE, UPSTREAM, "--route",
                  "POST,PATCH /payments ttl=48h recover=hold wait=5s,max=8 scope=cookie:sid",
                  "--route", "PUT /a$ replay_headers=ETag,Set-Cookie key=$once_json_id", NULL);
    run_t root = run("gate", "--print-config", MODULE, UPSTREAM, "--route", "DELETE /", "--profile",
                     "acp", NULL);

    assert_has(root.out, "    once_profile \"acp\";\n");
    assert_lacks(r.out, "once_profile");
    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "        location \"/payments\" {\n"
                      "            once on;\n"
                      "            once_methods \"POST\" \"PATCH\";\n"
                      "            once_scope $cookie_sid;\n"
                      "            once_ttl \"48h\";\n"
                      "            once_recover \"hold\";\n"
                      "            once_wait \"5s\" \"max=8\";\n"
                      "            proxy_pass http://once_upstream;\n"
                      "        }\n"
                      "        location = \"/a\" {\n"
                      "            once on;\n"
                      "            once_methods \"PUT\";\n"
                      "            once_replay_headers \"ETag\" \"Set-Cookie\";\n"
                      "            once_key \"$once_json_id\";\n"
                      "            proxy_pass http://once_upstream;\n"
                      "        }\n"
                      "        location = /once/problems {\n"
                      "            once_problems;\n"
                      "        }\n"
                      "        location / {\n"
                      "            proxy_pass http://once_upstream;\n"
                      "        }\n");
    assert_run(root, ONCE__CLI_OK);
    assert_has(root.out,
               "location \"/\" {\n            once on;\n            once_methods \"DELETE\";");
    assert_lacks(root.out, "location / {");
    run_free(&r);
    run_free(&root);
}

static void everything_else_has_its_place(void **state)
{
    run_t r =
        run("gate", "--print-config", MODULE, "--upstream", "https://localhost", "--upstream-ca",
            "/dev/null", "--nginx", "/bin/true", "--listen", "*:80", "--listen", "[::1]:81",
            "--listen", "unix:/run/g.sock", "--listen", "82", "--status", "localhost:9090",
            "--scope", "header:X-Tenant", "--set", "once_wait 5s;", "--set", "add_header X-A 'b c'",
            "--workers", "3", "--store", "local:/var/lib/once?segment=1m", "--tls-cert",
            "/dev/null", "--tls-key", "/dev/zero", NULL);

    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "listen \"0.0.0.0:80\" ssl http2;\n");
    assert_has(r.out, "listen \"[::1]:81\" ssl http2;\n");
    assert_has(r.out, "listen \"unix:/run/g.sock\" ssl http2;\n");
    assert_has(r.out, "listen \"127.0.0.1:82\" ssl http2;\n");
    assert_has(r.out, "listen \"127.0.0.1:9090\";\n");
    assert_has(r.out, "ssl_certificate \"/dev/null\";\n");
    assert_has(r.out, "ssl_certificate_key \"/dev/zero\";\n");
    assert_has(r.out, "once_scope $http_x_tenant;\n");
    assert_has(r.out, "        once_wait \"5s\";\n");
    assert_has(r.out, "        add_header \"X-A\" \"b c\";\n");
    assert_has(r.out, "worker_processes 3;\n");
    assert_has(r.out, "once_store \"local:/var/lib/once?segment=1m\";\n");
    assert_has(r.out, "server \"localhost:443\";\n");
    assert_has(r.out, "proxy_ssl_name \"localhost\";\n");
    assert_has(r.out, "proxy_pass https://once_upstream;\n");
    assert_has(r.out, "once_status;\n");
    run_free(&r);
}

/* What is reached from this machine only needs no --scope, nor do routes that each have one. */
static void where_a_scope_is_needed(void **state)
{
    static const char *const fine[][6] = {
        {UPSTREAM, "--listen", "127.0.0.2:81"},
        {UPSTREAM, "--listen", "[::1]:81"},
        {UPSTREAM, "--listen", "unix:/run/g.sock"},
        {UPSTREAM, "--listen", "*:81", "--scope", "none"},
        {UPSTREAM, "--listen", "*:81", "--route", "POST /a scope=cookie:sid"},
        {"--upstream", "3000"},
        {"--upstream", "localhost:3000"},
        {"--upstream", "[::1]:3000"},
    };

    for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++) {
        run_t r = print_config(fine[i]);
        assert_run(r, ONCE__CLI_OK);
        assert_lacks(r.out, "optional");
        run_free(&r);
    }
}

/* A service of its own is asked by its own name, and is checked like a backend; a path is the backend's. */
static void what_is_asked_before_a_stored_answer(void **state)
{
    run_t none = run("gate", "--print-config", MODULE, UPSTREAM, NULL);
    run_t path = run("gate", "--print-config", MODULE, UPSTREAM, "--auth", "/me?x=1", NULL);
    run_t own = run("gate", "--print-config", MODULE, UPSTREAM, "--auth",
                    "https://localhost:444/check", "--upstream-ca", "/dev/null", NULL);
    run_t usual =
        run("gate", "--print-config", MODULE, UPSTREAM, "--auth", "http://localhost/check", NULL);

    assert_run(none, ONCE__CLI_OK);
    assert_lacks(none.out, "once_authorize");
    assert_has(none.out, "location = /once/problems {\n            once_problems;\n        }\n");
    assert_run(path, ONCE__CLI_OK);
    assert_has(path.out, "    once_authorize /once/authorize;\n");
    assert_has(path.out, "            internal;\n");
    assert_has(path.out, "proxy_pass \"http://once_upstream/me?x=1\";\n");
    assert_lacks(path.out, "once_auth {");
    assert_run(own, ONCE__CLI_OK);
    assert_has(own.out, "upstream once_auth {\n        server \"localhost:444\";\n");
    assert_has(own.out, "            proxy_set_header Host \"localhost:444\";\n");
    assert_has(own.out, "            proxy_ssl_name \"localhost\";\n");
    assert_has(own.out, "    proxy_ssl_trusted_certificate \"/dev/null\";\n");
    assert_has(own.out, "    proxy_ssl_verify on;\n");
    assert_lacks(own.out, "\n    proxy_ssl_name");
    assert_run(usual, ONCE__CLI_OK);
    assert_has(usual.out, "            proxy_set_header Host \"localhost\";\n");
    assert_lacks(usual.out, "proxy_ssl");
    run_free(&none);
    run_free(&path);
    run_free(&own);
    run_free(&usual);
}

static void backends_may_be_written_short(void **state)
{
    run_t port = run("gate", "--print-config", MODULE, "--upstream", "3000", NULL);
    run_t host = run("gate", "--print-config", MODULE, "--upstream", "localhost:81", NULL);

    assert_run(port, ONCE__CLI_OK);
    assert_has(port.out, "server \"127.0.0.1:3000\";\n");
    assert_run(host, ONCE__CLI_OK);
    assert_has(host.out, "server \"localhost:81\";\n");
    run_free(&port);
    run_free(&host);
}

/* A backend of https:// is checked, or nothing is started: it gets every caller's credentials. */
static void certificates_are_checked_or_nothing_starts(void **state)
{
    static const char *const none[] = {"/nonexistent/a.crt", "/nonexistent/b.crt", NULL};
    static const char *const some[] = {"/nonexistent/a.crt", "/dev/null", NULL};
    char path[ONCE__GATE_PATH_SIZE];
    run_t named, missing, variable;

    unsetenv("SSL_CERT_FILE");
    named = run("gate", "--print-config", MODULE, "--upstream", "https://localhost",
                "--upstream-ca", "/dev/null", NULL);
    assert_run(named, ONCE__CLI_OK);
    assert_has(named.out, "proxy_ssl_trusted_certificate \"/dev/null\";\n");
    assert_has(named.out, "proxy_ssl_verify on;\n");
    missing = run("gate", "--print-config", MODULE, "--upstream", "https://localhost",
                  "--upstream-ca", "/nonexistent/ca.crt", NULL);
    assert_run(missing, ONCE__CLI_STORE);
    assert_has(missing.err, "cannot read the certificates /nonexistent/ca.crt: No such file");
    setenv("SSL_CERT_FILE", "/nonexistent/variable.crt", 1);
    variable = run("gate", "--print-config", MODULE, "--upstream", "https://localhost", NULL);
    assert_run(variable, ONCE__CLI_STORE);
    assert_has(variable.err, "cannot read the certificates /nonexistent/variable.crt");
    assert_string_equal(variable.out, "");
    unsetenv("SSL_CERT_FILE");
    assert_int_equal(once__gate_find_trusted(NULL, none, path), ONCE__CLI_STORE);
    assert_int_equal(once__gate_find_trusted(NULL, some, path), ONCE__CLI_OK);
    assert_string_equal(path, "/dev/null");
    run_free(&named);
    run_free(&missing);
    run_free(&variable);
}

/* Since 1.25.1 HTTP/2 is a directive. Angie says first which version it is itself. */
static void newer_versions_of_nginx(void **state)
{
    static const char *const versions[] = {
        "nginx version: nginx/1.25.0",
        "nginx version: nginx/1.25.1",
        "nginx version: nginx/1.26.0",
        "nginx version: openresty/1.27.1.2",
        "nginx version: nginx/2.0.0",
        "Angie version: Angie/1.11.0; [ $1 = -v ] || echo nginx version: nginx/1.29.3",
    };
    static const int count = sizeof(versions) / sizeof(versions[0]);
    char nginx[] = "/tmp/once-gate-XXXXXX";
    int fd = mkstemp(nginx);

    assert_true(fd >= 0);
    close(fd);
    for (int i = 0; i < count; i++) {
        char script[200];
        run_t r;
        snprintf(script, sizeof(script), "#!/bin/sh\nexec >&2\necho %s\n", versions[i]);
        write_text(nginx, script);
        assert_int_equal(chmod(nginx, 0700), 0);
        r = run("gate", "--print-config", MODULE, UPSTREAM, "--nginx", nginx, "--tls-cert",
                "/dev/null", "--tls-key", "/dev/null", NULL);
        assert_run(r, ONCE__CLI_OK);
        assert_has(r.out, i == 0 ? " ssl http2;\n" : " ssl;\n");
        assert_int_equal(strstr(r.out, "http2 on;\n") != NULL, i > 0);
        run_free(&r);
    }
    assert_int_equal(unlink(nginx), 0);
}

/* nginx may be started from elsewhere: the path becomes absolute, also from a directory with an odd name. */
static void a_relative_store_becomes_absolute(void **state)
{
    char folder[] = "/tmp/once gate %25 \"XXXXXX";
    char before[1024];
    char expected[160];
    run_t named, fallback, variable, server;

    assert_non_null(getcwd(before, sizeof(before)));
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    unsetenv("ONCE_STORE");
    named = run("gate", "--print-config", MODULE, UPSTREAM, "--store", "./x/y?segment=1m", NULL);
    fallback = run("gate", "--print-config", MODULE, UPSTREAM, NULL);
    setenv("ONCE_STORE", "memory:shop", 1);
    variable = run("gate", "--print-config", MODULE, UPSTREAM, NULL);
    unsetenv("ONCE_STORE");
    server = run("gate", "--print-config", MODULE, UPSTREAM, "--store", "postgres:///shop", NULL);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(rmdir(folder), 0);

    snprintf(expected, sizeof(expected),
             "\"local:/tmp/once%%20gate%%20%%2525%%20%%22%s/x/y?segment=1m\";",
             folder + strlen(folder) - 6);
    assert_has(named.out, expected);
    assert_has(fallback.out, "/once-data\";");
    assert_lacks(fallback.out, "/./");
    assert_has(variable.out, "once_store \"memory:shop\";");
    /* What libpq takes from the environment reaches the workers; only libpq needs it. */
    assert_has(server.out, "\nenv PGHOST;\n");
    assert_has(server.out, "\nenv PGPASSWORD;\n");
    assert_lacks(variable.out, "env ");
    run_free(&server);
    run_free(&named);
    run_free(&fallback);
    run_free(&variable);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_in_the_log),
        cmocka_unit_test(every_mistake_is_told),
        cmocka_unit_test(what_is_not_there_is_told),
        cmocka_unit_test(without_routes_everything_is_guarded),
        cmocka_unit_test(routes_become_locations),
        cmocka_unit_test(everything_else_has_its_place),
        cmocka_unit_test(where_a_scope_is_needed),
        cmocka_unit_test(what_is_asked_before_a_stored_answer),
        cmocka_unit_test(backends_may_be_written_short),
        cmocka_unit_test(certificates_are_checked_or_nothing_starts),
        cmocka_unit_test(newer_versions_of_nginx),
        cmocka_unit_test(a_relative_store_becomes_absolute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
