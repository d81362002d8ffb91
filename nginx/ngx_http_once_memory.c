/*
 * once_memory: how many bytes of bodies a worker keeps for its clients. Beyond
 * that, a first response passes through and is recorded without its body, and
 * a replay is refused for now. No record is lost, and nothing runs twice.
 *
 * A stored response is in memory once, even if several clients receive it at
 * the same time: a completed record does not change, so its id and the claim
 * that completed it identify the response.
 */
#include "ngx_http_once_metrics.h"
#include "ngx_http_once_request.h"


#define NGX_HTTP_ONCE_STORED_SLOTS  256
#define NGX_HTTP_ONCE_LOG_MSEC     60000


struct ngx_http_once_stored_s {
    ngx_queue_t                  queue;        /* of its slot */
    ngx_uint_t                   refs;         /* requests that send it */
    ngx_http_once_store_t       *store;
    once_answer_t               *answer;       /* kept */
    size_t                       bytes;
};


static ngx_queue_t  ngx_http_once_stored[NGX_HTTP_ONCE_STORED_SLOTS];
static size_t       ngx_http_once_taken;
static size_t       ngx_http_once_limit;
static ngx_msec_t   ngx_http_once_logged;


/* -------------------------------------------------------------- the budget */

void
ngx_http_once_memory_open(ngx_cycle_t *cycle)
{
    ngx_http_once_main_conf_t  *omcf;

    omcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_once_module);

    ngx_http_once_limit = omcf->memory;
}


ngx_int_t
ngx_http_once_memory_take(size_t bytes)
{
    if (bytes <= ngx_http_once_limit - ngx_http_once_taken) {
        ngx_http_once_taken += bytes;
        ngx_http_once_metrics_memory(ngx_http_once_taken);
        return NGX_OK;
    }

    if (ngx_http_once_logged == 0
        || ngx_current_msec - ngx_http_once_logged > NGX_HTTP_ONCE_LOG_MSEC)
    {
        ngx_http_once_logged = ngx_current_msec;

        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "once: \"once_memory\" is used up: %uz of %uz bytes; "
                      "replays are refused and responses are recorded without "
                      "their body", ngx_http_once_taken, ngx_http_once_limit);
    }

    return NGX_DECLINED;
}


void
ngx_http_once_memory_give(size_t *bytes)
{
    ngx_http_once_taken -= *bytes;
    *bytes = 0;
    ngx_http_once_metrics_memory(ngx_http_once_taken);
}


/* -------------------------------------------------------- stored responses */

static ngx_queue_t *
ngx_http_once_stored_slot(const once_record_t *record)
{
    ngx_queue_t  *slot;

    slot = &ngx_http_once_stored[once_record_id(record)[0]
                                 % NGX_HTTP_ONCE_STORED_SLOTS];

    if (slot->next == NULL) {
        ngx_queue_init(slot);
    }

    return slot;
}


static ngx_http_once_stored_t *
ngx_http_once_stored_find(ngx_queue_t *slot, ngx_http_once_store_t *store,
    const once_record_t *record)
{
    ngx_queue_t             *q;
    const once_record_t     *other;
    ngx_http_once_stored_t  *stored;

    for (q = ngx_queue_head(slot);
         q != ngx_queue_sentinel(slot);
         q = ngx_queue_next(q))
    {
        stored = ngx_queue_data(q, ngx_http_once_stored_t, queue);
        other = once_answer_record(stored->answer);

        if (stored->store == store
            && ngx_memcmp(once_record_id(other), once_record_id(record),
                          ONCE_ID_SIZE)
               == 0
            && ngx_memcmp(once_record_claim_id(other),
                          once_record_claim_id(record), ONCE_CLAIM_ID_SIZE)
               == 0)
        {
            return stored;
        }
    }

    return NULL;
}


/* What an answer takes while it is kept. */

static size_t
ngx_http_once_stored_bytes(const once_record_t *record)
{
    size_t           bytes;
    ngx_uint_t       i;
    once_response_t  response = ONCE_RESPONSE_INIT;

    bytes = (size_t) once_record_bytes(record);

    if (once_record_response(record, &response) == ONCE_OK
        && response.body.len > 0)
    {
        /* unpacked: the record itself may be smaller, and is freed */

        bytes = response.body.len;

        for (i = 0; i < response.header_count; i++) {
            bytes += sizeof(once_header_t) + response.headers[i].name.len
                     + response.headers[i].value.len;
        }
    }

    return bytes;
}


ngx_int_t
ngx_http_once_memory_keep_answer(ngx_http_once_ctx_t *ctx,
    once_answer_t *answer)
{
    ngx_queue_t             *slot;
    const once_record_t     *record;
    ngx_http_once_stored_t  *stored;

    record = once_answer_record(answer);
    slot = ngx_http_once_stored_slot(record);
    stored = ngx_http_once_stored_find(slot, ctx->conf->store, record);

    if (stored == NULL) {
        stored = ngx_calloc(sizeof(ngx_http_once_stored_t), ngx_cycle->log);
        if (stored == NULL) {
            return NGX_ERROR;
        }

        stored->bytes = ngx_http_once_stored_bytes(record);

        if (ngx_http_once_memory_take(stored->bytes) != NGX_OK) {
            ngx_free(stored);
            return NGX_DECLINED;
        }

        stored->store = ctx->conf->store;
        stored->answer = answer;
        once_answer_keep(answer);
        ngx_queue_insert_head(slot, &stored->queue);
    }

    stored->refs++;

    ctx->stored = stored;
    ctx->answer = stored->answer;
    ctx->expires_ms = once_record_expires_ms(record);

    return NGX_OK;
}


void
ngx_http_once_memory_drop_answer(ngx_http_once_ctx_t *ctx)
{
    ngx_http_once_stored_t  *stored;

    stored = ctx->stored;

    if (stored == NULL) {
        return;
    }

    ctx->stored = NULL;
    ctx->answer = NULL;
    stored->refs--;

    if (stored->refs == 0) {
        ngx_queue_remove(&stored->queue);
        ngx_http_once_memory_give(&stored->bytes);
        once_answer_free(stored->answer);
        ngx_free(stored);
    }
}
