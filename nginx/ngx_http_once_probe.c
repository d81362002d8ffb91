/*
 * once_probe: asks the backend what became of a key, and settles its record
 * when the backend says so. Nothing but an explicit Once-Outcome does: a
 * mistyped URL, a stray 404 or another server's page changes nothing.
 *
 * A probe belongs to no request. It reads the record, asks the backend, and
 * settles with the token of the record that it has read: if the record has
 * changed meanwhile, the store refuses. Requests that meet an unknown record
 * wait for one answer and then ask the store again. A probe that follows a
 * doubt is repeated for a while, because the backend may still be working.
 */
#include "ngx_http_once_conf.h"
#include "ngx_http_once_metrics.h"
#include "ngx_http_once_probe.h"

#include <assert.h>


#define NGX_HTTP_ONCE_PROBES       64          /* at once in a worker */
#define NGX_HTTP_ONCE_PROBE_TRIES  8
#define NGX_HTTP_ONCE_PROBE_PAUSE  1000        /* ms, doubled each time */
#define NGX_HTTP_ONCE_PROBE_REST   250         /* ms between two, at least */


/* A request that waits for the end of a probe. */
typedef struct {
    ngx_queue_t                  queue;
    ngx_http_once_guard_t       *guard;
} ngx_http_once_asker_t;


/*
 * What holds between calls (ngx_http_once_assert_probe_state()):
 *
 *   I-1  it is one of those that are counted
 *   I-2  while it rests, neither the store nor the backend is being asked
 *   I-3  something will call it: its event, the store, or the backend
 */
typedef struct {
    ngx_queue_t                  queue;
    ngx_queue_t                  askers;
    ngx_http_once_loc_conf_t    *conf;
    u_char                       id[ONCE_ID_SIZE];
    once_key_t                   key;
    char                         token[ONCE_TOKEN_SIZE];
    ngx_http_once_fetch_t       *fetch;        /* NULL: not being asked */
    ngx_event_t                  event;        /* start, pause, timeout */
    ngx_uint_t                   tries;
    ngx_msec_t                   rested;       /* when it may be tried again */
    unsigned                     resting:1;
    unsigned                     patient:1;    /* of a doubt: is repeated */
    unsigned                     storing:1;    /* the store will call back */
} ngx_http_once_probe_t;


static ngx_queue_t  ngx_http_once_probes;
static ngx_uint_t   ngx_http_once_probe_count;


static void ngx_http_once_probe_start(ngx_event_t *ev);
static void ngx_http_once_probe_read(once_t *once, once_answer_t *answer,
    void *data);
static void ngx_http_once_probe_answered(ngx_http_once_fetch_t *fetch,
    ngx_int_t rc);


static void
ngx_http_once_assert_probe_state(ngx_http_once_probe_t *probe)
{
    assert(ngx_http_once_probe_count > 0);                           /* I-1 */
    assert(ngx_http_once_probe_count <= NGX_HTTP_ONCE_PROBES);
    assert(!probe->resting || (!probe->storing && !probe->fetch));   /* I-2 */
    assert(probe->event.timer_set || probe->event.posted             /* I-3 */
           || probe->storing || probe->fetch);
}


/* Waiting requests ask the store again, whatever the backend said. */

static void
ngx_http_once_probe_tell(ngx_http_once_probe_t *probe)
{
    ngx_queue_t            *q;
    ngx_http_request_t     *r;
    ngx_http_once_asker_t  *asker;
    ngx_http_once_guard_t  *guard;

    while (!ngx_queue_empty(&probe->askers)) {
        q = ngx_queue_head(&probe->askers);
        ngx_queue_remove(q);

        asker = ngx_queue_data(q, ngx_http_once_asker_t, queue);
        guard = asker->guard;
        ngx_free(asker);

        if (guard->ctx) {
            r = guard->ctx->request;
            ngx_http_set_log_request(r->connection->log, r);
            ngx_http_once_ask(guard->ctx);
        }

        ngx_http_once_guard_unref(guard);
    }
}


static void
ngx_http_once_probe_end(ngx_http_once_probe_t *probe)
{
    if (probe->fetch) {
        ngx_http_once_probe_fetch_destroy(probe->fetch);
    }

    ngx_queue_remove(&probe->queue);
    ngx_http_once_probe_count--;

    ngx_http_once_probe_tell(probe);

    ngx_free(probe);
}


/*
 * The backend gave no answer. Waiting requests go on; the probe of a doubt is
 * repeated. In any case it pauses, however often clients come back.
 */

static void
ngx_http_once_probe_unsettled(ngx_http_once_probe_t *probe)
{
    if (ngx_exiting || ngx_terminate) {
        ngx_http_once_probe_end(probe);
        return;
    }

    if (probe->fetch) {
        ngx_http_once_probe_fetch_destroy(probe->fetch);
        probe->fetch = NULL;
    }

    probe->tries++;
    probe->rested = ngx_current_msec + NGX_HTTP_ONCE_PROBE_REST;
    probe->patient = probe->patient
                     && probe->tries < NGX_HTTP_ONCE_PROBE_TRIES;

    ngx_add_timer(&probe->event, probe->patient
                                 ? (ngx_msec_t) NGX_HTTP_ONCE_PROBE_PAUSE
                                                << (probe->tries - 1)
                                 : NGX_HTTP_ONCE_PROBE_REST);

    probe->resting = 1;
    ngx_http_once_assert_probe_state(probe);
    ngx_http_once_probe_tell(probe);
}


static ngx_http_once_probe_t *
ngx_http_once_probe_find(ngx_http_once_store_t *store, const u_char *id)
{
    ngx_queue_t            *q;
    ngx_http_once_probe_t  *probe;

    for (q = ngx_queue_head(&ngx_http_once_probes);
         q != ngx_queue_sentinel(&ngx_http_once_probes);
         q = ngx_queue_next(q))
    {
        probe = ngx_queue_data(q, ngx_http_once_probe_t, queue);

        if (probe->conf->store == store
            && ngx_memcmp(probe->id, id, ONCE_ID_SIZE) == 0)
        {
            return probe;
        }
    }

    return NULL;
}


static void
ngx_http_once_probe_bound(ngx_http_once_probe_t *probe)
{
    if (!probe->event.timer_set) {
        ngx_add_timer(&probe->event, probe->conf->store_timeout);
    }
}


static void
ngx_http_once_probe_submitted(ngx_http_once_probe_t *probe)
{
    assert(!probe->storing);

    probe->storing = 1;
    ngx_http_once_probe_bound(probe);
    ngx_http_once_store_block_exit();
    ngx_http_once_assert_probe_state(probe);
}


static void
ngx_http_once_probe_called(ngx_http_once_probe_t *probe)
{
    assert(probe->storing);

    probe->storing = 0;

    if (probe->event.timer_set) {
        ngx_del_timer(&probe->event);
    }

    ngx_http_once_store_allow_exit();
}


/* NULL: too many are under way, or out of memory. */

static ngx_http_once_probe_t *
ngx_http_once_probe_get(ngx_http_once_loc_conf_t *conf, const u_char *id)
{
    ngx_http_once_probe_t  *probe;

    if (ngx_http_once_probes.next == NULL) {
        ngx_queue_init(&ngx_http_once_probes);
    }

    probe = ngx_http_once_probe_find(conf->store, id);

    if (probe) {
        return probe;
    }

    if (ngx_http_once_probe_count == NGX_HTTP_ONCE_PROBES) {
        return NULL;
    }

    probe = ngx_calloc(sizeof(ngx_http_once_probe_t), ngx_cycle->log);
    if (probe == NULL) {
        return NULL;
    }

    probe->conf = conf;
    ngx_memcpy(probe->id, id, ONCE_ID_SIZE);
    ngx_queue_init(&probe->askers);

    probe->event.handler = ngx_http_once_probe_start;
    probe->event.data = probe;
    probe->event.log = ngx_cycle->log;
    probe->event.cancelable = 1;

    ngx_queue_insert_tail(&ngx_http_once_probes, &probe->queue);
    ngx_http_once_probe_count++;

    ngx_post_event(&probe->event, &ngx_posted_events);

    return probe;
}


void
ngx_http_once_probe_later(ngx_http_once_loc_conf_t *conf, const u_char *id)
{
    ngx_http_once_probe_t  *probe;

    if (conf->probe == NULL) {
        return;
    }

    probe = ngx_http_once_probe_get(conf, id);

    if (probe) {
        probe->patient = 1;
        probe->tries = 0;
    }
}


ngx_int_t
ngx_http_once_probe_first(ngx_http_once_ctx_t *ctx, once_answer_t *answer)
{
    const once_record_t    *record;
    ngx_http_once_asker_t  *asker;
    ngx_http_once_probe_t  *probe;

    record = once_answer_record(answer);

    if (ctx->conf->probe == NULL || ctx->probed || record == NULL) {
        return NGX_DECLINED;
    }

    asker = ngx_alloc(sizeof(ngx_http_once_asker_t), ngx_cycle->log);
    if (asker == NULL) {
        return NGX_DECLINED;
    }

    probe = ngx_http_once_probe_get(ctx->conf, once_record_id(record));

    if (probe == NULL) {
        ngx_free(asker);
        return NGX_DECLINED;
    }

    if (probe->resting
        && (ngx_msec_int_t) (probe->rested - ngx_current_msec) > 0)
    {
        ngx_free(asker);
        return NGX_DECLINED;
    }

    ctx->probed = 1;
    asker->guard = ctx->guard;
    ngx_http_once_guard_ref(ctx->guard);
    ngx_queue_insert_tail(&probe->askers, &asker->queue);

    if (probe->storing) {
        ngx_http_once_probe_bound(probe);

    } else if (probe->event.timer_set) {

        /* between two tries: a request is waiting now */

        ngx_del_timer(&probe->event);
        ngx_post_event(&probe->event, &ngx_posted_events);
    }

    ngx_http_once_assert_probe_state(probe);

    return NGX_OK;
}


static void
ngx_http_once_probe_start(ngx_event_t *ev)
{
    ngx_http_once_probe_t  *probe = ev->data;

    ev->timedout = 0;

    /* the store hangs: requests find out by asking, the probe waits */

    if (probe->storing) {
        ngx_http_once_probe_tell(probe);
        return;
    }

    if (probe->resting && !probe->patient && ngx_queue_empty(&probe->askers)) {
        ngx_http_once_probe_end(probe);
        return;
    }

    probe->resting = 0;

    if (probe->conf->store->once == NULL
        || once_record_get(probe->conf->store->once, probe->id,
                           ngx_http_once_probe_read, probe)
           != ONCE_OK)
    {
        ngx_http_once_probe_unsettled(probe);
        return;
    }

    ngx_http_once_probe_submitted(probe);
}


static ngx_int_t
ngx_http_once_probe_ask(ngx_http_once_probe_t *probe)
{
    ngx_str_t                    request;
    ngx_http_once_probe_conf_t  *pcf;

    pcf = probe->conf->probe;

    if (ngx_http_once_probe_fetch_request(pcf, &probe->key, probe->token,
                                          &request)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    probe->fetch = ngx_http_once_probe_fetch(pcf, &request,
                                             ngx_http_once_probe_answered,
                                             probe);
    ngx_free(request.data);

    if (probe->fetch == NULL) {
        return NGX_ERROR;
    }

    ngx_http_once_count(probe->conf->route, NGX_HTTP_ONCE_C_PROBED);

    return NGX_OK;
}


static void
ngx_http_once_probe_read(once_t *once, once_answer_t *answer, void *data)
{
    ngx_http_once_probe_t *probe = data;

    once_slice_t          key;
    once_state_t          state;
    const once_record_t  *record;

    ngx_http_once_probe_called(probe);

    record = once_answer_record(answer);
    state = record ? once_record_state(record) : ONCE_STATE_NONE;

    /* settled, expired or running: there is nothing to ask about */

    if (state != ONCE_STATE_UNKNOWN
        && !(state == ONCE_STATE_PENDING && once_record_lease_ms(record) == 0))
    {
        ngx_http_once_probe_end(probe);
        return;
    }

    key = once_record_key(record);

    if (key.len == 0) {
        ngx_http_once_probe_end(probe);
        return;
    }

    probe->key.len = ngx_min(key.len, ONCE_KEY_MAX);
    ngx_memcpy(probe->key.text, key.data, probe->key.len);

    once_record_token(record, probe->token);

    if (ngx_http_once_probe_ask(probe) != NGX_OK) {
        ngx_http_once_probe_unsettled(probe);
    }
}


/* If the store refused, the record has changed: asking again shows how. */

static void
ngx_http_once_probe_settled(once_t *once, once_answer_t *answer, void *data)
{
    ngx_http_once_probe_t  *probe = data;

    ngx_http_once_probe_called(probe);
    ngx_http_once_admit_note(probe->conf, answer);

    if (once_answer_outcome(answer) == ONCE_OUTCOME_DONE) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "once_probe: settled a record of route \"%V\"",
                      &probe->conf->route->name);
    }

    ngx_http_once_probe_end(probe);
}


static void
ngx_http_once_probe_answered(ngx_http_once_fetch_t *fetch, ngx_int_t rc)
{
    ngx_http_once_probe_t *probe = fetch->data;

    int               code;
    ngx_str_t        *value;
    once_settle_t     settle = ONCE_SETTLE_INIT;
    once_verdict_t    said;
    once_response_t   response = ONCE_RESPONSE_INIT;

    value = (rc == NGX_OK)
            ? ngx_http_once_probe_fetch_header(fetch, "Once-Outcome", NULL)
            : NULL;
    said = value ? once_verdict_parse((char *) value->data, value->len)
                 : ONCE_VERDICT_NONE;

    if ((said != ONCE_VERDICT_FINAL && said != ONCE_VERDICT_RETRY)
        || probe->conf->store->once == NULL
        || (said == ONCE_VERDICT_FINAL
            && ngx_http_once_probe_fetch_response(fetch, probe->conf,
                                                  &response)
               != NGX_OK))
    {
        ngx_http_once_probe_unsettled(probe);
        return;
    }

    settle.token = probe->token;
    settle.response = (said == ONCE_VERDICT_FINAL) ? &response : NULL;
    settle.note.data = "settled by once_probe: the backend said so";
    settle.note.len = ngx_strlen(settle.note.data);

    /* after a doubt the lease goes on, but the claim has ended */
    settle.force = 1;

    code = once_record_settle(probe->conf->store->once, &settle,
                              ngx_http_once_probe_settled, probe);

    if (code != ONCE_OK) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "once_probe: cannot settle: %s", once_error_text(code));
        ngx_http_once_probe_unsettled(probe);
        return;
    }

    ngx_http_once_probe_submitted(probe);
}


/* --------------------------------------------------------------- directive */

/* timeout=TIME and size=SIZE, in any order. */

static char *
ngx_http_once_probe_param(ngx_conf_t *cf, ngx_http_once_probe_conf_t *pcf,
    ngx_str_t *param)
{
    ssize_t    size;
    ngx_int_t  msec;
    ngx_str_t  value;

    if (param->len > 8 && ngx_strncmp(param->data, "timeout=", 8) == 0) {
        value.data = param->data + 8;
        value.len = param->len - 8;

        msec = ngx_parse_time(&value, 0);

        if (msec != NGX_ERROR && msec != 0) {
            pcf->timeout = msec;
            return NGX_CONF_OK;
        }
    }

    if (param->len > 5 && ngx_strncmp(param->data, "size=", 5) == 0) {
        value.data = param->data + 5;
        value.len = param->len - 5;

        size = ngx_parse_size(&value);

        if (size >= 1024 && size <= ONCE_BODY_STORE_MAX + ONCE_HEADERS_MAX) {
            pcf->size = size;
            return NGX_CONF_OK;
        }
    }

    return ngx_http_once_bad(cf, param, "it must be timeout=TIME such as "
                             "timeout=5s, or size=SIZE from 1k to 16m");
}


/* A query may follow the address directly; a target begins with a slash. */

static ngx_int_t
ngx_http_once_probe_path(ngx_conf_t *cf, ngx_http_once_probe_conf_t *pcf,
    ngx_str_t *uri)
{
    u_char  *p;

    if (uri->len && uri->data[0] == '/') {
        pcf->uri = *uri;

    } else {
        p = ngx_pnalloc(cf->pool, uri->len + 1);
        if (p == NULL) {
            return NGX_ERROR;
        }

        pcf->uri.data = p;
        pcf->uri.len = uri->len + 1;

        *p++ = '/';
        ngx_memcpy(p, uri->data, uri->len);
    }

    p = ngx_strlchr(pcf->uri.data, pcf->uri.data + pcf->uri.len, '?');

    pcf->path.data = pcf->uri.data;
    pcf->path.len = p ? (size_t) (p - pcf->uri.data) : pcf->uri.len;

    return NGX_OK;
}


static ngx_int_t
ngx_http_once_probe_url(ngx_conf_t *cf, ngx_http_once_probe_conf_t *pcf,
    ngx_str_t *url)
{
    ngx_url_t  u;

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url.data = url->data + sizeof("http://") - 1;
    u.url.len = url->len - (sizeof("http://") - 1);
    u.default_port = 80;
    u.uri_part = 1;

    if (ngx_parse_url(cf->pool, &u) != NGX_OK || u.naddrs == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "%s in \"once_probe\" \"%V\": name an address; "
                           "for a group of servers write a location that "
                           "proxies to it, and probe that",
                           u.err ? u.err : "no address", url);
        return NGX_ERROR;
    }

    pcf->addr = &u.addrs[0];

    if (u.family == AF_UNIX) {
        ngx_str_set(&pcf->host, "localhost");

    } else {
        /* as in the URL, including the port */
        pcf->host.data = u.url.data;
        pcf->host.len = u.url.len - u.uri.len;
    }

    return ngx_http_once_probe_path(cf, pcf, &u.uri);
}


char *
ngx_http_once_set_probe(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    ngx_str_t                   *value;
    ngx_uint_t                   i;
    ngx_http_once_probe_conf_t  *pcf;

    if (olcf->probe != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_http_once_is(&value[1], "off")) {
        olcf->probe = NULL;
        return NGX_CONF_OK;
    }

    if (ngx_strncasecmp(value[1].data, (u_char *) "https://", 8) == 0) {
        return ngx_http_once_bad(cf, &value[1], "probes speak plain HTTP: "
                                 "write a location on a loopback address "
                                 "with \"proxy_pass https://...\" and "
                                 "proxy_ssl_verify on, and probe that");
    }

    if (value[1].len <= 7
        || ngx_strncasecmp(value[1].data, (u_char *) "http://", 7) != 0
        || !ngx_http_once_is_plain(&value[1])
        || ngx_strlchr(value[1].data, value[1].data + value[1].len, '#'))
    {
        return ngx_http_once_bad(cf, &value[1], "it must be "
                                 "http://ADDRESS[:PORT]/PATH, "
                                 "http://unix:/SOCKET:/PATH or off");
    }

    pcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_once_probe_conf_t));
    if (pcf == NULL) {
        return NGX_CONF_ERROR;
    }

    pcf->timeout = 5000;
    pcf->size = 1024 * 1024;
    olcf->probe = pcf;

    for (i = 2; i < cf->args->nelts; i++) {
        if (ngx_http_once_probe_param(cf, pcf, &value[i]) != NGX_CONF_OK) {
            return NGX_CONF_ERROR;
        }
    }

    return ngx_http_once_probe_url(cf, pcf, &value[1]) == NGX_OK
           ? NGX_CONF_OK : NGX_CONF_ERROR;
}
