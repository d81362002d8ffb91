/*
 * The early look: is there a completed record of this scope and key? Asked in
 * the preaccess phase, ahead of limit_req, so that $once_limit_key can leave
 * replays uncounted. It answers nobody: a stored response is sent only after
 * the access phase, by the handler, which asks again.
 *
 * The caller is not known to be who he says he is at that time. What a guessed
 * scope and key can gain is a request that limit_req does not count: those that
 * turn out to be no replays are bounded for each record and each address
 * (ngx_http_once_credit.c), and how many looks there are for each connection.
 */
#include "ngx_http_once_request.h"


#define NGX_HTTP_ONCE_LOOKS_AT_ONCE     8
#define NGX_HTTP_ONCE_LOOKS_BURST       64
#define NGX_HTTP_ONCE_LOOKS_PER_SECOND  16


/* Of a client's connection: what is left of its looks, in thousandths. */
typedef struct {
    ngx_uint_t                   running;
    ngx_uint_t                   left;
    ngx_msec_t                   last;
} ngx_http_once_looks_t;


/* What the store calls back. Outlives the request. */
typedef struct {
    ngx_http_request_t          *request;          /* NULL: gone */
} ngx_http_once_look_t;


/* Of a request. Lives in a cleanup of its pool. */
typedef struct {
    ngx_http_once_looks_t       *looks;
    ngx_http_once_look_t        *look;             /* NULL: over */
    ngx_event_t                  timer;            /* a store may hang */
    ngx_http_request_t          *request;
    ngx_http_once_credit_t       credit;
    u_char                       id[ONCE_ID_SIZE];
    ngx_uint_t                   replay;
} ngx_http_once_early_t;


void *
ngx_http_once_find_cleanup(ngx_pool_t *pool, ngx_pool_cleanup_pt handler)
{
    ngx_pool_cleanup_t  *cln;

    for (cln = pool->cleanup; cln; cln = cln->next) {
        if (cln->handler == handler) {
            return cln->data;
        }
    }

    return NULL;
}


void *
ngx_http_once_add_cleanup(ngx_pool_t *pool, ngx_pool_cleanup_pt handler,
    size_t size)
{
    ngx_pool_cleanup_t  *cln;

    cln = ngx_pool_cleanup_add(pool, size);
    if (cln == NULL) {
        return NULL;
    }

    ngx_memzero(cln->data, size);
    cln->handler = handler;

    return cln->data;
}


/* Marks the connection's account; there is nothing to clean. */

static void
ngx_http_once_looks_cleanup(void *data)
{
}


/* A stream of HTTP/2 or HTTP/3 has a connection of its own, which is none. */

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


static ngx_http_once_looks_t *
ngx_http_once_take_look(ngx_http_request_t *r)
{
    ngx_pool_t             *pool;
    ngx_http_once_looks_t  *looks;

    pool = ngx_http_once_client(r)->pool;
    looks = ngx_http_once_find_cleanup(pool, ngx_http_once_looks_cleanup);

    if (looks == NULL) {
        looks = ngx_http_once_add_cleanup(pool, ngx_http_once_looks_cleanup,
                                          sizeof(ngx_http_once_looks_t));
        if (looks == NULL) {
            return NULL;
        }

        looks->left = NGX_HTTP_ONCE_LOOKS_BURST * 1000;
        looks->last = ngx_current_msec;
    }

    looks->left += ngx_min(ngx_current_msec - looks->last, 60000)
                   * NGX_HTTP_ONCE_LOOKS_PER_SECOND;
    looks->left = ngx_min(looks->left, NGX_HTTP_ONCE_LOOKS_BURST * 1000);
    looks->last = ngx_current_msec;

    if (looks->left < 1000
        || looks->running == NGX_HTTP_ONCE_LOOKS_AT_ONCE)
    {
        return NULL;
    }

    looks->left -= 1000;
    looks->running++;

    return looks;
}


/* Nobody waits for the look any more, whether it is over or not. */

static void
ngx_http_once_early_leave(ngx_http_once_early_t *early)
{
    if (early->look == NULL) {
        return;
    }

    early->look->request = NULL;
    early->look = NULL;
    early->looks->running--;

    if (early->timer.timer_set) {
        ngx_del_timer(&early->timer);
    }
}


/* The request ends. It was not counted: had it been a replay? */

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

    ngx_http_once_early_leave(ngx_http_once_find_cleanup(r->pool,
                                                ngx_http_once_early_cleanup));
    ngx_http_once_early_resume(r);
}


static void
ngx_http_once_early_done(once_t *once, once_answer_t *answer, void *data)
{
    ngx_http_once_look_t *look = data;

    ngx_http_request_t     *r;
    const once_record_t    *record;
    ngx_http_once_early_t  *early;

    r = look->request;
    record = once_answer_record(answer);

    ngx_http_once_allow_exit();

    if (r == NULL) {
        ngx_free(look);
        return;
    }

    early = ngx_http_once_find_cleanup(r->pool, ngx_http_once_early_cleanup);
    early->replay = record
                    && once_record_state(record) == ONCE_STATE_COMPLETED
                    && ngx_http_once_credit_take(r, early->id, &early->credit);

    ngx_http_once_early_leave(early);
    ngx_free(look);

    ngx_http_once_early_resume(r);
}


/*
 * Scope and key as they can be known now. Variables that are evaluated here
 * would be remembered, and some have another value after the access phase:
 * they are set back to what they were.
 */

static ngx_int_t
ngx_http_once_early_id(ngx_http_request_t *r, ngx_http_once_loc_conf_t *conf,
    u_char *id)
{
    size_t                      size;
    once_slice_t                scope, key;
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

    scope.data = ctx->scope.data;
    scope.len = ctx->scope.len;
    key.data = ctx->key.text;
    key.len = ctx->key.len;

    return once_record_id_of(conf->store->once, scope, key, id) == ONCE_OK
           ? NGX_OK : NGX_DECLINED;
}


static ngx_int_t
ngx_http_once_early_ask(ngx_http_request_t *r, ngx_http_once_early_t *early,
    ngx_http_once_loc_conf_t *conf, const u_char *id)
{
    ngx_http_once_look_t  *look;

    look = ngx_alloc(sizeof(ngx_http_once_look_t), r->connection->log);
    if (look == NULL) {
        return NGX_ERROR;
    }

    look->request = r;

    if (once_record_get(conf->store->once, id, ngx_http_once_early_done, look)
        != ONCE_OK)
    {
        ngx_free(look);
        return NGX_DECLINED;
    }

    early->look = look;
    ngx_http_once_hold_exit();

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
        || ngx_http_once_was_refused(r))
    {
        return NGX_DECLINED;
    }

    early = ngx_http_once_find_cleanup(r->pool, ngx_http_once_early_cleanup);

    if (early) {
        return early->look ? NGX_AGAIN : NGX_DECLINED;
    }

    early = ngx_http_once_add_cleanup(r->pool, ngx_http_once_early_cleanup,
                                      sizeof(ngx_http_once_early_t));
    if (early == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    early->request = r;

    if (ngx_http_once_early_id(r, conf, early->id) != NGX_OK) {
        return NGX_DECLINED;
    }

    early->looks = ngx_http_once_take_look(r);
    if (early->looks == NULL) {
        return NGX_DECLINED;
    }

    if (ngx_http_once_early_ask(r, early, conf, early->id) != NGX_OK) {
        early->looks->running--;
        return NGX_DECLINED;
    }

    /* a client that hangs up now is noticed, as limit_req does it */

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

    early = ngx_http_once_find_cleanup(r->pool, ngx_http_once_early_cleanup);

    return early && early->replay;
}


/* ------------------------------------------------------------------ credit */

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
