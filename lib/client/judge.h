/*
 * What an answer means for the intent: a pure function. docs/call.md has the table.
 */
#ifndef ONCE_CLIENT_JUDGE_H
#define ONCE_CLIENT_JUDGE_H

#include <stddef.h>

typedef enum once__client_verdict {
    ONCE__CLIENT_FINAL,      /* this is the answer */
    ONCE__CLIENT_AGAIN,      /* the same request is to be sent again */
    ONCE__CLIENT_DENIED,     /* did nothing, and will do nothing with these credentials */
    ONCE__CLIENT_UNKNOWN,    /* the server does not know, and does not try again */
    ONCE__CLIENT_REDIRECTED, /* the server names another URL, and is not followed */
} once__client_verdict_t;

typedef struct once__client_reply {
    int status;
    int replayed;        /* Idempotent-Replayed: true */
    int has_retry_after; /* whatever it says */
    const char *problem; /* "in-flight": of `urn:once:problem:in-flight`; "": none */
} once__client_reply_t;

once__client_verdict_t once__client_judge(const once__client_reply_t *reply);

/* The name of the problem that a body of application/problem+json has; "" if it is none of ours. */
void once__client_problem(char *out, size_t size, const char *body, size_t len);

#endif
