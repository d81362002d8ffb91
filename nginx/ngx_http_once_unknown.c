/*
 * once_unknown_max: how many records of a route may be unknown at a time. Under
 * hold, each of them waits for an operator to settle it, and none expires: new
 * keys are refused before there are more than anyone can work through.
 *
 * The gateway lists the ids of records that it saw become unknown, in memory
 * that all workers share and a reload keeps, and removes those that it sees in
 * another state. To notice what was settled elsewhere it looks up a part of
 * the list now and then, while requests come in.
 */
#include "ngx_http_once_metrics.h"
#include "ngx_http_once_request.h"


#define NGX_HTTP_ONCE_LIST_SIZE     (8 * 1024 * 1024)
#define NGX_HTTP_ONCE_SWEEP         32
#define NGX_HTTP_ONCE_SWEEP_USEC    10000000
#define NGX_HTTP_ONCE_REFUSED_USEC  1000000


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


static ngx_str_t  ngx_http_once_list_name = ngx_string("once_unknown");


/* ---------------------------------------------------------------- the zone */

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
ngx_http_once_unknown_add(ngx_http_once_loc_conf_t *conf)
{
    conf->route->unknown_max = ngx_max(conf->route->unknown_max,
                                       conf->unknown_max);
}


ngx_int_t
ngx_http_once_unknown_init(ngx_conf_t *cf, ngx_http_once_main_conf_t *omcf)
{
    omcf->unknown = ngx_http_once_add_zone(cf, &ngx_http_once_list_name,
                                           NGX_HTTP_ONCE_LIST_SIZE,
                                           ngx_http_once_list_init_zone);

    return omcf->unknown ? NGX_OK : NGX_ERROR;
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

    list = pool->data;

    return &list->route[conf->route->index];
}


ngx_uint_t
ngx_http_once_unknown_count(ngx_http_once_main_conf_t *omcf, ngx_uint_t index,
    ngx_uint_t *max)
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


/* ---------------------------------------------------------------- the list */

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
ngx_http_once_unknown_note(ngx_http_once_loc_conf_t *conf,
    once_answer_t *answer)
{
    const once_record_t  *record;

    record = once_answer_record(answer);

    if (conf->unknown_max && record && once_answer_error(answer) == ONCE_OK) {
        ngx_http_once_unknown_seen(conf, once_record_id(record), record);
    }
}


/* --------------------------------------------------------------- the sweep */

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


ngx_uint_t
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
