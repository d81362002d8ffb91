/*
 * Limits on new keys: once_quota and once_unknown_max. While one is reached,
 * the record is looked up before the store is asked: a key that the store
 * knows is answered as always, a new one is refused and leaves no trace.
 *
 * once_quota limits how many new records a scope may create in a period. Each
 * scope has a bucket, in memory that all workers share and a reload keeps: N
 * records at once, and then one more every N-th of the period. The decisions
 * are in ngx_http_once_bucket.h.
 */
#include "ngx_http_once_bucket.h"
#include "ngx_http_once_conf.h"
#include "ngx_http_once_request.h"

#include <ngx_sha1.h>
#include <sys/random.h>


#define NGX_HTTP_ONCE_SETS  32768

/* Constant: nginx keeps a zone over a reload only if its size is the same. */
#define NGX_HTTP_ONCE_QUOTA_SIZE                                              \
    ngx_align(sizeof(ngx_http_once_buckets_t) + 32 * 4096, 4096)


typedef struct {
    u_char                       secret[20];  /* places cannot be predicted */
    ngx_http_once_bucket_t       set[NGX_HTTP_ONCE_SETS][NGX_HTTP_ONCE_WAYS];
} ngx_http_once_buckets_t;


static ngx_str_t  ngx_http_once_quota_name = ngx_string("once_quota");


/* -------------------------------------------------------------- once_quota */

static ngx_int_t
ngx_http_once_quota_init_zone(ngx_shm_zone_t *zone, void *old)
{
    ngx_slab_pool_t          *pool;
    ngx_http_once_buckets_t  *buckets;

    pool = (ngx_slab_pool_t *) zone->shm.addr;

    if (pool->data) {
        return NGX_OK;
    }

    buckets = ngx_slab_calloc(pool, sizeof(ngx_http_once_buckets_t));

    if (buckets == NULL
        || getrandom(buckets->secret, sizeof(buckets->secret), 0)
           != (ssize_t) sizeof(buckets->secret))
    {
        return NGX_ERROR;
    }

    pool->data = buckets;

    return NGX_OK;
}


ngx_int_t
ngx_http_once_quota_init(ngx_conf_t *cf, ngx_http_once_main_conf_t *omcf)
{
    omcf->quotas = ngx_http_once_add_zone(cf, &ngx_http_once_quota_name,
                                          NGX_HTTP_ONCE_QUOTA_SIZE,
                                          ngx_http_once_quota_init_zone);

    return omcf->quotas ? NGX_OK : NGX_ERROR;
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


/*
 * Locations with the same quota and store share a bucket. The scope itself is
 * not kept: it may be a credential.
 */

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


/*
 * NGX_OK: a place is reserved, or there is no quota; NGX_DECLINED: there will
 * be a place in `retry_after` seconds.
 */

static ngx_int_t
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
                                     ngx_http_once_guard_usec(), period,
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

    /* no new record was created */

    pool = ngx_http_once_quota_lock(guard, &set);
    ngx_http_once_bucket_give(set, guard->quota_tag,
                              (uint64_t) guard->conf->quota_period * 1000
                              / guard->conf->quota);
    ngx_shmtx_unlock(&pool->mutex);
}


/* --------------------------------------------------------------- admission */

static void
ngx_http_once_refuse_new(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx)
{
    ngx_int_t  rc;

    ctx->outcome = NGX_HTTP_ONCE_REFUSED;

    ngx_http_once_count(ctx->conf->route, NGX_HTTP_ONCE_C_REFUSED);
    ngx_http_once_count(ctx->conf->route,
                        ctx->refusal == NGX_HTTP_ONCE_P_QUOTA
                        ? NGX_HTTP_ONCE_C_OVER_QUOTA
                        : NGX_HTTP_ONCE_C_MANY_UNKNOWN);

    rc = ngx_http_once_problem_refuse(r, ctx, ctx->refusal, NULL,
                                      ctx->refusal_after);
    ngx_http_once_finalize(r, rc);
}


static void
ngx_http_once_admit_done(once_t *once, once_answer_t *answer, void *data)
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
            ngx_http_once_ask_failed(r, ctx, code);
        }
    }

    ngx_http_once_guard_unref(guard);
}


/* NGX_OK: within the limits. */

static ngx_int_t
ngx_http_once_within_limits(ngx_http_once_ctx_t *ctx)
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


ngx_int_t
ngx_http_once_admit(ngx_http_once_ctx_t *ctx)
{
    int      code;
    u_char   id[ONCE_ID_SIZE];
    once_t  *once;

    once = ctx->conf->store->once;

    if (once == NULL || ngx_http_once_within_limits(ctx) == NGX_OK) {
        return NGX_OK;
    }

    ctx->phase = NGX_HTTP_ONCE_ASKING;

    /* a worker that has just started has no secrets yet */

    code = ngx_http_once_identify_record(ctx, id);

    if (code == ONCE_OK) {
        code = once_record_get(once, id, ngx_http_once_admit_done, ctx->guard);
    }

    if (code == ONCE_OK) {
        ngx_http_once_guard_called(ctx->guard);

    } else {
        ngx_http_once_ask_failed(ctx->request, ctx, code);
    }

    return NGX_DONE;
}


/* ----------------------------------------------------------- the directive */

/* NUMBER/TIME */

char *
ngx_http_once_set_quota(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    u_char     *slash, *last;
    ngx_int_t   n, msec;
    ngx_str_t  *value, text;

    if (olcf->quota != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_http_once_is(&value[1], "off")) {
        olcf->quota = 0;
        olcf->quota_period = 0;
        return NGX_CONF_OK;
    }

    last = value[1].data + value[1].len;
    slash = ngx_strlchr(value[1].data, last, '/');
    n = NGX_ERROR;
    msec = NGX_ERROR;

    if (slash) {
        n = ngx_atoi(value[1].data, slash - value[1].data);
        text.data = slash + 1;
        text.len = last - text.data;
        msec = ngx_parse_time(&text, 0);
    }

    if (n < 1 || n > 1000000 || msec < 1000 || msec > 31 * 86400000LL) {
        return ngx_http_once_bad(cf, &value[1], "it must be NUMBER/TIME such "
                                 "as 1000/1h, at most 1000000 new records of "
                                 "a scope in 1s to 31d, or off");
    }

    olcf->quota = n;
    olcf->quota_period = msec;

    return NGX_CONF_OK;
}
