/*
 * Asking the backend what became of a key, and settling its record when the
 * backend says so. Nothing but an explicit Once-Outcome does that: a mistyped
 * URL, a stray 404 or a page of somebody else's leaves everything as it was.
 *
 * A probe belongs to no request. It looks at the record, asks the backend, and
 * settles by the token of the record it had looked at: if the record has moved
 * on meanwhile, the store refuses. Requests that met the unknown record wait
 * for one answer and then ask the store again. A probe that follows a doubt is
 * repeated for a while, because the backend may still be at work.
 */
#include "ngx_http_once_metrics.h"
#include "ngx_http_once_probe.h"


#define NGX_HTTP_ONCE_PROBES       64          /* at once in a worker */
#define NGX_HTTP_ONCE_PROBE_TRIES  8
#define NGX_HTTP_ONCE_PROBE_PAUSE  1000        /* ms, doubled each time */
#define NGX_HTTP_ONCE_PROBE_REST   250         /* ms between two at least */


/* Somebody whose request waits for the end of a probe. */
typedef struct {
    ngx_queue_t                  queue;
    ngx_http_once_guard_t       *guard;
} ngx_http_once_asker_t;


typedef struct {
    ngx_queue_t                  queue;
    ngx_queue_t                  askers;
    ngx_http_once_loc_conf_t    *conf;
    u_char                       id[ONCE_ID_SIZE];
    once_key_t                   key;
    char                         token[ONCE_TOKEN_SIZE];
    ngx_http_once_fetch_t       *fetch;            /* NULL: not asking now */
    ngx_event_t                  event;            /* starts it, pauses it, and bounds the store */
    ngx_uint_t                   tries;
    ngx_msec_t                   rested;           /* when it may be tried again */
    unsigned                     resting:1;
    unsigned                     patient:1;        /* of a doubt: is repeated */
    unsigned                     storing:1;        /* the store will call back */
} ngx_http_once_probe_t;


static ngx_queue_t  ngx_http_once_probes;
static ngx_uint_t   ngx_http_once_probe_count;


static void ngx_http_once_probe_start(ngx_event_t *ev);
static void ngx_http_once_probe_looked(once_t *once, once_answer_t *answer,
    void *data);
static void ngx_http_once_probe_answered(ngx_http_once_fetch_t *fetch,
    ngx_int_t rc);


/* Whoever waits asks the store again, whatever the backend said. */

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
        ngx_http_once_fetch_destroy(probe->fetch);
    }

    ngx_queue_remove(&probe->queue);
    ngx_http_once_probe_count--;

    ngx_http_once_probe_tell(probe);

    ngx_free(probe);
}


/*
 * The backend did not say. Askers are not kept waiting; doubt is patient. In
 * any case the backend has a rest, however often clients come back.
 */

static void
ngx_http_once_probe_unsettled(ngx_http_once_probe_t *probe)
{
    if (ngx_exiting || ngx_terminate) {
        ngx_http_once_probe_end(probe);
        return;
    }

    if (probe->fetch) {
        ngx_http_once_fetch_destroy(probe->fetch);
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
    probe->storing = 1;
    ngx_http_once_probe_bound(probe);
    ngx_http_once_hold_exit();
}


static void
ngx_http_once_probe_called(ngx_http_once_probe_t *probe)
{
    probe->storing = 0;

    if (probe->event.timer_set) {
        ngx_del_timer(&probe->event);
    }

    ngx_http_once_allow_exit();
}


/* NULL: too many are under way, or there is no memory. */

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

        /* between two tries: somebody is waiting now */

        ngx_del_timer(&probe->event);
        ngx_post_event(&probe->event, &ngx_posted_events);
    }

    return NGX_OK;
}


static void
ngx_http_once_probe_start(ngx_event_t *ev)
{
    ngx_http_once_probe_t  *probe = ev->data;

    ev->timedout = 0;

    /* the store hangs: askers hear of it when they ask, the probe waits */

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
                    ngx_http_once_probe_looked, probe)
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

    if (ngx_http_once_probe_request(pcf, &probe->key, probe->token, &request)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    probe->fetch = ngx_http_once_fetch(pcf, &request,
                                       ngx_http_once_probe_answered, probe);
    ngx_free(request.data);

    if (probe->fetch == NULL) {
        return NGX_ERROR;
    }

    ngx_http_once_count(probe->conf->route, NGX_HTTP_ONCE_C_PROBED);

    return NGX_OK;
}


static void
ngx_http_once_probe_looked(once_t *once, once_answer_t *answer, void *data)
{
    ngx_http_once_probe_t *probe = data;

    once_slice_t          key;
    once_state_t          state;
    const once_record_t  *record;

    ngx_http_once_probe_called(probe);

    record = once_answer_record(answer);
    state = record ? once_record_state(record) : ONCE_STATE_NONE;

    /* settled, forgotten, or in somebody's hands: nothing to ask about */

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


/* Refused: the record moved on, and whoever asks again sees where to. */

static void
ngx_http_once_probe_settled(once_t *once, once_answer_t *answer, void *data)
{
    ngx_http_once_probe_t  *probe = data;

    ngx_http_once_probe_called(probe);
    ngx_http_once_unknown_note(probe->conf, answer);

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
    once_slice_t      note;
    once_verdict_t    said;
    once_response_t   response = ONCE_RESPONSE_INIT;

    value = (rc == NGX_OK)
            ? ngx_http_once_fetch_header(fetch, "Once-Outcome", NULL) : NULL;
    said = value ? once_verdict_parse((char *) value->data, value->len)
                 : ONCE_SAID_NOTHING;

    if ((said != ONCE_SAID_FINAL && said != ONCE_SAID_RETRY)
        || probe->conf->store->once == NULL
        || (said == ONCE_SAID_FINAL
            && ngx_http_once_probe_response(fetch, probe->conf, &response)
               != NGX_OK))
    {
        ngx_http_once_probe_unsettled(probe);
        return;
    }

    note.data = "the backend said so when probed";
    note.len = ngx_strlen(note.data);

    /* forced: after doubt the lease goes on, but nobody holds the claim */

    code = once_record_settle(probe->conf->store->once, probe->token,
                       said == ONCE_SAID_FINAL ? &response : NULL, 0, note, 1,
                       ngx_http_once_probe_settled, probe);

    if (code != ONCE_OK) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "once_probe: cannot settle: %s", once_error_text(code));
        ngx_http_once_probe_unsettled(probe);
        return;
    }

    ngx_http_once_probe_submitted(probe);
}
