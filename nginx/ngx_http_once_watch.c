/*
 * Looks after the stores in the background, for once_status and once_ready:
 * whether they answer, and what is in them. Counting costs the store work, so
 * one worker does it for all, and the results are in shared memory. A scrape
 * only reads them.
 */
#include "ngx_http_once_metrics.h"
#include "ngx_http_once_request.h"

#include <once/local.h>

#include <ngx_md5.h>
#include <sys/statvfs.h>


#define NGX_HTTP_ONCE_SOON_MSEC    10
#define NGX_HTTP_ONCE_PING_MSEC    2000
#define NGX_HTTP_ONCE_SILENT_MSEC  15000  /* then another worker takes over */

/* A count is followed by a pause of this many times its duration. */
#define NGX_HTTP_ONCE_COUNT_REST   20


static ngx_event_t       ngx_http_once_watch_event;
static ngx_connection_t  ngx_http_once_watch_dummy;  /* for the debug log */


/* ----------------------------------------------------------- in the master */

static void
ngx_http_once_watch_id(ngx_http_once_store_t *store, u_char *id)
{
    ngx_md5_t  md5;

    ngx_md5_init(&md5);
    ngx_md5_update(&md5, store->name.data, store->name.len);
    ngx_md5_final(id, &md5);
}


/* Whether some store of the configuration has this id. */

static ngx_uint_t
ngx_http_once_watch_is_known(ngx_http_once_main_conf_t *omcf, u_char *id)
{
    u_char                   own[NGX_HTTP_ONCE_STORE_ID];
    ngx_uint_t               i;
    ngx_http_once_store_t  **stores;

    stores = omcf->stores.elts;

    for (i = 0; i < omcf->stores.nelts; i++) {
        ngx_http_once_watch_id(stores[i], own);

        if (ngx_memcmp(own, id, NGX_HTTP_ONCE_STORE_ID) == 0) {
            return 1;
        }
    }

    return 0;
}


/*
 * The place of a store; one of a store that the configuration no longer has is
 * taken. NULL: there are too many, this one is not watched.
 */

static ngx_http_once_seen_t *
ngx_http_once_watch_place(ngx_http_once_main_conf_t *omcf,
    ngx_http_once_table_t *table, ngx_http_once_store_t *store)
{
    u_char                 id[NGX_HTTP_ONCE_STORE_ID];
    ngx_uint_t             i;
    ngx_http_once_seen_t  *seen, *taken;

    ngx_http_once_watch_id(store, id);
    taken = NULL;

    for (i = 0; i < NGX_HTTP_ONCE_STORES; i++) {
        seen = &table->store[i];

        if (seen->used
            && ngx_memcmp(seen->id, id, NGX_HTTP_ONCE_STORE_ID) == 0)
        {
            return seen;
        }

        if (taken == NULL
            && (!seen->used || !ngx_http_once_watch_is_known(omcf, seen->id)))
        {
            taken = seen;
        }
    }

    if (taken) {
        ngx_memzero(taken, sizeof(ngx_http_once_seen_t));
        ngx_memcpy(taken->id, id, NGX_HTTP_ONCE_STORE_ID);
        taken->used = 1;
    }

    return taken;
}


void
ngx_http_once_watch_places(ngx_http_once_main_conf_t *omcf,
    ngx_http_once_table_t *table)
{
    ngx_uint_t               i;
    ngx_http_once_store_t  **stores;

    stores = omcf->stores.elts;

    for (i = 0; i < omcf->stores.nelts; i++) {
        stores[i]->seen = ngx_http_once_watch_place(omcf, table, stores[i]);
    }
}


/* ------------------------------------------------------------- in a worker */

/* Of a store that is still the one of its place: a reload may give it away. */

static ngx_http_once_seen_t *
ngx_http_once_watch_seen(ngx_http_once_store_t *store)
{
    u_char  id[NGX_HTTP_ONCE_STORE_ID];

    if (store->seen == NULL) {
        return NULL;
    }

    ngx_http_once_watch_id(store, id);

    return ngx_memcmp(store->seen->id, id, NGX_HTTP_ONCE_STORE_ID) == 0
           ? store->seen : NULL;
}


static void
ngx_http_once_watch_said(ngx_http_once_store_t *store, ngx_uint_t up)
{
    ngx_http_once_seen_t  *seen;

    seen = ngx_http_once_watch_seen(store);

    if (seen) {
        seen->up = up ? NGX_HTTP_ONCE_UP : NGX_HTTP_ONCE_DOWN;
    }
}


static void
ngx_http_once_watch_pinged(once_t *once, once_answer_t *answer, void *data)
{
    int                     error;
    ngx_http_once_store_t  *store = data;

    error = once_answer_error(answer);
    store->pinging = 0;

    if (error != ONCE_E_CLOSED) {
        ngx_http_once_watch_said(store, error == ONCE_OK
                                        || error == ONCE_E_NOT_FOUND);
    }
}


/* Reads a record that is not there: a claim needs the same of the store. */

static void
ngx_http_once_watch_ping(ngx_http_once_store_t *store)
{
    static const uint8_t  id[ONCE_ID_SIZE];

    if (store->once == NULL) {
        ngx_http_once_watch_said(store, 0);
        return;
    }

    if (store->pinging) {
        return;
    }

    store->pinging = once_record_get(store->once, id,
                                     ngx_http_once_watch_pinged, store)
                     == ONCE_OK;

    if (!store->pinging) {
        ngx_http_once_watch_said(store, 0);
    }
}


static void
ngx_http_once_watch_disk(ngx_http_once_store_t *store,
    ngx_http_once_seen_t *seen)
{
    char            path[NGX_MAX_PATH];
    struct statvfs  disk;

    if (once_local_path((char *) store->url.data, path, sizeof(path)) != ONCE_OK
        || statvfs(path, &disk) == -1)
    {
        seen->disk_bytes = 0;
        return;
    }

    seen->disk_free = disk.f_bavail * disk.f_frsize;
    seen->disk_bytes = disk.f_blocks * disk.f_frsize;
}


static void
ngx_http_once_watch_counted(once_t *once, once_answer_t *answer, void *data)
{
    ngx_msec_t              rest, due;
    ngx_http_once_seen_t   *seen;
    const once_stats_t     *stats;
    ngx_http_once_store_t  *store = data;

    store->counting = 0;

    seen = ngx_http_once_watch_seen(store);
    stats = once_answer_stats(answer);

    if (seen == NULL) {
        return;
    }

    rest = (ngx_current_msec - store->count_began) * NGX_HTTP_ONCE_COUNT_REST;
    due = ngx_current_msec + rest;

    if ((ngx_msec_int_t) (due - seen->due) > 0) {
        seen->due = due;
    }

    if (once_answer_error(answer) != ONCE_OK || stats == NULL) {
        return;
    }

    seen->records = stats->pending + stats->completed + stats->failed
                    + stats->unknown;
    seen->bytes = stats->bytes;
    seen->stuck = stats->stuck;
    seen->unknown = stats->unknown;
    seen->oldest_ms = stats->oldest_ms;
    seen->expired = stats->expired;
    seen->damaged = stats->damaged;
    seen->quarantined = stats->quarantined;
    ngx_http_once_watch_disk(store, seen);

    ngx_memory_barrier();

    seen->counted = ngx_time();
}


static void
ngx_http_once_watch_count(ngx_http_once_main_conf_t *omcf,
    ngx_http_once_store_t *store)
{
    ngx_msec_t             now;
    ngx_http_once_seen_t  *seen;

    now = ngx_current_msec;
    seen = ngx_http_once_watch_seen(store);

    if (omcf->stats == 0 || store->once == NULL || store->counting
        || seen == NULL
        || (seen->due && (ngx_msec_int_t) (seen->due - now) > 0))
    {
        return;
    }

    /* shared: neither a reload nor another worker counts again at once */

    seen->due = now + omcf->stats;
    store->count_began = now;
    store->counting = once_store_stats(store->once,
                                       ngx_http_once_watch_counted, store)
                      == ONCE_OK;
}


/* One worker at a time; it says that it is alive with every turn. */

static ngx_uint_t
ngx_http_once_watch_is_mine(ngx_http_once_table_t *table)
{
    ngx_atomic_uint_t  pid;

    pid = table->watcher;

    if (pid != (ngx_atomic_uint_t) ngx_pid) {

        if (ngx_http_once_process_lives(pid)
            && ngx_current_msec - table->watched < NGX_HTTP_ONCE_SILENT_MSEC)
        {
            return 0;
        }

        if (!ngx_atomic_cmp_set(&table->watcher, pid, ngx_pid)) {
            return 0;
        }
    }

    table->watched = ngx_current_msec;

    return 1;
}


/* Another worker takes over at its next turn. */

static void
ngx_http_once_watch_leave(ngx_http_once_table_t *table)
{
    (void) ngx_atomic_cmp_set(&table->watcher, (ngx_atomic_uint_t) ngx_pid, 0);
}


static void
ngx_http_once_watch_handler(ngx_event_t *ev)
{
    ngx_uint_t                   i;
    ngx_http_once_table_t       *table;
    ngx_http_once_store_t      **stores;
    ngx_http_once_main_conf_t   *omcf;

    omcf = ngx_http_cycle_get_module_main_conf(ngx_cycle,
                                               ngx_http_once_module);
    table = ngx_http_once_metrics_table(omcf);

    if (ngx_exiting || ngx_quit || ngx_terminate) {
        ngx_http_once_watch_leave(table);
        return;
    }

    if (ngx_http_once_watch_is_mine(table)) {
        stores = omcf->stores.elts;

        for (i = 0; i < omcf->stores.nelts; i++) {

            /* a store that is opened several times has one place */

            if (stores[i]->seen && stores[i]->watched) {
                ngx_http_once_watch_ping(stores[i]);
                ngx_http_once_watch_count(omcf, stores[i]);
            }
        }
    }

    ngx_add_timer(ev, NGX_HTTP_ONCE_PING_MSEC);
}


void
ngx_http_once_watch_start(ngx_cycle_t *cycle)
{
    ngx_uint_t                   i, n;
    ngx_http_once_store_t      **stores;
    ngx_http_once_main_conf_t   *omcf;

    omcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_once_module);

    if (!omcf->watch || ngx_http_once_metrics_table(omcf) == NULL) {
        return;
    }

    stores = omcf->stores.elts;

    for (i = 0; i < omcf->stores.nelts; i++) {
        for (n = 0; n < i && stores[n]->seen != stores[i]->seen; n++) {
            /* void */
        }

        stores[i]->watched = n == i;
    }

    ngx_http_once_watch_event.handler = ngx_http_once_watch_handler;
    ngx_http_once_watch_event.data = &ngx_http_once_watch_dummy;
    ngx_http_once_watch_event.log = cycle->log;
    ngx_http_once_watch_event.cancelable = 1;

    ngx_add_timer(&ngx_http_once_watch_event, NGX_HTTP_ONCE_SOON_MSEC);
}


void
ngx_http_once_watch_stop(ngx_cycle_t *cycle)
{
    ngx_http_once_table_t      *table;
    ngx_http_once_main_conf_t  *omcf;

    omcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_once_module);
    table = ngx_http_once_metrics_table(omcf);

    if (table) {
        ngx_http_once_watch_leave(table);
    }
}


/* ---------------------------------------------------------------- the door */

/* All stores answered when they were last asked. */

static ngx_uint_t
ngx_http_once_is_ready(ngx_http_once_main_conf_t *omcf)
{
    ngx_uint_t               i;
    ngx_http_once_store_t  **stores;

    stores = omcf->stores.elts;

    for (i = 0; i < omcf->stores.nelts; i++) {
        if (stores[i]->seen && stores[i]->seen->up != NGX_HTTP_ONCE_UP) {
            return 0;
        }
    }

    return 1;
}


ngx_int_t
ngx_http_once_ready_handler(ngx_http_request_t *r)
{
    ngx_int_t                   rc;
    ngx_buf_t                  *b;
    ngx_str_t                   text;
    ngx_uint_t                  ready;
    ngx_http_once_main_conf_t  *omcf;

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return NGX_HTTP_NOT_ALLOWED;
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    omcf = ngx_http_get_module_main_conf(r, ngx_http_once_module);
    ready = ngx_http_once_is_ready(omcf);

    if (ready) {
        ngx_str_set(&text, "ok\n");

    } else {
        ngx_str_set(&text, "not working\n");
    }

    b = ngx_create_temp_buf(r->pool, text.len);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->last = ngx_cpymem(b->last, text.data, text.len);

    r->headers_out.status = ready ? NGX_HTTP_OK : NGX_HTTP_SERVICE_UNAVAILABLE;
    r->headers_out.content_length_n = text.len;
    ngx_str_set(&r->headers_out.content_type, "text/plain");
    r->headers_out.content_type_len = r->headers_out.content_type.len;

    return ngx_http_once_send(r, b);
}


char *
ngx_http_once_ready(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_core_loc_conf_t   *clcf;
    ngx_http_once_main_conf_t  *omcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->handler = ngx_http_once_ready_handler;

    omcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_once_module);
    omcf->watch = 1;

    return NGX_CONF_OK;
}
