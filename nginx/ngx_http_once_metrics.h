/*
 * The counters' layout in shared memory: one table, made by the first master
 * and kept over reloads. Nothing in it is a pointer, and it never shrinks: a
 * route keeps its slot as long as the master lives.
 */
#ifndef NGX_HTTP_ONCE_METRICS_H
#define NGX_HTTP_ONCE_METRICS_H

#include "ngx_http_once.h"


#define NGX_HTTP_ONCE_ROUTES      512
#define NGX_HTTP_ONCE_ROUTE_NAME  104
#define NGX_HTTP_ONCE_PROCESSES   64
#define NGX_HTTP_ONCE_BUCKETS     16


/* Buckets are not cumulative here; the one after the last is for the rest. */
typedef struct {
    ngx_atomic_t                 bucket[NGX_HTTP_ONCE_BUCKETS + 1];
    ngx_atomic_t                 sum_usec;
} ngx_http_once_histogram_t;


typedef struct {
    ngx_uint_t                   len;              /* 0: free */
    u_char                       name[NGX_HTTP_ONCE_ROUTE_NAME];
    ngx_atomic_t                 counter[NGX_HTTP_ONCE_COUNTERS];
    ngx_http_once_histogram_t    histogram[NGX_HTTP_ONCE_HISTOGRAMS];
} ngx_http_once_slot_t;


/* What one process has in flight, by route. Counts only while `pid` lives. */
typedef struct {
    ngx_atomic_t                 pid;              /* 0: free */
    size_t                       memory;           /* once_memory: in use */
    int32_t                      in_flight[NGX_HTTP_ONCE_ROUTES];
} ngx_http_once_row_t;


typedef struct {
    ngx_uint_t                   used;             /* slots: the first ones */
    ngx_http_once_slot_t         slot[NGX_HTTP_ONCE_ROUTES];
    ngx_http_once_row_t          row[NGX_HTTP_ONCE_PROCESSES];
} ngx_http_once_table_t;


/* A route as the configuration knows it. */
struct ngx_http_once_route_s {
    ngx_str_t                    name;
    ngx_uint_t                   index;            /* of its slot */
    ngx_http_once_slot_t        *slot;             /* set when the zone is there */
    ngx_uint_t                   unknown_max;      /* of its locations, the largest; 0: none has any */
};


extern const ngx_uint_t  ngx_http_once_bucket_usec[NGX_HTTP_ONCE_BUCKETS];

/* Of the running cycle; NULL where nothing is counted. */
ngx_http_once_table_t *ngx_http_once_table(ngx_http_once_main_conf_t *omcf);

/* Over all processes that live. */
size_t ngx_http_once_memory_of(ngx_http_once_table_t *table);

/* Over all processes that live. Never negative. */
ngx_uint_t ngx_http_once_in_flight_of(ngx_http_once_table_t *table,
    ngx_uint_t index);

/* Give the end of what they wrote; what does not fit is left out. */
u_char *ngx_http_once_print_text(u_char *p, u_char *last,
    ngx_http_once_main_conf_t *omcf, ngx_http_once_table_t *table);
u_char *ngx_http_once_print_json(u_char *p, u_char *last,
    ngx_http_once_main_conf_t *omcf, ngx_http_once_table_t *table);


#endif
