/*
 * Bodies that a worker holds for its clients, and how much of them it may:
 * once_memory. What would be too much is not held: a first response passes and
 * is recorded without its body, a replay is refused for now. Nothing that was
 * done is forgotten, and nothing is done twice.
 *
 * A stored response that several clients are sent at the same time is there
 * once: a completed record does not change, so that its id and the claim that
 * completed it say which response it is.
 */
#include "ngx_http_once_metrics.h"
#include "ngx_http_once_request.h"


#define NGX_HTTP_ONCE_STORED_SLOTS  256
#define NGX_HTTP_ONCE_TELL_MSEC     60000


struct ngx_http_once_stored_s {
    ngx_queue_t                  queue;            /* of its slot */
    ngx_uint_t                   refs;             /* of the requests that are sent it */
    ngx_http_once_store_t       *store;
    once_answer_t               *answer;           /* kept */
    size_t                       bytes;
};


static ngx_queue_t  ngx_http_once_stored[NGX_HTTP_ONCE_STORED_SLOTS];
static size_t       ngx_http_once_held;
static size_t       ngx_http_once_limit;
static ngx_msec_t   ngx_http_once_told;


/* -------------------------------------------------------------- the account */

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
    if (bytes <= ngx_http_once_limit - ngx_http_once_held) {
        ngx_http_once_held += bytes;
        ngx_http_once_memory_in_use(ngx_http_once_held);
        return NGX_OK;
    }

    if (ngx_http_once_told == 0
        || ngx_current_msec - ngx_http_once_told > NGX_HTTP_ONCE_TELL_MSEC)
    {
        ngx_http_once_told = ngx_current_msec;

        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "once: \"once_memory\" is used up: %uz of %uz bytes; "
                      "replays are refused and responses are recorded without "
                      "their body", ngx_http_once_held, ngx_http_once_limit);
    }

    return NGX_DECLINED;
}


void
ngx_http_once_memory_give(size_t *bytes)
{
    ngx_http_once_held -= *bytes;
    *bytes = 0;
    ngx_http_once_memory_in_use(ngx_http_once_held);
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


/* What an answer takes as long as it is kept. One that cannot be read is small, or told so later. */

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
        /* packed it may be smaller, and is not there any more */

        bytes = response.body.len;

        for (i = 0; i < response.header_count; i++) {
            bytes += sizeof(once_header_t) + response.headers[i].name.len
                     + response.headers[i].value.len;
        }
    }

    return bytes;
}


ngx_int_t
ngx_http_once_keep_answer(ngx_http_once_ctx_t *ctx, once_answer_t *answer)
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
ngx_http_once_drop_answer(ngx_http_once_ctx_t *ctx)
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
