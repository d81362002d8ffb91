/*
 * Requests that wait for another one with the same key (once_wait). If that
 * one runs in this worker, its end wakes them. If it runs elsewhere, the first
 * of them polls the store, less often each time, and wakes the others when the
 * answer is not busy any more. The number of waiters of a key and the time that
 * each of them waits are limited.
 */
#include "ngx_http_once_conf.h"
#include "ngx_http_once_request.h"

#include <assert.h>


#define NGX_HTTP_ONCE_POLL_MIN  50
#define NGX_HTTP_ONCE_POLL_MAX  1000


/*
 * A record that is waited for in this worker. What holds between calls
 * (ngx_http_once_assert_awaited_state()):
 *
 *   I-1  some request waits for it: otherwise it is not in the tree
 *   I-2  the waiters and what they wait for point at each other
 */
typedef struct {
    ngx_rbtree_node_t            node;         /* by the record's id */
    ngx_queue_t                  waiters;
    ngx_uint_t                   count;
} ngx_http_once_awaited_t;


struct ngx_http_once_waiter_s {
    ngx_queue_t                  queue;
    ngx_http_once_ctx_t         *ctx;
    ngx_http_once_awaited_t     *awaited;      /* NULL: is not waiting */
    ngx_event_t                  event;
    ngx_msec_t                   deadline;
    ngx_msec_t                   pause;        /* before polling; 0: is woken */
};


static ngx_rbtree_t       ngx_http_once_tree;
static ngx_rbtree_node_t  ngx_http_once_sentinel;


/* The first bytes of an id, which is a keyed hash. */

static ngx_rbtree_key_t
ngx_http_once_tree_key(const u_char *id)
{
    ngx_rbtree_key_t  key;

    ngx_memcpy(&key, id, sizeof(key));

    return key;
}


static ngx_http_once_awaited_t *
ngx_http_once_find(ngx_rbtree_key_t key)
{
    ngx_rbtree_node_t  *node;

    if (ngx_http_once_tree.root == NULL) {
        ngx_rbtree_init(&ngx_http_once_tree, &ngx_http_once_sentinel,
                        ngx_rbtree_insert_value);
    }

    node = ngx_http_once_tree.root;

    while (node != &ngx_http_once_sentinel) {

        if (key == node->key) {
            return (ngx_http_once_awaited_t *) node;
        }

        node = (key < node->key) ? node->left : node->right;
    }

    return NULL;
}


static ngx_http_once_awaited_t *
ngx_http_once_find_or_add(ngx_rbtree_key_t key)
{
    ngx_http_once_awaited_t  *awaited;

    awaited = ngx_http_once_find(key);

    if (awaited) {
        return awaited;
    }

    awaited = ngx_calloc(sizeof(ngx_http_once_awaited_t), ngx_cycle->log);
    if (awaited == NULL) {
        return NULL;
    }

    ngx_queue_init(&awaited->waiters);
    awaited->node.key = key;
    ngx_rbtree_insert(&ngx_http_once_tree, &awaited->node);

    return awaited;
}


static void
ngx_http_once_assert_awaited_state(ngx_http_once_awaited_t *awaited)
{
    ngx_http_once_waiter_t  *first;

    first = ngx_queue_data(ngx_queue_head(&awaited->waiters),
                           ngx_http_once_waiter_t, queue);

    assert(awaited->count > 0);                                      /* I-1 */
    assert(!ngx_queue_empty(&awaited->waiters));
    assert(first->awaited == awaited);                               /* I-2 */
}


/* ----------------------------------------------------------------- waiting */

static void
ngx_http_once_arm(ngx_http_once_waiter_t *waiter)
{
    ngx_msec_t      pause;
    ngx_msec_int_t  left;

    left = (ngx_msec_int_t) (waiter->deadline - ngx_current_msec);
    left = ngx_max(left, 1);

    if (waiter->pause) {
        /* workers must not poll in step */
        pause = waiter->pause - waiter->pause / 4
                + (ngx_msec_t) ngx_random() % (waiter->pause / 2 + 1);

        left = ngx_min(left, (ngx_msec_int_t) pause);
        waiter->pause = ngx_min(waiter->pause * 2, NGX_HTTP_ONCE_POLL_MAX);
    }

    ngx_add_timer(&waiter->event, (ngx_msec_t) left);
}


/* The first in the queue polls for all of them, unless they are woken. */

static void
ngx_http_once_appoint(ngx_http_once_awaited_t *awaited)
{
    ngx_http_once_waiter_t  *first;

    ngx_http_once_assert_awaited_state(awaited);

    first = ngx_queue_data(ngx_queue_head(&awaited->waiters),
                           ngx_http_once_waiter_t, queue);

    if (first->pause == 0 && first->event.timer_set) {
        first->pause = NGX_HTTP_ONCE_POLL_MIN;
        ngx_http_once_arm(first);
    }
}


/* Removes a waiter. If it polled, the next one does. */

static void
ngx_http_once_take_out(ngx_http_once_waiter_t *waiter)
{
    ngx_http_once_awaited_t  *awaited;

    awaited = waiter->awaited;

    if (waiter->event.timer_set) {
        ngx_del_timer(&waiter->event);
    }

    if (awaited == NULL) {
        return;
    }

    ngx_http_once_assert_awaited_state(awaited);

    ngx_queue_remove(&waiter->queue);
    waiter->awaited = NULL;
    awaited->count--;

    if (awaited->count == 0) {
        ngx_rbtree_delete(&ngx_http_once_tree, &awaited->node);
        ngx_free(awaited);
        return;
    }

    if (waiter->pause) {
        ngx_http_once_appoint(awaited);
    }
}


static void
ngx_http_once_wait_handler(ngx_event_t *ev)
{
    ngx_http_request_t      *r;
    ngx_http_once_waiter_t  *waiter;

    waiter = ev->data;
    r = waiter->ctx->request;

    assert(waiter->awaited && waiter->ctx->phase == NGX_HTTP_ONCE_WAITING);

    ngx_http_set_log_request(r->connection->log, r);

    /* at the deadline this is the last time, whatever the answer */

    ngx_http_once_ask(waiter->ctx);
}


static ngx_http_once_waiter_t *
ngx_http_once_waiter_new(ngx_http_once_ctx_t *ctx)
{
    ngx_http_once_waiter_t  *waiter;

    waiter = ngx_pcalloc(ctx->request->pool, sizeof(ngx_http_once_waiter_t));
    if (waiter == NULL) {
        return NULL;
    }

    waiter->ctx = ctx;
    waiter->deadline = ngx_current_msec + ctx->conf->wait;
    waiter->event.handler = ngx_http_once_wait_handler;
    waiter->event.data = waiter;
    waiter->event.log = ctx->request->connection->log;

    ctx->waiter = waiter;

    return waiter;
}


static ngx_int_t
ngx_http_once_join(ngx_http_once_ctx_t *ctx, ngx_http_once_waiter_t *waiter,
    const u_char *id)
{
    ngx_http_once_awaited_t  *awaited;

    awaited = ngx_http_once_find_or_add(ngx_http_once_tree_key(id));
    if (awaited == NULL) {
        return NGX_ERROR;
    }

    if (awaited->count >= ctx->conf->wait_max) {
        return NGX_BUSY;
    }

    waiter->pause = (awaited->count || ngx_http_once_guard_runs(id))
                    ? 0 : NGX_HTTP_ONCE_POLL_MIN;
    waiter->awaited = awaited;

    ngx_queue_insert_tail(&awaited->waiters, &waiter->queue);
    awaited->count++;
    ngx_http_once_assert_awaited_state(awaited);

    if (!ctx->waited) {
        ctx->waited = 1;
        ngx_http_once_count(ctx->conf->route, NGX_HTTP_ONCE_C_WAITED);
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_once_wait(ngx_http_once_ctx_t *ctx, once_answer_t *answer)
{
    ngx_int_t                rc;
    const once_record_t     *record;
    ngx_http_once_waiter_t  *waiter;

    record = once_answer_record(answer);
    waiter = ctx->waiter;

    if (ctx->conf->wait == 0 || record == NULL) {
        return NGX_DECLINED;
    }

    if (waiter == NULL) {
        waiter = ngx_http_once_waiter_new(ctx);

        if (waiter == NULL) {
            return NGX_ERROR;
        }
    }

    if ((ngx_msec_int_t) (waiter->deadline - ngx_current_msec) <= 0) {
        ngx_http_once_take_out(waiter);
        return NGX_DECLINED;
    }

    if (waiter->awaited == NULL) {
        rc = ngx_http_once_join(ctx, waiter, once_record_id(record));

        if (rc != NGX_OK) {
            return rc;
        }
    }

    ctx->phase = NGX_HTTP_ONCE_WAITING;
    ngx_http_once_arm(waiter);

    return NGX_OK;
}


/* ------------------------------------------------------------------ waking */

static void
ngx_http_once_wake_all(ngx_rbtree_key_t key)
{
    ngx_http_once_ctx_t      *ctx;
    ngx_http_once_waiter_t   *waiter;
    ngx_http_once_awaited_t  *awaited;

    /* found again each time: a failing ask may end other requests */

    while ((awaited = ngx_http_once_find(key)) != NULL) {

        waiter = ngx_queue_data(ngx_queue_head(&awaited->waiters),
                                ngx_http_once_waiter_t, queue);
        ctx = waiter->ctx;
        waiter->pause = 0;

        ngx_http_once_take_out(waiter);

        if (ctx->phase == NGX_HTTP_ONCE_WAITING) {
            ngx_http_once_ask(ctx);
        }
    }
}


void
ngx_http_once_wait_wake(const u_char *id)
{
    ngx_http_once_wake_all(ngx_http_once_tree_key(id));
}


void
ngx_http_once_wait_over(ngx_http_once_ctx_t *ctx)
{
    ngx_rbtree_key_t  key;

    if (ctx->waiter == NULL || ctx->waiter->awaited == NULL) {
        return;
    }

    key = ctx->waiter->awaited->node.key;
    ctx->waiter->pause = 0;

    ngx_http_once_take_out(ctx->waiter);
    ngx_http_once_wake_all(key);
}


void
ngx_http_once_wait_leave(ngx_http_once_ctx_t *ctx)
{
    if (ctx->waiter) {
        ngx_http_once_take_out(ctx->waiter);
    }
}


/* ----------------------------------------------------------- the directive */

char *
ngx_http_once_set_wait(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    ngx_int_t   n;
    ngx_str_t  *value;

    if (olcf->wait != NGX_CONF_UNSET_MSEC) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_http_once_is(&value[1], "off")) {
        olcf->wait = 0;

    } else {
        olcf->wait = ngx_parse_time(&value[1], 0);

        if (olcf->wait == (ngx_msec_t) NGX_ERROR || olcf->wait == 0) {
            return ngx_http_once_bad(cf, &value[1], "it must be a time such "
                                     "as 5s, or off");
        }
    }

    if (cf->args->nelts == 2) {
        return NGX_CONF_OK;
    }

    n = NGX_ERROR;

    if (value[2].len > 4 && ngx_strncmp(value[2].data, "max=", 4) == 0) {
        n = ngx_atoi(value[2].data + 4, value[2].len - 4);
    }

    if (n == NGX_ERROR || n == 0) {
        return ngx_http_once_bad(cf, &value[2], "it must be max=NUMBER, how "
                                 "many may wait for one key in a worker");
    }

    olcf->wait_max = n;

    return NGX_CONF_OK;
}
