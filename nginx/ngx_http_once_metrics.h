/*
 * The layout of the counters in shared memory: one table, created by the first
 * master and kept over reloads. It has no pointers and never shrinks: a route
 * keeps its slot as long as the master lives.
 */
#ifndef NGX_HTTP_ONCE_METRICS_H
#define NGX_HTTP_ONCE_METRICS_H

#include "ngx_http_once.h"


#define NGX_HTTP_ONCE_ROUTES      512
#define NGX_HTTP_ONCE_ROUTE_NAME  104
#define NGX_HTTP_ONCE_PROCESSES   64
#define NGX_HTTP_ONCE_BUCKETS     16
#define NGX_HTTP_ONCE_STORES      64
#define NGX_HTTP_ONCE_STORE_ID    16     /* MD5 of its name */


/* Buckets are not cumulative here; the last one has the rest. */
typedef struct {
    ngx_atomic_t                 bucket[NGX_HTTP_ONCE_BUCKETS + 1];
    ngx_atomic_t                 sum_usec;
} ngx_http_once_histogram_t;


typedef struct {
    ngx_uint_t                   len;          /* 0: free */
    u_char                       name[NGX_HTTP_ONCE_ROUTE_NAME];
    ngx_atomic_t                 counter[NGX_HTTP_ONCE_COUNTERS];
    ngx_http_once_histogram_t    histogram[NGX_HTTP_ONCE_HISTOGRAMS];
} ngx_http_once_slot_t;


/* What one process has in flight, by route. Valid while `pid` is alive. */
typedef struct {
    ngx_atomic_t                 pid;          /* 0: free */
    size_t                       memory;       /* of once_memory, in use */
    int32_t                      in_flight[NGX_HTTP_ONCE_ROUTES];
} ngx_http_once_row_t;


typedef enum {
    NGX_HTTP_ONCE_NOT_ASKED = 0,
    NGX_HTTP_ONCE_DOWN,
    NGX_HTTP_ONCE_UP
} ngx_http_once_up_e;


/* What the worker that watches the stores (watch.c) last saw of one. */
struct ngx_http_once_seen_s {
    ngx_atomic_t                 used;
    u_char                       id[NGX_HTTP_ONCE_STORE_ID];
    ngx_atomic_t                 up;           /* ngx_http_once_up_e */
    ngx_msec_t                   due;          /* when to count again */

    /* of the last count, as in once_stats_t */
    ngx_atomic_t                 counted;      /* the time; 0: never */
    uint64_t                     records;
    uint64_t                     bytes;
    uint64_t                     stuck;
    uint64_t                     unknown;
    uint64_t                     oldest_ms;
    uint64_t                     expired;
    uint64_t                     damaged;
    uint64_t                     quarantined;
    uint64_t                     disk_bytes;   /* 0: not on a disk of ours */
    uint64_t                     disk_free;
};


typedef struct {
    ngx_uint_t                   used;         /* number of slots in use */
    ngx_atomic_t                 watcher;      /* pid of a worker; 0: none */
    ngx_msec_t                   watched;      /* when it was last at it */
    ngx_http_once_seen_t         store[NGX_HTTP_ONCE_STORES];
    ngx_http_once_slot_t         slot[NGX_HTTP_ONCE_ROUTES];
    ngx_http_once_row_t          row[NGX_HTTP_ONCE_PROCESSES];
} ngx_http_once_table_t;


/* A route as the configuration knows it. */
struct ngx_http_once_route_s {
    ngx_str_t                    name;
    ngx_uint_t                   index;        /* of its slot */
    ngx_http_once_slot_t        *slot;         /* once the zone exists */
    ngx_uint_t                   unknown_max;  /* the largest; 0: no limit */
};


extern const ngx_uint_t  ngx_http_once_bucket_usec[NGX_HTTP_ONCE_BUCKETS];

/* Of the running cycle; NULL if nothing is counted. */
ngx_http_once_table_t *ngx_http_once_metrics_table(
    ngx_http_once_main_conf_t *omcf);

ngx_uint_t ngx_http_once_process_lives(ngx_atomic_uint_t pid);

/* In the master: gives each store of the configuration its place. */
void ngx_http_once_watch_places(ngx_http_once_main_conf_t *omcf,
    ngx_http_once_table_t *table);

/* Sums over all live processes. */
size_t ngx_http_once_metrics_memory_sum(ngx_http_once_table_t *table);

ngx_uint_t ngx_http_once_metrics_in_flight_sum(ngx_http_once_table_t *table,
    ngx_uint_t index);


#endif
