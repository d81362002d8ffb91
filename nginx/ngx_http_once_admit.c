/*
 * Limits on new keys: once_quota and once_unknown_max. While one is reached,
 * the record is looked up before the store is asked: a key that the store
 * knows is answered as always, a new one is refused and leaves no trace.
 *
 * once_quota limits how many new records a scope may create in a period. Each
 * scope has a bucket, in memory that all workers share and a reload keeps: N
 * records at once, and then one more every N-th of the period. The decisions
 * are in ngx_http_once_bucket.h.
 *
 * once_unknown_max limits how many records of a route may be unknown at a time.
 * Under hold, each of them waits for an operator to settle it, and none
 * expires: new keys are refused before there are more than anyone can work
 * through. The gateway lists the ids of records that it saw become unknown, in
 * shared memory as well, and removes those that it sees in another state. To
 * notice what was settled elsewhere it looks up a part of the list now and
 * then, while requests come in.
 *
 * The lists and buckets are shared with workers that may be killed at any
 * instant. Therefore only what this worker brings to them is asserted:
 *
 *   I-1  A guard that looks at a bucket has its tag, which is never 0, and a
 *        set that exists.
 *   I-2  A place is reserved once for a guard, and given back once.
 *   I-3  A route has one of the lists.
 */
#include "ngx_http_once_conf.h"
#include "ngx_http_once_metrics.h"
#include "ngx_http_once_request.h"

/* After those of nginx, which define _GNU_SOURCE: it includes the system's. */
#include "ngx_http_once_bucket.h"

#include <assert.h>
#include <ngx_sha1.h>
#include <sys/random.h>


#define NGX_HTTP_ONCE_SETS  32768

/* Constant: nginx keeps a zone over a reload only if its size is the same. */
#define NGX_HTTP_ONCE_QUOTA_SIZE                                              \
    ngx_align(sizeof(ngx_http_once_buckets_t) + 32 * 4096, 4096)

#define NGX_HTTP_ONCE_LIST_SIZE     (8 * 1024 * 1024)
#define NGX_HTTP_ONCE_SWEEP         32
#define NGX_HTTP_ONCE_SWEEP_USEC    10000000
#define NGX_HTTP_ONCE_REFUSED_USEC  1000000


typedef struct {
    u_char                       secret[20];  /* places cannot be predicted */
    ngx_http_once_bucket_t       set[NGX_HTTP_ONCE_SETS][NGX_HTTP_ONCE_WAYS];
} ngx_http_once_buckets_t;


/* An unknown record. */
typedef struct {
    ngx_rbtree_node_t            node;         /* by the first bytes of id */
    ngx_queue_t                  queue;        /* of its route */
    uint32_t                     route;
    uint32_t                     store;        /* a hash of its name */
    u_char                       id[ONCE_ID_SIZE];
} ngx_http_once_unknown_t;


typedef struct {
    ngx_queue_t                  records;      /* the next to look up first */
    ngx_atomic_t                 count;
    ngx_atomic_t                 swept;        /* when, in microseconds */
    ngx_uint_t                   max;          /* for the metrics */
} ngx_http_once_unknown_route_t;


typedef struct {
    ngx_rbtree_t                 tree;
    ngx_rbtree_node_t            sentinel;
    ngx_http_once_unknown_route_t  route[NGX_HTTP_ONCE_ROUTES];
} ngx_http_once_list_t;


/* A lookup of one of them. */
typedef struct {
    ngx_http_once_loc_conf_t    *conf;
    u_char                       id[ONCE_ID_SIZE];
} ngx_http_once_unknown_check_t;


static ngx_str_t  ngx_http_once_quota_name = ngx_string("once_quota");
static ngx_str_t  ngx_http_once_list_name = ngx_string("once_unknown");


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
    ngx_sha1_update(&sha1, ctx->caller.data, ctx->caller.len);
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

    assert(guard->quota_tag & 1);                                    /* I-1 */
    assert(guard->quota_set < NGX_HTTP_ONCE_SETS);

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

    assert(!ctx->guard->reserved);                                   /* I-2 */

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
ngx_http_once_admit_asked(ngx_http_once_guard_t *guard, once_answer_t *answer)
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


/* -------------------------------------------------------- once_unknown_max */

static ngx_http_once_list_t *
ngx_http_once_list_new(ngx_slab_pool_t *pool)
{
    ngx_uint_t             i;
    ngx_http_once_list_t  *list;

    list = ngx_slab_calloc(pool, sizeof(ngx_http_once_list_t));
    if (list == NULL) {
        return NULL;
    }

    ngx_rbtree_init(&list->tree, &list->sentinel, ngx_rbtree_insert_value);

    for (i = 0; i < NGX_HTTP_ONCE_ROUTES; i++) {
        ngx_queue_init(&list->route[i].records);
    }

    return list;
}


static ngx_int_t
ngx_http_once_list_init_zone(ngx_shm_zone_t *zone, void *old)
{
    ngx_uint_t                   i;
    ngx_slab_pool_t             *pool;
    ngx_http_once_list_t        *list;
    ngx_http_once_route_t      **routes;
    ngx_http_once_main_conf_t   *omcf;

    omcf = zone->data;
    pool = (ngx_slab_pool_t *) zone->shm.addr;

    if (pool->data == NULL) {
        pool->data = ngx_http_once_list_new(pool);
        pool->log_nomem = 0;
    }

    list = pool->data;

    if (list == NULL) {
        return NGX_ERROR;
    }

    /* the zone of the metrics is initialized first: it numbers the routes */

    for (i = 0; i < NGX_HTTP_ONCE_ROUTES; i++) {
        list->route[i].max = 0;
    }

    routes = omcf->routes.elts;

    for (i = 0; i < omcf->routes.nelts; i++) {
        list->route[routes[i]->index].max = routes[i]->unknown_max;
    }

    return NGX_OK;
}


void
ngx_http_once_admit_unknown_add(ngx_http_once_loc_conf_t *conf)
{
    conf->route->unknown_max = ngx_max(conf->route->unknown_max,
                                       conf->unknown_max);
}


ngx_int_t
ngx_http_once_admit_init(ngx_conf_t *cf, ngx_http_once_main_conf_t *omcf)
{
    if (omcf->has_quota) {
        omcf->quotas = ngx_http_once_add_zone(cf, &ngx_http_once_quota_name,
                                              NGX_HTTP_ONCE_QUOTA_SIZE,
                                              ngx_http_once_quota_init_zone);
        if (omcf->quotas == NULL) {
            return NGX_ERROR;
        }
    }

    if (omcf->has_unknown) {
        omcf->unknown = ngx_http_once_add_zone(cf, &ngx_http_once_list_name,
                                               NGX_HTTP_ONCE_LIST_SIZE,
                                               ngx_http_once_list_init_zone);
        if (omcf->unknown == NULL) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_slab_pool_t *
ngx_http_once_list_pool(ngx_http_once_main_conf_t *omcf)
{
    return (ngx_slab_pool_t *) omcf->unknown->shm.addr;
}


static ngx_http_once_unknown_route_t *
ngx_http_once_list_route(ngx_slab_pool_t *pool, ngx_http_once_loc_conf_t *conf)
{
    ngx_http_once_list_t  *list;

    assert(conf->route->index < NGX_HTTP_ONCE_ROUTES);               /* I-3 */

    list = pool->data;

    return &list->route[conf->route->index];
}


ngx_uint_t
ngx_http_once_admit_unknown_count(ngx_http_once_main_conf_t *omcf,
    ngx_uint_t index, ngx_uint_t *max)
{
    ngx_http_once_list_t  *list;

    if (omcf->unknown == NULL) {
        *max = 0;
        return 0;
    }

    list = ngx_http_once_list_pool(omcf)->data;
    *max = list->route[index].max;

    return list->route[index].count;
}


static ngx_http_once_unknown_t *
ngx_http_once_list_find(ngx_http_once_list_t *list, const u_char *id)
{
    ngx_rbtree_key_t    key;
    ngx_rbtree_node_t  *node;

    ngx_memcpy(&key, id, sizeof(key));
    node = list->tree.root;

    while (node != &list->sentinel) {

        if (key == node->key) {
            return (ngx_http_once_unknown_t *) node;
        }

        node = (key < node->key) ? node->left : node->right;
    }

    return NULL;
}


static void
ngx_http_once_list_add(ngx_slab_pool_t *pool, ngx_http_once_loc_conf_t *conf,
    const u_char *id)
{
    ngx_http_once_list_t           *list;
    ngx_http_once_unknown_t        *entry;
    ngx_http_once_unknown_route_t  *route;

    list = pool->data;

    if (ngx_http_once_list_find(list, id)) {
        return;
    }

    entry = ngx_slab_calloc_locked(pool, sizeof(ngx_http_once_unknown_t));

    if (entry == NULL) {
        ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                      "once: there are more unknown records than the gateway "
                      "can list: settle them");
        return;
    }

    route = ngx_http_once_list_route(pool, conf);

    ngx_memcpy(&entry->node.key, id, sizeof(ngx_rbtree_key_t));
    ngx_memcpy(entry->id, id, ONCE_ID_SIZE);
    entry->route = conf->route->index;
    entry->store = ngx_crc32_long(conf->store->name.data,
                                  conf->store->name.len);

    ngx_rbtree_insert(&list->tree, &entry->node);
    ngx_queue_insert_tail(&route->records, &entry->queue);
    route->count++;
}


static void
ngx_http_once_list_remove(ngx_slab_pool_t *pool, const u_char *id)
{
    ngx_http_once_list_t     *list;
    ngx_http_once_unknown_t  *entry;

    list = pool->data;
    entry = ngx_http_once_list_find(list, id);

    if (entry == NULL) {
        return;
    }

    list->route[entry->route].count--;
    ngx_queue_remove(&entry->queue);
    ngx_rbtree_delete(&list->tree, &entry->node);
    ngx_slab_free_locked(pool, entry);
}


/* `record` is NULL if there is none. */

static void
ngx_http_once_unknown_seen(ngx_http_once_loc_conf_t *conf, const u_char *id,
    const once_record_t *record)
{
    ngx_uint_t                  unknown;
    ngx_slab_pool_t            *pool;
    ngx_http_once_main_conf_t  *omcf;

    omcf = ngx_http_cycle_get_module_main_conf(ngx_cycle,
                                               ngx_http_once_module);
    pool = ngx_http_once_list_pool(omcf);
    unknown = record && once_record_state(record) == ONCE_STATE_UNKNOWN
              && once_record_recover(record) == ONCE_RECOVER_HOLD;

    if (!unknown && ngx_http_once_list_route(pool, conf)->count == 0) {
        return;
    }

    ngx_shmtx_lock(&pool->mutex);

    if (unknown) {
        ngx_http_once_list_add(pool, conf, id);

    } else {
        ngx_http_once_list_remove(pool, id);
    }

    ngx_shmtx_unlock(&pool->mutex);
}


void
ngx_http_once_admit_note(ngx_http_once_loc_conf_t *conf,
    once_answer_t *answer)
{
    const once_record_t  *record;

    record = once_answer_record(answer);

    if (conf->unknown_max && record && once_answer_error(answer) == ONCE_OK) {
        ngx_http_once_unknown_seen(conf, once_record_id(record), record);
    }
}


static void
ngx_http_once_unknown_checked(once_t *once, once_answer_t *answer, void *data)
{
    ngx_http_once_unknown_check_t *check = data;

    if (once_answer_error(answer) == ONCE_OK
        || once_answer_error(answer) == ONCE_E_NOT_FOUND)
    {
        ngx_http_once_unknown_seen(check->conf, check->id,
                                   once_answer_record(answer));
    }

    ngx_free(check);
    ngx_http_once_store_allow_exit();
}


static void
ngx_http_once_unknown_check(ngx_http_once_loc_conf_t *conf, const u_char *id)
{
    ngx_http_once_unknown_check_t  *check;

    check = ngx_alloc(sizeof(ngx_http_once_unknown_check_t), ngx_cycle->log);
    if (check == NULL) {
        return;
    }

    check->conf = conf;
    ngx_memcpy(check->id, id, ONCE_ID_SIZE);

    if (once_record_get(conf->store->once, id, ngx_http_once_unknown_checked,
                        check)
        != ONCE_OK)
    {
        ngx_free(check);
        return;
    }

    ngx_http_once_store_block_exit();
}


/* Looks up the first of the list, and moves them to its end. */

static void
ngx_http_once_sweep(ngx_slab_pool_t *pool, ngx_http_once_loc_conf_t *conf)
{
    u_char                          ids[NGX_HTTP_ONCE_SWEEP][ONCE_ID_SIZE];
    uint32_t                        store;
    ngx_uint_t                      i, n, count;
    ngx_queue_t                    *q;
    ngx_http_once_unknown_t        *entry;
    ngx_http_once_unknown_route_t  *route;

    n = 0;
    store = ngx_crc32_long(conf->store->name.data, conf->store->name.len);
    route = ngx_http_once_list_route(pool, conf);

    ngx_shmtx_lock(&pool->mutex);

    count = ngx_min(route->count, NGX_HTTP_ONCE_SWEEP);

    for (i = 0; i < count; i++) {
        q = ngx_queue_head(&route->records);
        entry = ngx_queue_data(q, ngx_http_once_unknown_t, queue);

        if (entry->store == store) {
            ngx_memcpy(ids[n++], entry->id, ONCE_ID_SIZE);
        }

        ngx_queue_remove(q);
        ngx_queue_insert_tail(&route->records, q);
    }

    ngx_shmtx_unlock(&pool->mutex);

    for (i = 0; i < n; i++) {
        ngx_http_once_unknown_check(conf, ids[i]);
    }
}


/* Whether the route has as many unknown records as it may. */

static ngx_uint_t
ngx_http_once_unknown_full(ngx_http_once_loc_conf_t *conf)
{
    uint64_t                        now, pause;
    ngx_uint_t                      full;
    ngx_slab_pool_t                *pool;
    ngx_atomic_uint_t               swept;
    ngx_http_once_unknown_route_t  *route;
    ngx_http_once_main_conf_t      *omcf;

    if (conf->unknown_max == 0) {
        return 0;
    }

    omcf = ngx_http_cycle_get_module_main_conf(ngx_cycle,
                                               ngx_http_once_module);
    pool = ngx_http_once_list_pool(omcf);
    route = ngx_http_once_list_route(pool, conf);

    full = route->count >= conf->unknown_max;

    if (route->count == 0) {
        return 0;
    }

    now = ngx_http_once_guard_usec();
    pause = full ? NGX_HTTP_ONCE_REFUSED_USEC : NGX_HTTP_ONCE_SWEEP_USEC;
    swept = route->swept;

    if (now - swept >= pause
        && ngx_atomic_cmp_set(&route->swept, swept, (ngx_atomic_uint_t) now))
    {
        ngx_http_once_sweep(pool, conf);
    }

    return full;
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
