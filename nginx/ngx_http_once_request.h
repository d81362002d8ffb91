/*
 * What the files of the request path share: handler, body, headers, guard,
 * hold, replay, wait, store (and early, which looks ahead of them).
 *
 * Who owns what. The context (ngx_http_once_ctx_t) and the held response live
 * as long as the request. The guard outlives it: whatever a request was granted
 * is ended by its guard, when the response is complete or when the request goes
 * away, whichever comes first. Callbacks of the library touch the guard only;
 * guard->ctx is NULL once the request is gone.
 */
#ifndef NGX_HTTP_ONCE_REQUEST_H
#define NGX_HTTP_ONCE_REQUEST_H

#include "ngx_http_once.h"


/* A bit of r->buffered, which has four: 1, 2 and 4 are taken. */
#define NGX_HTTP_ONCE_BUFFERED  0x08


typedef enum {
    NGX_HTTP_ONCE_OPEN = 0,            /* the claim has not been ended */
    NGX_HTTP_ONCE_COMPLETING,
    NGX_HTTP_ONCE_RELEASING,
    NGX_HTTP_ONCE_DOUBTING
} ngx_http_once_end_e;


struct ngx_http_once_guard_s {
    ngx_queue_t                  queue;            /* of the worker's guards */
    ngx_uint_t                   refs;             /* the request, and each call that will call back */

    ngx_http_once_ctx_t         *ctx;              /* NULL: the request is gone */
    ngx_http_once_loc_conf_t    *conf;             /* of the worker's cycle, which lives as long as the worker */

    once_claim_t                *claim;            /* NULL: not granted, or ended */
    u_char                       id[ONCE_ID_SIZE]; /* of the record, once granted */
    ngx_queue_t                  peers;            /* those that run, while it does */
    ngx_http_once_end_e          end;
    ngx_msec_t                   granted;          /* when */
    uint64_t                     fresh_usec;       /* until when it may be used */

    ngx_queue_t                  call;             /* of its store's calls */
    uint64_t                     called_usec;      /* when the call that is under way was made */
    size_t                       memory;           /* taken for the response while it is written to the store */

    uint64_t                     quota_tag;        /* its bucket */
    uint32_t                     quota_set;

    unsigned                     calling:1;        /* and somebody waits for its answer */
    unsigned                     reserved:1;       /* taken from the bucket, and not known yet whether it is a new record */
    unsigned                     running:1;        /* granted, and its end is not known yet */
};


typedef struct {
    ngx_list_part_t             *part;
    ngx_uint_t                   i;
} ngx_http_once_walk_t;


/* The response of the operation, from its header on, and what is known of the upstream. */
struct ngx_http_once_hold_s {
    u_char                      *data;             /* of the body: one piece */
    size_t                       len;
    size_t                       size;
    ngx_chain_t                 *kept;             /* what comes in while the store is written, not copied */
    ngx_uint_t                   header_status;    /* that the upstream sent in a whole header; 0: none */
    once_verdict_t               said;
    uint64_t                     retain_ms;
    ngx_uint_t                   http_version;     /* of the client: the proxy module overwrites it */

    ngx_int_t                  (*input_init)(void *data);                  /* the upstream's own, see ..._upstream.c */
    ngx_int_t                  (*input_filter)(void *data, ssize_t bytes);
    ngx_event_pipe_input_filter_pt  pipe_filter;
    ngx_http_handler_pt          content_handler;
    void                       **loc_conf;         /* where it was forwarded last */
    ngx_output_chain_filter_pt   output_filter;
    void                        *output_ctx;

    unsigned                     sent:1;           /* bytes of the request may have reached an upstream, or a handler acted */
    unsigned                     starting:1;       /* the location's handler runs, and has made no upstream yet */
    unsigned                     acted:1;          /* ... and made none: it is the application */
    unsigned                     dropped:1;        /* ... and what it sends from here on is nobody's */
    unsigned                     recursive:1;      /* recursive_error_pages, where that handler is */
    unsigned                     forwarded:1;      /* ... and its first byte was not too late */
    unsigned                     late:1;           /* it would have been: nothing was sent */
    unsigned                     broken:1;         /* the response ended early */
    unsigned                     live:1;           /* the response is an upstream's own, not nginx's */
    unsigned                     header_sent:1;    /* to the client */
    unsigned                     stream:1;         /* too large to be held: passes when it is recorded */
    unsigned                     delayed:1;        /* we stopped the writing to the client */
    unsigned                     whole:1;          /* the last byte came */
    unsigned                     lost:1;           /* an upstream got it and did not answer */
    unsigned                     led:1;            /* an error page of the operator's led the request to where it is */
    unsigned                     page:1;           /* the response is one of nginx's own pages, 5xx */
};


/* --------------------------------------------------------------- ..._early.c */

/* What a module keeps in a pool is found by the handler of its cleanup; NULL: not there; when added: out of memory. */
void *ngx_http_once_find_cleanup(ngx_pool_t *pool,
    ngx_pool_cleanup_pt handler);
void *ngx_http_once_add_cleanup(ngx_pool_t *pool,
    ngx_pool_cleanup_pt handler, size_t size);


/* -------------------------------------------------------------- ..._credit.c */

#define NGX_HTTP_ONCE_CREDIT_KINDS  2

/* Where a request's credit was taken from; NULL: from nowhere. */
typedef struct {
    ngx_atomic_t                *account[NGX_HTTP_ONCE_CREDIT_KINDS];
} ngx_http_once_credit_t;

ngx_int_t ngx_http_once_credit_init(ngx_conf_t *cf);         /* the shared zone; postconfiguration */

/* 0: there is none left. */
ngx_uint_t ngx_http_once_credit_take(ngx_http_request_t *r, const u_char *id,
    ngx_http_once_credit_t *credit);
void ngx_http_once_credit_give(ngx_http_once_credit_t *credit);


/* ------------------------------------------------------------- ..._refused.c */

/* The access phase of the location where a request is has let it pass. */
void ngx_http_once_passed_access(ngx_http_request_t *r);

/* An error page led it here, or to where it came from, before it was let in anywhere: it is not asked for. */
ngx_uint_t ngx_http_once_was_refused(ngx_http_request_t *r);


/* ------------------------------------------------------------ ..._identify.c */

/*
 * Fills in key and scope of a guarded request; does nothing where they are there already. NGX_OK; NGX_DECLINED: no key, and
 * none is required; NGX_ABORT: `problem` and `detail` say why; NGX_ERROR.
 */
ngx_int_t ngx_http_once_identify(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx, ngx_http_once_problem_e *problem,
    ngx_str_t *detail);


/* Fills in the target of the fingerprint: path with query, and what once_fingerprint adds. */
ngx_int_t ngx_http_once_target(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx);


/* ------------------------------------------------------------- ..._handler.c */

/* Asks the store; the answer comes by itself. Also to ask again, after a wait. */
void ngx_http_once_ask(ngx_http_once_ctx_t *ctx);


/* -------------------------------------------------------------- ..._answer.c */

/* The callback of an ask; its data is the guard. */
void ngx_http_once_asked(once_t *once, once_answer_t *answer, void *data);

/* The phases go on behind precontent. */
void ngx_http_once_go_on(ngx_http_request_t *r);

/* A problem is the answer. Returns what a content handler returns. */
ngx_int_t ngx_http_once_refuse_request(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx, ngx_http_once_problem_e problem,
    ngx_str_t *detail, time_t retry_after);

/* There is no memory left for what would have to be kept for this request: nothing has been done. */
ngx_int_t ngx_http_once_refuse_crowded(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx, ngx_http_once_counter_e counter);

/* The store failed while it was asked. */
void ngx_http_once_store_failed(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx, int code);

/* Ends the request, in an event of its own or of others. */
void ngx_http_once_finish(ngx_http_request_t *r, ngx_int_t rc);

time_t ngx_http_once_retry_after(ngx_http_once_loc_conf_t *conf,
    once_answer_t *answer);


/* ----------------------------------------------------------- ..._authorize.c */

/*
 * NGX_OK: once_authorize is asked first, and then the store again, or the caller is refused; NGX_DECLINED: there is nothing
 * to ask.
 */
ngx_int_t ngx_http_once_authorize(ngx_http_once_ctx_t *ctx,
    once_answer_t *answer);

/* Keeps the body of its subrequest. NGX_DECLINED: it is another's. */
ngx_int_t ngx_http_once_authorize_body(ngx_http_request_t *sr,
    ngx_chain_t *in);


/* ---------------------------------------------------------------- ..._body.c */

/* Bytes that did not come through the filter, because somebody else had read the body before. */
ngx_int_t ngx_http_once_body_of(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx);

/* NGX_DECLINED: there are as many bytes of bodies in files as there may be. */
ngx_int_t ngx_http_once_body_room(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx);
void ngx_http_once_body_gone(ngx_http_once_ctx_t *ctx);

/* What was computed of the body is not needed any more. */
void ngx_http_once_body_drop(ngx_http_once_ctx_t *ctx);


/* ------------------------------------------------------------- ..._headers.c */

/* Takes Once-* out of what a client sent: the names are the gateway's. */
ngx_int_t ngx_http_once_strip_request(ngx_http_request_t *r);
ngx_int_t ngx_http_once_add_request_header(ngx_http_request_t *r,
    const char *name, const char *lowcase, u_char *data, size_t len);
ngx_int_t ngx_http_once_add_claim(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx);

/* Takes Once-Outcome and Once-Retain out of a response that nobody guarded. */
void ngx_http_once_strip_response(ngx_http_request_t *r);

/*
 * Names that the gateway alone uses in a response: Once-*, Idempotency-Expires, the mark of a replay. Those of an operation's own
 * response are taken out.
 */
ngx_uint_t ngx_http_once_is_own(ngx_http_once_loc_conf_t *conf,
    u_char *name, size_t len);
void ngx_http_once_strip_own(ngx_http_request_t *r,
    ngx_http_once_loc_conf_t *conf);

/* The next header of a list, NULL: no more; parts may be empty. */
ngx_table_elt_t *ngx_http_once_next(ngx_http_once_walk_t *walk);
ngx_uint_t ngx_http_once_named(ngx_table_elt_t *h, const char *name,
    size_t len);

/* As to a CGI, for which - and _ are the same. The name is in small letters. */
ngx_uint_t ngx_http_once_is_named_as(ngx_table_elt_t *h, ngx_str_t *name);

ngx_table_elt_t *ngx_http_once_push_header(ngx_list_t *list, ngx_str_t *name,
    ngx_str_t *value);
/* 0 ms: never, and there is no header. */
ngx_int_t ngx_http_once_add_expires(ngx_http_request_t *r, uint64_t msec);


/* ------------------------------------------------------------- ..._collect.c */

/* The headers to be stored, in the request's pool. */
ngx_int_t ngx_http_once_collect_headers(ngx_http_request_t *r,
    ngx_http_once_loc_conf_t *conf, once_response_t *response);

/* Makes a Location that nginx is to complete what the client gets, so that it is what is stored. */
ngx_int_t ngx_http_once_make_location(ngx_http_request_t *r);

/* Whether a header of this name may be stored and replayed. */
ngx_uint_t ngx_http_once_replayable(ngx_http_once_loc_conf_t *conf,
    u_char *name, size_t len);


/* ------------------------------------------------------------ ..._upstream.c */

/* Notes what an upstream got and said, before the next one takes its place. */
void ngx_http_once_note_upstream(ngx_http_request_t *r,
    ngx_http_once_hold_t *hold);

/* The location's handler runs and has made no upstream: it may do anything itself. */
void ngx_http_once_handler_acts(ngx_http_request_t *r,
    ngx_http_once_hold_t *hold);

/* A header has come; it may be that of such a handler. */
void ngx_http_once_note_handler(ngx_http_request_t *r,
    ngx_http_once_hold_t *hold);

/*
 * Whatever upstream the location's handler begins to talk to: a client that hangs up undoes nothing, nothing is sent under a
 * claim that has become old, and nothing is sent to a second server.
 */
void ngx_http_once_watch_content(ngx_http_request_t *r,
    ngx_http_once_hold_t *hold);

/* From here on a client that hangs up ends the request. */
void ngx_http_once_heed_abort(ngx_http_request_t *r);

/* The header of an upstream is held: errors in what follows shall be told, not hung up on. */
void ngx_http_once_watch_input(ngx_http_request_t *r,
    ngx_http_once_hold_t *hold);

/* The last byte came: was it the last that the upstream wanted to send? */
ngx_uint_t ngx_http_once_cut_off(ngx_http_request_t *r);


/* --------------------------------------------------------------- ..._guard.c */

ngx_http_once_guard_t *ngx_http_once_guard_new(ngx_http_once_ctx_t *ctx);
void ngx_http_once_guard_ref(ngx_http_once_guard_t *guard);
void ngx_http_once_guard_unref(ngx_http_once_guard_t *guard);
void ngx_http_once_guard_grant(ngx_http_once_guard_t *guard,
    once_answer_t *answer);

/* Less than half of the lease has passed, and nobody said that the claim is lost: it may be used. */
ngx_uint_t ngx_http_once_guard_fresh(ngx_http_once_guard_t *guard);

/* The request goes away: ends what it was granted, if nobody has. */
void ngx_http_once_guard_leave(ngx_http_once_guard_t *guard);

/* NGX_ERROR: the claim could not be ended and was dropped: its lease will. */
ngx_int_t ngx_http_once_guard_complete(ngx_http_once_guard_t *guard,
    once_response_t *response);
ngx_int_t ngx_http_once_guard_release(ngx_http_once_guard_t *guard,
    ngx_uint_t status, const char *note, ngx_uint_t early);
ngx_int_t ngx_http_once_guard_doubt(ngx_http_once_guard_t *guard);

/* Whether a guard of this worker runs the operation of this record now. */
ngx_uint_t ngx_http_once_guard_runs(const u_char *id);

/* The process ends: no request will be answered any more. */
void ngx_http_once_guards_end(void);


/* ---------------------------------------------------------------- ..._call.c */

/*
 * A call to the store was accepted: it will call back, whatever happens. Who waits for it does so for once_store_timeout at
 * most, also when the store hangs without a failure; then the request is told ONCE_E_UNAVAILABLE.
 */
void ngx_http_once_guard_called(ngx_http_once_guard_t *guard);

/* It called back. How long it took, in microseconds. The reference is still the caller's to give back. */
ngx_uint_t ngx_http_once_guard_returned(ngx_http_once_guard_t *guard);

/* A clock that goes on while the machine sleeps, as leases do. */
uint64_t ngx_http_once_usec(void);

void ngx_http_once_calls_init(ngx_http_once_store_t *store, ngx_log_t *log);


/* ----------------------------------------------------------------- ..._end.c */

once_judgement_t ngx_http_once_judge(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx);

/* Ends the claim as the response means. NGX_ERROR: could not be done. */
ngx_int_t ngx_http_once_end(ngx_http_request_t *r, ngx_http_once_ctx_t *ctx);

/* Copies what came in. NGX_OK; NGX_DECLINED: from *rest on it is too much, for once_store_body or once_memory; NGX_ERROR. */
ngx_int_t ngx_http_once_hold_bytes(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx, ngx_chain_t *in, ngx_chain_t **rest);

/* The bytes that are held, as a buffer. NULL: out of memory. */
ngx_chain_t *ngx_http_once_held_chain(ngx_http_request_t *r,
    ngx_http_once_hold_t *hold);


/* --------------------------------------------------------------- ..._reply.c */

/* What became of the end of the claim; the request is alive. */
void ngx_http_once_hold_ended(ngx_http_once_ctx_t *ctx,
    once_answer_t *answer);

/* The store failed to take it in time. */
void ngx_http_once_hold_failed(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx, int code);


/* --------------------------------------------------------------- ..._admit.c */

/* Asks the store, unless a limit on new keys is reached and the key is one. */
void ngx_http_once_admit(ngx_http_once_ctx_t *ctx);


/* --------------------------------------------------------------- ..._quota.c */

/* NGX_OK: a place is reserved, or there is no quota; NGX_DECLINED: in `retry_after` seconds there will be one. */
ngx_int_t ngx_http_once_quota_take(ngx_http_once_ctx_t *ctx,
    time_t *retry_after);

/* The ask was answered (NULL: it could not be made): the place is used, or given back. */
void ngx_http_once_quota_asked(ngx_http_once_guard_t *guard,
    once_answer_t *answer);


/* ------------------------------------------------------------- ..._unknown.c */

/* Whether the route has as many unknown records as it may. */
ngx_uint_t ngx_http_once_unknown_full(ngx_http_once_loc_conf_t *conf);

/* An answer tells in which state a record is. */
void ngx_http_once_unknown_note(ngx_http_once_loc_conf_t *conf,
    once_answer_t *answer);


/* -------------------------------------------------------------- ..._memory.c */

void ngx_http_once_memory_open(ngx_cycle_t *cycle);    /* of the worker */

/* NGX_DECLINED: once_memory is used up, and the log says so. */
ngx_int_t ngx_http_once_memory_take(size_t bytes);
void ngx_http_once_memory_give(size_t *bytes);    /* and sets it to 0 */

/*
 * Keeps an answer with a response for as long as the request lives: ctx->answer, which may be another one of the same record that
 * others are sent. NGX_OK; NGX_DECLINED: once_memory is used up; NGX_ERROR.
 */
ngx_int_t ngx_http_once_keep_answer(ngx_http_once_ctx_t *ctx,
    once_answer_t *answer);
void ngx_http_once_drop_answer(ngx_http_once_ctx_t *ctx);


/* -------------------------------------------------------------- ..._replay.c */

/* Sends the stored response of a kept answer. Returns what a content handler returns. */
ngx_int_t ngx_http_once_send_stored(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx, ngx_uint_t replayed);


/* ---------------------------------------------------------------- ..._wait.c */

/* NGX_OK: waits, and will ask again; NGX_DECLINED: it waited long enough; NGX_BUSY: too many wait; NGX_ERROR. */
ngx_int_t ngx_http_once_wait(ngx_http_once_ctx_t *ctx,
    once_answer_t *answer);

/* The answer was not busy: the others that wait for the same record learn of it. */
void ngx_http_once_wait_over(ngx_http_once_ctx_t *ctx);

/* The request goes away. */
void ngx_http_once_wait_leave(ngx_http_once_ctx_t *ctx);

/* An operation of this worker has ended. */
void ngx_http_once_wake(const u_char *id);


#endif
