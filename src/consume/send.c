/*
 * The request to the handler, and what its answer means (docs/consume.md has the table).
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "consume/internal.h"

#define RETRY_AFTER_MAX 300000
#define VALUE_MAX       1024

/* ----------------------------------------------------------------------------------------------------------- request */

typedef struct passing {
    once__consume_item_t *item;
    once__consume_handler_headers_t *headers;
    int has_type;
} passing_t;

static int is_named(const once__consume_settings_t *set, once_slice_t name)
{
    for (size_t i = 0; i < set->header_count; i++) {
        if (strlen(set->headers[i]) == name.len &&
            strncasecmp(set->headers[i], name.data, name.len) == 0) {
            return 1;
        }
    }
    return 0;
}

static int is(once_slice_t name, const char *text)
{
    return name.len == strlen(text) && strncasecmp(name.data, text, name.len) == 0;
}

/* A header name as HTTP has it, and a value that stays on its line? */
static int is_plain(once_slice_t name, once_slice_t value)
{
    return name.len < 100 && once__is_token(name.data, name.len) && value.len > 0 &&
           value.len < VALUE_MAX && once__is_field_value(value.data, value.len);
}

static void pass_on(void *data, once_slice_t name, once_slice_t value)
{
    passing_t *passing = data;
    const char *text = name.data;

    if (!is_plain(name, value)) {
        return;
    }
    if (name.len > 3 && strncasecmp(text, "ce_", 3) == 0) {
        once__consume_handler_headers_add(passing->headers, "ce-%.*s: %.*s", (int)name.len - 3,
                                          text + 3, (int)value.len, (const char *)value.data);
    } else if (is(name, "content-type")) {
        passing->has_type = 1;
        once__consume_handler_headers_add(passing->headers, "Content-Type: %.*s", (int)value.len,
                                          (const char *)value.data);
    } else if (is(name, "traceparent") || is(name, "tracestate") ||
               is_named(passing->item->consumer->settings, name)) {
        once__consume_handler_headers_add(passing->headers, "%.*s: %.*s", (int)name.len, text,
                                          (int)value.len, (const char *)value.data);
    }
}

/* A key that is not plain is sent as the draft has it: a quoted string. */
static void add_key(once__consume_handler_headers_t *headers, const once__consume_id_t *key)
{
    char quoted[2 * ONCE_KEY_TEXT_SIZE + 2];
    size_t len = 0;

    if (strpbrk(key->text, "\",\\") == NULL && key->text[0] != ' ' &&
        key->text[key->len - 1] != ' ') {
        once__consume_handler_headers_add(headers, "Idempotency-Key: %s", key->text);
        return;
    }
    for (size_t i = 0; i < key->len; i++) {
        if (key->text[i] == '"' || key->text[i] == '\\') {
            quoted[len++] = '\\';
        }
        quoted[len++] = key->text[i];
    }
    once__consume_handler_headers_add(headers, "Idempotency-Key: \"%.*s\"", (int)len, quoted);
}

static void add_message_key(once__consume_handler_headers_t *headers, once_slice_t key)
{
    char text[3 * 256 + 1];
    size_t len = 0;

    if (key.data == NULL || key.len > 256) {
        return;
    }
    for (size_t i = 0; i < key.len; i++) {
        unsigned char c = ((const unsigned char *)key.data)[i];
        if (c > 0x20 && c < 0x7f && c != '%') {
            text[len++] = (char)c;
        } else {
            len += (size_t)sprintf(text + len, "%%%02X", (unsigned)c);
        }
    }
    once__consume_handler_headers_add(headers, "Once-Message-Key: %.*s", (int)len, text);
}

static once__consume_handler_headers_t *make_headers(once__consume_item_t *item)
{
    const once__consume_t *consumer = item->consumer;
    once__consume_handler_headers_t *headers = once__consume_handler_headers_new();
    passing_t passing = {item, headers, 0};
    char token[ONCE_TOKEN_SIZE];

    once_claim_token(item->claim, token);
    once__consume_handler_headers_add(headers, "Expect:");
    once__consume_handler_headers_add(headers, "Accept:");
    add_key(headers, &item->key);
    once__consume_handler_headers_add(headers, "Once-Claim: %s", token);
    once__consume_handler_headers_add(headers, "Once-Subscriber: %s", consumer->subscriber);
    once__consume_handler_headers_add(headers, "Once-Tries: %u", item->tries);
    add_message_key(headers, item->delivery->key);
    once__broker_delivery_headers(item->delivery, pass_on, &passing);
    if (!passing.has_type) {
        once__consume_handler_headers_add(headers, "Content-Type: %s",
                                          consumer->settings->content_type);
    }
    return headers;
}

/* ------------------------------------------------------------------------------------------------------------ answer */

/* It did not work, and may another time; unless that was the last try. */
static once__consume_next_t try_again(once__consume_item_t *item)
{
    if (item->tries < item->consumer->settings->tries) {
        once__consume_say(item, ONCE__CONSUME_LINE_RETRY);
        return ONCE__CONSUME_NEXT_PAUSE;
    }
    item->reason = ONCE__CONSUME_REASON_TRIES;
    return ONCE__CONSUME_NEXT_DEAD_LETTER;
}

static void in_doubt(once__consume_item_t *item)
{
    once__consume_next_t next = ONCE__CONSUME_NEXT_PAUSE;

    once__service_metric_count(item->consumer->counters.doubts, 1);
    once__consume_say(item, ONCE__CONSUME_LINE_DOUBT);
    if (once_policy_recover(item->consumer->policy) !=
        ONCE_RECOVER_HOLD) { /* there it will be parked */
        next = try_again(item);
    }
    once__consume_end_doubt(item, next);
}

static void by_judgement(once__consume_item_t *item, int status, once_verdict_t said)
{
    switch (once_claim_judge(item->claim, item->consumer->policy, status, said)) {
    case ONCE_JUDGE_RECORD:
        once__consume_end_complete(item);
        break;
    case ONCE_JUDGE_RELEASE:
        once__consume_end_release(item, try_again(item));
        break;
    case ONCE_JUDGE_EARLY:
        once__consume_end_release_early(item, try_again(item));
        break;
    default:
        in_doubt(item);
        break;
    }
}

static void describe(once__consume_item_t *item, const once__consume_reply_t *reply)
{
    if (reply->status != 0) {
        snprintf(item->detail, sizeof(item->detail), "the handler answered %d%s%s", reply->status,
                 reply->words[0] != '\0' ? ": " : "", reply->words);
    } else {
        snprintf(item->detail, sizeof(item->detail), "%s: %.160s",
                 reply->sent ? "no complete answer" : "the handler was not reached",
                 reply->trouble);
    }
}

static void replied(void *data, const once__consume_reply_t *reply)
{
    once__consume_item_t *item = data;
    int status = reply->status;

    item->status = status;
    item->retry_after = reply->retry_after < RETRY_AFTER_MAX ? reply->retry_after : RETRY_AFTER_MAX;
    describe(item, reply);
    once__service_metric_observe(item->consumer->counters.seconds, (int64_t)reply->took);
    if (status == 0 && !reply->sent) {
        item->tries--;
        once__consume_say(item, ONCE__CONSUME_LINE_UNREACHED);
        once__consume_end_release_early(item, ONCE__CONSUME_NEXT_PAUSE);
    } else if (status == 0) {
        in_doubt(item);
    } else if (reply->said != ONCE_SAID_NOTHING || status < 300 || status >= 500 || status == 408) {
        by_judgement(item, status, reply->said);
    } else if (status == 409 || status == 425 || status == 429) {
        once__consume_end_release(item, try_again(item));
    } else {
        item->reason = ONCE__CONSUME_REASON_REJECTED;
        once__consume_end_release(item, ONCE__CONSUME_NEXT_DEAD_LETTER);
    }
}

static void send_one(once__consume_item_t *item)
{
    once__consume_t *consumer = item->consumer;

    if (once__broker_delivery_lost(item->delivery) || !once_claim_alive(item->claim)) {
        once__consume_end_release_early(
            item, ONCE__CONSUME_NEXT_PAUSE); /* then it is dropped, or asked about again */
        return;
    }
    once__consume_item_stage(item, ONCE__CONSUME_RUNNING);
    item->tries++;
    if (item->tries > 1) {
        once__service_metric_count(consumer->counters.retries, 1);
    }
    if (once__consume_handler_post(consumer->handler, make_headers(item), item->delivery->payload,
                                   replied, item) != 0) {
        item->tries--;
        once__consume_end_release_early(item, ONCE__CONSUME_NEXT_PAUSE);
    }
}

void once__consume_send_granted(once__consume_t *consumer)
{
    once__consume_items_t *granted = &consumer->stages[ONCE__CONSUME_GRANTED];

    while (granted->first != NULL &&
           consumer->stages[ONCE__CONSUME_RUNNING].count < consumer->settings->concurrency) {
        send_one(granted->first);
    }
}
