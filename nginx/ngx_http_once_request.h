/*
 * What the files of the request path share.
 *
 * Ownership: the context (ngx_http_once_ctx_t) and the run live as long as the
 * request. The guard outlives it: whatever a request was granted is ended by
 * its guard, when the response is complete or when the request is destroyed,
 * whichever comes first. Callbacks of the library touch the guard only;
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


/*
 * What holds between calls (ngx_http_once_assert_guard_state() in guard.c):
 *
 *   I-1  there is a reference, and with a request and a call there are two
 *   I-2  a claim is held only while the operation runs and its end is open
 *   I-3  the guard and the context of its request point at each other
 *   I-4  a place is reserved only in a quota that there is
 *   I-5  the time of a call is known while it is in the queue
 */
struct ngx_http_once_guard_s {
    ngx_queue_t                  queue;        /* of the worker's guards */
    ngx_uint_t                   refs;         /* the request, pending calls */

    ngx_http_once_ctx_t         *ctx;          /* NULL: the request is gone */
    ngx_http_once_loc_conf_t    *conf;         /* lives as long as the worker */

    once_claim_t                *claim;        /* NULL: not granted, or ended */
    u_char                       id[ONCE_ID_SIZE];  /* once granted */
    ngx_queue_t                  peers;        /* running guards, while it is */
    ngx_http_once_end_e          end;
    ngx_msec_t                   granted;      /* when */
    uint64_t                     fresh_usec;   /* may be used until then */

    ngx_queue_t                  call;         /* of the store's calls */
    uint64_t                     called_usec;  /* when the call was made */
    size_t                       memory;       /* taken while it is recorded */

    uint64_t                     quota_tag;    /* its bucket */
    uint32_t                     quota_set;

    unsigned                     calling:1;    /* in the store's calls */
    unsigned                     reserved:1;   /* a place of the quota */
    unsigned                     running:1;    /* granted, end not known yet */
};


typedef struct {
    ngx_list_part_t             *part;
    ngx_uint_t                   i;
} ngx_http_once_walk_t;


/*
 * The run of a granted operation: what is known of the upstream, and its
 * response from the header on.
 */
struct ngx_http_once_run_s {
    u_char                      *data;          /* the body, in one piece */
    size_t                       len;
    size_t                       size;
    ngx_chain_t                 *kept;          /* came in while recording */
    ngx_uint_t                   header_status; /* the upstream's; 0: none */
    once_verdict_t               said;          /* Once-Outcome */
    uint64_t                     retain_ms;     /* Once-Retain */
    ngx_uint_t                   http_version;  /* proxy_pass overwrites it */

    /* the upstream's own functions, wrapped by upstream.c */
    ngx_int_t                  (*input_init)(void *data);
    ngx_int_t                  (*input_filter)(void *data, ssize_t bytes);
    ngx_event_pipe_input_filter_pt  pipe_filter;
    ngx_http_handler_pt          content_handler;
    ngx_output_chain_filter_pt   output_filter;
    void                        *output_ctx;

    void                       **loc_conf;      /* forwarded last from there */

    unsigned                     sent:1;        /* a byte may have reached it */
    unsigned                     starting:1;    /* the content handler runs */
    unsigned                     acted:1;       /* ... and made no upstream */
    unsigned                     dropped:1;     /* ... and its output is void */
    unsigned                     recursive:1;   /* recursive_error_pages on */
    unsigned                     forwarded:1;   /* the first byte, in time */
    unsigned                     late:1;        /* not in time: nothing sent */
    unsigned                     broken:1;      /* the response ended early */
    unsigned                     live:1;        /* an upstream's response */
    unsigned                     header_sent:1; /* to the client */
    unsigned                     stream:1;      /* too large to be buffered */
    unsigned                     omit:1;        /* Once-Body: omit */
    unsigned                     no_store:1;    /* Cache-Control */
    unsigned                     delayed:1;     /* we set write->delayed */
    unsigned                     whole:1;       /* the last byte came */
    unsigned                     unanswered:1;  /* sent, and no response */
    unsigned                     led:1;         /* here by an error_page */
    unsigned                     page:1;        /* a 5xx page of nginx's own */
};


/* --------------------------------------------------------------- handler.c */

/* Data of a module in a pool, found by the handler of its cleanup. */
void *ngx_http_once_cleanup_find(ngx_pool_t *pool,
    ngx_pool_cleanup_pt handler);
void *ngx_http_once_cleanup_add(ngx_pool_t *pool,
    ngx_pool_cleanup_pt handler, size_t size);

/* The phases go on after precontent. */
void ngx_http_once_resume(ngx_http_request_t *r);

/* Finalizes the request, from its own event or from a foreign one. */
void ngx_http_once_finalize(ngx_http_request_t *r, ngx_int_t rc);

/* Sends the header and then one buffer. Returns what a handler returns. */
ngx_int_t ngx_http_once_send(ngx_http_request_t *r, ngx_buf_t *b);


/* ----------------------------------------------------------------- entry.c */

/* The access phase of the current location has let the request pass. */
void ngx_http_once_entry_passed_access(ngx_http_request_t *r);

/* Whether an error page redirected it before any location had let it pass. */
ngx_uint_t ngx_http_once_entry_was_refused(ngx_http_request_t *r);


/* ----------------------------------------------------------------- early.c */

ngx_int_t ngx_http_once_early_init(ngx_conf_t *cf);      /* the zone */


/* -------------------------------------------------------------- identify.c */

/*
 * Sets the key and the scope of a request. NGX_OK; NGX_DECLINED: there is no
 * key, and none is required; NGX_ABORT: see `problem` and `detail`; NGX_ERROR.
 */
ngx_int_t ngx_http_once_identify(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx, ngx_http_once_problem_e *problem,
    ngx_str_t *detail);

/* Before the body is read: prepares to find the key in it. */
ngx_int_t ngx_http_once_identify_seek(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx);

/* The id of the record. ONCE_OK, or an error of the library. */
int ngx_http_once_identify_record(ngx_http_once_ctx_t *ctx, u_char *id);

/* Sets the fingerprint's target: the URI, and what once_fingerprint adds. */
ngx_int_t ngx_http_once_identify_target(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx);


/* ------------------------------------------------------------------ body.c */

/* Adds what was read of the body before the filter could see it. */
ngx_int_t ngx_http_once_body_add_read(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx);

/* NGX_DECLINED: once_bodies is used up. */
ngx_int_t ngx_http_once_body_reserve(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx);
void ngx_http_once_body_unreserve(ngx_http_once_ctx_t *ctx);

/* The fingerprint is not needed any more. */
void ngx_http_once_body_drop(ngx_http_once_ctx_t *ctx);

void ngx_http_once_body_open(ngx_cycle_t *cycle);      /* of the worker */

/* NGX_DECLINED: once_memory is used up, and a warning was logged. */
ngx_int_t ngx_http_once_body_take_memory(size_t bytes);
void ngx_http_once_body_give_memory(size_t *bytes);    /* and sets it to 0 */


/* ----------------------------------------------------------------- admit.c */

/*
 * NGX_OK: the store may be asked; NGX_DONE: a limit on new keys is reached,
 * and the store is asked, or the request refused, when it is known whether the
 * key is new.
 */
ngx_int_t ngx_http_once_admit(ngx_http_once_ctx_t *ctx);

/*
 * The store answered (NULL: could not be asked): the place that was reserved
 * is used, or given back.
 */
void ngx_http_once_admit_asked(ngx_http_once_guard_t *guard,
    once_answer_t *answer);

/* Takes note of the state of a record: is it unknown? */
void ngx_http_once_admit_note(ngx_http_once_loc_conf_t *conf,
    once_answer_t *answer);


/* ------------------------------------------------------------------- ask.c */

/* Asks the store. Also called to ask again. */
void ngx_http_once_ask(ngx_http_once_ctx_t *ctx);

/* The store could not be asked, or answered with an error. */
void ngx_http_once_ask_failed(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx, int code);

/* Retry-After of an operation that is in progress. */
time_t ngx_http_once_ask_retry_after(ngx_http_once_loc_conf_t *conf,
    once_answer_t *answer);


/* ------------------------------------------------------------- authorize.c */

/*
 * NGX_OK: once_authorize is asked first, and then the store again, or the
 * caller is refused; NGX_DECLINED: there is nothing to ask.
 */
ngx_int_t ngx_http_once_authorize(ngx_http_once_ctx_t *ctx,
    once_answer_t *answer);

/* Keeps the body of its subrequest. NGX_DECLINED: it is another subrequest. */
ngx_int_t ngx_http_once_authorize_body(ngx_http_request_t *sr,
    ngx_chain_t *in);


/* ------------------------------------------------------------------ wait.c */

/*
 * NGX_OK: the request waits, and asks again; NGX_DECLINED: it has waited long
 * enough; NGX_BUSY: too many wait for the same key; NGX_ERROR.
 */
ngx_int_t ngx_http_once_wait(ngx_http_once_ctx_t *ctx,
    once_answer_t *answer);

/* The answer was not busy: wakes the others that wait for the record. */
void ngx_http_once_wait_over(ngx_http_once_ctx_t *ctx);

/* The request is destroyed. */
void ngx_http_once_wait_leave(ngx_http_once_ctx_t *ctx);

/* An operation of this worker has ended. */
void ngx_http_once_wait_wake(const u_char *id);


/* ---------------------------------------------------------------- replay.c */

/*
 * Keeps an answer with a response as long as the request lives: ctx->answer,
 * which may be an earlier one of the same record. NGX_OK; NGX_DECLINED:
 * once_memory is used up; NGX_ERROR.
 */
ngx_int_t ngx_http_once_replay_keep(ngx_http_once_ctx_t *ctx,
    once_answer_t *answer);
void ngx_http_once_replay_drop(ngx_http_once_ctx_t *ctx);

/* Sends the response of the kept answer. Returns what a handler returns. */
ngx_int_t ngx_http_once_replay_send(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx, ngx_uint_t replayed);


/* ---------------------------------------------------------------- redact.c */

/* Takes out what once_redact names. What is new is in the pool. */
ngx_int_t ngx_http_once_redact(ngx_pool_t *pool,
    ngx_http_once_loc_conf_t *conf, once_response_t *response);


/* ------------------------------------------------------------------- mcp.c */

/* Before the body is read, and for each piece of it. */
ngx_int_t ngx_http_once_mcp_begin(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx);
ngx_int_t ngx_http_once_mcp_add(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx, u_char *data, size_t len);

/*
 * The message is complete. NGX_OK: it calls a guarded tool; NGX_DECLINED: it
 * passes; NGX_DONE: it was refused; NGX_ERROR.
 */
ngx_int_t ngx_http_once_mcp_read(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx);

/* What a record says about itself. */
ngx_int_t ngx_http_once_mcp_describe(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx, ngx_str_t *text);

/* A JSON-RPC error with a problem as its data, and its status. */
ngx_buf_t *ngx_http_once_mcp_problem(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx, ngx_http_once_problem_e problem,
    ngx_buf_t *data, time_t retry_after);
ngx_uint_t ngx_http_once_mcp_status(ngx_http_once_ctx_t *ctx,
    ngx_uint_t status);

/* Whether the response is an answer in events, which end. */
ngx_uint_t ngx_http_once_mcp_expects(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx);

/* Whether the backend waits for the client before it answers. */
ngx_uint_t ngx_http_once_mcp_asks(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx);

/* Whether the body could not be replayed under another id. */
ngx_uint_t ngx_http_once_mcp_omits(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx);

/* Whether a complete response has no answer to the call in it. */
ngx_uint_t ngx_http_once_mcp_unanswered(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx);

/*
 * Puts the id of this request into a recorded answer. NGX_OK; NGX_DECLINED:
 * there is no answer; NGX_BUSY: once_memory is used up; NGX_ERROR.
 */
ngx_int_t ngx_http_once_mcp_replay(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx, once_response_t *response);
ngx_int_t ngx_http_once_mcp_send_omitted(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx, ngx_int_t status);


/* --------------------------------------------------------------- problem.c */

/* The problem is the answer. Returns what a content handler returns. */
ngx_int_t ngx_http_once_problem_refuse(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx, ngx_http_once_problem_e problem,
    ngx_str_t *detail, time_t retry_after);

/* Refuses a request for lack of memory or disk: nothing has been done. */
ngx_int_t ngx_http_once_problem_refuse_crowded(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx, ngx_http_once_counter_e counter);


/* ----------------------------------------------------------------- guard.c */

ngx_http_once_guard_t *ngx_http_once_guard_new(ngx_http_once_ctx_t *ctx);
void ngx_http_once_guard_ref(ngx_http_once_guard_t *guard);
void ngx_http_once_guard_unref(ngx_http_once_guard_t *guard);
void ngx_http_once_guard_grant(ngx_http_once_guard_t *guard,
    once_answer_t *answer);

/* Whether the claim may be used: not lost, and half of its lease is left. */
ngx_uint_t ngx_http_once_guard_fresh(ngx_http_once_guard_t *guard);

/* The request is destroyed: ends what it was granted and has not ended. */
void ngx_http_once_guard_leave(ngx_http_once_guard_t *guard);

/* NGX_ERROR: the claim could not be ended; its lease will run out. */
ngx_int_t ngx_http_once_guard_complete(ngx_http_once_guard_t *guard,
    once_response_t *response);
ngx_int_t ngx_http_once_guard_release(ngx_http_once_guard_t *guard,
    ngx_uint_t status, const char *note, ngx_uint_t early);
ngx_int_t ngx_http_once_guard_doubt(ngx_http_once_guard_t *guard,
    const char *cause);

/* Whether a guard of this worker runs the operation of this record now. */
ngx_uint_t ngx_http_once_guard_runs(const u_char *id);

/* The process exits: no request will be answered any more. */
void ngx_http_once_guard_end_all(void);

/*
 * The library accepted a call: it will call back in any case. The request
 * waits for at most once_store_timeout, even if the store hangs, and then
 * fails with ONCE_E_UNAVAILABLE.
 */
void ngx_http_once_guard_called(ngx_http_once_guard_t *guard);

/*
 * It called back. Returns how long it took, in microseconds. The caller still
 * owns the reference.
 */
ngx_uint_t ngx_http_once_guard_returned(ngx_http_once_guard_t *guard);

void ngx_http_once_guard_calls_init(ngx_http_once_store_t *store,
    ngx_log_t *log);

/* A clock that counts through suspend, as leases do. */
uint64_t ngx_http_once_guard_usec(void);


/* --------------------------------------------------------------- headers.c */

/* Removes Once-* from what a client sent: the names are the gateway's. */
ngx_int_t ngx_http_once_headers_strip_request(ngx_http_request_t *r);
ngx_int_t ngx_http_once_headers_add_request(ngx_http_request_t *r,
    const char *name, const char *lowcase, u_char *data, size_t len);
ngx_int_t ngx_http_once_headers_add_claim(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx);

/* Removes a header of the request; `name` is lower case. */
ngx_int_t ngx_http_once_headers_drop_request(ngx_http_request_t *r,
    ngx_str_t *name);

/* Does a backend's Once-Body ask to leave the body out? */
ngx_uint_t ngx_http_once_headers_omit(ngx_str_t *value);

/* Does a Cache-Control header say `no-store`? */
ngx_uint_t ngx_http_once_headers_no_store(ngx_str_t *value);

/* Removes what a backend tells the gateway from an unguarded response. */
void ngx_http_once_headers_strip_response(ngx_http_request_t *r);

/*
 * Response headers that only the gateway sends: Once-*, Idempotency-Expires
 * and the replay header. They are removed from an operation's own response.
 */
ngx_uint_t ngx_http_once_headers_is_own(ngx_http_once_loc_conf_t *conf,
    u_char *name, size_t len);
void ngx_http_once_headers_strip_own(ngx_http_request_t *r,
    ngx_http_once_loc_conf_t *conf);

/* The next header of a list, NULL at its end; parts may be empty. */
ngx_table_elt_t *ngx_http_once_headers_next(ngx_http_once_walk_t *walk);
ngx_uint_t ngx_http_once_headers_named(ngx_table_elt_t *h, const char *name,
    size_t len);

/* As a CGI sees it, for which - and _ are the same. `name` is lower case. */
ngx_uint_t ngx_http_once_headers_named_as(ngx_table_elt_t *h,
    ngx_str_t *name);

ngx_table_elt_t *ngx_http_once_headers_push(ngx_list_t *list,
    ngx_str_t *name, ngx_str_t *value);

/* Adds once_expires_header; nothing if msec is 0, which means never. */
ngx_int_t ngx_http_once_headers_add_expires(ngx_http_request_t *r,
    ngx_http_once_loc_conf_t *conf, uint64_t msec);

/* Adds once_echo_key, if the key is known, and says if it was derived. */
ngx_int_t ngx_http_once_headers_add_echo(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx);

/* Makes Location absolute as nginx will, so that the same is stored. */
ngx_int_t ngx_http_once_headers_make_location(ngx_http_request_t *r);

/* Whether a header of this name is stored and replayed. */
ngx_uint_t ngx_http_once_headers_replayable(ngx_http_once_loc_conf_t *conf,
    u_char *name, size_t len);

/* Whether it describes one message on one connection. */
ngx_uint_t ngx_http_once_headers_is_framing(u_char *name, size_t len);


/* -------------------------------------------------------------- upstream.c */

/*
 * Wraps the location's content handler: whichever upstream it talks to, a
 * client that disconnects does not end the request, nothing is sent under an
 * old claim, and nothing is sent to a second server.
 */
void ngx_http_once_upstream_watch(ngx_http_request_t *r,
    ngx_http_once_run_t *run);

/* Notes what an upstream got and said, before the next one replaces it. */
void ngx_http_once_upstream_note(ngx_http_request_t *r,
    ngx_http_once_run_t *run);

/* The content handler made no upstream: it may have done anything itself. */
void ngx_http_once_upstream_handler_acted(ngx_http_request_t *r,
    ngx_http_once_run_t *run);

/* A header has come; it may be that of such a handler. */
void ngx_http_once_upstream_note_handler(ngx_http_request_t *r,
    ngx_http_once_run_t *run);

/*
 * The header of an upstream is buffered: an error in what follows becomes a
 * problem instead of a closed connection.
 */
void ngx_http_once_upstream_watch_input(ngx_http_request_t *r,
    ngx_http_once_run_t *run);

/* After the last byte: whether the upstream meant to send more. */
ngx_uint_t ngx_http_once_upstream_is_cut_off(ngx_http_request_t *r);

/* From here on a client that disconnects ends the request. */
void ngx_http_once_upstream_heed_abort(ngx_http_request_t *r);


/* ---------------------------------------------------------------- buffer.c */

/* Marks a buffer as consumed. Returns how many bytes it had. */
off_t ngx_http_once_buffer_consume(ngx_buf_t *b);


/* ---------------------------------------------------------------- finish.c */

/* What the response means for its claim. */
/* Why it is not known, or not recorded. Valid until the next call. */
const char *ngx_http_once_finish_cause(ngx_http_request_t *r,
    ngx_http_once_run_t *run);
once_judgement_t ngx_http_once_finish_judge(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx);

/* Ends the claim accordingly. NGX_ERROR: it could not be ended. */
ngx_int_t ngx_http_once_finish(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx);

/* The store answered; the request is alive. */
void ngx_http_once_finish_ended(ngx_http_once_ctx_t *ctx,
    once_answer_t *answer);

/* The store failed, or did not answer in time. */
void ngx_http_once_finish_failed(ngx_http_request_t *r,
    ngx_http_once_ctx_t *ctx, int code);


#endif
