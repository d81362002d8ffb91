#include "raw.h"

#include "support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/url.h"

redisContext *raw_connect(void)
{
    redisContext *raw = redisConnect("127.0.0.1", atoi(getenv("ONCE_REDIS_PORT")));

    assert_non_null(raw);
    assert_int_equal(raw->err, 0);
    return raw;
}

static redisReply *check(redisReply *reply)
{
    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR) {
        fail_msg("%s", reply->str);
    }
    return reply;
}

redisReply *raw_call(redisContext *raw, const char *format, ...)
{
    va_list args;
    redisReply *reply;

    va_start(args, format);
    reply = redisvCommand(raw, format, args);
    va_end(args);
    return check(reply);
}

long long raw_integer(redisContext *raw, const char *format, ...)
{
    va_list args;
    redisReply *reply;
    long long number;

    va_start(args, format);
    reply = check(redisvCommand(raw, format, args));
    va_end(args);
    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    number = reply->integer;
    freeReplyObject(reply);
    return number;
}

void raw_key(char key[64], const uint8_t id[ONCE_ID_SIZE])
{
    memcpy(key, "once:", 5);
    once__base64url(key + 5, id, ONCE_ID_SIZE);
}

raw_store_t raw_open(const char *options)
{
    char text[1024];
    raw_store_t raw;
    once_error_t err = {0};
    once__url_t url;
    int code;

    (void)snprintf(text, sizeof(text), "%s%s", getenv("ONCE_REDIS_URL"), options);
    raw.loop = once__loop_new(&once__real_env, &code);
    assert_non_null(raw.loop);
    assert_int_equal(once__url_parse(&url, "store URL", text, 0, &err), ONCE_OK);
    once__store_config_t config = {
        .path = url.path, .timeout_ms = 20000, .loop = raw.loop, .url = &url};
    code = once__store_find(url.scheme, strlen(url.scheme))->open(&config, &raw.store, &err);
    if (code != ONCE_OK) {
        fail_msg("%s", err.text);
    }
    once__url_free(&url);
    return raw;
}

void raw_turn(const raw_store_t *raw)
{
    (void)once__loop_wait(raw->loop, 1000);
    once__loop_enter(raw->loop);
    (void)once__loop_run(raw->loop);
    (void)raw->store->vt->dispatch(raw->store);
    once__loop_leave(raw->loop);
}

void raw_close(raw_store_t *raw)
{
    raw->store->vt->close(raw->store);
    once__loop_free(raw->loop);
}
