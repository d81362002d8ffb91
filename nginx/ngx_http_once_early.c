/*
 * once_early_lookup: is there a completed record for this scope and key? The
 * lookup is made in the preaccess phase, before limit_req, so that
 * $once_limit_key can leave replays uncounted. It answers no request: a stored
 * response is sent only after the access phase, by the handler, which asks the
 * store again.
 *
 * At that time the caller is not authenticated. Guessing a scope and a key
 * gains a request that limit_req does not count: with those of a completed
 * record, passwords could be tried without limit. Therefore such a request is
 * on credit: its record and its client's address pay for it, and get it back
 * if it turns out to be a replay. If it is refused, or asks for something else
 * under the same key, the credit is spent and comes back only with time.
 * Without credit a request is counted like any other. Lookups are limited for
 * each connection as well.
 *
 * The accounts are slots in memory that all workers share, found by a hash.
 * Two that share a slot share its credit: they are counted sooner. A slot
 * holds the time at which the account is full again, so that the credit of a
 * killed worker comes back, too.
 *
 * What holds in this worker:
 *
 *   I-1  No more lookups of a connection run than may run at once, and no more
 *        are left than a full account has.
 *   I-2  A request that waits for its lookup is counted at its connection.
 *   I-3  A request takes credit once.
 */
#include "ngx_http_once_request.h"

#include <assert.h>


#define NGX_HTTP_ONCE_LOOKUPS_AT_ONCE     8
#define NGX_HTTP_ONCE_LOOKUPS_BURST       64
#define NGX_HTTP_ONCE_LOOKUPS_PER_SECOND  16

#define NGX_HTTP_ONCE_CREDIT_KINDS  2
#define NGX_HTTP_ONCE_CREDIT_SLOTS  4096

/* Fits the slots and what nginx needs for itself. */
#define NGX_HTTP_ONCE_CREDIT_SIZE   (256 * 1024)


typedef struct {
    ngx_msec_t                   interval;     /* until one comes back */
    ngx_uint_t                   burst;
} ngx_http_once_credit_kind_t;


typedef struct {
    ngx_atomic_t                 full[NGX_HTTP_ONCE_CREDIT_KINDS]
                                     [NGX_HTTP_ONCE_CREDIT_SLOTS];
} ngx_http_once_credits_t;


/* The accounts that a request's credit was taken from; NULL: none. */
typedef struct {
    ngx_atomic_t                *account[NGX_HTTP_ONCE_CREDIT_KINDS];
} ngx_http_once_credit_t;


/* What a client's connection has left, in thousandths of a lookup. */
typedef struct {
    ngx_uint_t                   running;
    ngx_uint_t                   left;
    ngx_msec_t                   last;
} ngx_http_once_lookups_t;


/* What the store calls back. Outlives the request. */
typedef struct {
    ngx_http_request_t          *request;      /* NULL: gone */
} ngx_http_once_lookup_t;


/* Of a request. Lives in a cleanup of its pool. */
typedef struct {
    ngx_http_once_lookups_t     *lookups;
    ngx_http_once_lookup_t      *lookup;       /* NULL: over */
    ngx_event_t                  timer;        /* the store may hang */
    ngx_http_request_t          *request;
    ngx_http_once_credit_t       credit;
    u_char                       id[ONCE_ID_SIZE];
    ngx_uint_t                   replay;
} ngx_http_once_early_t;


/* Of a record, with few callers; of an address, which many may share. */
static const ngx_http_once_credit_kind_t
    ngx_http_once_credit_kinds[NGX_HTTP_ONCE_CREDIT_KINDS] = {
    { 15000, 8 },
    { 1000, 64 }
};

static ngx_str_t                 ngx_http_once_early_name =
    ngx_string("once_early_lookup");

static ngx_http_once_credits_t  *ngx_http_once_credits;


/* ------------------------------------------------------------------ credit */

static ngx_int_t
ngx_http_once_early_init_zone(ngx_shm_zone_t *zone, void *old)
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
ngx_http_once_early_init(ngx_conf_t *cf)
{
    return ngx_http_once_add_zone(cf, &ngx_http_once_early_name,
                                  NGX_HTTP_ONCE_CREDIT_SIZE,
                                  ngx_http_once_early_init_zone)
           ? NGX_OK : NGX_ERROR;
}


static uint32_t
ngx_http_once_credit_hash(ngx_http_request_t *r)
{
    struct sockaddr     *sa;
    struct sockaddr_in  *sin;
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
        /* the network's half: a host chooses the other */
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


static void
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


/* Returns 0 if there is no credit left. */

static ngx_uint_t
ngx_http_once_credit_take(ngx_http_request_t *r, const u_char *id,
    ngx_http_once_credit_t *credit)
{
    ngx_uint_t  i;
    uint32_t    hash[NGX_HTTP_ONCE_CREDIT_KINDS];

    assert(credit->account[0] == NULL && credit->account[1] == NULL);  /* I-3 */

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


/* ----------------------------------------------------------------- lookups */

/* Only marks the connection's account in its pool. */

static void
ngx_http_once_lookups_cleanup(void *data)
{
}


/* A stream of HTTP/2 or HTTP/3 has a fake connection of its own. */

static ngx_connection_t *
ngx_http_once_client(ngx_http_request_t *r)
{
#if (NGX_HTTP_V2)
    if (r->stream) {
        return r->stream->connection->connection;
    }
#endif

#if (NGX_HTTP_V3)
    if (r->connection->quic) {
        return r->connection->quic->parent;
    }
#endif

    return r->connection;
}


static ngx_http_once_lookups_t *
ngx_http_once_take_lookup(ngx_http_request_t *r)
{
    ngx_pool_t               *pool;
    ngx_http_once_lookups_t  *lookups;

    pool = ngx_http_once_client(r)->pool;
    lookups = ngx_http_once_cleanup_find(pool, ngx_http_once_lookups_cleanup);

    if (lookups == NULL) {
        lookups = ngx_http_once_cleanup_add(pool, ngx_http_once_lookups_cleanup,
                                          sizeof(ngx_http_once_lookups_t));
        if (lookups == NULL) {
            return NULL;
        }

        lookups->left = NGX_HTTP_ONCE_LOOKUPS_BURST * 1000;
        lookups->last = ngx_current_msec;
    }

    lookups->left += ngx_min(ngx_current_msec - lookups->last, 60000)
                   * NGX_HTTP_ONCE_LOOKUPS_PER_SECOND;
    lookups->left = ngx_min(lookups->left, NGX_HTTP_ONCE_LOOKUPS_BURST * 1000);
    lookups->last = ngx_current_msec;

    assert(lookups->running <= NGX_HTTP_ONCE_LOOKUPS_AT_ONCE);       /* I-1 */
    assert(lookups->left <= NGX_HTTP_ONCE_LOOKUPS_BURST * 1000);

    if (lookups->left < 1000
        || lookups->running == NGX_HTTP_ONCE_LOOKUPS_AT_ONCE)
    {
        return NULL;
    }

    lookups->left -= 1000;
    lookups->running++;

    return lookups;
}


/* The request stops waiting for its lookup, which may still be pending. */

static void
ngx_http_once_early_leave(ngx_http_once_early_t *early)
{
    if (early->lookup == NULL) {
        return;
    }

    assert(early->lookups && early->lookups->running > 0);           /* I-2 */
    assert(early->lookup->request == early->request);

    early->lookup->request = NULL;
    early->lookup = NULL;
    early->lookups->running--;

    if (early->timer.timer_set) {
        ngx_del_timer(&early->timer);
    }
}


/* The request is destroyed. A replay gets its credit back. */

static void
ngx_http_once_early_cleanup(void *data)
{
    ngx_http_once_early_t *early = data;

    ngx_http_once_ctx_t  *ctx;

    ngx_http_once_early_leave(early);

    ctx = ngx_http_get_module_ctx(early->request, ngx_http_once_module);

    if (ctx && ctx->outcome == NGX_HTTP_ONCE_REPLAY) {
        ngx_http_once_credit_give(&early->credit);
    }
}


static void
ngx_http_once_early_resume(ngx_http_request_t *r)
{
    ngx_connection_t  *c;

    c = r->connection;
    ngx_http_set_log_request(c->log, r);

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;

    ngx_http_core_run_phases(r);
    ngx_http_run_posted_requests(c);
}


static void
ngx_http_once_early_timeout(ngx_event_t *ev)
{
    ngx_http_request_t  *r = ev->data;

    ngx_http_once_early_leave(ngx_http_once_cleanup_find(r->pool,
                                                ngx_http_once_early_cleanup));
    ngx_http_once_early_resume(r);
}


static void
ngx_http_once_early_done(once_t *once, once_answer_t *answer, void *data)
{
    ngx_http_once_lookup_t *lookup = data;

    ngx_http_request_t     *r;
    const once_record_t    *record;
    ngx_http_once_early_t  *early;

    r = lookup->request;
    record = once_answer_record(answer);

    ngx_http_once_store_allow_exit();

    if (r == NULL) {
        ngx_free(lookup);
        return;
    }

    early = ngx_http_once_cleanup_find(r->pool, ngx_http_once_early_cleanup);
    early->replay = record
                    && once_record_state(record) == ONCE_STATE_COMPLETED
                    && ngx_http_once_credit_take(r, early->id, &early->credit);

    ngx_http_once_early_leave(early);
    ngx_free(lookup);

    ngx_http_once_early_resume(r);
}


/*
 * The record id by the scope and key that are known in this phase. Evaluated
 * variables are cached, and some get another value in the access phase: they
 * are restored.
 */

static ngx_int_t
ngx_http_once_early_id(ngx_http_request_t *r, ngx_http_once_loc_conf_t *conf,
    u_char *id)
{
    size_t                      size;
    ngx_str_t                   detail;
    ngx_int_t                   rc;
    ngx_http_once_ctx_t        *ctx;
    ngx_http_once_problem_e     problem;
    ngx_http_variable_value_t  *saved;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);
    size = cmcf->variables.nelts * sizeof(ngx_http_variable_value_t);

    ctx = ngx_pcalloc(r->pool, sizeof(ngx_http_once_ctx_t));
    saved = ngx_palloc(r->pool, size);

    if (ctx == NULL || saved == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(saved, r->variables, size);

    ctx->request = r;
    ctx->conf = conf;
    rc = ngx_http_once_identify(r, ctx, &problem, &detail);

    ngx_memcpy(r->variables, saved, size);

    if (rc != NGX_OK) {
        return NGX_DECLINED;
    }

    return ngx_http_once_identify_record(ctx, id) == ONCE_OK ? NGX_OK
                                                             : NGX_DECLINED;
}


static ngx_int_t
ngx_http_once_early_ask(ngx_http_request_t *r, ngx_http_once_early_t *early,
    ngx_http_once_loc_conf_t *conf, const u_char *id)
{
    ngx_http_once_lookup_t  *lookup;

    lookup = ngx_alloc(sizeof(ngx_http_once_lookup_t), r->connection->log);
    if (lookup == NULL) {
        return NGX_ERROR;
    }

    lookup->request = r;

    if (once_record_get(conf->store->once, id, ngx_http_once_early_done, lookup)
        != ONCE_OK)
    {
        ngx_free(lookup);
        return NGX_DECLINED;
    }

    early->lookup = lookup;
    ngx_http_once_store_block_exit();

    early->timer.handler = ngx_http_once_early_timeout;
    early->timer.data = r;
    early->timer.log = ngx_cycle->log;
    ngx_add_timer(&early->timer, conf->store_timeout);

    return NGX_OK;
}


ngx_int_t
ngx_http_once_early_handler(ngx_http_request_t *r)
{
    ngx_http_once_early_t     *early;
    ngx_http_once_loc_conf_t  *conf;

    conf = ngx_http_get_module_loc_conf(r, ngx_http_once_module);

    if (!conf->enable || !conf->early_lookup || r != r->main
        || !(conf->methods & r->method) || conf->store->once == NULL
        || ngx_http_once_entry_was_refused(r))
    {
        return NGX_DECLINED;
    }

    early = ngx_http_once_cleanup_find(r->pool, ngx_http_once_early_cleanup);

    if (early) {
        return early->lookup ? NGX_AGAIN : NGX_DECLINED;
    }

    early = ngx_http_once_cleanup_add(r->pool, ngx_http_once_early_cleanup,
                                      sizeof(ngx_http_once_early_t));
    if (early == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    early->request = r;

    if (ngx_http_once_early_id(r, conf, early->id) != NGX_OK) {
        return NGX_DECLINED;
    }

    early->lookups = ngx_http_once_take_lookup(r);
    if (early->lookups == NULL) {
        return NGX_DECLINED;
    }

    if (ngx_http_once_early_ask(r, early, conf, early->id) != NGX_OK) {
        early->lookups->running--;
        return NGX_DECLINED;
    }

    /* notice a client that disconnects, as limit_req does */

    if (r->connection->read->ready) {
        ngx_post_event(r->connection->read, &ngx_posted_events);

    } else if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    return NGX_AGAIN;
}


ngx_uint_t
ngx_http_once_early_replay(ngx_http_request_t *r)
{
    ngx_http_once_early_t  *early;

    early = ngx_http_once_cleanup_find(r->pool, ngx_http_once_early_cleanup);

    return early && early->replay;
}
