/*
 * JSON-RPC messages and event streams (nginx/ngx_http_once_rpc.c). What passes is no call of a guarded tool to another reader; what
 * a call asks for is the same without its id and _meta; answers fit into their room, and an answer under another id is an answer.
 */
#include <assert.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ngx_http_once_rpc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FLAGS (JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL)

static const ngx_http_once_tool_t tools[] = {
    {{(const unsigned char *)"", 0}, 1, 0},
    {{(const unsigned char *)"get_", 4}, 1, 1},
};

static int is_guarded(json_t *message)
{
    const char *method = json_string_value(json_object_get(message, "method"));
    const char *name =
        json_string_value(json_object_get(json_object_get(message, "params"), "name"));

    return method != NULL && strcmp(method, "tools/call") == 0 &&
           (name == NULL || strncmp(name, "get_", 4) != 0);
}

static void check_pass(const uint8_t *data, size_t size)
{
    json_t *root = json_loadb((const char *)data, size, FLAGS, NULL);
    json_t *element;
    size_t i;

    assert(root != NULL && !is_guarded(root));
    json_array_foreach(root, i, element)
    {
        assert(!is_guarded(element));
    }
    json_decref(root);
}

static void check_call(const uint8_t *data, size_t size, const ngx_http_once_call_t *call)
{
    json_t *root = json_loadb((const char *)data, size, FLAGS, NULL);
    json_t *id = json_loadb((const char *)call->id.data, call->id.len, FLAGS, NULL);
    unsigned char *text = malloc(call->params.len + NGX_HTTP_ONCE_RPC_MORE);

    assert(text != NULL && is_guarded(root));
    assert(id != NULL && json_equal(id, json_object_get(root, "id")));
    size_t len = ngx_http_once_rpc_operation(call, text);
    assert(len <= call->params.len + NGX_HTTP_ONCE_RPC_MORE);
    json_t *operation = json_loadb((const char *)text, len, FLAGS | JSON_REJECT_DUPLICATES, NULL);
    assert(operation != NULL);
    json_object_del(json_object_get(root, "params"), "_meta");
    assert(json_equal(json_object_get(operation, "params"), json_object_get(root, "params")));
    json_decref(operation);
    json_decref(root);
    json_decref(id);
    free(text);
}

static void check_answers(const uint8_t *data, size_t size)
{
    static const ngx_http_once_span_t id = {(const unsigned char *)"\"other\"", 7};
    size_t used, room = ngx_http_once_rpc_room(data, size, id.len);
    unsigned char *to = malloc(room);

    assert(to != NULL);
    size_t len = ngx_http_once_rpc_answer(data, size, &id, to);
    assert(len <= room && (len != 0) == ngx_http_once_rpc_has(data, size));
    assert(len == 0 || memchr(data, 0, size) != NULL ||
           ngx_http_once_rpc_has(to, len) == NGX_HTTP_ONCE_RPC_ANSWERS);

    int have = ngx_http_once_rpc_events_have(data, size, &used);
    assert(have >= 0 && used <= size);
    len = ngx_http_once_rpc_events(data, size, &id, to);
    assert(len <= room && (len != 0) == ((have & NGX_HTTP_ONCE_RPC_ANSWERS) != 0));
    if (len != 0 && memchr(data, 0, size) == NULL) {
        assert(ngx_http_once_rpc_events_have(to, len, &used) == NGX_HTTP_ONCE_RPC_ANSWERS);
        assert(used == len);
    }
    free(to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ngx_http_once_call_t call;

    switch (ngx_http_once_rpc_read(data, size, tools, sizeof(tools) / sizeof(tools[0]), &call)) {
    case NGX_HTTP_ONCE_RPC_PASS:
        check_pass(data, size);
        break;
    case NGX_HTTP_ONCE_RPC_CALL:
        check_call(data, size, &call);
        break;
    default:
        assert(call.wrong != NULL && call.code < 0);
    }
    if (size > 0) {
        check_answers(data, size);
    }
    return 0;
}
