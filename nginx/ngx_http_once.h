/*
 * ngx_http_once_module: what its files share. docs/architecture.md leads along
 * the path of a request; docs/gateway.md describes the behaviour. The files:
 *
 *   at startup
 *     module      what nginx calls, and when: phases, filters, processes;
 *                 configuration: create and merge
 *     directives  the table of directives; reads their values
 *     profile     once_profile: the rules of wire protocols, as data
 *     check       rejects store URLs, policies and locations that would not be
 *                 safe
 *     store       the stores of a worker: opened after fork, dispatched by the
 *                 event loop, closed at exit
 *
 *   before the store is asked
 *     entry       post_read, rewrite, preaccess: whether a request was refused
 *                 before an error page redirected it
 *     early       preaccess: once_early_lookup, and its credit
 *     handler     precontent: the context and the body; forwards what runs
 *     identify    the key, the scope and the target
 *     seek        finds a key in a JSON body while it streams
 *     mcp         once_mcp: calls of tools, their errors and answers; rpc:
 *                 reads and writes JSON-RPC; json: the text of a document
 *     body        the body's fingerprint, computed while it streams; limits on
 *                 bodies: once_memory, once_bodies
 *     admit       limits on new keys: once_quota (bucket.h), once_unknown_max
 *
 *   asking it, and its answer
 *     ask         asks the store; what each outcome leads to
 *     authorize   once_authorize: may the caller have the stored answer?
 *     wait        duplicates that wait for the first request
 *     replay      sends a stored response; one copy for all its replays
 *     problem     errors, as application/problem+json or in the words of a
 *                 profile, and the page about them
 *     probe       asks the backend what became of a key; probe_fetch: over HTTP
 *
 *   while the operation runs
 *     guard       the claim and its end; outlives the request
 *     headers     headers to the backend, from it, and in replays
 *     upstream    what the backend received and answered
 *     buffer      header and body filters: the response is buffered until it
 *                 has been recorded
 *     finish      what a response means for its claim: what is recorded, and
 *                 what the client gets
 *
 *   for operators
 *     variables   $once_*
 *     metrics     counters in shared memory (metrics.h: their layout)
 *     status      once_status: shows them as text and JSON
 *     watch       asks the stores in the background; once_ready
 */
#ifndef NGX_HTTP_ONCE_H
#define NGX_HTTP_ONCE_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include <once/experimental.h>
#include <once/once.h>

#include "ngx_http_once_seek.h"


typedef struct ngx_http_once_store_s       ngx_http_once_store_t;
typedef struct ngx_http_once_guard_s       ngx_http_once_guard_t;
typedef struct ngx_http_once_route_s       ngx_http_once_route_t;
typedef struct ngx_http_once_seen_s        ngx_http_once_seen_t;
typedef struct ngx_http_once_probe_conf_s  ngx_http_once_probe_conf_t;
typedef struct ngx_http_once_redact_s  ngx_http_once_redact_t;
typedef struct ngx_http_once_mcp_s         ngx_http_once_mcp_t;
typedef struct ngx_http_once_rpc_s         ngx_http_once_rpc_t;
typedef struct ngx_http_once_run_s         ngx_http_once_run_t;
typedef struct ngx_http_once_waiter_s      ngx_http_once_waiter_t;
typedef struct ngx_http_once_stored_s      ngx_http_once_stored_t;
typedef struct ngx_http_once_authorize_s   ngx_http_once_authorize_t;
typedef struct ngx_http_once_loc_conf_s    ngx_http_once_loc_conf_t;


/* ----------------------------------------------------------- configuration */

typedef enum {
    NGX_HTTP_ONCE_REQUIRE_OFF = 0,
    NGX_HTTP_ONCE_REQUIRE_ON,
    NGX_HTTP_ONCE_REQUIRE_VALUE        /* not if it is "", "0" or "off" */
} ngx_http_once_require_e;


typedef enum {
    NGX_HTTP_ONCE_DESCRIBE_OFF = 0,
    NGX_HTTP_ONCE_DESCRIBE_PATH,       /* method and path without query */
    NGX_HTTP_ONCE_DESCRIBE_VALUE
} ngx_http_once_describe_e;


typedef enum {
    NGX_HTTP_ONCE_KEY_ANY = 0,
    NGX_HTTP_ONCE_KEY_UUID,
    NGX_HTTP_ONCE_KEY_UUID4,
    NGX_HTTP_ONCE_KEY_UUID7,
    NGX_HTTP_ONCE_KEY_MIN              /* at least so many characters */
} ngx_http_once_key_format_e;


typedef enum {
    NGX_HTTP_ONCE_FROM_HEADER = 0,
    NGX_HTTP_ONCE_FROM_VALUE,
    NGX_HTTP_ONCE_FROM_JSON,           /* a pointer into the body */
    NGX_HTTP_ONCE_FROM_CONTENT         /* derived: it has no key */
} ngx_http_once_key_source_e;


/* Where once_key looks, one after the other. */
typedef struct {
    ngx_http_once_key_source_e       from;
    ngx_str_t                    header;
    ngx_http_complex_value_t    *value;
    ngx_http_once_path_t         path;
    time_t                       period;      /* of a derived key */
} ngx_http_once_key_source_t;


/* One value of once_scope, or one that once_fingerprint adds. */
typedef struct {
    ngx_http_complex_value_t    *value;
    ngx_str_t                    label;       /* "the header X-Api-Key" */
    ngx_uint_t                   credential;  /* has $http_authorization */
} ngx_http_once_part_t;


typedef struct {
    ngx_array_t                  stores;   /* of ngx_http_once_store_t * */
    ngx_array_t                  routes;   /* of ngx_http_once_route_t * */
    ngx_array_t                 *profiles; /* of profile.c; NULL: none */

    ngx_shm_zone_t              *metrics;  /* NULL unless once is used */
    ngx_shm_zone_t              *quotas;   /* NULL without once_quota */
    ngx_shm_zone_t              *unknown;  /* NULL without once_unknown_max */

    /* whether some location has ... */
    ngx_uint_t                   guarded;      /* once on */
    ngx_uint_t                   early;        /* once_early_lookup on */
    ngx_uint_t                   has_quota;    /* once_quota */
    ngx_uint_t                   has_unknown;  /* once_unknown_max */
    ngx_uint_t                   status;       /* once_status */
    ngx_uint_t                   watch;        /* once_status, once_ready */

    size_t                       memory;   /* once_memory, of each worker */
    size_t                       bodies;   /* once_bodies; 0: no limit */
    ngx_msec_t                   stats;    /* once_stats; 0: off */
} ngx_http_once_main_conf_t;


typedef struct {
    ngx_uint_t                   guarded;   /* some location of the server */
    ngx_str_t                    problems;  /* path of once_problems; "": no */

    /* named locations that error pages redirect to (entry.c); NULL: none */
    ngx_array_t                 *pages;
} ngx_http_once_srv_conf_t;


/* once_error: what is not set is as in the table of problem.c. */
typedef struct {
    ngx_uint_t                   status;    /* 0: not set */
    ngx_str_t                    code;
    ngx_str_t                    type;
} ngx_http_once_error_t;


typedef enum {
    NGX_HTTP_ONCE_P_KEY_MISSING = 0,   /* 400 */
    NGX_HTTP_ONCE_P_KEY_INVALID,       /* 400 */
    NGX_HTTP_ONCE_P_SCOPE_MISSING,     /* 400 */
    NGX_HTTP_ONCE_P_IN_FLIGHT,         /* 409, retryable */
    NGX_HTTP_ONCE_P_UNKNOWN,           /* 409 */
    NGX_HTTP_ONCE_P_MISMATCH,          /* 422 */
    NGX_HTTP_ONCE_P_UPSTREAM,          /* 502: the response ended early */
    NGX_HTTP_ONCE_P_STORE,             /* 503, retryable */
    NGX_HTTP_ONCE_P_TOO_MANY_WAITERS,  /* 429, retryable */
    NGX_HTTP_ONCE_P_IN_DOUBT,          /* 409, retryable: nothing runs */
    NGX_HTTP_ONCE_P_NO_RESPONSE,       /* 502, 504: sent, and not answered */
    NGX_HTTP_ONCE_P_NOT_SENT,          /* 502, 504: not a byte was sent */
    NGX_HTTP_ONCE_P_AUTHORIZE,         /* 503: once_authorize did not answer */
    NGX_HTTP_ONCE_P_MEMORY,            /* 503, retryable */
    NGX_HTTP_ONCE_P_QUOTA,             /* 429, retryable */
    NGX_HTTP_ONCE_P_MANY_UNKNOWN,      /* 503, retryable */
    NGX_HTTP_ONCE_PROBLEMS
} ngx_http_once_problem_e;


struct ngx_http_once_loc_conf_s {
    ngx_flag_t                   on;      /* as written, inherited */
    ngx_uint_t                   enable;  /* guarded: all values are set */
    ngx_str_t                    name;    /* once_name; "": the location's */

    ngx_str_t                    store_url;
    ngx_msec_t                   store_timeout;
    ngx_str_t                    secret_file;   /* "": kept in the store */
    ngx_http_once_store_t       *store;         /* NULL where once is off */

    ngx_uint_t                   methods;       /* NGX_HTTP_POST | ... */
    ngx_uint_t                   require;       /* ngx_http_once_require_e */
    ngx_http_complex_value_t    *require_value;

    ngx_str_t                    key_header;    /* "": key_sources is used */
    ngx_array_t                 *key_sources;   /* NULL: key_header is */
    ngx_uint_t                   key_pointers;  /* how many are JSON */
    ngx_uint_t                   key_derived;   /* the last one derives it */
    ngx_flag_t                   key_strict;
    ngx_uint_t                   key_format;    /* ..._key_format_e */
    ngx_uint_t                   key_min;

    ngx_array_t                 *scope;         /* of parts; NULL: `none` */
    ngx_flag_t                   scope_set;
    ngx_flag_t                   scope_optional;
    ngx_flag_t                   scope_path;    /* method and path, too */
    ngx_uint_t                   secrets_apart; /* not kept in the store */

    ngx_uint_t                   describe;      /* ngx_http_once_describe_e */
    ngx_http_complex_value_t    *describe_value;
    ngx_http_complex_value_t    *subject;       /* NULL: `off` */

    ngx_uint_t                   fingerprint;   /* once_body_mode_t */
    ngx_array_t                 *fingerprint_parts;  /* NULL: none */

    /* the policy: its parts as text, inherited one by one; made by merge */
    ngx_str_t                    ttl;
    ngx_str_t                    lease;
    ngx_str_t                    recover;
    ngx_str_t                    record;
    ngx_str_t                    release;
    ngx_str_t                    release_ttl;
    once_policy_t               *policy;

    ngx_msec_t                   wait;          /* 0: duplicates get 409 */
    ngx_uint_t                   wait_max;      /* for each key and worker */

    size_t                       store_body;    /* 0: `off` */
    ngx_int_t                    retry_after;   /* seconds; 0: `auto` */
    ngx_uint_t                   quota;         /* 0: no limit */
    ngx_msec_t                   quota_period;
    ngx_uint_t                   unknown_max;   /* 0: no limit */
    ngx_flag_t                   early_lookup;
    ngx_flag_t                   store_no_store;
    ngx_flag_t                   pass_on_error; /* once_on_store_error pass */

    ngx_str_t                    replay_header;   /* "": off */
    ngx_str_t                    expires_header;  /* "": off */
    ngx_str_t                    echo_key;        /* a header; "": off */
    ngx_array_t                 *replay_headers;  /* of ngx_str_t, lower case */
    ngx_str_t                    docs;  /* "": none; NULL: once_problems */

    ngx_http_complex_value_t    *error_body;  /* NULL: problem+json */
    ngx_str_t                    error_type;  /* its media type */
    ngx_str_t                    error_header;        /* "": none */
    ngx_http_complex_value_t    *error_header_value;
    ngx_http_once_error_t        errors[NGX_HTTP_ONCE_PROBLEMS];

    ngx_http_once_redact_t      *redact;     /* NULL: nothing */
    ngx_http_once_mcp_t         *mcp;        /* NULL: off */
    ngx_http_once_probe_conf_t  *probe;      /* NULL: none */
    ngx_str_t                    authorize;  /* a URI; "": none */

    ngx_msec_t                   latency;  /* recent, of this worker; 0: none */

    ngx_http_once_route_t       *route;  /* counters; NULL where once is off */

    /* for profiles: what the directives of this block say, before the merge */
    ngx_http_once_loc_conf_t    *written;   /* NULL: not merged */
    ngx_http_once_loc_conf_t    *outer;     /* ... of the block around it */
    ngx_http_once_loc_conf_t    *profile;   /* its defaults; NULL: none */
};


/* ------------------------------------------------------------------ stores */

struct ngx_http_once_store_s {
    ngx_str_t                    url;
    ngx_str_t                    name;         /* the URL without secrets */
    ngx_msec_t                   timeout;
    ngx_str_t                    secret_file;

    /* of the worker */
    once_t                      *once;         /* NULL: not open, answer 503 */
    ngx_connection_t            *connection;   /* watches once_fd() */
    ngx_event_t                  reopen;
    ngx_queue_t                  calls;        /* of guards, oldest first */
    ngx_event_t                  overdue;      /* when the oldest times out */
    char                         trouble[200]; /* as last logged; "": none */
    ngx_msec_t                   logged;       /* since when lines count */
    ngx_uint_t                   logged_count; /* lines since then */
    ngx_msec_t                   full_logged;  /* when "full" was logged */

    ngx_http_once_seen_t        *seen;         /* NULL: not watched */
    ngx_msec_t                   count_began;

    unsigned                     refused:1;    /* by the master: not opened */
    unsigned                     watched:1;    /* the first with its name */
    unsigned                     pinging:1;
    unsigned                     counting:1;
};

/*
 * The store of a location, found by URL, timeout and secret file or added.
 * Called by merge for guarded locations. NULL: out of memory.
 */
ngx_http_once_store_t *ngx_http_once_store_add(ngx_conf_t *cf,
    ngx_http_once_loc_conf_t *conf);

/*
 * In the master: creates the directories that workers of another user could
 * not create, and refuses memory: stores with several workers.
 */
ngx_int_t ngx_http_once_stores_prepare(ngx_cycle_t *cycle);

/* In a worker: at start, and at exit (bounded in time). */
ngx_int_t ngx_http_once_stores_open(ngx_cycle_t *cycle);
void ngx_http_once_stores_close(ngx_cycle_t *cycle);

/* Logs that a new key found no room, at most every few seconds. */
void ngx_http_once_store_full(ngx_http_once_store_t *store, ngx_log_t *log);

/* Keeps a worker that was asked to quit alive while calls are pending. */
void ngx_http_once_store_block_exit(void);
void ngx_http_once_store_allow_exit(void);


/* ----------------------------------------------------------------- request */

/* $once_outcome */
typedef enum {
    NGX_HTTP_ONCE_NONE = 0,            /* not guarded: passed through */
    NGX_HTTP_ONCE_RUN,
    NGX_HTTP_ONCE_REPLAY,
    NGX_HTTP_ONCE_BUSY,
    NGX_HTTP_ONCE_MISMATCH,
    NGX_HTTP_ONCE_UNKNOWN,
    NGX_HTTP_ONCE_LOST,                /* ran, but lost its claim meanwhile */
    NGX_HTTP_ONCE_MISSING,
    NGX_HTTP_ONCE_INVALID,
    NGX_HTTP_ONCE_ERROR,               /* the store did not answer */
    NGX_HTTP_ONCE_PASS,                /* ... and once_on_store_error is pass */
    NGX_HTTP_ONCE_REFUSED,             /* by a limit of the gateway */
    NGX_HTTP_ONCE_DENIED               /* by once_authorize */
} ngx_http_once_outcome_e;


typedef enum {
    NGX_HTTP_ONCE_START = 0,
    NGX_HTTP_ONCE_READING,             /* the request body */
    NGX_HTTP_ONCE_ASKING,              /* the store */
    NGX_HTTP_ONCE_AUTHORIZING,         /* once_authorize */
    NGX_HTTP_ONCE_WAITING,             /* for a request with the same key */
    NGX_HTTP_ONCE_GRANTED,             /* forwarded, or about to be */
    NGX_HTTP_ONCE_BUFFERING,           /* the response */
    NGX_HTTP_ONCE_RECORDING,           /* it is being written to the store */
    NGX_HTTP_ONCE_SENDING,             /* to the client */
    NGX_HTTP_ONCE_ANSWERED             /* by the module: replay or problem */
} ngx_http_once_phase_e;


/*
 * The context of a main request. It lives in a pool cleanup, so that internal
 * redirects do not lose it.
 */
typedef struct {
    ngx_http_request_t          *request;
    ngx_http_once_loc_conf_t    *conf;     /* of the location that guards it */
    ngx_http_once_phase_e        phase;
    ngx_http_once_outcome_e      outcome;

    once_key_t                   key;
    ngx_str_t                    caller;       /* the scope without the path */
    ngx_str_t                    scope;
    ngx_str_t                    target;       /* of the fingerprint */
    once_body_t                 *body;
    ngx_http_once_seek_t        *seeks;        /* of key_sources; NULL: none */
    uint32_t                     epoch;        /* 0: none */
    uint64_t                     age_ms;       /* of the record */

    unsigned                     standard:1;   /* from Idempotency-Key */
    unsigned                     derived:1;    /* from the content */
    unsigned                     has_age:1;
    unsigned                     waited:1;
    unsigned                     inside:1;     /* nginx runs posted requests */
    unsigned                     probed:1;     /* once_probe was asked */
    unsigned                     crowded:1;    /* no memory for its body */
    unsigned                     authorized:1; /* and has not waited since */

    ngx_http_once_guard_t       *guard;        /* from the first ask on */
    once_answer_t               *answer;       /* kept: its bytes are sent */
    ngx_http_once_stored_t      *stored;       /* shared by its replays */
    uint64_t                     expires_ms;   /* of its record */
    ngx_uint_t                   refusal;      /* problem, if the key is new */
    time_t                       refusal_after;

    /* bytes taken from once_memory and once_bodies */
    size_t                       memory;       /* for the buffered response */
    size_t                       json;         /* for the request body */
    size_t                       file;         /* ... in a file */

    ngx_http_once_run_t         *run;          /* NULL until granted */
    ngx_http_once_rpc_t         *rpc;          /* NULL without once_mcp */
    ngx_http_once_waiter_t      *waiter;       /* NULL unless it waited */
    ngx_http_once_authorize_t   *authorize;    /* NULL: not being asked */
    ngx_str_t                   *error;        /* $once_error_*; NULL: none */
} ngx_http_once_ctx_t;

/* NULL if there is none; finds it again after an internal redirect. */
ngx_http_once_ctx_t *ngx_http_once_get_ctx(ngx_http_request_t *r);


/* ---------------------------------------------------------------- problems */

/* $once_error_NAME, escaped for JSON. In the order of variables.c. */
typedef enum {
    NGX_HTTP_ONCE_E_CODE = 0,
    NGX_HTTP_ONCE_E_DETAIL,
    NGX_HTTP_ONCE_E_NAME,
    NGX_HTTP_ONCE_E_RETRYABLE,
    NGX_HTTP_ONCE_E_STATUS,
    NGX_HTTP_ONCE_E_TITLE,
    NGX_HTTP_ONCE_E_TYPE,
    NGX_HTTP_ONCE_E_TEXTS
} ngx_http_once_error_e;

/*
 * Sends a problem as the response of r. `detail` may be empty; it never has a
 * credential, a scope or a body in it. `retry_after` is in seconds, 0 means no
 * header. Returns what a content handler returns.
 */
ngx_int_t ngx_http_once_problem_send(ngx_http_request_t *r,
    ngx_http_once_loc_conf_t *conf, ngx_http_once_problem_e problem,
    ngx_str_t *detail, time_t retry_after);

/* The same with the status of the page that it replaces. */
ngx_int_t ngx_http_once_problem_send_as(ngx_http_request_t *r,
    ngx_http_once_loc_conf_t *conf, ngx_http_once_problem_e problem,
    ngx_uint_t status, ngx_str_t *detail, time_t retry_after);

/* Sets the status, and a reason phrase where nginx has none. */
void ngx_http_once_problem_set_status(ngx_http_request_t *r,
    ngx_uint_t status);

/* once_problems: a page that explains the problems. */
char *ngx_http_once_problem_page(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
ngx_int_t ngx_http_once_problem_page_handler(ngx_http_request_t *r);


/* ------------------------------------------------------------------- probe */

/*
 * After a claim ended in doubt: asks the backend in the background, and
 * settles the record if it answers.
 */
void ngx_http_once_probe_later(ngx_http_once_loc_conf_t *conf,
    const u_char *id);

/*
 * The answer was an unknown record. NGX_OK: the backend is asked first, once
 * for each request, and then the store again; NGX_DECLINED: there is no
 * once_probe, or it has been tried.
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
    NGX_HTTP_ONCE_C_ERROR,             /* 503: the store did not answer */
    NGX_HTTP_ONCE_C_PASS,              /* ... and it was forwarded anyway */
    NGX_HTTP_ONCE_C_DENIED,
    NGX_HTTP_ONCE_C_REFUSED,           /* by a limit, counted below as well */
    NGX_HTTP_ONCE_C_LOST,
    NGX_HTTP_ONCE_C_STORE_ERROR,
    NGX_HTTP_ONCE_C_COMPLETED,         /* ends of claims */
    NGX_HTTP_ONCE_C_RELEASED,
    NGX_HTTP_ONCE_C_DOUBTED,
    NGX_HTTP_ONCE_C_OMITTED,           /* recorded without the body */
    NGX_HTTP_ONCE_C_PROBED,
    NGX_HTTP_ONCE_C_NO_MEMORY,         /* refused: once_memory */
    NGX_HTTP_ONCE_C_NO_FILE,           /* refused: once_bodies */
    NGX_HTTP_ONCE_C_OVER_QUOTA,        /* refused: once_quota */
    NGX_HTTP_ONCE_C_MANY_UNKNOWN,      /* refused: once_unknown_max */
    NGX_HTTP_ONCE_C_FULL,              /* refused: the store is full */
    NGX_HTTP_ONCE_C_NO_ROOM,           /* omitted because of once_memory */
    NGX_HTTP_ONCE_C_APART,             /* answered without once.complete() */
    NGX_HTTP_ONCE_COUNTERS
} ngx_http_once_counter_e;

typedef enum {
    NGX_HTTP_ONCE_H_CLAIM = 0,
    NGX_HTTP_ONCE_H_COMPLETE,
    NGX_HTTP_ONCE_HISTOGRAMS
} ngx_http_once_histogram_e;

/* At configuration: finds or adds the route. NULL: out of memory. */
ngx_http_once_route_t *ngx_http_once_metrics_route(ngx_conf_t *cf,
    ngx_str_t *name);

ngx_int_t ngx_http_once_metrics_init(ngx_conf_t *cf);    /* the zone */
void ngx_http_once_metrics_join(ngx_cycle_t *cycle);     /* init_process */
void ngx_http_once_metrics_leave(void);                  /* exit_process */

void ngx_http_once_count(ngx_http_once_route_t *route,
    ngx_http_once_counter_e counter);
void ngx_http_once_observe(ngx_http_once_route_t *route,
    ngx_http_once_histogram_e histogram, ngx_uint_t usec);

/* +1, -1. Each process has its own row, so a killed one does not count. */
void ngx_http_once_in_flight(ngx_http_once_route_t *route, ngx_int_t change);
void ngx_http_once_metrics_memory(size_t bytes);

char *ngx_http_once_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
ngx_int_t ngx_http_once_status_handler(ngx_http_request_t *r);


/* ------------------------------------------------------------------- watch */

void ngx_http_once_watch_start(ngx_cycle_t *cycle);      /* init_process */
void ngx_http_once_watch_stop(ngx_cycle_t *cycle);       /* exit_process */

char *ngx_http_once_ready(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
ngx_int_t ngx_http_once_ready_handler(ngx_http_request_t *r);


/* ------------------------------------------------------------------ limits */

ngx_int_t ngx_http_once_admit_init(ngx_conf_t *cf,
    ngx_http_once_main_conf_t *omcf);                    /* the zones */

void ngx_http_once_admit_unknown_add(ngx_http_once_loc_conf_t *conf);

/* The known unknown records of a route; max 0: they are not counted. */
ngx_uint_t ngx_http_once_admit_unknown_count(ngx_http_once_main_conf_t *omcf,
    ngx_uint_t index, ngx_uint_t *max);


/* ------------------------------------------- phases, filters and variables */

ngx_int_t ngx_http_once_entry_post_read(ngx_http_request_t *r);
ngx_int_t ngx_http_once_entry_rewrite(ngx_http_request_t *r);
ngx_int_t ngx_http_once_entry_preaccess(ngx_http_request_t *r);
ngx_int_t ngx_http_once_early_handler(ngx_http_request_t *r);  /* preaccess */
ngx_int_t ngx_http_once_handler(ngx_http_request_t *r);       /* precontent */

/* A zone of shared memory, whose data is the main configuration. */
ngx_shm_zone_t *ngx_http_once_add_zone(ngx_conf_t *cf, ngx_str_t *name,
    size_t size, ngx_shm_zone_init_pt init);

void ngx_http_once_body_init(void);      /* request body filter */
void ngx_http_once_buffer_init(void);    /* header and body filters */

ngx_int_t ngx_http_once_variables_add(ngx_conf_t *cf);

/* Whether the early lookup found a completed record, and there was credit. */
ngx_uint_t ngx_http_once_early_replay(ngx_http_request_t *r);

extern ngx_command_t  ngx_http_once_commands[];

extern ngx_module_t   ngx_http_once_module;
extern ngx_module_t   ngx_http_copy_filter_module;    /* nginx's own */


#endif
