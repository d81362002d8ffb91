/*
 * The parts of `once serve`. One thread and one loop: libmicrohttpd reads and writes connections, libonce talks to the store, and
 * a request whose answer the store has to give is suspended until it comes. What the requests of one turn ask for travels to the
 * store together.
 *
 * Invariants:
 *   1. A request is answered once. It is freed when libmicrohttpd has ended it and no callback refers to it any more.
 *   2. A claim is in `kept` while the server renews it: from the answer `run` to `"renew": "connection"` until it is ended, its
 *      connection closes, or the server stops. It is in the table and in the list of its connection, or in neither.
 *   3. Nothing is logged of a request but the name of the operation.
 */
#ifndef ONCE_SERVE_INTERNAL_H
#define ONCE_SERVE_INTERNAL_H

#include <jansson.h>
#include <microhttpd.h>
#include <once/once.h>

#include "base/buf.h"
#include "base/hash.h"
#include "loop/loop.h"
#include "serve/read.h"
#include "serve/serve.h"
#include "service/metrics.h"

typedef struct once__serve once__serve_t;
typedef struct once__serve_line once__serve_line_t;
typedef struct once__serve_request once__serve_request_t;
typedef struct once__serve_kept once__serve_kept_t;

#define ONCE__SERVE_TOKEN_MAX 512 /* bytes of a token */

/* ------------------------------------------------------------------------------------------------------------ report.c */

typedef struct once__serve_counters {
    once__service_metrics_t *metrics;
    once__service_metric_t *claims[ONCE_OUTCOME_LOST + 1]; /* by outcome; NULL: cannot be */
    once__service_metric_t *requests, *refused, *failed;
    once__service_metric_t *connections, *kept, *waiting;
    once__service_metric_t *duration;
} once__serve_counters_t;

int once__serve_counters_start(once__serve_counters_t *counters);

/* The store answered, or failed with this code: logs when that changes. */
void once__serve_report_store(once__serve_t *serve, int error);
void once__serve_report(const once__serve_t *serve, int is_trouble, const char *sentence);

/* ------------------------------------------------------------------------------------------------------------ listen.c */

typedef struct once__serve_listener {
    int fd; /* -1: none */
    int is_unix;
    char shown[160];        /* the address, with the port that it has */
    char path[108];         /* of a unix socket */
    uint64_t device, inode; /* of its file: it is removed at the end if it is still this one */
} once__serve_listener_t;

/* Listens. Returns 0; -1 if the address is wrong, -2 if it cannot be used: `error` says why. */
int once__serve_listen(once__serve_listener_t *listener, const char *address, unsigned mode,
                       char *error, size_t size);
void once__serve_listener_close(once__serve_listener_t *listener);

/* Make the file of the token if there is none, and read it. Return 0, or -1: `error` says why. */
int once__serve_token_make(const char *path, char *error, size_t size);
int once__serve_token_read(const char *path, char token[ONCE__SERVE_TOKEN_MAX + 1], char *error,
                           size_t size);

/* -------------------------------------------------------------------------------------------------------------- serve.c */

struct once__serve {
    const once__serve_settings_t *settings;
    const once__service_log_t *log;
    once_t *once;
    once__loop_t *loop;
    once__serve_listener_t listener;
    struct MHD_Daemon *daemon;
    once__source_t daemon_source, once_source, signals_source;
    once__timer_t second_timer;
    char token[ONCE__SERVE_TOKEN_MAX + 1]; /* "": none is needed */
    once__serve_counters_t counters;
    once__serve_line_t *lines;
    size_t line_count;
    once__serve_request_t *requests; /* every one that libmicrohttpd has begun and not ended */
    size_t bytes;                    /* of the bodies of requests and answers */
    once__hash_t kept;               /* claims, by their text */
    once__hash_t waiting;            /* requests that wait for another attempt, by record */
    once__hash_seed_t seed;
    int has_asked;   /* the store has something to do, or has answered */
    int has_answers; /* connections were resumed: libmicrohttpd has something to do */
    int store_error; /* of its last answer; ONCE_OK: it works */
    int probing;     /* while it does not */
    int stopping, aborted;
    uint64_t stop_at;
};

/* --------------------------------------------------------------------------------------------------------------- http.c */

/* A connection. */
struct once__serve_line {
    once__serve_t *serve;
    once__serve_line_t *next, **place;
    struct MHD_Connection *connection;
    int fd;
    int is_known;       /* it has sent a request that may be answered */
    unsigned timeout_s; /* as libmicrohttpd was told */
    int is_working;     /* a request has arrived, and is not answered yet */
    uint64_t arrive_by; /* when what is being sent must be there; 0: nothing is awaited */
    once__serve_kept_t *kept;
    size_t kept_count;
};

/* An operation: what its request has, and what begins it. It ends with once__serve_answer or once__serve_fail, now or later. */
typedef struct once__serve_operation {
    const char *path;
    unsigned allowed, needed;
    void (*begin)(once__serve_request_t *request);
} once__serve_operation_t;

struct once__serve_request {
    once__serve_t *serve;
    once__serve_request_t *next, **place;
    once__serve_line_t *line; /* NULL: libmicrohttpd has ended the request */
    unsigned refs;            /* libmicrohttpd, and callbacks under way */
    const once__serve_operation_t *operation;
    uint64_t began_us;
    once__buf_t body;
    size_t bytes; /* that count in the server's `bytes` */
    once__serve_input_t input;
    int is_begun, is_suspended;

    unsigned status; /* of the answer; 0: there is none yet */
    char *text;
    const char *type; /* of the text; NULL: JSON */
    int is_problem;
    unsigned retry_after_s;

    /* claim.c */
    once_claim_t *claim; /* that is being renewed; owned */
    unsigned tries;
    uint64_t asked_ms;

    /* claim.c: waiting */
    once__hash_node_t waiting_node;
    once__timer_t timer;
    int has_timer, is_waiting;
    uint64_t wait_until, pause_ms;
    uint8_t id[ONCE_ID_SIZE];

    /* end.c */
    once_judgement_t judgement; /* 0: it was not asked for */
    struct once__serve_renewal *renewals;
    size_t renewing;
    int renew_error;
};

extern const once__serve_operation_t once__serve_operations[];

/* Starts to answer connections. The descriptor that becomes readable if something is due, or -1. */
int once__serve_http_start(once__serve_t *serve);

/* Does what is due at the connections, and in how many milliseconds that is at the latest; -1: never. */
void once__serve_http_turn(once__serve_t *serve);
int once__serve_http_timeout(once__serve_t *serve);

/* Ends connections that were closed, or whose request takes too long to arrive. Called every second. */
void once__serve_http_tick(once__serve_t *serve);

/* Accepts no more connections; every answer ends its connection. */
void once__serve_http_quiesce(once__serve_t *serve);

/* Answers all requests that wait for the store: it takes too long. */
void once__serve_http_abort(once__serve_t *serve);
void once__serve_http_stop(once__serve_t *serve);

/* Between these two the request stays, whatever its connection does. */
void once__serve_request_ref(once__serve_request_t *request);
void once__serve_request_unref(once__serve_request_t *request);

/* Has the caller closed it? Then no answer would be read. */
int once__serve_line_is_gone(const once__serve_line_t *line);

/* --------------------------------------------------------------------------------------------------------------- write.c */

/* Answer the request, unless it was answered already. They take `json` and `text` over; NULL: memory is short. */
void once__serve_answer(once__serve_request_t *request, json_t *json);
void once__serve_answer_text(once__serve_request_t *request, char *text);
void once__serve_fail(once__serve_request_t *request, int code, const char *detail);
void once__serve_problem(once__serve_request_t *request, unsigned status, int code,
                         const char *detail);

/* The text of an answer, for what must not be done if memory is short. Takes `json` over; free the text. NULL: memory is short. */
char *once__serve_text(json_t *json);

/* Adds the record's response, if it has one, as "response". Returns ONCE_OK, or why it cannot be read. */
int once__serve_put_response(json_t *json, const once_record_t *record);

/* --------------------------------------------------------------------------------------------------------------- kept.c */

struct once__serve_kept {
    once__hash_node_t node;
    once__serve_kept_t *next, **place; /* of its connection */
    once__serve_line_t *line;
    once_claim_t *claim;
    char token[ONCE_TOKEN_SIZE];
};

/* May the connection have one more? */
int once__serve_may_keep(const once__serve_t *serve, const once__serve_line_t *line);

/* Keeps a claim for as long as the connection lives. 0, or -1 if memory is short: the claim is still the caller's. */
int once__serve_keep(once__serve_line_t *line, once_claim_t *claim);

/* The claim with this text, which is then the caller's; NULL: it is not kept. */
once__serve_kept_t *once__serve_kept_find(const once__serve_t *serve, const char *token);
once_claim_t *once__serve_kept_take(once__serve_kept_t *kept);

/* As if the caller had died: the leases run out. */
void once__serve_drop_kept(once__serve_line_t *line);

/* ------------------------------------------------------------------------------------------------------- the operations */

void once__serve_claim(once__serve_request_t *request); /* claim.c */
void once__serve_wait_over(once__serve_request_t *request);
void once__serve_wake(once__serve_t *serve, const uint8_t id[ONCE_ID_SIZE]);

void once__serve_finish(once__serve_request_t *request); /* end.c */
void once__serve_complete(once__serve_request_t *request);
void once__serve_release(once__serve_request_t *request);
void once__serve_doubt(once__serve_request_t *request);
void once__serve_renew(once__serve_request_t *request);

void once__serve_get(once__serve_request_t *request); /* look.c */
void once__serve_recorded(once__serve_request_t *request);
void once__serve_derive(once__serve_request_t *request);

#endif
