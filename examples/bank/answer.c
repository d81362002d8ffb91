#include "answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A service without memory for an answer has none for anything else: better to end and be restarted. */
static void *must(void *memory)
{
    if (memory == NULL) {
        fputs("bank: out of memory\n", stderr);
        abort();
    }
    return memory;
}

void answer_clear(answer_t *answer)
{
    for (size_t i = 0; i < answer->header_count; i++) {
        free(answer->headers[i].name);
        free(answer->headers[i].value);
    }
    free(answer->body);
    memset(answer, 0, sizeof(*answer));
}

void answer_header_bytes(answer_t *answer, const char *name, size_t name_len, const char *value,
                         size_t value_len)
{
    if (answer->header_count < ANSWER_HEADERS_MAX) {
        answer->headers[answer->header_count].name = must(strndup(name, name_len));
        answer->headers[answer->header_count].value = must(strndup(value, value_len));
        answer->header_count++;
    }
}

void answer_header(answer_t *answer, const char *name, const char *value)
{
    answer_header_bytes(answer, name, strlen(name), value, strlen(value));
}

void answer_bytes(answer_t *answer, int status, const char *type, const char *body, size_t len)
{
    answer_clear(answer);
    answer->status = status;
    if (type != NULL) {
        answer_header(answer, "Content-Type", type);
    }
    answer->body = must(malloc(len + 1));
    memcpy(answer->body, body, len);
    answer->body[len] = '\0';
    answer->body_len = len;
}

void answer_json(answer_t *answer, int status, const char *type, json_t *json)
{
    char *text = must(json_dumps(must(json), JSON_COMPACT));
    size_t len = strlen(text);

    text = must(realloc(text, len + 2));
    memcpy(text + len, "\n", 2);
    answer_bytes(answer, status, type, text, len + 1);
    free(text);
    json_decref(json);
}

static void problem(answer_t *answer, int status, const char *name, const char *detail,
                    int retryable)
{
    char type[80];

    snprintf(type, sizeof(type), "urn:bank:problem:%s", name);
    answer_json(answer, status, "application/problem+json",
                json_pack("{s:s, s:i, s:s, s:b}", "type", type, "status", status, "detail", detail,
                          "retryable", retryable));
}

void answer_problem(answer_t *answer, int status, const char *name, const char *detail)
{
    problem(answer, status, name, detail, 0);
}

void answer_later(answer_t *answer, int status, const char *name, const char *detail,
                  const char *outcome, unsigned after_s)
{
    char seconds[16];

    problem(answer, status, name, detail, 1);
    snprintf(seconds, sizeof(seconds), "%u", after_s);
    answer_header(answer, "Retry-After", seconds);
    if (outcome != NULL) {
        answer_header(answer, "Once-Outcome", outcome);
    }
}
