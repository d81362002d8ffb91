/*
 * Counters in shared memory: of all workers, and kept over reloads. Counting
 * takes no lock.
 */
#include "ngx_http_once_metrics.h"


/* Constant: nginx keeps a zone over a reload only if its size is the same. */
#define NGX_HTTP_ONCE_ZONE_SIZE                                               \
    ngx_align(sizeof(ngx_http_once_table_t) + 32 * 4096, 4096)


const ngx_uint_t  ngx_http_once_bucket_usec[NGX_HTTP_ONCE_BUCKETS] = {
    100, 250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000,
    500000, 1000000, 2500000, 5000000, 10000000
};


/* Of this process; NULL: none was free, others see nothing in flight. */
static ngx_http_once_row_t  *ngx_http_once_row;


static ngx_str_t  ngx_http_once_zone_name = ngx_string("once_metrics");
static ngx_str_t  ngx_http_once_other = ngx_string("other");


ngx_http_once_route_t *
ngx_http_once_metrics_route(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_uint_t                  i;
    ngx_http_once_route_t      *route, **routes, **p;
    ngx_http_once_main_conf_t  *omcf;

    omcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_once_module);
    routes = omcf->routes.elts;

    for (i = 0; i < omcf->routes.nelts; i++) {
        if (routes[i]->name.len == name->len
            && ngx_strncmp(routes[i]->name.data, name->data, name->len) == 0)
        {
            return routes[i];
        }
    }

    route = ngx_pcalloc(cf->pool, sizeof(ngx_http_once_route_t));
    p = ngx_array_push(&omcf->routes);

    if (route == NULL || p == NULL) {
        return NULL;
    }

    route->name = *name;
    *p = route;

    return route;
}


/* The last slot is shared by all routes that find no other. */

static ngx_uint_t
ngx_http_once_find_slot(ngx_http_once_table_t *table, ngx_str_t *name)
{
    size_t                 len;
    ngx_uint_t             i;
    ngx_http_once_slot_t  *slot;

    len = ngx_min(name->len, NGX_HTTP_ONCE_ROUTE_NAME);

    for (i = 0; i < table->used; i++) {
        slot = &table->slot[i];

        if (slot->len == len
            && ngx_memcmp(slot->name, name->data, len) == 0)
        {
            return i;
        }
    }

    if (i >= NGX_HTTP_ONCE_ROUTES - 1) {
        i = NGX_HTTP_ONCE_ROUTES - 1;
        name = &ngx_http_once_other;
        len = name->len;
    }

    slot = &table->slot[i];
    slot->len = len;
    ngx_memcpy(slot->name, name->data, len);
    table->used = i + 1;

    return i;
}


static ngx_int_t
ngx_http_once_init_zone(ngx_shm_zone_t *zone, void *old)
{
    ngx_uint_t                   i;
    ngx_slab_pool_t             *pool;
    ngx_http_once_route_t      **routes;
    ngx_http_once_table_t       *table;
    ngx_http_once_main_conf_t   *omcf;

    omcf = zone->data;
    pool = (ngx_slab_pool_t *) zone->shm.addr;
    table = pool->data;

    if (table == NULL) {
        table = ngx_slab_calloc(pool, sizeof(ngx_http_once_table_t));
        if (table == NULL) {
            return NGX_ERROR;
        }

        pool->data = table;
    }

    ngx_shmtx_lock(&pool->mutex);

    routes = omcf->routes.elts;

    for (i = 0; i < omcf->routes.nelts; i++) {
        routes[i]->index = ngx_http_once_find_slot(table, &routes[i]->name);
        routes[i]->slot = &table->slot[routes[i]->index];
    }

    ngx_http_once_watch_places(omcf, table);

    ngx_shmtx_unlock(&pool->mutex);

    return NGX_OK;
}


ngx_int_t
ngx_http_once_metrics_init(ngx_conf_t *cf)
{
    ngx_http_once_main_conf_t  *omcf;

    omcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_once_module);
    omcf->metrics = ngx_http_once_add_zone(cf, &ngx_http_once_zone_name,
                                           NGX_HTTP_ONCE_ZONE_SIZE,
                                           ngx_http_once_init_zone);

    return omcf->metrics ? NGX_OK : NGX_ERROR;
}


ngx_http_once_table_t *
ngx_http_once_metrics_table(ngx_http_once_main_conf_t *omcf)
{
    ngx_slab_pool_t  *pool;

    if (omcf == NULL || omcf->metrics == NULL) {
        return NULL;
    }

    pool = (ngx_slab_pool_t *) omcf->metrics->shm.addr;

    return pool->data;
}


ngx_uint_t
ngx_http_once_process_lives(ngx_atomic_uint_t pid)
{
    return pid != 0
           && (kill((pid_t) pid, 0) == 0 || ngx_errno != NGX_ESRCH);
}


void
ngx_http_once_metrics_join(ngx_cycle_t *cycle)
{
    ngx_uint_t                  i;
    ngx_atomic_uint_t           pid;
    ngx_http_once_row_t        *row;
    ngx_http_once_table_t      *table;
    ngx_http_once_main_conf_t  *omcf;

    ngx_http_once_row = NULL;

    omcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_once_module);
    table = ngx_http_once_metrics_table(omcf);

    if (table == NULL) {
        return;
    }

    for (i = 0; i < NGX_HTTP_ONCE_PROCESSES; i++) {
        row = &table->row[i];
        pid = row->pid;

        if (pid != (ngx_atomic_uint_t) ngx_pid
            && ngx_http_once_process_lives(pid))
        {
            continue;
        }

        if (ngx_atomic_cmp_set(&row->pid, pid, (ngx_atomic_uint_t) ngx_pid)) {
            ngx_memzero(row->in_flight, sizeof(row->in_flight));
            row->memory = 0;
            ngx_http_once_row = row;
            return;
        }
    }
}


void
ngx_http_once_metrics_leave(void)
{
    if (ngx_http_once_row) {
        ngx_http_once_row->pid = 0;
        ngx_http_once_row = NULL;
    }
}


void
ngx_http_once_count(ngx_http_once_route_t *route,
    ngx_http_once_counter_e counter)
{
    if (route && route->slot) {
        (void) ngx_atomic_fetch_add(&route->slot->counter[counter], 1);
    }
}


void
ngx_http_once_observe(ngx_http_once_route_t *route,
    ngx_http_once_histogram_e histogram, ngx_uint_t usec)
{
    ngx_uint_t                  i;
    ngx_http_once_histogram_t  *h;

    if (route == NULL || route->slot == NULL) {
        return;
    }

    h = &route->slot->histogram[histogram];

    for (i = 0; i < NGX_HTTP_ONCE_BUCKETS; i++) {
        if (usec <= ngx_http_once_bucket_usec[i]) {
            break;
        }
    }

    (void) ngx_atomic_fetch_add(&h->bucket[i], 1);
    (void) ngx_atomic_fetch_add(&h->sum_usec, usec);
}


/* Only this process writes to its row. */

void
ngx_http_once_in_flight(ngx_http_once_route_t *route, ngx_int_t change)
{
    if (route && route->slot && ngx_http_once_row) {
        ngx_http_once_row->in_flight[route->index] += (int32_t) change;
    }
}


void
ngx_http_once_metrics_memory(size_t bytes)
{
    if (ngx_http_once_row) {
        ngx_http_once_row->memory = bytes;
    }
}


size_t
ngx_http_once_metrics_memory_sum(ngx_http_once_table_t *table)
{
    size_t                sum;
    ngx_uint_t            i;
    ngx_http_once_row_t  *row;

    sum = 0;

    for (i = 0; i < NGX_HTTP_ONCE_PROCESSES; i++) {
        row = &table->row[i];

        if (row->memory && ngx_http_once_process_lives(row->pid)) {
            sum += row->memory;
        }
    }

    return sum;
}


ngx_uint_t
ngx_http_once_metrics_in_flight_sum(ngx_http_once_table_t *table,
    ngx_uint_t index)
{
    ngx_int_t             sum;
    ngx_uint_t            i;
    ngx_http_once_row_t  *row;

    sum = 0;

    for (i = 0; i < NGX_HTTP_ONCE_PROCESSES; i++) {
        row = &table->row[i];

        if (row->in_flight[index] && ngx_http_once_process_lives(row->pid)) {
            sum += row->in_flight[index];
        }
    }

    return sum > 0 ? (ngx_uint_t) sum : 0;
}
