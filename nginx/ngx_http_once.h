/*
 * ngx_http_once_module: what its files share. docs/architecture.md leads along
 * the path of a request; docs/gateway.md describes the behaviour. The files:
 *
 *   at startup
 *     module      what nginx calls, and when: phases, filters, processes
 *     directives  the table of directives; reads their values
 *     conf        configuration: create and merge
 *     check       rejects configurations that cannot be guarded; url: store URLs
 *     store       the stores of a worker: opened after fork, dispatched by the
 *                 event loop, closed at exit
 *
 *   before the store is asked
 *     refused     post_read, rewrite, preaccess: whether a request was refused
 *                 before an error page redirected it
 *     early       preaccess: once_early_lookup, and its credit
 *     handler     precontent: the context, the body, the ask
 *     identify    the key, the scope and the target
 *     body        the body's fingerprint, computed while it streams
 *     admit       limits on new keys: once_quota (bucket.h), once_unknown_max
 *     unknown     the unknown records of a route
 *
 *   after it answered
 *     answer      what each outcome leads to
 *     authorize   once_authorize: may the caller have the stored answer?
 *     wait        duplicates that wait for the first request
 *     replay      sends a stored response; memory for responses
 *     problem     errors as application/problem+json, and the page about them
 *     probe       asks the backend what became of a key; probe_fetch: over HTTP
 *
 *   while the operation runs
 *     guard       the claim and its end; outlives the request
 *     headers     headers to the backend, from it, and into the record
 *     upstream    what the backend received and answered
 *     buffer      header and body filters: the response is buffered until it
 *                 has been recorded
 *     finish      what a response means for its claim, and what the client gets
 *
 *   for operators
 *     variables   $once_*
 *     metrics     counters in shared memory (metrics.h: their layout)
 *     status      once_status: shows them as text and JSON
 */
#ifndef NGX_HTTP_ONCE_H
#define NGX_HTTP_ONCE_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include <once/once.h>


typedef struct ngx_http_once_store_s      ngx_http_once_store_t;
typedef struct ngx_http_once_guard_s      ngx_http_once_guard_t;
typedef struct ngx_http_once_route_s      ngx_http_once_route_t;
typedef struct ngx_http_once_probe_conf_s ngx_http_once_probe_conf_t;
typedef struct ngx_http_once_hold_s       ngx_http_once_hold_t;
typedef struct ngx_http_once_waiter_s     ngx_http_once_waiter_t;
typedef struct ngx_http_once_stored_s     ngx_http_once_stored_t;
typedef struct ngx_http_once_authorize_s  ngx_http_once_authorize_t;


/* ----------------------------------------------------------- configuration */

typedef enum {
    NGX_HTTP_ONCE_REQUIRE_OFF = 0,
    NGX_HTTP_ONCE_REQUIRE_ON,
    NGX_HTTP_ONCE_REQUIRE_VALUE        /* by a variable: "", "0", "off": not */
} ngx_http_once_require_e;


/* A value of several: of a scope, or of what a fingerprint adds. */
typedef struct {
    ngx_http_complex_value_t    *value;
    ngx_str_t                    told;        /* what it is, for people: "the header X-Api-Key" */
    ngx_uint_t                   credential;  /* it contains $http_authorization */
} ngx_http_once_part_t;


typedef struct {
    ngx_array_t                  stores;      /* of ngx_http_once_store_t * */
    ngx_array_t                  routes;      /* of ngx_http_once_route_t * */
    ngx_shm_zone_t              *metrics;     /* made when any location uses once */
    ngx_shm_zone_t              *quotas;      /* ... has once_quota */
    ngx_shm_zone_t              *unknown;     /* ... has once_unknown_max */
    ngx_uint_t                   guarded;     /* some location has `once on` */
    ngx_uint_t                   early;       /* some location has once_early_lookup on */
    ngx_uint_t                   has_quota;   /* some guarded location has once_quota */
    ngx_uint_t                   has_unknown; /* ... once_unknown_max */
    ngx_uint_t                   status;      /* some location has once_status */
    size_t                       memory;      /* bytes of bodies that a worker holds for clients */
    size_t                       bodies;      /* ... of requests in files; 0: any number */
} ngx_http_once_main_conf_t;


typedef struct {
    ngx_uint_t                   guarded;     /* some location of the server is: Once-* of others pass nowhere in it */
    ngx_str_t                    problems;    /* the path of once_problems; "": none */
    ngx_array_t                 *pages;       /* named locations that error pages lead to; NULL: none (..._refused.c) */
} ngx_http_once_srv_conf_t;


typedef struct {
    ngx_flag_t                   on;               /* as written, inherited */
    ngx_uint_t                   enable;           /* 1: requests here are guarded, and everything below is set (made by merge) */
    ngx_str_t                    name;             /* once_name: the label of the metrics; "": the location's name */

    ngx_str_t                    store_url;
    ngx_msec_t                   store_timeout;
    ngx_str_t                    secret_file;      /* "": secrets live in the store */
    ngx_http_once_store_t       *store;            /* of (store_url, store_timeout, secret_file); NULL where once is off */

    ngx_uint_t                   methods;          /* bits NGX_HTTP_POST | ... */
    ngx_uint_t                   require;          /* ngx_http_once_require_e */
    ngx_http_complex_value_t    *require_value;

    ngx_str_t                    key_header;       /* "Idempotency-Key"; "": key_value is used */
    ngx_http_complex_value_t    *key_value;
    ngx_flag_t                   key_strict;

    ngx_array_t                 *scope;            /* of ngx_http_once_part_t; NULL with scope_set: `none` */
    ngx_flag_t                   scope_set;
    ngx_flag_t                   scope_optional;
    ngx_uint_t                   secrets_apart;    /* from the store: a file has them */

    ngx_uint_t                   fingerprint;      /* once_body_mode_t */
    ngx_array_t                 *fingerprint_parts; /* of ngx_http_once_part_t; NULL: none */

    ngx_str_t                    ttl;              /* parts of the policy as text, inherited one by one */
    ngx_str_t                    lease;
    ngx_str_t                    recover;
    ngx_str_t                    record;
    ngx_str_t                    release;
    ngx_str_t                    release_ttl;
    once_policy_t               *policy;           /* made of them when merged; freed with the cycle */

    ngx_msec_t                   wait;             /* 0: duplicates get 409 at once */
    ngx_uint_t                   wait_max;         /* waiters of one key in one worker */

    size_t                       store_body;       /* 0: `off` */
    ngx_int_t                    retry_after;      /* seconds; 0: `auto` */
    ngx_uint_t                   quota;            /* new records of a scope in quota_period; 0: any number */
    ngx_msec_t                   quota_period;
    ngx_uint_t                   unknown_max;      /* unknown records of the route; 0: any number */
    ngx_flag_t                   early_lookup;
    ngx_flag_t                   pass_on_error;    /* once_on_store_error pass */

    ngx_str_t                    replay_header;    /* "Idempotent-Replayed"; "": off */
    ngx_array_t                 *replay_headers;   /* of ngx_str_t, lower case: replayed although by default not */
    ngx_str_t                    docs;             /* "": none; NULL: the server's once_problems */

    ngx_http_once_probe_conf_t  *probe;            /* NULL: none */
    ngx_str_t                    authorize;        /* the URI that says whether a caller may have an answer; "": none */

    ngx_msec_t                   latency;          /* of the worker: how long operations take lately; 0: not known */

    ngx_http_once_route_t       *route;            /* counters; NULL where once is off */
} ngx_http_once_loc_conf_t;


/* ------------------------------------------------------------------ stores */

struct ngx_http_once_store_s {
    ngx_str_t                    url;
    ngx_str_t                    name;             /* what may be shown of it */
    ngx_msec_t                   timeout;
    ngx_str_t                    secret_file;

    /* of the worker */
    once_t                      *once;             /* NULL: could not be opened (yet): answers 503 */
    ngx_connection_t            *connection;       /* watches once_fd() */
    ngx_event_t                  reopen;
    ngx_queue_t                  calls;            /* of guards, the oldest first: what it has not answered */
    ngx_event_t                  overdue;          /* looks at the oldest */
    char                         trouble[200];     /* what the log was told of it; empty: nothing, or that it is over */
    ngx_msec_t                   told;             /* when */
    ngx_msec_t                   full_told;        /* when the log was told that it is full */

    unsigned                     refused:1;        /* set by the master: workers do not open it */
};

/* Finds or adds the store of a location by its three values. NULL: out of memory. Called when merged, for enable locations. */
ngx_http_once_store_t *ngx_http_once_store_add(ngx_conf_t *cf,
    ngx_http_once_loc_conf_t *conf);

/* Makes directories that workers of another user could not make; refuses memory: with several workers. In the master. */
ngx_int_t ngx_http_once_stores_prepare(ngx_cycle_t *cycle);

ngx_int_t ngx_http_once_stores_open(ngx_cycle_t *cycle);     /* init_process */
void ngx_http_once_stores_close(ngx_cycle_t *cycle);         /* exit_process: bounded, claims that never ran are released */

/* Tells the log that a new key found no room, and what to do. Not for each of many. */
void ngx_http_once_store_full(ngx_http_once_store_t *store, ngx_log_t *log);

/* Keeps a worker that is asked to quit alive while operations on stores or guards are pending. */
void ngx_http_once_hold_exit(void);
void ngx_http_once_allow_exit(void);


/* ----------------------------------------------------------------- request */

typedef enum {
    NGX_HTTP_ONCE_NONE = 0,            /* not guarded: passed through */
    NGX_HTTP_ONCE_RUN,
    NGX_HTTP_ONCE_REPLAY,
    NGX_HTTP_ONCE_BUSY,
    NGX_HTTP_ONCE_MISMATCH,
    NGX_HTTP_ONCE_UNKNOWN,
    NGX_HTTP_ONCE_LOST,                /* ran, but the claim was somebody else's by then */
    NGX_HTTP_ONCE_MISSING,
    NGX_HTTP_ONCE_INVALID,
    NGX_HTTP_ONCE_ERROR,               /* the store did not answer */
    NGX_HTTP_ONCE_PASS,                /* the store did not answer, once_on_store_error pass */
    NGX_HTTP_ONCE_REFUSED,             /* by a limit: once_memory, once_bodies, once_quota, once_unknown_max, a full store */
    NGX_HTTP_ONCE_DENIED               /* once_authorize says that the caller may not have the answer */
} ngx_http_once_outcome_e;


typedef enum {
    NGX_HTTP_ONCE_START = 0,
    NGX_HTTP_ONCE_READING,             /* the request body */
    NGX_HTTP_ONCE_ASKING,              /* the store */
    NGX_HTTP_ONCE_AUTHORIZING,         /* once_authorize: may the caller have what the store says? */
    NGX_HTTP_ONCE_WAITING,             /* for another request with the same key */
    NGX_HTTP_ONCE_GRANTED,             /* forwarded, or about to be */
    NGX_HTTP_ONCE_HOLDING,             /* the response comes in */
    NGX_HTTP_ONCE_RECORDING,           /* it is being written to the store */
    NGX_HTTP_ONCE_SENDING,             /* to the client */
    NGX_HTTP_ONCE_ANSWERED             /* by us: replay or problem */
} ngx_http_once_phase_e;


/* The context of a main request. Lives in a pool cleanup, so that internal redirects do not lose it. */
typedef struct {
    ngx_http_request_t          *request;
    ngx_http_once_loc_conf_t    *conf;             /* of the location where it was guarded */
    ngx_http_once_phase_e        phase;
    ngx_http_once_outcome_e      outcome;

    once_key_t                   key;
    ngx_str_t                    scope;
    ngx_str_t                    target;           /* of the fingerprint */
    once_body_t                 *body;
    uint32_t                     epoch;            /* 0: none */
    uint64_t                     age_ms;           /* of the record; of a replay */
    unsigned                     has_age:1;
    unsigned                     waited:1;
    unsigned                     inside:1;         /* called by the request's own events: nginx runs what is posted */
    unsigned                     probed:1;         /* ngx_http_once_probe_first() was NGX_OK once */
    unsigned                     crowded:1;        /* there was no memory for its body */
    unsigned                     authorized:1;     /* once_authorize said yes, and it has not waited since */

    ngx_http_once_guard_t       *guard;            /* from the first ask on; NULL: none */
    once_answer_t               *answer;           /* kept: what is sent points into it */
    ngx_http_once_stored_t      *stored;           /* ... with others that are sent the same */
    uint64_t                     expires_ms;       /* of its record, when it came */
    ngx_uint_t                   refusal;          /* ngx_http_once_problem_e, if its key turns out to be new */
    time_t                       refusal_after;
    size_t                       memory;           /* taken for the response that is held */
    size_t                       json;             /* taken for the request's body */
    size_t                       file;             /* ... as it lies in a file */

    ngx_http_once_hold_t        *hold;             /* ngx_http_once_request.h; NULL until granted */
    ngx_http_once_waiter_t      *waiter;           /* NULL unless it waited */
    ngx_http_once_authorize_t   *authorize;        /* NULL: not asked now */
} ngx_http_once_ctx_t;

/* NULL where there is none; finds it again after an internal redirect. */
ngx_http_once_ctx_t *ngx_http_once_get_ctx(ngx_http_request_t *r);
ngx_http_once_ctx_t *ngx_http_once_make_ctx(ngx_http_request_t *r,
    ngx_http_once_loc_conf_t *conf);


/* ---------------------------------------------------------------- problems */

typedef enum {
    NGX_HTTP_ONCE_P_KEY_MISSING = 0,   /* 400 */
    NGX_HTTP_ONCE_P_KEY_INVALID,       /* 400 */
    NGX_HTTP_ONCE_P_SCOPE_MISSING,     /* 400 */
    NGX_HTTP_ONCE_P_IN_FLIGHT,         /* 409, retryable */
    NGX_HTTP_ONCE_P_UNKNOWN,           /* 409 */
    NGX_HTTP_ONCE_P_MISMATCH,          /* 422 */
    NGX_HTTP_ONCE_P_UPSTREAM,          /* 502: the upstream's response ended early; outcome in doubt */
    NGX_HTTP_ONCE_P_STORE,             /* 503, retryable */
    NGX_HTTP_ONCE_P_TOO_MANY_WAITERS,  /* 429, retryable */
    NGX_HTTP_ONCE_P_IN_DOUBT,          /* 409, retryable: nobody is at work */
    NGX_HTTP_ONCE_P_LOST,              /* 502, 504: the upstream got it and said nothing */
    NGX_HTTP_ONCE_P_NOT_SENT,          /* 502, 504: no upstream got a byte of it */
    NGX_HTTP_ONCE_P_AUTHORIZE,         /* 503: once_authorize got no answer */
    NGX_HTTP_ONCE_P_MEMORY,            /* 503, retryable */
    NGX_HTTP_ONCE_P_QUOTA,             /* 429, retryable */
    NGX_HTTP_ONCE_P_MANY_UNKNOWN,      /* 503, retryable */
    NGX_HTTP_ONCE_PROBLEMS
} ngx_http_once_problem_e;

typedef struct {
    ngx_uint_t                   status;
    ngx_uint_t                   retryable;
    ngx_str_t                    name;             /* its type: urn:once:problem:NAME; and its place in the page of all */
    ngx_str_t                    kind;             /* the type of the member "error" */
    ngx_str_t                    title;
    ngx_str_t                    detail;           /* where the caller has nothing more exact to say */
} ngx_http_once_problem_t;

const ngx_http_once_problem_t *ngx_http_once_problem_of(
    ngx_http_once_problem_e code);

/*
 * Sends the problem as the response of r. `detail` (may be empty) never contains a credential, a scope or a body.
 * `retry_after` in seconds, 0: no header. Returns what a content handler returns.
 */
ngx_int_t ngx_http_once_send_problem(ngx_http_request_t *r,
    ngx_http_once_loc_conf_t *conf, ngx_http_once_problem_e problem,
    ngx_str_t *detail, time_t retry_after);

/* The same with another status: that of the page which it takes the place of. */
ngx_int_t ngx_http_once_send_problem_as(ngx_http_request_t *r,
    ngx_http_once_loc_conf_t *conf, ngx_http_once_problem_e problem,
    ngx_uint_t status, ngx_str_t *detail, time_t retry_after);

/* The status of a response that is made here, with the words that nginx has none for. */
void ngx_http_once_set_status(ngx_http_request_t *r, ngx_uint_t status);

/* once_problems: a page that explains them. */
char *ngx_http_once_problems_page(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
ngx_int_t ngx_http_once_problems_handler(ngx_http_request_t *r);


/* ------------------------------------------------------------------- probe */

/* After doubt was written: asks the backend in the background (once_probe), and settles the record when it says so. */
void ngx_http_once_probe_later(ngx_http_once_loc_conf_t *conf,
    const u_char *id);

/*
 * An ask met an unknown record. NGX_OK: the backend is asked first, once for each request, and then the store again
 * (ngx_http_once_ask); NGX_DECLINED: there is no once_probe, or it was tried.
 */
ngx_int_t ngx_http_once_probe_first(ngx_http_once_ctx_t *ctx,
    once_answer_t *answer);


/* ----------------------------------------------------------------- metrics */

typedef enum {
    NGX_HTTP_ONCE_C_RUN = 0,
    NGX_HTTP_ONCE_C_REPLAY,
    NGX_HTTP_ONCE_C_BUSY,
    NGX_HTTP_ONCE_C_WAITED,
    NGX_HTTP_ONCE_C_MISMATCH,
    NGX_HTTP_ONCE_C_MISSING,
    NGX_HTTP_ONCE_C_INVALID,
    NGX_HTTP_ONCE_C_UNKNOWN,
    NGX_HTTP_ONCE_C_ERROR,             /* refused: the store did not answer */
    NGX_HTTP_ONCE_C_PASS,              /* forwarded all the same */
    NGX_HTTP_ONCE_C_DENIED,
    NGX_HTTP_ONCE_C_REFUSED,           /* by a limit; the reasons are counted below */
    NGX_HTTP_ONCE_C_LOST,
    NGX_HTTP_ONCE_C_STORE_ERROR,
    NGX_HTTP_ONCE_C_COMPLETED,         /* claims that ended so */
    NGX_HTTP_ONCE_C_RELEASED,
    NGX_HTTP_ONCE_C_DOUBTED,
    NGX_HTTP_ONCE_C_OMITTED,           /* recorded without their body */
    NGX_HTTP_ONCE_C_PROBED,
    NGX_HTTP_ONCE_C_NO_MEMORY,         /* refused: once_memory */
    NGX_HTTP_ONCE_C_NO_FILE,           /* refused: once_bodies */
    NGX_HTTP_ONCE_C_OVER_QUOTA,        /* refused: once_quota */
    NGX_HTTP_ONCE_C_MANY_UNKNOWN,      /* refused: once_unknown_max */
    NGX_HTTP_ONCE_C_FULL,              /* refused: the store has no room for another record */
    NGX_HTTP_ONCE_C_NO_ROOM,           /* recorded without their body: once_memory */
    NGX_HTTP_ONCE_COUNTERS
} ngx_http_once_counter_e;

typedef enum {
    NGX_HTTP_ONCE_H_CLAIM = 0,
    NGX_HTTP_ONCE_H_COMPLETE,
    NGX_HTTP_ONCE_HISTOGRAMS
} ngx_http_once_histogram_e;

/* The route of a location: found by its name, or added. Configuration time. NULL: out of memory. */
ngx_http_once_route_t *ngx_http_once_route_add(ngx_conf_t *cf,
    ngx_str_t *name);

ngx_int_t ngx_http_once_metrics_init(ngx_conf_t *cf);        /* the shared zone; postconfiguration */
void ngx_http_once_count(ngx_http_once_route_t *route,
    ngx_http_once_counter_e counter);
void ngx_http_once_observe(ngx_http_once_route_t *route,
    ngx_http_once_histogram_e histogram, ngx_uint_t usec);
/* Records of a route that are known to be unknown, and how many may be; max 0: not counted. */
ngx_uint_t ngx_http_once_unknown_of(ngx_http_once_main_conf_t *omcf,
    ngx_uint_t index, ngx_uint_t *max);

/* The shared zones of limits; postconfiguration. */
ngx_int_t ngx_http_once_quota_init(ngx_conf_t *cf,
    ngx_http_once_main_conf_t *omcf);
void ngx_http_once_unknown_add(ngx_http_once_loc_conf_t *conf);    /* a guarded location */
ngx_int_t ngx_http_once_unknown_init(ngx_conf_t *cf,
    ngx_http_once_main_conf_t *omcf);

/* +1, -1. What a killed worker had in flight is not counted: each process counts in its own row. */
void ngx_http_once_in_flight(ngx_http_once_route_t *route, ngx_int_t change);
void ngx_http_once_memory_in_use(size_t bytes);
void ngx_http_once_metrics_join(ngx_cycle_t *cycle);         /* init_process */
void ngx_http_once_metrics_leave(void);                      /* exit_process */

char *ngx_http_once_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
ngx_int_t ngx_http_once_status_handler(ngx_http_request_t *r);


/* ------------------------------------------- phases, filters and variables */

ngx_int_t ngx_http_once_received(ngx_http_request_t *r);          /* NGX_HTTP_POST_READ_PHASE */
ngx_int_t ngx_http_once_arrived(ngx_http_request_t *r);           /* NGX_HTTP_REWRITE_PHASE */
ngx_int_t ngx_http_once_entered(ngx_http_request_t *r);           /* NGX_HTTP_PREACCESS_PHASE */
ngx_int_t ngx_http_once_early_handler(ngx_http_request_t *r);     /* NGX_HTTP_PREACCESS_PHASE, behind it */
ngx_int_t ngx_http_once_handler(ngx_http_request_t *r);           /* NGX_HTTP_PRECONTENT_PHASE */
void ngx_http_once_body_filter_init(void);                        /* request body filter */
void ngx_http_once_hold_filter_init(void);                        /* header and body filters */
ngx_int_t ngx_http_once_add_variables(ngx_conf_t *cf);            /* preconfiguration */

/*
 * $once_json_NAME: a top-level member of a JSON request body. Found only after the body was read (request_body), which the
 * handler does before it evaluates conf->key_value.
 */
ngx_int_t ngx_http_once_json_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);

/* Of the name of a variable. */
ngx_uint_t ngx_http_once_is_word(u_char c);

/* A header of this name describes one message on one connection. */
ngx_uint_t ngx_http_once_is_framing(u_char *name, size_t len);

/* The early look found a completed record of this scope and key, and there is credit for it. */
ngx_uint_t ngx_http_once_early_replay(ngx_http_request_t *r);

void *ngx_http_once_create_main_conf(ngx_conf_t *cf);
char *ngx_http_once_init_main_conf(ngx_conf_t *cf, void *conf);
void *ngx_http_once_create_srv_conf(ngx_conf_t *cf);
void *ngx_http_once_create_loc_conf(ngx_conf_t *cf);
char *ngx_http_once_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child);
extern ngx_command_t  ngx_http_once_commands[];

extern ngx_module_t   ngx_http_once_module;
extern ngx_module_t   ngx_http_copy_filter_module;    /* nginx's own */


#endif
