/*
 * Stores of a worker. The master opens none: a handle belongs to the process
 * that opened it, and a local store has a thread. Each worker opens all stores
 * of its configuration when it starts and watches their descriptors like those
 * of connections. A store that cannot be opened is retried every second; until
 * then guarded locations answer 503.
 */
#include "ngx_http_once_request.h"

#include <once/local.h>

#include <assert.h>
#include <dirent.h>


#define NGX_HTTP_ONCE_REOPEN_MSEC  1000
#define NGX_HTTP_ONCE_CLOSE_MSEC   2000
#define NGX_HTTP_ONCE_IDLE_MSEC    3600000
#define NGX_HTTP_ONCE_TROUBLE_MSEC 5000
#define NGX_HTTP_ONCE_TROUBLE_MAX  8     /* lines within that time */


static ngx_int_t ngx_http_once_store_open(ngx_http_once_store_t *store,
    ngx_cycle_t *cycle);


/*
 * A timer that does nothing. While it is set and not cancelable, nginx keeps a
 * worker alive that was asked to quit. The debug log prints the descriptor of
 * a timer's connection, hence the dummy.
 */
static ngx_event_t       ngx_http_once_exit_event;
static ngx_connection_t  ngx_http_once_exit_dummy;
static ngx_uint_t        ngx_http_once_exit_blocks;


static void
ngx_http_once_exit_handler(ngx_event_t *ev)
{
    ngx_add_timer(ev, NGX_HTTP_ONCE_IDLE_MSEC);
}


void
ngx_http_once_store_block_exit(void)
{
    ngx_http_once_exit_blocks++;
    ngx_http_once_exit_event.cancelable = 0;
}


void
ngx_http_once_store_allow_exit(void)
{
    assert(ngx_http_once_exit_blocks > 0);
    ngx_http_once_exit_blocks--;

    if (ngx_http_once_exit_blocks == 0) {
        ngx_http_once_exit_event.cancelable = 1;
    }
}


static ngx_uint_t
ngx_http_once_same(ngx_str_t *one, ngx_str_t *two)
{
    return one->len == two->len
           && ngx_memcmp(one->data, two->data, one->len) == 0;
}


static ngx_int_t
ngx_http_once_copy_text(ngx_conf_t *cf, ngx_str_t *to, ngx_str_t *from)
{
    to->len = from->len;
    to->data = ngx_pnalloc(cf->pool, from->len + 1);
    if (to->data == NULL) {
        return NGX_ERROR;
    }

    *ngx_cpymem(to->data, from->data, from->len) = '\0';

    return NGX_OK;
}


/* The URL for logs: without user, password and options. */

static ngx_int_t
ngx_http_once_store_name(ngx_conf_t *cf, ngx_http_once_store_t *store)
{
    u_char     *p, *end, *at, *rest;
    ngx_str_t  *url, *name;

    url = &store->url;
    name = &store->name;

    name->data = ngx_pnalloc(cf->pool, url->len);
    if (name->data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_strlchr(url->data, url->data + url->len, '?');
    end = p ? p : url->data + url->len;

    p = ngx_strnstr(url->data, "://", end - url->data);
    p = p ? p + 3 : url->data;

    rest = p == url->data ? p : ngx_strlchr(p, end, '/');
    rest = rest ? rest : end;

    for (at = rest; at > p && at[-1] != '@'; at--) { /* void */ }

    name->len = ngx_cpymem(ngx_cpymem(name->data, url->data, p - url->data),
                           at, end - at)
                - name->data;

    return NGX_OK;
}


ngx_http_once_store_t *
ngx_http_once_store_add(ngx_conf_t *cf, ngx_http_once_loc_conf_t *conf)
{
    ngx_uint_t                   i;
    ngx_http_once_store_t      **stores, *store;
    ngx_http_once_main_conf_t   *omcf;

    omcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_once_module);
    stores = omcf->stores.elts;

    for (i = 0; i < omcf->stores.nelts; i++) {

        if (stores[i]->timeout == conf->store_timeout
            && ngx_http_once_same(&stores[i]->url, &conf->store_url)
            && ngx_http_once_same(&stores[i]->secret_file, &conf->secret_file))
        {
            return stores[i];
        }
    }

    store = ngx_pcalloc(cf->pool, sizeof(ngx_http_once_store_t));
    if (store == NULL) {
        return NULL;
    }

    store->timeout = conf->store_timeout;

    if (ngx_http_once_copy_text(cf, &store->url, &conf->store_url) != NGX_OK
        || ngx_http_once_copy_text(cf, &store->secret_file,
                                   &conf->secret_file)
           != NGX_OK
        || ngx_http_once_store_name(cf, store) != NGX_OK)
    {
        return NULL;
    }

    stores = ngx_array_push(&omcf->stores);
    if (stores == NULL) {
        return NULL;
    }

    *stores = store;

    return store;
}


/* ----------------------------------------------------------- in the master */

/* Splits an absolute path before its last name; NULL: it has none. */

static u_char *
ngx_http_once_last_name(u_char *path)
{
    u_char  *p;

    p = path + ngx_strlen(path);

    while (p > path && p[-1] == '/') {
        *--p = '\0';
    }

    while (p > path && p[-1] != '/') {
        p--;
    }

    if (p == path || *p == '\0') {
        return NULL;
    }

    p[-1] = '\0';

    return p;
}


/* Whether a directory belongs to root and is empty. */

static ngx_uint_t
ngx_http_once_is_new(int fd)
{
    DIR          *dir;
    int           copy;
    ngx_uint_t    n;
    struct stat   st;

    if (fstat(fd, &st) == -1 || st.st_uid != 0) {
        return 0;
    }

    copy = openat(fd, ".", O_RDONLY|O_DIRECTORY|O_CLOEXEC);
    dir = (copy == -1) ? NULL : fdopendir(copy);

    if (dir == NULL) {
        if (copy != -1) {
            (void) close(copy);
        }

        return 0;
    }

    for (n = 0; n < 3 && readdir(dir); n++) { /* void */ }

    (void) closedir(dir);

    return n < 3;
}


/*
 * A user with write access to the parent directory could replace what was just
 * created: it is given to the workers' user only if it is still the same.
 */

static ngx_int_t
ngx_http_once_make_directory_at(int above, const char *name,
    ngx_core_conf_t *ccf)
{
    int        fd;
    ngx_int_t  rc;

    if (mkdirat(above, name, 0700) == -1) {
        return NGX_ERROR;
    }

    fd = openat(above, name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);

    if (fd == -1) {
        return NGX_ERROR;
    }

    if (!ngx_http_once_is_new(fd)) {
        ngx_set_errno(EPERM);
        rc = NGX_ERROR;

    } else {
        rc = fchown(fd, ccf->user, ccf->group) == -1 ? NGX_ERROR : NGX_OK;
    }

    (void) close(fd);

    return rc;
}


/*
 * Workers of another user could not create a directory below one of root's. An
 * existing directory is left as it is.
 */

static void
ngx_http_once_make_directory(ngx_http_once_store_t *store, ngx_cycle_t *cycle,
    ngx_core_conf_t *ccf)
{
    int      above;
    u_char  *name, path[NGX_MAX_PATH];

    if (geteuid() != 0 || ccf->user == (ngx_uid_t) NGX_CONF_UNSET_UINT
        || once_local_path((char *) store->url.data, (char *) path,
                           sizeof(path))
           != ONCE_OK)
    {
        return;
    }

    name = ngx_http_once_last_name(path);

    above = name ? open(name == path + 1 ? "/" : (char *) path,
                        O_RDONLY|O_DIRECTORY|O_CLOEXEC)
                 : -1;

    if (above == -1
        || (ngx_http_once_make_directory_at(above, (char *) name, ccf)
            != NGX_OK
            && ngx_errno != NGX_EEXIST))
    {
        ngx_log_error(NGX_LOG_ERR, cycle->log, ngx_errno,
                      "once: cannot create the directory of \"%V\" for the "
                      "workers", &store->name);
    }

    if (above != -1) {
        (void) close(above);
    }
}


ngx_int_t
ngx_http_once_stores_prepare(ngx_cycle_t *cycle)
{
    ngx_uint_t                   i;
    ngx_core_conf_t             *ccf;
    ngx_http_once_store_t      **stores;
    ngx_http_once_main_conf_t   *omcf;

    omcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_once_module);
    ccf = (ngx_core_conf_t *) ngx_get_conf(cycle->conf_ctx, ngx_core_module);
    stores = omcf->stores.elts;

    for (i = 0; i < omcf->stores.nelts; i++) {

        if (ngx_strncmp(stores[i]->url.data, "memory:", 7) == 0
            && ccf->worker_processes > 1)
        {
            /* an error would end the master, even at a reload */
            stores[i]->refused = 1;

            ngx_log_error(NGX_LOG_EMERG, cycle->log, 0,
                          "once: \"%V\" cannot be shared by %i workers: write "
                          "\"worker_processes 1\", or use a local store",
                          &stores[i]->name, ccf->worker_processes);

            if (ngx_is_init_cycle(cycle->old_cycle)) {
                return NGX_ERROR;
            }

            continue;
        }

        if (!ngx_test_config) {
            ngx_http_once_make_directory(stores[i], cycle, ccf);
        }
    }

    return NGX_OK;
}


/* ------------------------------------------------------------- in a worker */

/*
 * Logs what is wrong with a store whenever that changes: damage that was found
 * at the opening, a server that refuses connections. A store that keeps
 * changing is logged a few times in five seconds. One line alone would not do:
 * what follows it at once may be what lasts, and nothing may happen after that
 * which would lead here again.
 */

static void
ngx_http_once_store_trouble(ngx_http_once_store_t *store, ngx_uint_t level,
    ngx_log_t *log)
{
    char  text[sizeof(store->trouble)];

    if (once_store_trouble(store->once, text, sizeof(text)) == 0) {
        text[0] = '\0';
    }

    if (ngx_strcmp(text, store->trouble) == 0) {
        return;
    }

    if (ngx_current_msec - store->logged >= NGX_HTTP_ONCE_TROUBLE_MSEC) {
        store->logged = ngx_current_msec;
        store->logged_count = 0;
    }

    if (store->logged_count == NGX_HTTP_ONCE_TROUBLE_MAX) {
        return;
    }

    store->logged_count++;

    if (text[0]) {
        ngx_log_error(level, log, 0, "once: store \"%V\": %s",
                      &store->name, text);

    } else {
        ngx_log_error(NGX_LOG_WARN, log, 0,
                      "once: store \"%V\" has recovered", &store->name);
    }

    ngx_memcpy(store->trouble, text, sizeof(text));
}


void
ngx_http_once_store_full(ngx_http_once_store_t *store, ngx_log_t *log)
{
    once_usage_t  usage = ONCE_USAGE_INIT;

    if (store->full_logged
        && ngx_current_msec - store->full_logged < NGX_HTTP_ONCE_TROUBLE_MSEC)
    {
        return;
    }

    store->full_logged = ngx_current_msec;

    if (once_store_usage(store->once, &usage) != ONCE_OK) {
        usage.max_records = 0;
        usage.max_bytes = 0;
    }

    if (usage.max_records == 0 && usage.max_bytes == 0) {
        ngx_log_error(NGX_LOG_ERR, log, 0,
                      "once: store \"%V\" is full: new keys are refused until "
                      "there is room on its disk or in its memory; see "
                      "\"once stats\"", &store->name);
        return;
    }

    ngx_log_error(NGX_LOG_ERR, log, 0,
                  "once: store \"%V\" is full: it has %uL records "
                  "(max_records=%uL; 0: any number) in %uL bytes "
                  "(max_bytes=%uL); new keys are refused until records "
                  "expire. Raise the limit if the disk allows it; to have "
                  "fewer records, see once_quota and once_ttl",
                  &store->name, usage.records, usage.max_records, usage.bytes,
                  usage.max_bytes);
}


static void
ngx_http_once_store_handler(ngx_event_t *ev)
{
    int                     code;
    ngx_connection_t       *c;
    ngx_http_once_store_t  *store;

    c = ev->data;
    store = c->data;

    code = once_dispatch(store->once);

    if (code < 0) {
        ngx_log_error(NGX_LOG_ALERT, ev->log, 0, "once: store \"%V\": %s",
                      &store->name, once_error_text(code));
    }

    ngx_http_once_store_trouble(store, NGX_LOG_ERR, ev->log);
}


static ngx_int_t
ngx_http_once_store_watch(ngx_http_once_store_t *store, ngx_cycle_t *cycle)
{
    ngx_connection_t  *c;

    c = ngx_get_connection(once_fd(store->once), cycle->log);
    if (c == NULL) {
        return NGX_ERROR;
    }

    c->data = store;
    c->pool = cycle->pool;
    c->read->handler = ngx_http_once_store_handler;
    c->read->log = cycle->log;
    c->write->log = cycle->log;

    if (ngx_add_event(c->read, NGX_READ_EVENT, 0) != NGX_OK) {
        ngx_free_connection(c);
        return NGX_ERROR;
    }

    store->connection = c;

    return NGX_OK;
}


static void
ngx_http_once_store_unwatch(ngx_http_once_store_t *store)
{
    ngx_connection_t  *c;

    c = store->connection;

    if (c == NULL) {
        return;
    }

    (void) ngx_del_event(c->read, NGX_READ_EVENT, 0);

    if (c->read->posted) {
        ngx_delete_posted_event(c->read);
    }

    ngx_free_connection(c);

    c->fd = (ngx_socket_t) -1;
    store->connection = NULL;
}


static int
ngx_http_once_store_options(ngx_http_once_store_t *store,
    once_options_t *options, once_error_t *err)
{
    int     code;
    u_char  text[sizeof("file:") + NGX_MAX_PATH];

    *ngx_snprintf(text, sizeof(text) - 1, "%Mms", store->timeout) = '\0';

    code = once_options_set(options, "store_timeout", (char *) text, err);

    if (code == ONCE_OK && store->secret_file.len) {
        *ngx_snprintf(text, sizeof(text) - 1, "file:%V", &store->secret_file)
            = '\0';

        code = once_options_set(options, "secrets", (char *) text, err);
    }

    return code;
}


/* Only while a store is being opened: what comes later has its own lines. */

static void
ngx_http_once_store_opening(once_log_level_t level, const char *message,
    void *data)
{
    ngx_http_once_store_t  *store = data;

    if (store->once == NULL) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0, "once: %s", message);
    }
}


static int
ngx_http_once_store_handle(ngx_http_once_store_t *store, once_error_t *err)
{
    int              code;
    once_options_t  *options;

    options = once_options_new();

    if (options == NULL) {
        err->text[0] = '\0';
        return ONCE_E_NOMEM;
    }

    once_options_set_log(options, ONCE_LOG_NOTICE, ngx_http_once_store_opening,
                         store);

    code = ngx_http_once_store_options(store, options, err);

    if (code == ONCE_OK) {
        code = once_open((char *) store->url.data, options, &store->once, err);
    }

    if (code == ONCE_OK) {
        ngx_http_once_store_trouble(store, NGX_LOG_ALERT, ngx_cycle->log);
    }

    once_options_free(options);

    return code;
}


static void
ngx_http_once_store_reopen(ngx_event_t *ev)
{
    ngx_http_once_store_t  *store;

    store = ev->data;

    if (ngx_http_once_store_open(store, (ngx_cycle_t *) ngx_cycle) == NGX_OK) {
        ngx_log_error(NGX_LOG_NOTICE, ev->log, 0,
                      "once: store \"%V\" is open now", &store->name);
    }
}


static void
ngx_http_once_store_later(ngx_http_once_store_t *store, ngx_cycle_t *cycle)
{
    store->reopen.handler = ngx_http_once_store_reopen;
    store->reopen.data = store;
    store->reopen.log = cycle->log;
    store->reopen.cancelable = 1;

    ngx_add_timer(&store->reopen, NGX_HTTP_ONCE_REOPEN_MSEC);
}


static ngx_int_t
ngx_http_once_store_open(ngx_http_once_store_t *store, ngx_cycle_t *cycle)
{
    int           code;
    once_error_t  err;

    code = ngx_http_once_store_handle(store, &err);

    if (code == ONCE_OK && ngx_http_once_store_watch(store, cycle) == NGX_OK) {
        return NGX_OK;
    }

    /* logged once: a store that stays away would fill the log */

    if (store->reopen.handler == NULL) {
        ngx_log_error(NGX_LOG_CRIT, cycle->log, 0,
                      "once: store \"%V\" cannot be opened: %s; requests get "
                      "503, retrying every second", &store->name,
                      code == ONCE_OK ? "no free worker_connections"
                      : err.text[0] ? err.text : once_error_text(code));
    }

    if (code == ONCE_OK) {
        (void) once_close(store->once, 0);
        store->once = NULL;
    }

    ngx_http_once_store_later(store, cycle);

    return NGX_ERROR;
}


ngx_int_t
ngx_http_once_stores_open(ngx_cycle_t *cycle)
{
    ngx_uint_t                   i;
    ngx_http_once_store_t      **stores;
    ngx_http_once_main_conf_t   *omcf;

    ngx_http_once_body_open(cycle);

    omcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_once_module);
    stores = omcf->stores.elts;

    for (i = 0; i < omcf->stores.nelts; i++) {

        ngx_http_once_guard_calls_init(stores[i], cycle->log);

        if (!stores[i]->refused) {
            (void) ngx_http_once_store_open(stores[i], cycle);
        }
    }

    ngx_http_once_exit_event.handler = ngx_http_once_exit_handler;
    ngx_http_once_exit_event.data = &ngx_http_once_exit_dummy;
    ngx_http_once_exit_event.log = cycle->log;
    ngx_http_once_exit_event.cancelable = 1;

    ngx_add_timer(&ngx_http_once_exit_event, NGX_HTTP_ONCE_IDLE_MSEC);

    return NGX_OK;
}


void
ngx_http_once_stores_close(ngx_cycle_t *cycle)
{
    ngx_uint_t                   i;
    ngx_http_once_store_t      **stores;
    ngx_http_once_main_conf_t   *omcf;

    ngx_http_once_guard_end_all();

    omcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_once_module);
    stores = omcf->stores.elts;

    for (i = 0; i < omcf->stores.nelts; i++) {

        ngx_http_once_store_unwatch(stores[i]);

        if (stores[i]->overdue.timer_set) {
            ngx_del_timer(&stores[i]->overdue);
        }

        if (stores[i]->once == NULL) {
            continue;
        }

        if (once_close(stores[i]->once, NGX_HTTP_ONCE_CLOSE_MSEC) != ONCE_OK) {
            ngx_log_error(NGX_LOG_WARN, cycle->log, 0,
                          "once: store \"%V\" did not take all writes in time: "
                          "those records wait for their leases to run out",
                          &stores[i]->name);
        }

        stores[i]->once = NULL;
    }
}
