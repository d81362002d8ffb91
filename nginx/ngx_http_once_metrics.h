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


typedef struct {
    ngx_uint_t                   used;         /* number of slots in use */
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

/* Sums over all live processes. */
size_t ngx_http_once_metrics_memory_sum(ngx_http_once_table_t *table);

ngx_uint_t ngx_http_once_metrics_in_flight_sum(ngx_http_once_table_t *table,
    ngx_uint_t index);


#endif
