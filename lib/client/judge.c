#include "client/judge.h"

#include <string.h>

#define PREFIX "urn:once:problem:"

once__client_verdict_t once__client_judge(const once__client_reply_t *reply)
{
    /* A server that replays has recorded it: repeating would get the same answer, also of a 500. */
    if (reply->replayed) {
        return ONCE__CLIENT_FINAL;
    }
    switch (reply->status) {
    case 401:
    case 403:
    case 407:
        return ONCE__CLIENT_DENIED;
    case 408:
    case 421:
    case 425:
    case 429:
        return ONCE__CLIENT_AGAIN;
    case 409:
        if (strcmp(reply->problem, "outcome-unknown") == 0) {
            return ONCE__CLIENT_UNKNOWN;
        }
        /* Other APIs say 409 for a request in progress, too, and then when to come back; without that it is an answer. */
        return reply->has_retry_after || strcmp(reply->problem, "in-flight") == 0 ||
                       strcmp(reply->problem, "in-doubt") == 0
                   ? ONCE__CLIENT_AGAIN
                   : ONCE__CLIENT_FINAL;
    case 303: /* RFC 9110: handled, and the response is a resource of its own */
        return ONCE__CLIENT_FINAL;
    default:
        if (reply->status >= 300 && reply->status < 400) {
            return ONCE__CLIENT_REDIRECTED;
        }
        return reply->status >= 200 && reply->status < 500 ? ONCE__CLIENT_FINAL
                                                           : ONCE__CLIENT_AGAIN;
    }
}

void once__client_problem(char *out, size_t size, const char *body, size_t len)
{
    const char *at = len > 0 ? memmem(body, len, PREFIX, strlen(PREFIX)) : NULL;
    size_t n = 0;

    if (at != NULL) {
        const char *end = body + len;
        for (at += strlen(PREFIX); at < end && n + 1 < size; at++) {
            if (!((*at >= 'a' && *at <= 'z') || *at == '-')) {
                break;
            }
            out[n++] = *at;
        }
    }
    out[n] = '\0';
}
