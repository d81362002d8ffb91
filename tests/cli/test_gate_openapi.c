/*
 * once gate --openapi: what becomes of a document, which documents are refused, and a real gate that has its routes from one.
 */
#include "gateway.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gate/openapi.h"

#define PAYMENT "{\"amount\": 4200}"
#define KEY     "parameters: [{name: Idempotency-Key, in: header, required: true}]"
#define TOP     "openapi: 3.1.0\npaths:\n"

static const char *file(const gateway_t *g, const char *name)
{
    static char path[100];

    snprintf(path, sizeof(path), "%s/%s", g->place.top, name);
    return path;
}

static run_t print(const gateway_t *g, const char *document, const char *option, const char *value)
{
    write_text(file(g, "api"), document);
    return run("gate", "--print-config", "--module", MODULE, "--upstream", "3000", "--openapi",
               file(g, "api"), option, value, NULL);
}

/* What nginx says about a configuration. */
static const char *judge(gateway_t *g, const char *config)
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

static const char everything[] =
    "openapi: 3.0.3\n"
    "servers: [{url: 'https://{region}.example.com/v1/'}, {url: http://localhost:3000/v1}]\n"
    "x-once-ttl: 48h\n"
    "paths:\n"
    "  x-about: {}\n"
    "  /payments:\n"
    "    get: {}\n"
    "    post: {parameters: [$ref: '#/components/parameters/Key%7E1%31'], x-once-recover: hold}\n"
    "  /payments/{id}:\n"
    "    parameters:\n"
    "      - {name: id, in: path, required: true}\n"
    "      - &key {name: IDEMPOTENCY-KEY, in: header, required: true}\n"
    "    patch: {x-once-wait: [5s, max=4], x-once-store-no-store: true}\n"
    "    post: {x-once-wait: [5s, max=4], x-once-store-no-store: true,\n"
    "           parameters: [{name: idempotency-key, in: header}]}\n"
    "    delete: {x-once: off}\n"
    "  /payments/preview: {post: {}}\n"
    "  /files/{name}.{kind}/v1.0(x)/: {put: {parameters: [*key], x-once-name: files}}\n"
    "  /again: {$ref: '#/components/pathItems/again'}\n"
    "  /reads: {get: {parameters: [*key]}}\n"
    "components:\n"
    "  parameters:\n"
    "    Key/1: {$ref: '#/components/parameters/key'}\n"
    "    key: {name: Idempotency-Key, in: header, required: true}\n"
    "  pathItems: {again: {delete: {parameters: [*key]}}}\n";

static void a_document_becomes_routes(void **state)
{
    gateway_t *g = *state;
    run_t r = print(g, everything, NULL, NULL);
    const char *preview, *templated;

    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "        # POST /v1/payments\n"
                      "        location ~ \"^/v1/payments/?$\" {\n"
                      "            once on;\n"
                      "            once_methods \"POST\";\n"
                      "            once_require \"on\";\n"
                      "            once_name \"/v1/payments\";\n"
                      "            once_recover \"hold\";\n"
                      "            once_ttl \"48h\";\n"
                      "            proxy_pass http://once_upstream;\n");
    assert_has(r.out, "        # POST,PATCH /v1/payments/{id}\n"
                      "        location ~ \"^/v1/payments/[^/]+/?$\" {\n"
                      "            once on;\n"
                      "            once_methods \"POST\" \"PATCH\";\n"
                      "            once_require $once_needy_");
    assert_has(r.out, "        default off;\n        PATCH on;\n    }\n");
    assert_has(r.out, "            once_wait \"5s\" \"max=4\";\n");
    assert_has(r.out, "            once_store_no_store \"on\";\n");
    assert_has(r.out, "location ~ \"^/v1/files/[^/]+/v1\\\\.0\\\\(x\\\\)/?$\" {");
    assert_has(r.out, "once_name \"files\"");
    assert_has(r.out, "# DELETE /v1/again\n");
    assert_lacks(r.out, "reads");
    preview = strstr(r.out, "        # not guarded: /v1/payments/preview\n"
                            "        location ~ \"^/v1/payments/preview/?$\" {\n"
                            "            proxy_pass http://once_upstream;\n");
    templated = strstr(r.out, "payments/[^/]+/?$");
    assert_true(preview != NULL && preview < templated);
    assert_has(judge(g, r.out), "test is successful");
    run_free(&r);
}

static void json_is_read_as_well(void **state)
{
    gateway_t *g = *state;
    run_t r =
        print(g,
              " {\"openapi\": \"3.1.0\", \"x-once-retry-after\": 3, \"paths\": {\"/\": {\"post\": "
              "{\"parameters\": [{\"name\": \"X-Id\", \"in\": \"header\"}]}}}}",
              "--set", "once_key X-Id");

    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "location ~ \"^/$\" {");
    assert_has(r.out, "once_require \"off\"");
    assert_has(r.out, "once_retry_after \"3\"");
    assert_has(r.out, "        location / {\n            proxy_pass"); /* the rest passes */
    run_free(&r);
}

/* What the command line says of a path counts. */
static void a_route_overrules_the_document(void **state)
{
    gateway_t *g = *state;
    run_t r = print(g, TOP "  /a: {post: {" KEY "}}\n  /b: {post: {" KEY "}}\n", "--route",
                    "POST /a$ ttl=1h");

    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, "location = \"/a\" {");
    assert_lacks(r.out, "^/a/");
    assert_has(r.out, "^/b/");
    run_free(&r);
}

/* A document, and what is said of it. */
static const char *const refused[][2] = {
    {"", "it is empty"},
    {"swagger: '2.0'\npaths: {}\n", "it is of Swagger 2"},
    {"openapi: 4.0\npaths: {}\n", "it is not an OpenAPI 3 document"},
    {"[]", "it is not an OpenAPI 3 document"},
    {"openapi: 3.1.0\n", "it has no paths"},
    {TOP "  /a: {post: {}}\n", "has the header parameter Idempotency-Key"},
    {TOP "  /a: {get: {" KEY "}}\n", "has the header parameter Idempotency-Key"},
    {TOP "  /a: {post: {" KEY "}}\n  /a: {}\n", "line 4: the key \"/a\" is there twice"},
    {TOP "  /a: {post: {" KEY ", <<: {}}}\n", "merge keys"},
    {TOP "  /a: {post: {" KEY ", x-once-tll: 1h}}\n", "POST /a: x-once-tll is not known"},
    {TOP "  /a: {post: {" KEY ", x-once-base: /}}\n", "x-once-base is not known here"},
    {TOP "  /a: {post: {" KEY ", x-once-scope: none}}\n", "x-once-scope is not known"},
    {TOP "  /a: {post: {" KEY ", x-once-ttl: soon}}\n", "ttl"},
    {TOP "  /a: {post: {" KEY ", x-once-ttl: }}\n", "x-once-ttl must be a text"},
    {TOP "  /a: {post: {" KEY ", x-once: maybe}}\n", "x-once must be on or off"},
    {TOP "  /a: {post: {x-once: on}}\n", "x-once is on, but it has no header parameter"},
    {TOP "  /a: {post: {" KEY "}, put: {" KEY ", x-once-ttl: 1h}}\n",
     "PUT /a: x-once-ttl is another one than that of POST /a"},
    {TOP "  /{a}: {post: {" KEY "}}\n  /{b}: {post: {}}\n", "matches the same requests as /{a}"},
    {TOP "  /a: {post: {parameters: [{name: Idempotency-Key, in: header, required: 'true'}]}}\n",
     "must be true or false"},
    {TOP "  /a: {post: {parameters: {}}}\n", "its parameters must be a list"},
    {TOP "  /a: {post: {parameters: [1]}}\n", "a parameter must have a name"},
    {TOP "  /a: {post: {parameters: [$ref: 'once.yaml#/k']}}\n", "leads out of the document"},
    {TOP "  /a: {post: {parameters: [$ref: '#/nowhere']}}\n", "leads to nothing"},
    {TOP "  /a: {post: {parameters: [$ref: '#/k']}}\nk: {$ref: '#/l'}\nl: {$ref: '#/k'}\n",
     "in a circle"},
    {TOP "  /a: {$ref: '#/k', post: {}}\nk: {}\n", "members beside its $ref"},
    {TOP "  /a: &a {post: *a}\n", "*a stands inside of &a"},
    {TOP "  /a: *b\n", "there is no anchor &b"},
    {TOP "  a: {post: {" KEY "}}\n", "must begin with /"},
    {TOP "  /a//b: {post: {" KEY "}}\n", "an empty segment"},
    {TOP "  /a/../b: {post: {" KEY "}}\n", "an empty segment, . or .."},
    {TOP "  '/a/{b': {post: {" KEY "}}\n", "a { without its }"},
    {TOP "  '/a/b}': {post: {" KEY "}}\n", "has a character"},
    {TOP "  '/a/{}': {post: {" KEY "}}\n", "without a name"},
    {TOP "  '/a/{b/c}': {post: {" KEY "}}\n", "a { without its }"},
    {"servers: [{url: 'http://x/{v}'}]\n" TOP "  /a: {post: {" KEY "}}\n", "write x-once-base"},
    {"servers: [{url: v1}]\n" TOP "  /a: {post: {" KEY "}}\n", "write x-once-base"},
    {"{\"openapi\": \"3.1.0\", \"openapi\": \"3.1.0\"}", "duplicate"},
    {"{\"openapi\": ", "line 1"},
    {"a: [", "line"},
    {"openapi: 3.1.0\n---\nopenapi: 3.1.0\n", "a second document"},
    {"? [a]\n: b\n", "a key must be a text"},
};

static void what_is_not_understood_is_refused(void **state)
{
    gateway_t *g = *state;

    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        run_t r = print(g, refused[i][0], NULL, NULL);
        if (r.code != ONCE__CLI_USAGE) {
            print_error("%s\n", refused[i][0]);
        }
        assert_run(r, ONCE__CLI_USAGE);
        assert_has(r.err, refused[i][1]);
        assert_string_equal(r.out, "");
        assert_true(is_harmless(r.err));
        run_free(&r);
    }
}

/* In a path, in the name of a parameter, in a base and in a value: what could end a word, a directive or an expression. */
static void nothing_is_smuggled(void **state)
{
    static const char *const hostile[] = {
        "x; once_evil on;",
        "x\\\";once_evil on;\\\"",
        "x\\n once_evil on;",
        "x'y",
        "x\\\\y",
        "x$request_uri",
        "x{}",
        "x|.*",
        "x[a]^",
        "x\\u0000y",
        "x\\u0085y",
        "x y",
        "x%41",
        "x?y",
        "x#y",
    };
    static const char *const places[] = {
        "{\"openapi\": \"3.1.0\", \"paths\": {\"/%s\": {\"post\": {\"parameters\": [{\"name\": "
        "\"Idempotency-Key\", \"in\": \"header\"}]}}}}",
        "{\"openapi\": \"3.1.0\", \"paths\": {\"/{%s}\": {\"post\": {\"parameters\": [{\"name\": "
        "\"Idempotency-Key\", \"in\": \"header\"}]}}}}",
        "{\"openapi\": \"3.1.0\", \"x-once-base\": \"/%s\", \"paths\": {\"/a\": {\"post\": "
        "{\"parameters\": [{\"name\": \"Idempotency-Key\", \"in\": \"header\"}]}}}}",
    };
    gateway_t *g = *state;

    for (size_t p = 0; p < sizeof(places) / sizeof(places[0]); p++) {
        for (size_t i = 0; i < sizeof(hostile) / sizeof(hostile[0]); i++) {
            const char *cut = strstr(places[p], "%s");
            char document[600];
            run_t r;
            snprintf(document, sizeof(document), "%.*s%s%s", (int)(cut - places[p]), places[p],
                     hostile[i], cut + 2);
            r = print(g, document, NULL, NULL);
            if (r.code != ONCE__CLI_USAGE) {
                print_error("%s\n", document);
            }
            assert_run(r, ONCE__CLI_USAGE);
            assert_true(is_harmless(r.err));
            run_free(&r);
        }
    }
    for (size_t i = 0; i < 6; i++) { /* those that values must not have, either */
        char document[600];
        run_t r;
        snprintf(document, sizeof(document), TOP "  /a: {post: {" KEY ", x-once-docs: \"%s\"}}\n",
                 hostile[i]);
        r = print(g, document, NULL, NULL);
        assert_run(r, ONCE__CLI_USAGE);
        assert_has(r.err, "x-once-docs must not have quotes");
        run_free(&r);
    }
}

/* Aliases of aliases, deep nesting, and more paths than nginx should try: refused or harmless, and soon. */
static void documents_are_bounded(void **state)
{
    gateway_t *g = *state;
    size_t room = 200000, len = 0;
    char *text = malloc(room);
    run_t r;

    assert_non_null(text);
    len += (size_t)snprintf(text, room, TOP "  /a: {post: {" KEY "}}\nl0: &l0 [x]\n");
    for (int i = 1; i < 60; i++) {
        len += (size_t)snprintf(text + len, room - len, "l%d: &l%d [*l%d, *l%d, *l%d, *l%d]\n", i,
                                i, i - 1, i - 1, i - 1, i - 1);
    }
    r = print(g, text, NULL, NULL);
    assert_run(r, ONCE__CLI_OK);
    run_free(&r);

    memset(text, '[', 1000);
    text[1000] = '\0';
    r = print(g, text, NULL, NULL);
    assert_run(r, ONCE__CLI_USAGE);
    assert_has(r.err, "nested more than 64 deep");
    run_free(&r);

    len = (size_t)snprintf(text, room, TOP);
    for (int i = 0; i <= ONCE__OPENAPI_PATHS; i++) {
        len += (size_t)snprintf(text + len, room - len, "  /a%d: {post: {" KEY "}}\n", i);
    }
    r = print(g, text, NULL, NULL);
    assert_run(r, ONCE__CLI_USAGE);
    assert_has(r.err, "more than 1000 paths");
    run_free(&r);
    free(text);
}

static void a_file_that_is_not_there_is_told(void **state)
{
    run_t r = run("gate", "--print-config", "--module", MODULE, "--upstream", "3000", "--openapi",
                  "/nonexistent/api.yaml", NULL);

    assert_int_not_equal(r.code, ONCE__CLI_OK);
    assert_has(r.err, "/nonexistent/api.yaml");
    run_free(&r);
}

/* The example's own document, and nginx as the judge of which request matches. */
static void a_gate_guards_what_the_document_says(void **state)
{
    gateway_t *g = *state;
    reply_t first, again;

    gateway_start(g, "--openapi", SOURCE_DIR "/examples/payments/openapi.yaml", NULL);
    process_expect(&g->gate, "once gate: ready\n");
    assert_has(g->gate.text, "  guarded  POST /payments, key required, recover=hold, ttl=48h\n"
                             "  passes   POST /previews\n"
                             "           recover=hold: ");
    first = request(g->port, "/payments", "order-1", PAYMENT);
    again = request(g->port, "/payments", "order-1", PAYMENT);
    assert_int_equal(first.status, 201);
    assert_int_equal(again.status, 201);
    assert_has(again.text, "Idempotent-Replayed: true\r\n");
    assert_int_equal(request(g->port, "/payments", NULL, PAYMENT).status, 400);
    assert_int_equal(request(g->port, "/payments/", NULL, PAYMENT).status, 400);
    assert_int_equal(request(g->port, "/paymentsx", NULL, PAYMENT).status, 404);
    assert_int_equal(request(g->port, "/previews", NULL, PAYMENT).status, 404);
    gateway_stop(g, SIGTERM, 0);
    assert_int_equal(executions(g), 1);
}

/* 400: the key is missing, so it is guarded. 404: the backend was asked. And a reload reads the document again. */
static void templates_match_one_segment(void **state)
{
    gateway_t *g = *state;
    char path[100];

    write_text(file(g, "api"), everything);
    snprintf(path, sizeof(path), "%s", file(g, "api"));
    gateway_start(g, "--openapi", path, NULL);
    process_expect(&g->gate, "once gate: ready\n");
    assert_has(g->gate.text, "  guarded  POST,PATCH /v1/payments/{id}, key required for PATCH, "
                             "store_no_store=on, ttl=48h, wait=5s,max=4\n");
    assert_has(g->gate.text, "  passes   DELETE /v1/payments/{id}\n");
    assert_int_equal(request(g->port, "/v1/payments?x=/y", NULL, PAYMENT).status, 400);
    assert_int_equal(request(g->port, "/v1/payments/7", NULL, PAYMENT).status, 404);
    assert_int_equal(request(g->port, "/v1/payments/7", "bad key \x01", PAYMENT).status, 400);
    assert_int_equal(request(g->port, "/v1/payments/preview", "bad key \x01", PAYMENT).status, 404);
    assert_int_equal(request(g->port, "/v1/payments/7/more", NULL, PAYMENT).status, 404);
    write_text(path, TOP "  /v1/payments/{id}/more: {post: {" KEY "}}\n");
    kill(g->gate.pid, SIGHUP);
    process_expect(&g->gate, "once gate: reloaded\n");
    while (request(g->port, "/v1/payments/7/more", NULL, PAYMENT).status != 400) {
        /* old workers accept until they are told */
    }
    gateway_stop(g, SIGTERM, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_GATEWAY(a_document_becomes_routes),
        WITH_GATEWAY(json_is_read_as_well),
        WITH_GATEWAY(a_route_overrules_the_document),
        WITH_GATEWAY(what_is_not_understood_is_refused),
        WITH_GATEWAY(nothing_is_smuggled),
        WITH_GATEWAY(documents_are_bounded),
        cmocka_unit_test(a_file_that_is_not_there_is_told),
        WITH_GATEWAY(a_gate_guards_what_the_document_says),
        WITH_GATEWAY(templates_match_one_segment),
    };
    unsetenv("ONCE_STORE");
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
