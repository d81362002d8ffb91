/*
 * Credit for the early look. A request that is taken for a replay is not
 * counted by limit_req, before anybody knows who sent it: whoever knows the
 * scope and the key of a completed record could try passwords without end. So
 * such a request is on credit, of its record and of its client's address, and
 * gives it back when it turns out to be a replay. One that is refused, or asks
 * for something else under the key, does not; what is spent comes back with
 * time. Without credit a request is counted like any other.
 *
 * Accounts are slots in memory that all workers share, found by a hash. Two that
 * meet in a slot have less together: they are counted sooner. A slot holds the
 * time at which the account is full again; that of a worker that was killed
 * comes back by itself, too.
 */
#include "ngx_http_once_request.h"


#define NGX_HTTP_ONCE_CREDIT_SLOTS  4096

/* Fits the slots and what nginx needs for itself. */
#define NGX_HTTP_ONCE_CREDIT_SIZE   (256 * 1024)


typedef struct {
    ngx_msec_t                   interval;         /* until one comes back */
    ngx_uint_t                   burst;
} ngx_http_once_credit_kind_t;


typedef struct {
    ngx_atomic_t                 full[NGX_HTTP_ONCE_CREDIT_KINDS]
                                     [NGX_HTTP_ONCE_CREDIT_SLOTS];
} ngx_http_once_credits_t;


/* Of a record, which has few callers; of an address, behind which many may be. */
static const ngx_http_once_credit_kind_t
    ngx_http_once_credit_kinds[NGX_HTTP_ONCE_CREDIT_KINDS] = {
    { 15000, 8 },
    { 1000, 64 }
};

static ngx_str_t                 ngx_http_once_credit_name =
    ngx_string("once_early_lookup");

static ngx_http_once_credits_t  *ngx_http_once_credits;


static ngx_int_t
ngx_http_once_credit_zone(ngx_shm_zone_t *zone, void *old)
{
    ngx_slab_pool_t  *pool;

    pool = (ngx_slab_pool_t *) zone->shm.addr;

    if (pool->data == NULL) {
        pool->data = ngx_slab_calloc(pool, sizeof(ngx_http_once_credits_t));
    }

    ngx_http_once_credits = pool->data;

    return ngx_http_once_credits ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_http_once_credit_init(ngx_conf_t *cf)
{
    ngx_shm_zone_t  *zone;

    zone = ngx_shared_memory_add(cf, &ngx_http_once_credit_name,
                                 NGX_HTTP_ONCE_CREDIT_SIZE,
                                 &ngx_http_once_module);
    if (zone == NULL) {
        return NGX_ERROR;
    }

    zone->init = ngx_http_once_credit_zone;

    return NGX_OK;
}


static uint32_t
ngx_http_once_credit_hash(ngx_http_request_t *r)
{
    struct sockaddr      *sa;
    struct sockaddr_in   *sin;
#if (NGX_HAVE_INET6)
    struct sockaddr_in6  *sin6;
#endif

    sa = r->connection->sockaddr;

    switch (sa->sa_family) {

    case AF_INET:
        sin = (struct sockaddr_in *) sa;
        return ngx_murmur_hash2((u_char *) &sin->sin_addr, 4);

#if (NGX_HAVE_INET6)
    case AF_INET6:
        /* the half that a network has; the other a host chooses */
        sin6 = (struct sockaddr_in6 *) sa;
        return ngx_murmur_hash2(sin6->sin6_addr.s6_addr, 8);
#endif

    default:
        return 0;
    }
}


static ngx_uint_t
ngx_http_once_credit_spend(ngx_atomic_t *full,
    const ngx_http_once_credit_kind_t *kind)
{
    ngx_msec_t         now;
    ngx_atomic_uint_t  old, from;

    now = ngx_current_msec;

    do {
        old = *full;
        from = ngx_max(old, now);

        if (from - now > kind->interval * (kind->burst - 1)) {
            return 0;
        }

    } while (!ngx_atomic_cmp_set(full, old, from + kind->interval));

    return 1;
}


static void
ngx_http_once_credit_return(ngx_atomic_t *full,
    const ngx_http_once_credit_kind_t *kind)
{
    ngx_atomic_uint_t  old;

    do {
        old = *full;
    } while (!ngx_atomic_cmp_set(full, old,
                                 old - ngx_min(old, kind->interval)));
}


ngx_uint_t
ngx_http_once_credit_take(ngx_http_request_t *r, const u_char *id,
    ngx_http_once_credit_t *credit)
{
    ngx_uint_t  i;
    uint32_t    hash[NGX_HTTP_ONCE_CREDIT_KINDS];

    ngx_memcpy(&hash[0], id, sizeof(uint32_t));
    hash[1] = ngx_http_once_credit_hash(r);

    for (i = 0; i < NGX_HTTP_ONCE_CREDIT_KINDS; i++) {

        credit->account[i] = &ngx_http_once_credits->full[i]
                                  [hash[i] % NGX_HTTP_ONCE_CREDIT_SLOTS];

        if (!ngx_http_once_credit_spend(credit->account[i],
                                        &ngx_http_once_credit_kinds[i]))
        {
            credit->account[i] = NULL;
            ngx_http_once_credit_give(credit);
            return 0;
        }
    }

    return 1;
}


void
ngx_http_once_credit_give(ngx_http_once_credit_t *credit)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_HTTP_ONCE_CREDIT_KINDS; i++) {

        if (credit->account[i]) {
            ngx_http_once_credit_return(credit->account[i],
                                        &ngx_http_once_credit_kinds[i]);
            credit->account[i] = NULL;
        }
    }
}
