/*
 * Limits on new keys: once_quota and once_unknown_max. Where one is reached, the
 * store is looked at before it is asked: a key that it knows is answered as
 * always, one that it does not know is refused and leaves nothing behind.
 */
#include "ngx_http_once_bucket.h"
#include "ngx_http_once_request.h"

#include <ngx_sha1.h>
#include <sys/random.h>


static void
ngx_http_once_refuse_new(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ctx->outcome = NGX_HTTP_ONCE_REFUSED;

    ngx_http_once_count(ctx->conf->route, NGX_HTTP_ONCE_C_REFUSED);
    ngx_http_once_count(ctx->conf->route,
                        ctx->refusal == NGX_HTTP_ONCE_P_QUOTA
                        ? NGX_HTTP_ONCE_C_OVER_QUOTA
                        : NGX_HTTP_ONCE_C_MANY_UNKNOWN);

    ngx_http_once_finish(r, ngx_http_once_refuse_request(r, ctx, ctx->refusal,
                                NULL, ctx->refusal_after));
}


static void
ngx_http_once_looked(once_t *once, once_answer_t *answer, void *data)
{
    int                     code;
    ngx_http_request_t     *r;
    ngx_http_once_ctx_t    *ctx;
    ngx_http_once_guard_t  *guard;

    guard = data;
    ctx = guard->ctx;

    (void) ngx_http_once_guard_returned(guard);

    if (ctx) {
        r = ctx->request;
        code = once_answer_error(answer);
        ngx_http_set_log_request(r->connection->log, r);

        if (code == ONCE_OK && once_answer_record(answer)) {
            ngx_http_once_ask(ctx);

        } else if (code == ONCE_OK || code == ONCE_E_NOT_FOUND) {
            ngx_http_once_refuse_new(r, ctx);

        } else {
            ngx_http_once_store_failed(r, ctx, code);
        }
    }

    ngx_http_once_guard_unref(guard);
}


/* NGX_OK: within the limits. */

static ngx_int_t
ngx_http_once_within(ngx_http_once_ctx_t *ctx)
{
    ngx_http_once_loc_conf_t  *conf;

    conf = ctx->conf;

    if (ngx_http_once_unknown_full(conf)) {
        ctx->refusal = NGX_HTTP_ONCE_P_MANY_UNKNOWN;
        ctx->refusal_after = conf->retry_after ? conf->retry_after : 30;
        return NGX_DECLINED;
    }

    if (ngx_http_once_quota_take(ctx, &ctx->refusal_after) != NGX_OK) {
        ctx->refusal = NGX_HTTP_ONCE_P_QUOTA;
        return NGX_DECLINED;
    }

    return NGX_OK;
}


void
ngx_http_once_admit(ngx_http_once_ctx_t *ctx)
{
    int           code;
    u_char        id[ONCE_ID_SIZE];
    once_t       *once;
    once_slice_t  scope, key;

    once = ctx->conf->store->once;

    if (once == NULL || ngx_http_once_within(ctx) == NGX_OK) {
        ngx_http_once_ask(ctx);
        return;
    }

    scope.data = ctx->scope.data;
    scope.len = ctx->scope.len;
    key.data = ctx->key.text;
    key.len = ctx->key.len;

    ctx->phase = NGX_HTTP_ONCE_ASKING;

    /* a worker that has just started has no secrets yet */

    code = once_record_id_of(once, scope, key, id);

    if (code == ONCE_OK) {
        code = once_record_get(once, id, ngx_http_once_looked, ctx->guard);
    }

    if (code == ONCE_OK) {
        ngx_http_once_guard_called(ctx->guard);
        return;
    }

    ngx_http_once_store_failed(ctx->request, ctx, code);
}


/* -------------------------------------------------------------- once_quota */

/*
 * once_quota: how many new records a scope may make in a time. A bucket for each
 * scope, in memory that all workers share and that a reload keeps: N records at
 * once, and then one more each N-th of the period.
 */

#define NGX_HTTP_ONCE_SETS       32768

/* It never changes: nginx keeps a zone over a reload only then. */
#define NGX_HTTP_ONCE_ZONE_SIZE                                               \
    ngx_align(sizeof(ngx_http_once_buckets_t) + 32 * 4096, 4096)


typedef struct {
    u_char                       secret[20];       /* of this zone: nobody can choose where a bucket is */
    ngx_http_once_bucket_t       set[NGX_HTTP_ONCE_SETS][NGX_HTTP_ONCE_WAYS];
} ngx_http_once_buckets_t;


static ngx_str_t  ngx_http_once_quota_name = ngx_string("once_quota");


static ngx_http_once_buckets_t *
ngx_http_once_quota_new(ngx_slab_pool_t *pool)
{
    ngx_http_once_buckets_t  *buckets;

    buckets = ngx_slab_calloc(pool, sizeof(ngx_http_once_buckets_t));

    if (buckets == NULL
        || getrandom(buckets->secret, sizeof(buckets->secret), 0)
           != (ssize_t) sizeof(buckets->secret))
    {
        return NULL;
    }

    return buckets;
}


static ngx_int_t
ngx_http_once_quota_init_zone(ngx_shm_zone_t *zone, void *old)
{
    ngx_slab_pool_t  *pool;

    pool = (ngx_slab_pool_t *) zone->shm.addr;

    if (pool->data == NULL) {
        pool->data = ngx_http_once_quota_new(pool);
    }

    return pool->data ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_http_once_quota_init(ngx_conf_t *cf, ngx_http_once_main_conf_t *omcf)
{
    ngx_shm_zone_t  *zone;

    zone = ngx_shared_memory_add(cf, &ngx_http_once_quota_name,
                                 NGX_HTTP_ONCE_ZONE_SIZE,
                                 &ngx_http_once_module);
    if (zone == NULL) {
        return NGX_ERROR;
    }

    zone->init = ngx_http_once_quota_init_zone;
    zone->data = omcf;
    omcf->quotas = zone;

    return NGX_OK;
}


static ngx_http_once_buckets_t *
ngx_http_once_quota_buckets(ngx_slab_pool_t **pool)
{
    ngx_http_once_main_conf_t  *omcf;

    omcf = ngx_http_cycle_get_module_main_conf(ngx_cycle,
                                               ngx_http_once_module);
    *pool = (ngx_slab_pool_t *) omcf->quotas->shm.addr;

    return (*pool)->data;
}


/* Locations with the same quota and store share the count. The scope itself, which may be a credential, is not kept. */

static void
ngx_http_once_quota_place(ngx_http_once_ctx_t *ctx)
{
    u_char                     hash[20];
    uint32_t                   set;
    uint64_t                   quota[3];
    ngx_sha1_t                 sha1;
    ngx_slab_pool_t           *pool;
    ngx_http_once_loc_conf_t  *conf;
    ngx_http_once_buckets_t   *buckets;

    conf = ctx->conf;
    buckets = ngx_http_once_quota_buckets(&pool);

    quota[0] = conf->quota;
    quota[1] = conf->quota_period;
    quota[2] = conf->store->name.len;

    ngx_sha1_init(&sha1);
    ngx_sha1_update(&sha1, buckets->secret, sizeof(buckets->secret));
    ngx_sha1_update(&sha1, quota, sizeof(quota));
    ngx_sha1_update(&sha1, conf->store->name.data, conf->store->name.len);
    ngx_sha1_update(&sha1, ctx->scope.data, ctx->scope.len);
    ngx_sha1_final(hash, &sha1);

    ngx_memcpy(&ctx->guard->quota_tag, hash, sizeof(uint64_t));
    ngx_memcpy(&set, hash + sizeof(uint64_t), sizeof(uint32_t));

    ctx->guard->quota_tag |= 1;    /* never 0 */
    ctx->guard->quota_set = set % NGX_HTTP_ONCE_SETS;
}


static ngx_slab_pool_t *
ngx_http_once_quota_lock(ngx_http_once_guard_t *guard,
    ngx_http_once_bucket_t **set)
{
    ngx_slab_pool_t          *pool;
    ngx_http_once_buckets_t  *buckets;

    buckets = ngx_http_once_quota_buckets(&pool);
    *set = buckets->set[guard->quota_set];

    ngx_shmtx_lock(&pool->mutex);

    return pool;
}


ngx_int_t
ngx_http_once_quota_take(ngx_http_once_ctx_t *ctx, time_t *retry_after)
{
    uint64_t                   period, wait;
    ngx_slab_pool_t           *pool;
    ngx_http_once_bucket_t    *set;
    ngx_http_once_loc_conf_t  *conf;

    conf = ctx->conf;

    if (conf->quota == 0) {
        return NGX_OK;
    }

    ngx_http_once_quota_place(ctx);

    period = (uint64_t) conf->quota_period * 1000;

    pool = ngx_http_once_quota_lock(ctx->guard, &set);
    wait = ngx_http_once_bucket_take(set, ctx->guard->quota_tag,
                                     ngx_http_once_usec(), period,
                                     period / conf->quota);
    ngx_shmtx_unlock(&pool->mutex);

    if (wait) {
        *retry_after = (time_t) ((wait + 999999) / 1000000);
        return NGX_DECLINED;
    }

    ctx->guard->reserved = 1;

    return NGX_OK;
}


void
ngx_http_once_quota_asked(ngx_http_once_guard_t *guard, once_answer_t *answer)
{
    ngx_slab_pool_t         *pool;
    const once_record_t     *record;
    ngx_http_once_bucket_t  *set;

    if (!guard->reserved) {
        return;
    }

    guard->reserved = 0;
    record = answer ? once_answer_record(answer) : NULL;

    if (record && once_answer_outcome(answer) == ONCE_OUTCOME_RUN
        && once_record_epoch(record) == 1)
    {
        return;
    }

    /* nothing new was made */

    pool = ngx_http_once_quota_lock(guard, &set);
    ngx_http_once_bucket_give(set, guard->quota_tag,
                              (uint64_t) guard->conf->quota_period * 1000
                              / guard->conf->quota);
    ngx_shmtx_unlock(&pool->mutex);
}
