/*
 * once_status: the counters as Prometheus text, or as JSON if the client
 * accepts it. It shows neither keys nor scopes.
 */
#include "ngx_http_once_metrics.h"
#include "ngx_http_once_request.h"


/* What a route takes at most in either format, with the longest numbers. */
#define NGX_HTTP_ONCE_ROUTE_TEXT  24576
#define NGX_HTTP_ONCE_STORE_TEXT  2048     /* beside its name */


typedef struct {
    ngx_http_once_counter_e   counter;
    const char               *label;      /* NULL: a metric of its own */
    const char               *json;
} ngx_http_once_shown_t;


typedef struct {
    const char                   *name;
    const char                   *help;
    const char                   *label;      /* a second one; NULL: none */
    const ngx_http_once_shown_t  *shown;
} ngx_http_once_family_t;


static const ngx_http_once_shown_t  ngx_http_once_requests[] = {
    { NGX_HTTP_ONCE_C_RUN, "run", "run" },
    { NGX_HTTP_ONCE_C_REPLAY, "replay", "replay" },
    { NGX_HTTP_ONCE_C_BUSY, "busy", "busy" },
    { NGX_HTTP_ONCE_C_MISMATCH, "mismatch", "mismatch" },
    { NGX_HTTP_ONCE_C_MISSING, "missing", "missing" },
    { NGX_HTTP_ONCE_C_INVALID, "invalid", "invalid" },
    { NGX_HTTP_ONCE_C_UNKNOWN, "unknown", "unknown" },
    { NGX_HTTP_ONCE_C_ERROR, "error", "error" },
    { NGX_HTTP_ONCE_C_PASS, "pass", "pass" },
    { NGX_HTTP_ONCE_C_DENIED, "denied", "denied" },
    { NGX_HTTP_ONCE_C_REFUSED, "refused", "refused" },
    { NGX_HTTP_ONCE_COUNTERS, NULL, NULL }
};


static const ngx_http_once_shown_t  ngx_http_once_claims[] = {
    { NGX_HTTP_ONCE_C_COMPLETED, "completed", "completed" },
    { NGX_HTTP_ONCE_C_RELEASED, "released", "released" },
    { NGX_HTTP_ONCE_C_DOUBTED, "doubted", "doubted" },
    { NGX_HTTP_ONCE_C_LOST, "lost", "lost" },
    { NGX_HTTP_ONCE_COUNTERS, NULL, NULL }
};


static const ngx_http_once_shown_t  ngx_http_once_waited[] = {
    { NGX_HTTP_ONCE_C_WAITED, NULL, "waited" },
    { NGX_HTTP_ONCE_COUNTERS, NULL, NULL }
};


static const ngx_http_once_shown_t  ngx_http_once_store_errors[] = {
    { NGX_HTTP_ONCE_C_STORE_ERROR, NULL, "store_errors" },
    { NGX_HTTP_ONCE_COUNTERS, NULL, NULL }
};


static const ngx_http_once_shown_t  ngx_http_once_omitted[] = {
    { NGX_HTTP_ONCE_C_OMITTED, NULL, "bodies_omitted" },
    { NGX_HTTP_ONCE_COUNTERS, NULL, NULL }
};


static const ngx_http_once_shown_t  ngx_http_once_no_room[] = {
    { NGX_HTTP_ONCE_C_NO_ROOM, NULL, "memory_omitted" },
    { NGX_HTTP_ONCE_COUNTERS, NULL, NULL }
};


static const ngx_http_once_shown_t  ngx_http_once_refusals[] = {
    { NGX_HTTP_ONCE_C_NO_MEMORY, "memory", "refused_memory" },
    { NGX_HTTP_ONCE_C_NO_FILE, "bodies", "refused_bodies" },
    { NGX_HTTP_ONCE_C_OVER_QUOTA, "quota", "refused_quota" },
    { NGX_HTTP_ONCE_C_MANY_UNKNOWN, "unknown", "refused_unknown" },
    { NGX_HTTP_ONCE_C_FULL, "full", "refused_full" },
    { NGX_HTTP_ONCE_COUNTERS, NULL, NULL }
};


static const ngx_http_once_shown_t  ngx_http_once_probed[] = {
    { NGX_HTTP_ONCE_C_PROBED, NULL, "probes" },
    { NGX_HTTP_ONCE_COUNTERS, NULL, NULL }
};


static const ngx_http_once_shown_t  ngx_http_once_apart[] = {
    { NGX_HTTP_ONCE_C_APART, NULL, "without_complete" },
    { NGX_HTTP_ONCE_COUNTERS, NULL, NULL }
};


static const ngx_http_once_family_t  ngx_http_once_families[] = {
    { "once_requests_total", "Guarded requests by outcome.", "outcome",
      ngx_http_once_requests },
    { "once_claims_total", "Claims by how they ended.", "end",
      ngx_http_once_claims },
    { "once_waited_total", "Requests that waited for one with the same key.",
      NULL, ngx_http_once_waited },
    { "once_store_errors_total", "Requests that the store did not answer.",
      NULL, ngx_http_once_store_errors },
    { "once_bodies_omitted_total", "Responses recorded without their body.",
      NULL, ngx_http_once_omitted },
    { "once_memory_omitted_total", "Responses recorded without their body "
      "because once_memory was used up.", NULL, ngx_http_once_no_room },
    { "once_refused_total", "Requests refused by a limit of the gateway.",
      "reason", ngx_http_once_refusals },
    { "once_probes_total", "Probes sent to backends.", NULL,
      ngx_http_once_probed },
    { "once_without_complete_total", "Responses recorded by the gateway where "
      "once_recover is transactional: the backend had not called "
      "once.complete().", NULL, ngx_http_once_apart },
    { NULL, NULL, NULL, NULL }
};


static const struct {
    const char  *name;
    const char  *help;
    const char  *json;
} ngx_http_once_latencies[NGX_HTTP_ONCE_HISTOGRAMS] = {
    { "once_claim_seconds", "Time until the store answered a claim.",
      "claim_seconds" },
    { "once_complete_seconds", "Time until the store had recorded a response.",
      "complete_seconds" }
};


/* Escapes as both formats require it; control bytes are dropped. */

static u_char *
ngx_http_once_print_escaped(u_char *p, u_char *last, u_char *name, size_t len)
{
    u_char  c;
    size_t  i;

    for (i = 0; i < len && p < last; i++) {
        c = name[i];

        if (c < 0x20 || c == 0x7f) {
            continue;
        }

        p = ngx_slprintf(p, last, (c == '"' || c == '\\') ? "\\%c" : "%c", c);
    }

    return p;
}


static u_char *
ngx_http_once_print_name(u_char *p, u_char *last, ngx_http_once_slot_t *slot)
{
    return ngx_http_once_print_escaped(p, last, slot->name, slot->len);
}


static u_char *
ngx_http_once_print_head(u_char *p, u_char *last, const char *name,
    const char *help, const char *type)
{
    return ngx_slprintf(p, last, "# HELP %s %s\n# TYPE %s %s\n", name, help,
                        name, type);
}


static u_char *
ngx_http_once_print_family(u_char *p, u_char *last,
    ngx_http_once_table_t *table, const ngx_http_once_family_t *family)
{
    ngx_uint_t                    i;
    ngx_http_once_slot_t         *slot;
    const ngx_http_once_shown_t  *shown;

    p = ngx_http_once_print_head(p, last, family->name, family->help,
                                 "counter");

    for (i = 0; i < table->used; i++) {
        slot = &table->slot[i];

        for (shown = family->shown; shown->json; shown++) {
            p = ngx_slprintf(p, last, "%s{route=\"", family->name);
            p = ngx_http_once_print_name(p, last, slot);

            if (family->label) {
                p = ngx_slprintf(p, last, "\",%s=\"%s", family->label,
                                 shown->label);
            }

            p = ngx_slprintf(p, last, "\"} %uA\n",
                             slot->counter[shown->counter]);
        }
    }

    return p;
}


static u_char *
ngx_http_once_print_seconds(u_char *p, u_char *last, ngx_uint_t usec)
{
    p = ngx_slprintf(p, last, "%ui.%06ui", usec / 1000000, usec % 1000000);

    while (p[-1] == '0') {
        p--;
    }

    return p[-1] == '.' ? p - 1 : p;
}


static u_char *
ngx_http_once_print_histogram(u_char *p, u_char *last,
    ngx_http_once_table_t *table, ngx_uint_t which)
{
    ngx_uint_t                  i, n, count;
    const char                 *name;
    ngx_http_once_histogram_t  *h;

    name = ngx_http_once_latencies[which].name;

    p = ngx_http_once_print_head(p, last, name,
                                 ngx_http_once_latencies[which].help,
                                 "histogram");

    for (i = 0; i < table->used; i++) {
        h = &table->slot[i].histogram[which];
        count = 0;

        for (n = 0; n <= NGX_HTTP_ONCE_BUCKETS; n++) {
            count += h->bucket[n];

            p = ngx_slprintf(p, last, "%s_bucket{route=\"", name);
            p = ngx_http_once_print_name(p, last, &table->slot[i]);
            p = ngx_slprintf(p, last, "\",le=\"");

            if (n < NGX_HTTP_ONCE_BUCKETS) {
                p = ngx_http_once_print_seconds(p, last,
                                                ngx_http_once_bucket_usec[n]);
            } else {
                p = ngx_slprintf(p, last, "+Inf");
            }

            p = ngx_slprintf(p, last, "\"} %ui\n", count);
        }

        p = ngx_slprintf(p, last, "%s_sum{route=\"", name);
        p = ngx_http_once_print_name(p, last, &table->slot[i]);
        p = ngx_slprintf(p, last, "\"} ");
        p = ngx_http_once_print_seconds(p, last, h->sum_usec);
        p = ngx_slprintf(p, last, "\n%s_count{route=\"", name);
        p = ngx_http_once_print_name(p, last, &table->slot[i]);
        p = ngx_slprintf(p, last, "\"} %ui\n", count);
    }

    return p;
}


/* Of the routes that count them. */

static u_char *
ngx_http_once_print_unknown(u_char *p, u_char *last,
    ngx_http_once_main_conf_t *omcf, ngx_http_once_table_t *table)
{
    ngx_uint_t  i, max, count;

    if (omcf->unknown == NULL) {
        return p;
    }

    p = ngx_http_once_print_head(p, last, "once_unknown_records",
                                 "Unknown records that the gateway knows of.",
                                 "gauge");

    for (i = 0; i < table->used; i++) {
        count = ngx_http_once_admit_unknown_count(omcf, i, &max);

        if (max) {
            p = ngx_slprintf(p, last, "once_unknown_records{route=\"");
            p = ngx_http_once_print_name(p, last, &table->slot[i]);
            p = ngx_slprintf(p, last, "\"} %ui\n", count);
        }
    }

    return p;
}


typedef enum {
    NGX_HTTP_ONCE_USAGE = 0,     /* of this worker's handle */
    NGX_HTTP_ONCE_SIZE,          /* likewise, or as it was counted */
    NGX_HTTP_ONCE_COUNTED,       /* by the worker that watches the stores */
    NGX_HTTP_ONCE_DISK,          /* likewise, of a local store */
    NGX_HTTP_ONCE_ANSWERS        /* whether the store does */
} ngx_http_once_source_e;


#define ngx_http_once_usage(field)    offsetof(once_usage_t, field)
#define ngx_http_once_counted(field)  offsetof(ngx_http_once_seen_t, field)


static const struct {
    const char              *name;
    const char              *help;
    ngx_http_once_source_e   source;
    size_t                   usage;
    size_t                   seen;
    ngx_uint_t               msec;     /* shown in seconds */
} ngx_http_once_gauges[] = {
    { "up", "1 if the store answers.", NGX_HTTP_ONCE_ANSWERS, 0, 0, 0 },
    { "records", "Records of the store.", NGX_HTTP_ONCE_SIZE,
      ngx_http_once_usage(records), ngx_http_once_counted(records), 0 },
    { "max_records", "Records at which it refuses new keys; 0: any number.",
      NGX_HTTP_ONCE_SIZE, ngx_http_once_usage(max_records), 0, 0 },
    { "bytes", "What they take.", NGX_HTTP_ONCE_SIZE,
      ngx_http_once_usage(bytes), ngx_http_once_counted(bytes), 0 },
    { "max_bytes", "Bytes at which it refuses new keys; 0: any number.",
      NGX_HTTP_ONCE_SIZE, ngx_http_once_usage(max_bytes), 0, 0 },
    { "stuck_records", "Records that are unknown, or pending without a lease.",
      NGX_HTTP_ONCE_COUNTED, 0, ngx_http_once_counted(stuck), 0 },
    { "unknown_records", "Records whose outcome is unknown.",
      NGX_HTTP_ONCE_COUNTED, 0, ngx_http_once_counted(unknown), 0 },
    { "oldest_seconds", "Age of the oldest record.", NGX_HTTP_ONCE_COUNTED, 0,
      ngx_http_once_counted(oldest_ms), 1 },
    { "expired_records", "Expired records that are not removed yet.",
      NGX_HTTP_ONCE_COUNTED, 0, ngx_http_once_counted(expired), 0 },
    { "damaged_records", "Records that cannot be read.",
      NGX_HTTP_ONCE_COUNTED, 0, ngx_http_once_counted(damaged), 0 },
    { "quarantined_ranges", "Damaged ranges that were set aside.",
      NGX_HTTP_ONCE_COUNTED, 0, ngx_http_once_counted(quarantined), 0 },
    { "counted_timestamp_seconds", "When the records were last counted.",
      NGX_HTTP_ONCE_COUNTED, 0, ngx_http_once_counted(counted), 0 },
    { "disk_bytes", "Size of the disk of a local store.",
      NGX_HTTP_ONCE_DISK, 0, ngx_http_once_counted(disk_bytes), 0 },
    { "disk_free_bytes", "What is free of it.",
      NGX_HTTP_ONCE_DISK, 0, ngx_http_once_counted(disk_free), 0 },
    { "behind_seconds", "How late expired records are removed.",
      NGX_HTTP_ONCE_USAGE, ngx_http_once_usage(behind_ms), 0, 1 },
    { "messages_behind_seconds", "How late old messages are removed.",
      NGX_HTTP_ONCE_USAGE, ngx_http_once_usage(messages_behind_ms), 0, 1 }
};


#define NGX_HTTP_ONCE_GAUGES                                                  \
    (sizeof(ngx_http_once_gauges) / sizeof(ngx_http_once_gauges[0]))


/*
 * The next store, from i on; NULL: no more. A store that is opened several
 * times has one name and is shown once.
 */

static ngx_http_once_store_t *
ngx_http_once_next_store(ngx_http_once_main_conf_t *omcf, ngx_uint_t *i)
{
    ngx_uint_t               n;
    ngx_http_once_store_t  **stores;

    stores = omcf->stores.elts;

    for ( /* void */ ; *i < omcf->stores.nelts; (*i)++) {

        for (n = 0; n < *i; n++) {
            if (stores[n]->name.len == stores[*i]->name.len
                && ngx_memcmp(stores[n]->name.data, stores[*i]->name.data,
                              stores[n]->name.len) == 0)
            {
                break;
            }
        }

        if (n == *i) {
            (*i)++;
            return stores[n];
        }
    }

    return NULL;
}


/* The size as this worker's handle knows it. NGX_DECLINED: it does not. */

static ngx_int_t
ngx_http_once_read_size(ngx_http_once_store_t *store, ngx_uint_t n,
    uint64_t *value)
{
    once_usage_t  usage = ONCE_USAGE_INIT;

    if (store->once == NULL
        || once_store_usage(store->once, &usage) != ONCE_OK
        || (ngx_http_once_gauges[n].source == NGX_HTTP_ONCE_SIZE
            && usage.bytes == 0 && usage.max_records == 0
            && usage.max_bytes == 0))
    {
        return NGX_DECLINED;
    }

    *value = *(uint64_t *) ((u_char *) &usage + ngx_http_once_gauges[n].usage);

    return NGX_OK;
}


static ngx_int_t
ngx_http_once_read_seen(ngx_http_once_store_t *store, ngx_uint_t n,
    uint64_t *value)
{
    ngx_http_once_seen_t  *seen;

    seen = store->seen;

    if (seen == NULL || seen->counted == 0) {
        return NGX_DECLINED;
    }

    if (ngx_http_once_gauges[n].source == NGX_HTTP_ONCE_DISK
        && seen->disk_bytes == 0)
    {
        return NGX_DECLINED;
    }

    /* no bound, if this worker knows of none */

    *value = ngx_http_once_gauges[n].seen
             ? *(uint64_t *) ((u_char *) seen + ngx_http_once_gauges[n].seen)
             : 0;

    return NGX_OK;
}


static ngx_int_t
ngx_http_once_read_gauge(ngx_http_once_store_t *store, ngx_uint_t n,
    uint64_t *value)
{
    switch (ngx_http_once_gauges[n].source) {

    case NGX_HTTP_ONCE_ANSWERS:

        if (store->seen == NULL || store->seen->up == NGX_HTTP_ONCE_NOT_ASKED)
        {
            return NGX_DECLINED;
        }

        *value = store->seen->up == NGX_HTTP_ONCE_UP;

        return NGX_OK;

    case NGX_HTTP_ONCE_USAGE:
        return ngx_http_once_read_size(store, n, value);

    case NGX_HTTP_ONCE_SIZE:

        if (ngx_http_once_read_size(store, n, value) == NGX_OK) {
            return NGX_OK;
        }

        /* fall through */

    default:
        return ngx_http_once_read_seen(store, n, value);
    }
}


static u_char *
ngx_http_once_print_gauge(u_char *p, u_char *last, ngx_uint_t n,
    uint64_t value)
{
    if (ngx_http_once_gauges[n].msec) {
        return ngx_slprintf(p, last, "%uL.%03uL", value / 1000, value % 1000);
    }

    return ngx_slprintf(p, last, "%uL", value);
}


static u_char *
ngx_http_once_print_stores(u_char *p, u_char *last,
    ngx_http_once_main_conf_t *omcf)
{
    char                    name[sizeof("once_store_") + 32];
    uint64_t                value;
    ngx_uint_t              i, n;
    ngx_http_once_store_t  *store;

    for (n = 0; n < NGX_HTTP_ONCE_GAUGES; n++) {
        *ngx_snprintf((u_char *) name, sizeof(name) - 1, "once_store_%s",
                      ngx_http_once_gauges[n].name) = '\0';

        p = ngx_http_once_print_head(p, last, name,
                                     ngx_http_once_gauges[n].help, "gauge");
        i = 0;

        while ((store = ngx_http_once_next_store(omcf, &i)) != NULL) {
            if (ngx_http_once_read_gauge(store, n, &value) != NGX_OK) {
                continue;
            }

            p = ngx_slprintf(p, last, "%s{store=\"", name);
            p = ngx_http_once_print_escaped(p, last, store->name.data,
                                            store->name.len);
            p = ngx_slprintf(p, last, "\"} ");
            p = ngx_http_once_print_gauge(p, last, n, value);
            p = ngx_slprintf(p, last, "\n");
        }
    }

    return p;
}


static u_char *
ngx_http_once_print_json_stores(u_char *p, u_char *last,
    ngx_http_once_main_conf_t *omcf)
{
    uint64_t                value;
    ngx_uint_t              i, n, first;
    ngx_http_once_store_t  *store;

    p = ngx_slprintf(p, last, "\"stores\":[");
    first = 1;
    i = 0;

    while ((store = ngx_http_once_next_store(omcf, &i)) != NULL) {
        p = ngx_slprintf(p, last, "%s{\"store\":\"", first ? "" : ",");
        p = ngx_http_once_print_escaped(p, last, store->name.data,
                                        store->name.len);
        p = ngx_slprintf(p, last, "\"");
        first = 0;

        for (n = 0; n < NGX_HTTP_ONCE_GAUGES; n++) {
            if (ngx_http_once_read_gauge(store, n, &value) == NGX_OK) {
                p = ngx_slprintf(p, last, ",\"%s\":",
                                 ngx_http_once_gauges[n].name);
                p = ngx_http_once_print_gauge(p, last, n, value);
            }
        }

        p = ngx_slprintf(p, last, "}");
    }

    return ngx_slprintf(p, last, "],");
}


/* Kinds of stores that this build has. */

static u_char *
ngx_http_once_print_built_in(u_char *p, u_char *last)
{
    ngx_uint_t                i, count;
    static const char *const  kinds[] = { "memory", "local", "postgres",
                                          "redis" };

    count = 0;

    for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (once_store_is_built_in(kinds[i])) {
            p = ngx_slprintf(p, last, "%s%s", count++ ? "," : "", kinds[i]);
        }
    }

    return p;
}


static u_char *
ngx_http_once_print_text(u_char *p, u_char *last,
    ngx_http_once_main_conf_t *omcf, ngx_http_once_table_t *table)
{
    ngx_uint_t                     i;
    const ngx_http_once_family_t  *family;

    for (family = ngx_http_once_families; family->name; family++) {
        p = ngx_http_once_print_family(p, last, table, family);
    }

    p = ngx_http_once_print_head(p, last, "once_build_info",
                                 "Versions of the gateway.", "gauge");
    p = ngx_slprintf(p, last, "once_build_info{program=\"gate\","
                     "version=\"%s\",nginx=\"%s\",stores=\"",
                     once_version(), NGINX_VERSION);
    p = ngx_http_once_print_built_in(p, last);
    p = ngx_slprintf(p, last, "\"} 1\n");

    p = ngx_http_once_print_head(p, last, "once_in_flight",
                                 "Operations that are running.", "gauge");

    for (i = 0; i < table->used; i++) {
        p = ngx_slprintf(p, last, "once_in_flight{route=\"");
        p = ngx_http_once_print_name(p, last, &table->slot[i]);
        p = ngx_slprintf(p, last, "\"} %ui\n",
                         ngx_http_once_metrics_in_flight_sum(table, i));
    }

    p = ngx_http_once_print_unknown(p, last, omcf, table);
    p = ngx_http_once_print_stores(p, last, omcf);

    p = ngx_http_once_print_head(p, last, "once_memory_bytes",
                                 "Bodies that workers keep for clients.",
                                 "gauge");
    p = ngx_slprintf(p, last, "once_memory_bytes %uz\n",
                     ngx_http_once_metrics_memory_sum(table));

    for (i = 0; i < NGX_HTTP_ONCE_HISTOGRAMS; i++) {
        p = ngx_http_once_print_histogram(p, last, table, i);
    }

    return p;
}


static u_char *
ngx_http_once_print_json_histogram(u_char *p, u_char *last,
    ngx_http_once_histogram_t *h, const char *name)
{
    ngx_uint_t  n, count;

    count = 0;
    p = ngx_slprintf(p, last, ",\"%s\":{\"buckets\":[", name);

    for (n = 0; n < NGX_HTTP_ONCE_BUCKETS; n++) {
        count += h->bucket[n];

        p = ngx_slprintf(p, last, "%s{\"le\":", n ? "," : "");
        p = ngx_http_once_print_seconds(p, last, ngx_http_once_bucket_usec[n]);
        p = ngx_slprintf(p, last, ",\"count\":%ui}", count);
    }

    p = ngx_slprintf(p, last, "],\"sum\":");
    p = ngx_http_once_print_seconds(p, last, h->sum_usec);

    return ngx_slprintf(p, last, ",\"count\":%ui}",
                        count + h->bucket[NGX_HTTP_ONCE_BUCKETS]);
}


static u_char *
ngx_http_once_print_json(u_char *p, u_char *last,
    ngx_http_once_main_conf_t *omcf, ngx_http_once_table_t *table)
{
    ngx_uint_t                     i, n, max;
    ngx_http_once_slot_t          *slot;
    const ngx_http_once_shown_t   *shown;
    const ngx_http_once_family_t  *family;

    p = ngx_slprintf(p, last, "{\"version\":\"%s\",\"memory_bytes\":%uz,",
                     once_version(), ngx_http_once_metrics_memory_sum(table));
    p = ngx_http_once_print_json_stores(p, last, omcf);
    p = ngx_slprintf(p, last, "\"routes\":[");

    for (i = 0; i < table->used; i++) {
        slot = &table->slot[i];

        p = ngx_slprintf(p, last, "%s{\"route\":\"", i ? "," : "");
        p = ngx_http_once_print_name(p, last, slot);
        p = ngx_slprintf(p, last, "\"");

        for (family = ngx_http_once_families; family->name; family++) {
            for (shown = family->shown; shown->json; shown++) {
                p = ngx_slprintf(p, last, ",\"%s\":%uA", shown->json,
                                 slot->counter[shown->counter]);
            }
        }

        p = ngx_slprintf(p, last, ",\"in_flight\":%ui,"
                         "\"unknown_records\":%ui",
                         ngx_http_once_metrics_in_flight_sum(table, i),
                         ngx_http_once_admit_unknown_count(omcf, i, &max));

        for (n = 0; n < NGX_HTTP_ONCE_HISTOGRAMS; n++) {
            p = ngx_http_once_print_json_histogram(p, last,
                                         &slot->histogram[n],
                                         ngx_http_once_latencies[n].json);
        }

        p = ngx_slprintf(p, last, "}");
    }

    return ngx_slprintf(p, last, "]}\n");
}


/* ------------------------------------------------------------- the handler */

static ngx_uint_t
ngx_http_once_wants_json(ngx_http_request_t *r)
{
    ngx_table_elt_t       *h;
    ngx_http_once_walk_t   walk;

    walk.part = &r->headers_in.headers.part;
    walk.i = 0;

    while ((h = ngx_http_once_headers_next(&walk)) != NULL) {

        if (ngx_http_once_headers_named(h, "accept", 6)
            && ngx_strlcasestrn(h->value.data, h->value.data + h->value.len,
                                (u_char *) "application/json",
                                sizeof("application/json") - 2))
        {
            return 1;
        }
    }

    return 0;
}


ngx_int_t
ngx_http_once_status_handler(ngx_http_request_t *r)
{
    size_t                       size;
    ngx_int_t                    rc;
    ngx_buf_t                   *b;
    ngx_uint_t                   i, json;
    ngx_http_once_table_t       *table;
    ngx_http_once_store_t      **stores;
    ngx_http_once_main_conf_t   *omcf;

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return NGX_HTTP_NOT_ALLOWED;
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    omcf = ngx_http_get_module_main_conf(r, ngx_http_once_module);
    table = ngx_http_once_metrics_table(omcf);

    if (table == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    json = ngx_http_once_wants_json(r);
    size = 8192 + table->used * NGX_HTTP_ONCE_ROUTE_TEXT
           + omcf->stores.nelts * NGX_HTTP_ONCE_STORE_TEXT;

    stores = omcf->stores.elts;

    for (i = 0; i < omcf->stores.nelts; i++) {
        size += 2 * NGX_HTTP_ONCE_GAUGES * stores[i]->name.len;
    }

    b = ngx_create_temp_buf(r->pool, size);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->last = json ? ngx_http_once_print_json(b->last, b->end, omcf, table)
                   : ngx_http_once_print_text(b->last, b->end, omcf, table);

    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = b->last - b->pos;

    if (json) {
        ngx_str_set(&r->headers_out.content_type, "application/json");
    } else {
        ngx_str_set(&r->headers_out.content_type,
                    "text/plain; version=0.0.4; charset=utf-8");
    }

    r->headers_out.content_type_len = r->headers_out.content_type.len;

    return ngx_http_once_send(r, b);
}


char *
ngx_http_once_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_core_loc_conf_t   *clcf;
    ngx_http_once_main_conf_t  *omcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->handler = ngx_http_once_status_handler;

    omcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_once_module);
    omcf->status = 1;
    omcf->watch = 1;

    return NGX_CONF_OK;
}
