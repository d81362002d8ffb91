#include "judge/internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/*
 * Headers that belong to one message and not to the result: those of the connection and of the framing (RFC 9110, 9112), those that
 * describe the moment or the server that answers, and cookies, which a careful layer does not keep. A name that ends with * is a
 * prefix.
 */
static const char *const not_kept[] = {
    "connection",
    "keep-alive",
    "proxy-*",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length", /* the bodies are compared */
    "date",
    "age",
    "server",
    "via",
    "set-cookie",
    "alt-svc",
    "nel",
    "report-to",
    "server-timing",
    "ratelimit*",
    "x-ratelimit*",
    "retry-after",
    "request-id",
    "x-request-id",
    "x-correlation-id",
    "x-runtime",
    "x-response-time",
    "x-amzn-*",
    "cf-*",
    "traceparent",
    "tracestate",
    NULL,
};

/* Headers by which layers say that an answer is a replay. */
static const char *const marks[] = {
    "idempotent-replayed", "idempotency-replayed",  "idempotent-replay",
    "idempotency-replay",  "x-idempotent-replayed", "x-idempotency-replayed",
    "x-idempotent-replay", "x-idempotency-replay",  NULL,
};

/* Others that differ between a first answer and its replay. */
static const char *const about_replays[] = {
    "idempotency-status",     "x-idempotency-status",
    "idempotency-key-status", "x-cache",
    "original-request",       NULL,
};

typedef struct line {
    const char *name;
    size_t name_len;
    once_slice_t value;
} line_t;

/* The header at `at`, and where the next one begins; NULL: there is none. */
static const char *next_line(const char *at, line_t *line)
{
    const char *end = at != NULL ? strchr(at, '\n') : NULL;
    const char *colon = end != NULL ? memchr(at, ':', (size_t)(end - at)) : NULL;
    const char *last;

    if (end == NULL) {
        return NULL;
    }
    line->name = at;
    line->name_len = colon != NULL ? (size_t)(colon - at) : 0;
    at = colon != NULL ? colon + 1 : end;
    for (last = end; last > at && isspace((unsigned char)last[-1]); last--) {
    }
    for (; at < last && isspace((unsigned char)*at); at++) {
    }
    line->value.data = at;
    line->value.len = (size_t)(last - at);
    return end + 1;
}

static int matches(const line_t *line, const char *pattern)
{
    size_t len = strlen(pattern);

    if (len > 0 && pattern[len - 1] == '*') {
        return line->name_len >= len - 1 && strncasecmp(line->name, pattern, len - 1) == 0;
    }
    return line->name_len == len && strncasecmp(line->name, pattern, len) == 0;
}

static int is_one_of(const line_t *line, const char *const *patterns)
{
    for (; *patterns != NULL; patterns++) {
        if (matches(line, *patterns)) {
            return 1;
        }
    }
    return 0;
}

once_slice_t once__judge_header(const once__judge_answer_t *answer, const char *name)
{
    line_t line;

    for (const char *at = answer->head.data; (at = next_line(at, &line)) != NULL;) {
        if (matches(&line, name)) {
            return line.value;
        }
    }
    return (once_slice_t){NULL, 0};
}

int once__judge_is_success(const once__judge_answer_t *answer)
{
    return answer->status >= 200 && answer->status < 400;
}

int once__judge_is_refusal(const once__judge_answer_t *answer)
{
    return answer->status >= 400 && answer->status < 500;
}

int once__judge_is_not_now(const once__judge_answer_t *answer)
{
    return answer->status == 0 || answer->status == 409 || answer->status == 425 ||
           answer->status == 429 || answer->status == 503;
}

int once__judge_is_same(const once__judge_answer_t *a, const once__judge_answer_t *b)
{
    return a->status == b->status && a->body.len == b->body.len &&
           (a->body.len == 0 || memcmp(a->body.data, b->body.data, a->body.len) == 0);
}

const char *once__judge_mark(const once__judge_answer_t *answer)
{
    for (const char *const *mark = marks; *mark != NULL; mark++) {
        once_slice_t value = once__judge_header(answer, *mark);
        int denied = value.len == 5 && strncasecmp(value.data, "false", 5) == 0;
        if (value.data != NULL && !denied) {
            return *mark;
        }
    }
    return NULL;
}

static int is_compared(const once__judge_t *judge, const line_t *line)
{
    const once__cli_list_t *ignored = &judge->options->ignored_headers;

    for (size_t i = 0; i < ignored->count; i++) {
        if (matches(line, ignored->items[i])) {
            return 0;
        }
    }
    return line->name_len > 0 && !is_one_of(line, not_kept) && !is_one_of(line, marks) &&
           !is_one_of(line, about_replays);
}

static size_t count_line(const once__judge_answer_t *answer, const line_t *wanted)
{
    size_t count = 0;
    line_t line;

    for (const char *at = answer->head.data; (at = next_line(at, &line)) != NULL;) {
        count += line.name_len == wanted->name_len && line.value.len == wanted->value.len &&
                 strncasecmp(line.name, wanted->name, line.name_len) == 0 &&
                 memcmp(line.value.data, wanted->value.data, line.value.len) == 0;
    }
    return count;
}

/* A header of `a` that `b` does not have as often, with the same value. */
static int missing(const once__judge_t *judge, const once__judge_answer_t *a,
                   const once__judge_answer_t *b, const char *what, char *why, size_t size)
{
    line_t line;

    for (const char *at = a->head.data; (at = next_line(at, &line)) != NULL;) {
        if (is_compared(judge, &line) && count_line(a, &line) != count_line(b, &line)) {
            snprintf(why, size, "%s: %.*s: %.*s", what, (int)line.name_len, line.name,
                     (int)(line.value.len > 120 ? 120 : line.value.len),
                     (const char *)line.value.data);
            return 1;
        }
    }
    return 0;
}

int once__judge_headers_differ(const once__judge_t *judge, const once__judge_answer_t *a,
                               const once__judge_answer_t *b, char *why, size_t size)
{
    return missing(judge, a, b, "the replay lacks, or has otherwise", why, size) ||
           missing(judge, b, a, "only the replay has", why, size);
}

const char *once__judge_status(const once__judge_answer_t *answer)
{
    static char texts[4][CURL_ERROR_SIZE + 16];
    static unsigned next;
    char *text = texts[next++ % 4];

    if (answer->status != 0) {
        snprintf(text, sizeof(texts[0]), "%d", answer->status);
    } else {
        snprintf(text, sizeof(texts[0]), "no answer (%s)", answer->trouble);
    }
    return text;
}
