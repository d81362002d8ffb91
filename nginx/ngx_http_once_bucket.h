/*
 * The buckets of once_quota: the decisions, independent of nginx.
 *
 * A bucket is stored as the time at which it will be full again. A set has a
 * fixed number of buckets. A scope that finds none in its set takes over the
 * fullest one and continues from its level: no count is forgotten early,
 * however many scopes are invented for that purpose.
 */
#ifndef NGX_HTTP_ONCE_BUCKET_H
#define NGX_HTTP_ONCE_BUCKET_H

#include <stddef.h>
#include <stdint.h>


#define NGX_HTTP_ONCE_WAYS  8


typedef struct {
    uint64_t                     tag;          /* of scope and quota; 0: free */
    uint64_t                     full_usec;    /* when it will be full again */
} ngx_http_once_bucket_t;


/* NULL: there is none, and `fullest` is the one to take over. */

static inline ngx_http_once_bucket_t *
ngx_http_once_bucket_find(ngx_http_once_bucket_t *set, uint64_t tag,
    ngx_http_once_bucket_t **fullest)
{
    int  i;

    *fullest = set;

    for (i = 0; i < NGX_HTTP_ONCE_WAYS; i++) {

        if (set[i].tag == tag) {
            return &set[i];
        }

        if (set[i].full_usec < (*fullest)->full_usec) {
            *fullest = &set[i];
        }
    }

    return NULL;
}


/* Takes one from the bucket. Returns 0, or the time until there is one. */

static inline uint64_t
ngx_http_once_bucket_take(ngx_http_once_bucket_t *set, uint64_t tag,
    uint64_t now, uint64_t period, uint64_t step)
{
    uint64_t                 full;
    ngx_http_once_bucket_t  *bucket, *fullest;

    bucket = ngx_http_once_bucket_find(set, tag, &fullest);

    if (bucket == NULL) {
        bucket = fullest;
        bucket->tag = tag;

        /* it had a longer period: make it as empty as this one can be */

        if (bucket->full_usec > now + period) {
            bucket->full_usec = now + period;
        }
    }

    full = (bucket->full_usec > now ? bucket->full_usec : now) + step;

    if (full > now + period) {
        return full - now - period;
    }

    bucket->full_usec = full;

    return 0;
}


static inline void
ngx_http_once_bucket_give(ngx_http_once_bucket_t *set, uint64_t tag,
    uint64_t step)
{
    ngx_http_once_bucket_t  *bucket, *fullest;

    bucket = ngx_http_once_bucket_find(set, tag, &fullest);

    if (bucket && bucket->full_usec >= step) {
        bucket->full_usec -= step;
    }
}


#endif
